"""The bottleneck of a run: verdict of the whole run and of each design point, with fractions of the time and settings."""

from __future__ import annotations

from collections.abc import Sequence

from venturi.advice import CAUSES, Advice, Verdict
from venturi.analysis.result import FactorValue
from venturi.analysis.section import Column, ReportSection, Scalar, Table

__all__ = ["VERDICT", "verdict_section"]

VERDICT = "verdict"

MAX_POINTS = 300
"""Number of design points, from the first, that get a row of their own."""


def verdict_section(advice: Advice) -> ReportSection | None:
    """Return the section with the verdicts of a run, or None if no transfer succeeded."""
    if not advice.points:
        return None
    tables = [_evidence(advice.run), _fractions(advice.run)]
    if advice.run.settings or advice.run.leave_alone:
        tables.append(_settings(advice.run))
    if len(advice.points) > 1:
        tables.append(_points(advice.points))
    return ReportSection(VERDICT, "Bottleneck", _sentence(advice.run), tuple(table for table in tables if table.rows))


def _sentence(verdict: Verdict) -> str:
    texts = [verdict.sentence]
    if verdict.cause is not None:
        texts.append(f"The confidence is {100 * verdict.confidence:.0f} %.")
    found = verdict.counterfactual
    if found is not None and found.rate_bytes_per_s is not None and verdict.rate_bytes_per_s:
        gain = found.rate_bytes_per_s / verdict.rate_bytes_per_s
        low, high = (
            (end or 0.0) / verdict.rate_bytes_per_s for end in (found.low_bytes_per_s, found.high_bytes_per_s)
        )
        subject = "the rate" if verdict.range_bytes_per_s is None else "the rate of the whole run"
        texts.append(
            f"If you {found.change}, {subject} becomes about {gain:.3g} [{low:.3g}, {high:.3g}] times as high; "
            f"the next limit is {found.next_limit}."
        )
    if verdict.probe is not None:
        texts.append(f"To decide, {verdict.probe}.")
    if verdict.missing:
        texts.append(f"Missing evidence: {', '.join(verdict.missing)}.")
    return " ".join(texts)


def _evidence(verdict: Verdict) -> Table:
    rows = tuple(
        (one.text, None if one.supports == "unknown" else CAUSES[one.supports], "against" if one.against else "for")
        for one in verdict.evidence
    )
    columns = (Column("observation", "observation"), Column("cause", "cause"), Column("direction", "for or against"))
    return Table("verdict-evidence", "Evidence for the bottleneck", columns, rows)


def _fractions(verdict: Verdict) -> Table:
    rows = tuple((one.resource or CAUSES[one.cause], CAUSES[one.cause], one.fraction) for one in verdict.fractions)
    columns = (Column("resource", "resource"), Column("cause", "cause"), Column("time_ratio", "fraction of the time"))
    note = "Fractions of the time of the transfers. docs/concepts/bottlenecks.md describes the causes and their evidence."
    return Table("verdict-time", "Where the time of the transfers goes", columns, rows, note)


def _settings(verdict: Verdict) -> Table:
    rows: list[tuple[Scalar, ...]] = [
        ("change", one.kind, one.host or None, one.change, one.reason, one.source) for one in verdict.settings
    ]
    rows += [("leave alone", None, None, *text.partition(": ")[::2], None) for text in verdict.leave_alone]
    columns = (
        Column("action", "action"), Column("kind", "kind"), Column("host", "host"), Column("setting", "setting"),
        Column("reason", "reason"), Column("source", "source"),
    )  # fmt: skip
    return Table("verdict-settings", "Settings", columns, tuple(rows))


def _points(verdicts: Sequence[Verdict]) -> Table:
    names = [name for name in verdicts[0].factors if len({str(one.factors.get(name)) for one in verdicts}) > 1]
    columns = (
        *(Column(name, name.partition("_")[0]) for name in names), Column("rate_bytes_per_s", "rate"),
        Column("resource", "limited by"), Column("time_ratio", "fraction of the time"), Column("confidence_ratio", "confidence"),
        Column("runner_up", "runner-up"), Column("next_bytes_per_s", "rate without this limit"),
    )  # fmt: skip
    rows = tuple(
        (
            *(_scalar(one.factors.get(name)) for name in names), one.rate_bytes_per_s, one.resource or "not decided",
            one.fraction or None, one.confidence, one.runner_up.resource if one.runner_up else None,
            one.counterfactual.rate_bytes_per_s if one.counterfactual else None,
        )
        for one in verdicts[:MAX_POINTS]
    )  # fmt: skip
    return Table("verdicts", "Bottleneck of each design point", columns, rows)


def _scalar(value: object) -> FactorValue:
    return value if isinstance(value, str | int | float | bool) else None
