"""Groups of workers, shifted by one: total rate of each group and mean rate of its workers (report 003, table 2-1)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from venturi.analysis.batches import JobBatchResult, batches, is_about_jobs
from venturi.analysis.result import About
from venturi.analysis.section import Column, Figure, Panel, ReportSection, Scalar, Series, Table
from venturi.analysis.sections.jobs_curves import published_table
from venturi.run import Run
from venturi.stats import Summary, summarise
from venturi.units import format_bit_rate

__all__ = ["groups_section"]

_ID = "003-iperf"
ROUNDING = 1e-9
"""Relative deviation that counts as rounding, as between equal simulated groups."""


def groups_section(run: Run, about: About) -> ReportSection | None:
    """Return the section about groups of workers, or None if the run has no such groups."""
    if not is_about_jobs(run):
        return None
    found = [
        batch for batch in batches(run) if batch.first_worker is not None and not batch.failed and not batch.split
    ]
    found = [
        batch for batch in found if np.isfinite(batch.job_rate_bit_per_s).all() and len(batch.job_rate_bit_per_s)
    ]
    if not found:
        return None
    rows, published_groups = _rows(found, about), published_table(about, _ID)
    totals = [float(row[4]) for row in rows if isinstance(row[4], float)]
    summary = summarise(totals)
    sentence = f"The mean rate of the {len(rows)} groups is {format_bit_rate(summary.mean)}"
    if summary.std is not None and summary.std > ROUNDING * summary.mean:
        sentence += f" ± {format_bit_rate(summary.std)} (standard deviation, n − 1)"
    printed = (
        [float(row["total_bit_per_s"] or 0) for row in published_groups.rows] if published_groups is not None else []
    )
    if len(printed) > 1:
        published = summarise(printed)
        sentence += f". Published: {format_bit_rate(published.mean)} ± {format_bit_rate(published.std or 0.0)}"
        sentence += f", or {format_bit_rate(published.mean * about.scale)} at this scale" if about.scale != 1 else ""
    return ReportSection(
        "groups",
        "Groups of workers",
        sentence + ".",
        (_table(rows, published_groups is not None),),
        (_figure(rows),),
        headline=_headline(summary, len(rows)),
    )


def _headline(summary: Summary, groups: int) -> str:
    scatter = summary.std is not None and summary.std > ROUNDING * summary.mean
    spread = f" ± {format_bit_rate(summary.std or 0.0)}" if scatter else ""
    return f"{format_bit_rate(summary.mean)}{spread} for a group, mean of {groups} groups"


def _rows(found: Sequence[JobBatchResult], about: About) -> tuple[tuple[Scalar, ...], ...]:
    published_groups = published_table(about, _ID)
    printed = {row["group"]: row for row in published_groups.rows} if published_groups is not None else {}
    rows = []
    for first in sorted({batch.first_worker or 0 for batch in found}):
        own = [batch for batch in found if batch.first_worker == first]
        nodes = own[0].jobs
        total = float(np.mean([batch.job_rate_bit_per_s.sum() for batch in own]))
        published = printed.get(first, {})
        label = str(published.get("label") or f"{first}-{first + nodes - 1}")
        rows.append(
            (first, label, nodes, total / nodes, total, published.get("node_mean_bit_per_s"), published.get("total_bit_per_s"))
        )  # fmt: skip
    return tuple(rows)


def _table(rows: tuple[tuple[Scalar, ...], ...], published: bool) -> Table:
    columns = (
        Column("group", "First node"),
        Column("label", "Nodes as labelled"),
        Column("nodes", "Nodes"),
        Column("node_mean_bit_per_s", "Each in the mean"),
        Column("total_bit_per_s", "Together"),
        Column("node_mean_published_bit_per_s", "Each in the mean", published=True),
        Column("total_published_bit_per_s", "Together", published=True),
    )
    note = "By the clock of the receiver of each test. The report labels a group with the node after its last one (003-E02)."
    return Table(
        _ID if published else "jobs-groups", "Groups of nodes (table 2-1 of report 003)", columns, rows, note
    )


def _figure(rows: tuple[tuple[Scalar, ...], ...]) -> Figure:
    x = tuple(str(row[1]) for row in rows)
    bars = Series(
        "together", x, tuple(float(row[4]) if isinstance(row[4], float) else None for row in rows), style="bars"
    )
    panel = Panel("Groups", "group", "total_bit_per_s", (bars,))
    return Figure(
        "jobs-groups",
        "Total rate by group",
        (panel,),
        "All nodes of a group at the same time.",
        "003, table 2-1",
    )
