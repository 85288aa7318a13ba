"""Check of one claim against one table: selection of the table and its rows, and the combined verdict of the groups of rows."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from venturi.analysis.claims.claim_context import ClaimContext
from venturi.analysis.claims.rows import Rows, Scales, of_published, of_section, published_columns
from venturi.analysis.claims.table_checks import (
    TABLE_CHECKS,
    CheckResult,
    TableCheck,
    columns_of,
    missing_keys,
    values_of,
)
from venturi.analysis.format import format_factor_name
from venturi.analysis.quantity import format_quantity
from venturi.analysis.result import TableVerdict
from venturi.analysis.section import ReportSection, Scalar, Table
from venturi.study import PublishedTable

__all__ = ["check_against_report", "check_against_run"]

RUN_WITHIN = 0.05
"""Relative change of a step of a run in the wrong direction that a claim without ``within`` accepts.

Measurements scatter, but printed figures do not.
"""
MAX_NAMED = 4
"""Maximum number of contradicting groups that the evidence names."""


def check_against_run(claim: Mapping[str, Any], claim_context: ClaimContext) -> TableVerdict:
    """Return the verdict of the run's section tables on a claim. Keys of ``ours`` override the keys of the claim."""
    outcomes = {**claim, **claim.get("ours", {})}
    if "untested" in outcomes:
        return TableVerdict("not tested", str(outcomes["untested"]))
    name = str(outcomes.get("table", ""))
    table = _section_table(claim_context.sections, name)
    if table is None:
        return TableVerdict("not tested", f"this run has no table {name!r}")
    scaled = bool(outcomes.get("scaled", True))
    scales = Scales(claim_context.scale, claim_context.rates_scale) if scaled else Scales()
    if outcomes.get("check") in ("increasing", "decreasing"):
        outcomes.setdefault("within", RUN_WITHIN)
    return _check_rows(of_section(table, scales), outcomes)


def check_against_report(
    claim: Mapping[str, Any], tables: Sequence[PublishedTable], sections: Sequence[ReportSection] = ()
) -> TableVerdict | None:
    """Return the verdict of the report's own table on a claim. Keys of ``published`` override the keys of the claim.

    The table is the published table of that id or name, otherwise the published columns of the section table of that
    name. None if the report has no table for the claim.
    """
    outcomes = {**claim, **claim.get("published", {})}
    name = str(outcomes.get("table", ""))
    table = next((table for table in tables if name and name in (table.id, table.name)), None)
    if table is not None:
        return _check_rows(of_published(table), outcomes)
    ours = _section_table(sections, name)
    if ours is None or not any(column.published for column in ours.columns):
        return None
    if not set(values_of(outcomes)) <= published_columns(ours):
        return None
    return _check_rows(of_section(ours, Scales(), published=True), outcomes)


def _section_table(sections: Sequence[ReportSection], name: str) -> Table | None:
    return next((table for section in sections for table in section.tables if table.name == name), None)


def _check_rows(rows: Rows, claim: Mapping[str, Any]) -> TableVerdict:
    check = TABLE_CHECKS.get(str(claim.get("check")))
    if check is None:
        return TableVerdict("not tested", f"this version has no check {claim.get('check')!r} for tables")
    if missing_keys(claim):
        return TableVerdict("not tested", f"the claim lacks {', '.join(missing_keys(claim))}")
    missing = rows.missing(columns_of(claim))
    if missing:
        return TableVerdict("not tested", f"table {rows.table} has no column {', '.join(missing)}")
    kept = rows.where(claim.get("where", {}))
    if not kept.rows:
        return TableVerdict("not tested", f"table {rows.table} has no row that the claim selects")
    names = [str(name) for name in claim.get("by", ())]
    found = {key: _outcome(check, group, claim) for key, group in kept.by(names).items()}
    outcomes = {key: outcome for key, outcome in found.items() if outcome is not None}
    tied = [outcome.figure for outcome in outcomes.values() if outcome.holds is None]
    outcomes = {key: outcome for key, outcome in outcomes.items() if outcome.holds is not None}
    if not outcomes:
        return TableVerdict(
            "not tested", tied[0] if tied else f"table {rows.table} has too few measured values for the claim"
        )
    agreeing = sum(bool(outcome.holds) for outcome in outcomes.values())
    enough = agreeing >= float(claim.get("share", 1.0)) * len(outcomes)
    unmeasured = len(found) - len(outcomes) - len(tied)
    text = _evidence(outcomes, agreeing, names) + (f"; {unmeasured} more not measured" if unmeasured else "")
    text += f"; {len(tied)} more tied" if tied else ""
    return TableVerdict("agrees" if enough else "disagrees", text)


def _outcome(check: TableCheck, rows: Rows, claim: Mapping[str, Any]) -> CheckResult | None:
    try:
        return check(rows, claim)
    except statistics.StatisticsError:  # the deviation of one value
        return None


def _evidence(outcomes: Mapping[tuple[Scalar, ...], CheckResult], agreeing: int, names: Sequence[str]) -> str:
    if len(outcomes) == 1:
        return next(iter(outcomes.values())).figure
    text = f"{agreeing} of {len(outcomes)} agree"
    sizes = [outcome.size for outcome in outcomes.values() if outcome.size is not None]
    if sizes:
        text += f"; ratios from {min(sizes):.4g} to {max(sizes):.4g}"
    against = [(key, outcome) for key, outcome in outcomes.items() if not outcome.holds]
    if against:
        shown = "; ".join(f"{_group(names, key)}: {outcome.figure}" for key, outcome in against[:MAX_NAMED])
        text += f"; contradicted by: {shown}{' …' if len(against) > MAX_NAMED else ''}"
    return text


def _group(names: Sequence[str], key: Sequence[Scalar]) -> str:
    """Return the cells that identify a group, numbers with the name of their column: ``to ANL, processes 28``."""
    cells = zip(names, key, strict=True)
    return ", ".join(
        v if isinstance(v, str) else f"{format_factor_name(n)} {format_quantity(n, v)}" for n, v in cells
    )
