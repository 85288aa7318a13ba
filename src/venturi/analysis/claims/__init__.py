"""Checks of published statements against the numbers of a run and against the printed tables.

A claim is a row of ``[[published.claims]]``. Without a ``table``, it is checked against the curves of the run
(:mod:`venturi.analysis.claims.curves`). With a ``table``, it is checked against a table of a report section and against the published table of
that name (:mod:`venturi.analysis.claims.tables`). The text of a report can contradict its own table. ``docs/reference/claims.md`` describes
the keys of a row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from venturi.analysis.claims import curves as _curves
from venturi.analysis.claims.claim_context import ClaimContext
from venturi.analysis.claims.conditions import StudyConditions, study_conditions
from venturi.analysis.claims.curves import CHECKS
from venturi.analysis.claims.table_checks import TABLE_CHECKS
from venturi.analysis.claims.tables import check_against_report, check_against_run
from venturi.analysis.result import Claim, FittedCurves

__all__ = [
    "CHECKS",
    "TABLE_CHECKS",
    "ClaimContext",
    "StudyConditions",
    "check_against_report",
    "check_claims",
    "study_conditions",
]


def check_claims(
    claims: Sequence[Mapping[str, Any]],
    curves: Sequence[FittedCurves],
    level: float,
    claim_context: ClaimContext | None = None,
) -> tuple[Claim, ...]:
    """Return each claim with its verdicts from the run and from the published report."""
    known = claim_context or ClaimContext({})
    return tuple(_check_claim(claim, curves, level, known) for claim in claims)


def _check_claim(
    claim: Mapping[str, Any], curves: Sequence[FittedCurves], level: float, claim_context: ClaimContext
) -> Claim:
    if "table" in claim or "ours" in claim:
        ours = check_against_run(claim, claim_context)
        found = Claim(str(claim["id"]), str(claim["text"]), str(claim.get("check")), ours.verdict, ours.evidence)
    else:
        found = _curves.check_curves(claim, curves, level, claim_context)
    missing = claim_context.conditions.missing(claim)
    if missing and found.verdict != "not tested":
        found = replace(found, verdict="not tested", evidence=missing)
    published = check_against_report(claim, claim_context.tables, claim_context.sections)
    return replace(found, published=published, errata=tuple(claim.get("errata", ())))
