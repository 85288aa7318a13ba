"""Comparison of several scenarios in the form of table IV of document 000: the cost of each change of protocol or path.

Each run gives a row for every combination of its factors other than files and size. Its total is the mean over the grid
of files × throughput per file. Grids can differ (000-E14), so only the total over the points common to all rows is
compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from venturi.analysis.format import plural
from venturi.analysis.result import Analysis, FactorValue, PointResult, PublishedTotal, Total
from venturi.analysis.totals import points_by_others, ratio_of_rates, total_of, totals
from venturi.errors import SampleError
from venturi.units import format_rate

__all__ = ["ScenarioRow", "Scenarios", "compare_scenarios"]


@dataclass(frozen=True, slots=True)
class ScenarioRow:
    """One scenario.

    Attributes
    ----------
    run
        Name of the run.
    whole
        Its total over its own grid.
    common
        Its total over the points that all rows have. None without common points.
    of_first, of_previous
        ``common`` over the value of the first row, and over the value of the row before. None for the first row.
    of_first_error
        Standard error of ``of_first``, from the errors of both totals.
    published
        The published total of the study of the run, if it has one.
    """

    run: str
    whole: Total
    common: Total | None
    of_first: float | None
    of_first_error: float | None
    of_previous: float | None
    published: PublishedTotal | None


@dataclass(frozen=True, slots=True)
class Scenarios:
    """Rows in the order of the runs."""

    sentence: str
    rows: tuple[ScenarioRow, ...]
    common_points: int


def compare_scenarios(analyses: Sequence[Analysis]) -> Scenarios:
    """Return the totals of several runs and their ratios.

    Raises
    ------
    SampleError
        If a run has no point with a throughput.

    Examples
    --------
    >>> compare_scenarios([analyse(run) for run in (cp, one_node, two_nodes)]).sentence  # doctest: +SKIP
    'Over 48 common points: cnaf-cp 0.76 GB/s; cnaf-gridftp-one-node 0.38 GB/s, 0.5 × the one before; …'
    """
    groups = [
        (analysis, others, points)
        for analysis in analyses
        for others, points in points_by_others(_with_rate(analysis)).items()
    ]
    for analysis in analyses:
        if not _with_rate(analysis):
            name = analysis.about.name
            raise SampleError(
                f"{name}: expected points with a throughput, found none; see the failures in its report"
            )
    common = frozenset.intersection(*(frozenset(map(_cell, points)) for _, _, points in groups))
    rows: list[ScenarioRow] = []
    for analysis, others, points in groups:
        shared = [point for point in points if _cell(point) in common]
        total = total_of(dict(others), shared, analysis.factors) if shared else None
        rows.append(_row(analysis, dict(others), total, rows))
    return Scenarios(_sentence(rows, len(common)), tuple(rows), len(common))


def _with_rate(analysis: Analysis) -> list[PointResult]:
    return [point for point in analysis.points if point.throughput_bytes_per_s and point.size_bytes]


def _cell(point: PointResult) -> tuple[int, float | None]:
    return point.files, point.size_bytes


def _row(
    analysis: Analysis, others: Mapping[str, FactorValue], common: Total | None, before: Sequence[ScenarioRow]
) -> ScenarioRow:
    whole = next(total for total in totals(analysis.points, analysis.factors) if total.others == others)
    first = before[0].common if before else None
    ratio = _ratio(common, first)
    previous = _ratio(common, before[-1].common) if before else None
    return ScenarioRow(
        run=analysis.about.name,
        whole=whole,
        common=common,
        of_first=ratio[0] if ratio else None,
        of_first_error=ratio[1] if ratio else None,
        of_previous=previous[0] if previous else None,
        published=next((row for row in analysis.published_totals if row.ours and row.ours.others == others), None),
    )


def _ratio(total: Total | None, other: Total | None) -> tuple[float, float | None] | None:
    if total is None or other is None:
        return None
    return ratio_of_rates(
        total.mean_bytes_per_s, total.error_bytes_per_s, other.mean_bytes_per_s, other.error_bytes_per_s
    )


def _sentence(rows: Sequence[ScenarioRow], common: int) -> str:
    if not common:
        return "These runs have no point in common (files and size): their totals cannot be compared."
    parts = []
    for row in rows:
        assert row.common is not None
        name = row.run if row.whole.name in ("all points", "") else f"{row.run} ({row.whole.name})"
        of = "" if row.of_previous is None else f", {row.of_previous:.2g} × the previous run"
        parts.append(f"{name} {format_rate(row.common.mean_bytes_per_s)}{of}")
    return f"Over {plural(common, 'common point')}: {'; '.join(parts)}."
