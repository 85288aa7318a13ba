"""Published statements held against numbers: ours, and those that the report itself printed.

A claim is a row of ``[[published.claims]]``. One without a ``table`` is held against our curves (:mod:`.curves`); one with a
``table`` against a table of a chapter of the run, and against the published table of that name (:mod:`.tables`): a sentence of
a report may well be contradicted by the report's own table. What a row may hold is told in ``docs/reference/claims.md``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from venturi.analysis.claims import curves as _curves
from venturi.analysis.claims.curves import CHECKS
from venturi.analysis.claims.facts import Facts
from venturi.analysis.claims.table_checks import TABLE_CHECKS
from venturi.analysis.claims.tables import held_against_ours, held_against_published
from venturi.analysis.result import Claim, Curve

__all__ = ["CHECKS", "TABLE_CHECKS", "Facts", "held_against_published", "judge_claims"]


def judge_claims(
    claims: Sequence[Mapping[str, Any]], curves: Sequence[Curve], level: float, facts: Facts | None = None
) -> tuple[Claim, ...]:
    """Return each claim with what our numbers and the published ones say of it."""
    known = facts or Facts({})
    return tuple(_judge(claim, curves, level, known) for claim in claims)


def _judge(claim: Mapping[str, Any], curves: Sequence[Curve], level: float, facts: Facts) -> Claim:
    if "table" in claim or "ours" in claim:
        ours = held_against_ours(claim, facts)
        found = Claim(str(claim["id"]), str(claim["text"]), str(claim.get("check")), ours.verdict, ours.evidence)
    else:
        found = _curves.judge(claim, curves, level, facts)
    published = held_against_published(claim, facts.tables, facts.chapters)
    return replace(found, published=published, errata=tuple(claim.get("errata", ())))
