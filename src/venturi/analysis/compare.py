"""Comparison of two runs: their common points, the totals, and other differences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from venturi import stats
from venturi.analysis.analyse import analyse
from venturi.analysis.format import plural
from venturi.analysis.options import AnalyseOptions
from venturi.analysis.result import Analysis, FactorValue, FloatArray, PointResult
from venturi.analysis.totals import grid_rates, ratio_of_rates
from venturi.errors import SampleError
from venturi.run import Run

__all__ = ["Difference", "PointComparison", "RunComparison", "TotalComparison", "compare"]

MARGIN = 0.05
"""Change that does not matter to most readers."""

_VOLATILE = ("clock", "time", "uptime", "pid", "load", "free", "available", "epoch")
"""Properties with one of these words in their name differ between any two runs."""


@dataclass(frozen=True, slots=True)
class PointComparison:
    """One point that both runs have.

    Ratios are the second run over the first. They are None below two trials in either run.

    Attributes
    ----------
    factors
        Factors with equal values in both runs. A factor that differs for the whole run is left out.
    throughput, together
        Ratio of the throughput per file and of the rate of the whole trial, with interval and verdict.
    """

    factors: Mapping[str, FactorValue]
    first_bytes_per_s: float | None
    second_bytes_per_s: float | None
    throughput: stats.RatioComparison | None
    first_together_bytes_per_s: float | None
    second_together_bytes_per_s: float | None
    together: stats.RatioComparison | None


@dataclass(frozen=True, slots=True)
class TotalComparison:
    """Table IV of document 000 over the common points (000-E14), and the ratio of second over first."""

    first_bytes_per_s: float
    second_bytes_per_s: float
    ratio: float
    error: float | None
    points: int
    files_low: int
    files_high: int


@dataclass(frozen=True, slots=True)
class Difference:
    """Property that differs between the runs. None if a run does not have it."""

    where: str
    first: str | None
    second: str | None


@dataclass(frozen=True, slots=True)
class RunComparison:
    """Comparison of a second run with the first.

    Attributes
    ----------
    sentence
        Result in one sentence.
    overall
        Geometric mean over the matched points of the ratio of throughput per file, with its interval over the points.
    verdicts
        Number of matched points by verdict.
    unmatched
        Number of points that only the first run has, and that only the second run has.
    differences
        Factors that differ for the whole run, then the backend, the scenario and the environment.
    """

    first: str
    second: str
    margin: float
    level: float
    sentence: str
    overall: stats.Interval | None
    verdicts: Mapping[str, int]
    points: tuple[PointComparison, ...]
    total: TotalComparison | None
    unmatched: tuple[int, int]
    differences: tuple[Difference, ...]


def compare(
    first: Analysis | Run, second: Analysis | Run, *, margin: float = MARGIN, level: float = 0.95
) -> RunComparison:
    """Return the comparison of the second run with the first.

    Points are matched by their factors. A factor with one value in each run (``cp`` against ``rsync``) is the subject
    of the comparison, so points match in spite of it.

    Parameters
    ----------
    first, second
        Runs or their analyses. Runs are analysed without fits.
    margin
        Change that does not matter: 0.05 means ratios from 1/1.05 to 1.05.
    level
        Confidence of the intervals.

    Raises
    ------
    SampleError
        If the margin or the level is not valid.

    Examples
    --------
    >>> compare(Run.open("before"), Run.open("after")).sentence  # doctest: +SKIP
    'after is 1.31 times as fast per file (1.22–1.4) as before over 66 matched points: 40 faster, 26 undecided.'
    """
    if not margin > 0:
        raise SampleError(f"margin: expected a number > 0, such as 0.05, found {margin!r}")
    a, b = _analysed(first), _analysed(second)
    apart = _apart(a, b)
    pairs, unmatched = _matched(a, b, frozenset(name for name, *_ in apart))
    points = tuple(_compared(a, b, p, q, apart, margin, level) for p, q in pairs)
    verdicts: dict[str, int] = {}
    for point in points:
        verdict = point.throughput.verdict if point.throughput else "cannot tell"
        verdicts[verdict] = verdicts.get(verdict, 0) + 1
    overall = _overall(points, level)
    total = _total([p for p, _ in pairs], [q for _, q in pairs])
    names = _names(a, b)
    return RunComparison(
        first=names[0], second=names[1], margin=margin, level=level,
        sentence=_sentence(names, points, verdicts, overall, margin), overall=overall, verdicts=verdicts, points=points,
        total=total, unmatched=unmatched, differences=(*(Difference(*found) for found in apart), *_differences(a, b)),
    )  # fmt: skip


def _analysed(run: Analysis | Run) -> Analysis:
    return run if isinstance(run, Analysis) else analyse(run, AnalyseOptions(fits=False))


def _names(a: Analysis, b: Analysis) -> tuple[str, str]:
    ends = [analysis.about.path.rstrip("/").rsplit("/", 1)[-1] or analysis.about.name for analysis in (a, b)]
    return (ends[0], ends[1]) if ends[0] != ends[1] else (a.about.path, b.about.path)


def _apart(a: Analysis, b: Analysis) -> list[tuple[str, str | None, str | None]]:
    """Return the factors that are constant in each run and differ between them."""
    ones = [{f.name: f.values[0] for f in analysis.factors if len(f.values) == 1} for analysis in (a, b)]
    many = {f.name for analysis in (a, b) for f in analysis.factors if f.varied}
    names = [name for name in dict.fromkeys((*ones[0], *ones[1])) if name not in many]
    return [
        (name, _text(ones[0], name), _text(ones[1], name)) for name in names
        if ones[0].get(name) != ones[1].get(name) and name not in ("files", "size_bytes")
    ]  # fmt: skip


def _text(values: Mapping[str, FactorValue], name: str) -> str | None:
    return str(values[name]) if name in values else None


def _matched(
    a: Analysis, b: Analysis, without: frozenset[str]
) -> tuple[list[tuple[PointResult, PointResult]], tuple[int, int]]:
    def key(point: PointResult) -> frozenset[tuple[str, FactorValue]]:
        return frozenset((name, value) for name, value in point.factors.items() if name not in without)

    theirs = {key(point): point for point in b.points}
    pairs = [(point, theirs[key(point)]) for point in a.points if key(point) in theirs]
    return pairs, (len(a.points) - len(pairs), len(b.points) - len(pairs))


def _compared(
    a: Analysis, b: Analysis, p: PointResult, q: PointResult, apart: list[tuple[str, str | None, str | None]], margin: float, level: float,
) -> PointComparison:  # fmt: skip
    def ratio(mine: FloatArray, theirs: FloatArray) -> stats.RatioComparison | None:
        mine, theirs = mine[np.isfinite(mine) & (mine > 0)], theirs[np.isfinite(theirs) & (theirs > 0)]
        if min(len(mine), len(theirs)) < 2:
            return None
        # Two runs share no block of one random order, so their trials are not paired.
        return stats.compare(theirs, mine, of="rate", paired=False, margin=margin, level=level)

    here, there = a.trials.point == p.point, b.trials.point == q.point
    left_out = {name for name, *_ in apart}
    return PointComparison(
        factors={name: value for name, value in p.factors.items() if name not in left_out},
        first_bytes_per_s=p.throughput_bytes_per_s,
        second_bytes_per_s=q.throughput_bytes_per_s,
        throughput=ratio(a.trials.throughput_bytes_per_s[here], b.trials.throughput_bytes_per_s[there]),
        first_together_bytes_per_s=p.together_bytes_per_s,
        second_together_bytes_per_s=q.together_bytes_per_s,
        together=ratio(a.trials.together_bytes_per_s[here], b.trials.together_bytes_per_s[there]),
    )


def _overall(points: tuple[PointComparison, ...], level: float) -> stats.Interval | None:
    """Return the geometric mean ratio over the points: Student's t of the logarithms, with the point as replicate."""
    logs = np.log([p.throughput.ratio.estimate for p in points if p.throughput])
    if len(logs) < 2:
        return points[0].throughput.ratio if len(points) == 1 and points[0].throughput else None
    interval = stats.student_interval(logs, level=level)
    low, mean, high = np.exp([interval.low, interval.estimate, interval.high])
    return stats.Interval(
        float(mean), float(low), float(high), level, "geometric mean over points, Student t", len(logs)
    )


