"""Groups of workers, shifted by one: what each group moves together and each worker in the mean (report 003, table 2-1)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from venturi.analysis.batches import Batch, batches, is_about_jobs
from venturi.analysis.chapter import Chapter, Column, Figure, Panel, Scalar, Series, Table
from venturi.analysis.chapters.jobs_curves import published_table
from venturi.analysis.result import About
from venturi.analysis.words import bit_rate
from venturi.run import Run
from venturi.stats import summarise

__all__ = ["groups_chapter"]

_ID = "003-iperf"


def groups_chapter(run: Run, about: About) -> Chapter | None:
    """Return the chapter about groups of workers; None if the run has no window of workers."""
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
    rows, told = _rows(found, about), published_table(about, _ID)
    totals = [float(row[4]) for row in rows if isinstance(row[4], float)]
    summary = summarise(totals)
    sentence = f"The {len(rows)} groups moved {bit_rate(summary.mean)} in the mean"
    sentence += f", ± {bit_rate(summary.std)} (deviation of the groups, n − 1)" if summary.std is not None else ""
    printed = [float(row["total_bit_per_s"] or 0) for row in told.rows] if told is not None else []
    if len(printed) > 1:
        beside = summarise(printed)
        sentence += f"; published: {bit_rate(beside.mean)} ± {bit_rate(beside.std or 0.0)}"
        sentence += f", that is {bit_rate(beside.mean * about.scale)} at this scale" if about.scale != 1 else ""
    return Chapter("groups", "Groups of workers", sentence + ".", (_table(rows, told is not None),), (_figure(rows),))


def _rows(found: Sequence[Batch], about: About) -> tuple[tuple[Scalar, ...], ...]:
    told = published_table(about, _ID)
    printed = {row["group"]: row for row in told.rows} if told is not None else {}
    rows = []
    for first in sorted({batch.first_worker or 0 for batch in found}):
        own = [batch for batch in found if batch.first_worker == first]
        nodes = own[0].jobs
        total = float(np.mean([batch.job_rate_bit_per_s.sum() for batch in own]))
        beside = printed.get(first, {})
        label = str(beside.get("label") or f"{first}-{first + nodes - 1}")
        rows.append(
            (first, label, nodes, total / nodes, total, beside.get("node_mean_bit_per_s"), beside.get("total_bit_per_s"))
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
    note = (
        "By the receiver's clock of each test. The report labels a group with the node behind its last one (003-E02)."
    )
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
        "What each group moves together",
        (panel,),
        "All nodes of a group at the same time.",
        "003, table 2-1",
    )
