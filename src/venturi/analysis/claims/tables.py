"""One claim held against one table: which table, which rows, and what the groups of rows say together."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from venturi.analysis.chapter import Chapter, Scalar, Table
from venturi.analysis.claims.facts import Facts
from venturi.analysis.claims.rows import Rows, Scales, of_chapter, of_published, published_columns
from venturi.analysis.claims.table_checks import TABLE_CHECKS, Outcome, TableCheck, columns_of, lacking, values_of
from venturi.analysis.quantity import quantity_text
from venturi.analysis.result import Held
from venturi.analysis.words import factor_name
from venturi.study import PublishedTable

__all__ = ["held_against_ours", "held_against_published"]

OURS_WITHIN = 0.05
"""Share by which a step of ours may go the wrong way where a claim has no ``within``: ours scatter, printed figures do not."""
MOST_NAMED = 4
"""Groups against a claim that are named."""


def held_against_ours(claim: Mapping[str, Any], facts: Facts) -> Held:
    """Return what the tables of the chapters of a run say of a claim, keys of ``ours`` before those of the claim."""
    told = {**claim, **claim.get("ours", {})}
    if "untested" in told:
        return Held("not tested", str(told["untested"]))
    name = str(told.get("table", ""))
    table = _chapter_table(facts.chapters, name)
    if table is None:
        return Held("not tested", f"this run has no table {name!r} of its own")
    scaled = bool(told.get("scaled", True))
    scales = Scales(facts.scale, facts.rates_scale) if scaled else Scales()
    if told.get("check") in ("increasing", "decreasing"):
        told.setdefault("within", OURS_WITHIN)
    return _held(of_chapter(table, scales), told)


def held_against_published(
    claim: Mapping[str, Any], tables: Sequence[PublishedTable], chapters: Sequence[Chapter] = ()
) -> Held | None:
    """Return what the report's own table says of a claim, keys of ``published`` before those of the claim.

    The table is the published one of that id, or else the published columns of a chapter's table of that name; None if the report has
    no table for it.
    """
    told = {**claim, **claim.get("published", {})}
    name = str(told.get("table", ""))
    table = next((table for table in tables if name and name in (table.id, table.name)), None)
    if table is not None:
        return _held(of_published(table), told)
    ours = _chapter_table(chapters, name)
    if ours is None or not any(column.published for column in ours.columns):
        return None
    if not set(values_of(told)) <= published_columns(ours):
        return None
    return _held(of_chapter(ours, Scales(), published=True), told)


def _chapter_table(chapters: Sequence[Chapter], name: str) -> Table | None:
    return next((table for chapter in chapters for table in chapter.tables if table.name == name), None)


def _held(rows: Rows, claim: Mapping[str, Any]) -> Held:
    check = TABLE_CHECKS.get(str(claim.get("check")))
    if check is None:
        return Held("not tested", f"this version has no check {claim.get('check')!r} of a table")
    if lacking(claim):
        return Held("not tested", f"the claim lacks {', '.join(lacking(claim))}")
    missing = rows.missing(columns_of(claim))
    if missing:
        return Held("not tested", f"table {rows.table} has no column {', '.join(missing)}")
    kept = rows.where(claim.get("where", {}))
    if not kept.rows:
        return Held("not tested", f"table {rows.table} has no row that the claim speaks of")
    names = [str(name) for name in claim.get("by", ())]
    found = {key: _outcome(check, group, claim) for key, group in kept.by(names).items()}
    told = {key: outcome for key, outcome in found.items() if outcome is not None}
    if not told:
        return Held("not tested", f"table {rows.table} has too few measured values for it")
    agreeing = sum(outcome.holds for outcome in told.values())
    enough = agreeing >= float(claim.get("share", 1.0)) * len(told)
    silent = len(found) - len(told)
    text = _evidence(told, agreeing, names) + (f"; {silent} more not measured" if silent else "")
    return Held("agrees" if enough else "disagrees", text)


def _outcome(check: TableCheck, rows: Rows, claim: Mapping[str, Any]) -> Outcome | None:
    try:
        return check(rows, claim)
    except statistics.StatisticsError:  # the deviation of one value
        return None


def _evidence(told: Mapping[tuple[Scalar, ...], Outcome], agreeing: int, names: Sequence[str]) -> str:
    if len(told) == 1:
        return next(iter(told.values())).figure
    text = f"{agreeing} of {len(told)} agree"
    sizes = [outcome.size for outcome in told.values() if outcome.size is not None]
    if sizes:
        text += f"; ratios from {min(sizes):.4g} to {max(sizes):.4g}"
    against = [(key, outcome) for key, outcome in told.items() if not outcome.holds]
    if against:
        shown = "; ".join(f"{_group(names, key)}: {outcome.figure}" for key, outcome in against[:MOST_NAMED])
        text += f"; against it: {shown}{' …' if len(against) > MOST_NAMED else ''}"
    return text


def _group(names: Sequence[str], key: Sequence[Scalar]) -> str:
    """Return the cells that make a group, numbers with the name of their column: ``to ANL, processes 28``."""
    cells = zip(names, key, strict=True)
    return ", ".join(v if isinstance(v, str) else f"{factor_name(n)} {quantity_text(n, v)}" for n, v in cells)