def _total(first: list[PointResult], second: list[PointResult]) -> TotalComparison | None:
    kept = [(p, q) for p, q in zip(first, second, strict=True)
            if p.throughput_bytes_per_s and q.throughput_bytes_per_s and p.size_bytes]  # fmt: skip
    grid = {(p.files, p.size_bytes) for p, _ in kept}
    if not kept or len(grid) < len(kept):
        return None  # several points with the same files and size: one total would mix different factors
    a, b = (stats.total_throughput(grid_rates([pair[i] for pair in kept])) for i in (0, 1))
    ratio, error = ratio_of_rates(b.mean_bytes_per_s, b.error_bytes_per_s, a.mean_bytes_per_s, a.error_bytes_per_s)
    files = [p.files for p, _ in kept]
    return TotalComparison(a.mean_bytes_per_s, b.mean_bytes_per_s, ratio, error, len(kept), min(files), max(files))


def _differences(a: Analysis, b: Analysis) -> list[Difference]:
    found = _flat_differences("scenario", _flat(a.about.scenario), _flat(b.about.scenario))
    for host in sorted(set(a.about.environment) | set(b.about.environment)):
        mine, theirs = a.about.environment.get(host, {}), b.about.environment.get(host, {})
        kept = [
            {k: v for k, v in properties.items() if not any(word in k for word in _VOLATILE)}
            for properties in (mine, theirs)
        ]
        found += _flat_differences(host, *kept)
    if a.about.backend != b.about.backend:
        found.insert(0, Difference("backend", a.about.backend, b.about.backend))
    return found


def _flat_differences(where: str, a: Mapping[str, str], b: Mapping[str, str]) -> list[Difference]:
    names = dict.fromkeys((*a, *b))
    return [Difference(f"{where}: {name}", a.get(name), b.get(name)) for name in names if a.get(name) != b.get(name)]


def _flat(value: object, prefix: str = "") -> dict[str, str]:
    if isinstance(value, Mapping):
        found: dict[str, str] = {}
        for key, inner in value.items():
            found |= _flat(inner, f"{prefix}.{key}" if prefix else str(key))
        return found
    return {prefix: str(value)}


def _sentence(
    names: tuple[str, str], points: tuple[PointComparison, ...], verdicts: Mapping[str, int], overall: stats.Interval | None,
    margin: float,
) -> str:  # fmt: skip
    first, second = names
    if not points:
        return f"{first} and {second} have no point in common, so nothing can be compared."
    compared = [point for point in points if point.throughput]
    if not compared or overall is None:
        return f"Of {plural(len(points), 'matched point')} none has two trials in both runs, so no ratio has an interval."
    words = {"faster": "faster", "slower": "slower", "same within margin": f"the same within {100 * margin:g} %",
             "cannot tell": "undecided"}  # fmt: skip
    parts = ", ".join(f"{verdicts[key]} {words[key]}" for key in words if verdicts.get(key))
    change = f"{overall.estimate:.3g} times as fast per file ({overall.low:.3g}–{overall.high:.3g})"
    return f"{second} is {change} as {first} over {plural(len(compared), 'matched point')}: {parts}."
