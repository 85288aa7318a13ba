"""Two runs side by side: the points that both have, the totals, and what else was different."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from venturi import stats
from venturi.analysis.analyse import analyse
from venturi.analysis.options import AnalyseOptions
from venturi.analysis.result import Analysis, FactorValue, FloatArray, Point
from venturi.analysis.totals import grid_rates, ratio_of_rates
from venturi.analysis.words import plural
from venturi.errors import SampleError
from venturi.run import Run

__all__ = ["Comparison", "Difference", "PointComparison", "TotalComparison", "compare"]

MARGIN = 0.05
"""The change that makes no difference to most readers."""

_VOLATILE = ("clock", "time", "uptime", "pid", "load", "free", "available", "epoch")
"""Facts whose name holds one of these differ between any two runs."""


@dataclass(frozen=True, slots=True)
class PointComparison:
    """One point that both runs have. Ratios are the second run over the first; None below two trials in either.

    Attributes
    ----------
    factors
        What both have in common; a factor in which the runs differ as a whole is left out.
    throughput, together
        Ratio of the throughput per file and of the rate of the whole trial, with interval and verdict.
    """

    factors: Mapping[str, FactorValue]
    first_bytes_per_s: float | None
    second_bytes_per_s: float | None
    throughput: stats.Comparison | None
    first_together_bytes_per_s: float | None
    second_together_bytes_per_s: float | None
    together: stats.Comparison | None


@dataclass(frozen=True, slots=True)
class TotalComparison:
    """Table IV of document 000 over the points that both have (000-E14), and its ratio, second over first."""

    first_bytes_per_s: float
    second_bytes_per_s: float
    ratio: float
    error: float | None
    points: int
    files_low: int
    files_high: int


@dataclass(frozen=True, slots=True)
class Difference:
    """Something that is not the same in both runs; None: it is not there."""

    where: str
    first: str | None
    second: str | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """The first run (what is compared with) and the second.

    Attributes
    ----------
    sentence
        The answer in one sentence.
    overall
        Geometric mean over the matched points of the ratio of throughput per file, with its interval over the points.
    verdicts
        How many matched points there are of each verdict.
    unmatched
        Points that only the first, and only the second has.
    differences
        Factors that differ as a whole, then the scenario, then the environment.
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
    first: Analysis | Run, second: Analysis | Run, *, margin: float = MARGIN, level: float = 0.95, seed: int = 1
) -> Comparison:
    """Return how the second run stands to the first.

    Points are matched by their factors. A factor that has one value in each run and another one in the other (``cp``
    against ``rsync``) is what is compared, and does not keep points from matching.

    Parameters
    ----------
    first, second
        Runs or their analyses; runs are analysed without fits.
    margin
        The change that makes no difference: 0.05 stands for ratios from 1/1.05 to 1.05.
    level
        Confidence of the intervals.
    seed
        Of the bootstrap.

    Raises
    ------
    SampleError
        If the margin or the level is not sensible.

    Examples
    --------
    >>> compare(Run.open("before"), Run.open("after")).sentence  # doctest: +SKIP
    'after is faster than before at 40 of 66 matched points: …'
    """
    if not margin > 0:
        raise SampleError(f"margin: expected a number > 0, such as 0.05, found {margin!r}")
    a, b = _analysed(first), _analysed(second)
    apart = _apart(a, b)
    pairs, unmatched = _matched(a, b, frozenset(name for name, *_ in apart))
    rng = np.random.default_rng(seed)
    points = tuple(_compared(a, b, p, q, apart, margin, level, rng) for p, q in pairs)
    verdicts: dict[str, int] = {}
    for point in points:
        verdict = point.throughput.verdict if point.throughput else "cannot tell"
        verdicts[verdict] = verdicts.get(verdict, 0) + 1
    overall = _overall(points, level)
    total = _total([p for p, _ in pairs], [q for _, q in pairs])
    names = _names(a, b)
    return Comparison(
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


def _matched(a: Analysis, b: Analysis, without: frozenset[str]) -> tuple[list[tuple[Point, Point]], tuple[int, int]]:
    def key(point: Point) -> frozenset[tuple[str, FactorValue]]:
        return frozenset((name, value) for name, value in point.factors.items() if name not in without)

    theirs = {key(point): point for point in b.points}
    pairs = [(point, theirs[key(point)]) for point in a.points if key(point) in theirs]
    return pairs, (len(a.points) - len(pairs), len(b.points) - len(pairs))


def _compared(
    a: Analysis, b: Analysis, p: Point, q: Point, apart: list[tuple[str, str | None, str | None]], margin: float, level: float,
    rng: np.random.Generator,
) -> PointComparison:  # fmt: skip
    def ratio(mine: FloatArray, theirs: FloatArray) -> stats.Comparison | None:
        mine, theirs = mine[np.isfinite(mine) & (mine > 0)], theirs[np.isfinite(theirs) & (theirs > 0)]
        if min(len(mine), len(theirs)) < 2:
            return None
        # Two runs share no block of one random order: nothing pairs their trials.
        return stats.compare(theirs, mine, of="rate", paired=False, rng=rng, margin=margin, level=level)

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
    """Return the geometric mean ratio over the points: Student's t of the logarithms, the point being the replicate."""
    logs = np.log([p.throughput.ratio.estimate for p in points if p.throughput])
    if len(logs) < 2:
        return points[0].throughput.ratio if len(points) == 1 and points[0].throughput else None
    interval = stats.student_interval(logs, level=level)
    low, mean, high = np.exp([interval.low, interval.estimate, interval.high])
    return stats.Interval(
        float(mean), float(low), float(high), level, "geometric mean over points, Student t", len(logs)
    )


def _total(first: list[Point], second: list[Point]) -> TotalComparison | None:
    kept = [(p, q) for p, q in zip(first, second, strict=True)
            if p.throughput_bytes_per_s and q.throughput_bytes_per_s and p.size_bytes]  # fmt: skip
    grid = {(p.files, p.size_bytes) for p, _ in kept}
    if not kept or len(grid) < len(kept):
        return None  # several points with the same files and size: one total would mix what the factors keep apart
    a, b = (stats.total_throughput(grid_rates([pair[i] for pair in kept])) for i in (0, 1))
    ratio, error = ratio_of_rates(b.mean_bytes_per_s, b.error_bytes_per_s, a.mean_bytes_per_s, a.error_bytes_per_s)
    files = [p.files for p, _ in kept]
    return TotalComparison(a.mean_bytes_per_s, b.mean_bytes_per_s, ratio, error, len(kept), min(files), max(files))


def _differences(a: Analysis, b: Analysis) -> list[Difference]:
    found = _flat_differences("scenario", _flat(a.about.scenario), _flat(b.about.scenario))
    for host in sorted(set(a.about.environment) | set(b.about.environment)):
        mine, theirs = a.about.environment.get(host, {}), b.about.environment.get(host, {})
        kept = [
            {k: v for k, v in facts.items() if not any(word in k for word in _VOLATILE)} for facts in (mine, theirs)
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
    told = [point for point in points if point.throughput]
    if not told or overall is None:
        return (
            f"Of {plural(len(points), 'matched point')} none has two trials in both runs, so no ratio can be judged."
        )
    words = {"faster": "faster", "slower": "slower", "same within margin": f"the same within {100 * margin:g} %",
             "cannot tell": "undecided"}  # fmt: skip
    shares = ", ".join(f"{verdicts[key]} {words[key]}" for key in words if verdicts.get(key))
    change = f"{overall.estimate:.3g} times as fast per file ({overall.low:.3g}–{overall.high:.3g})"
    return f"{second} is {change} as {first} over {plural(len(told), 'matched point')}: {shares}."
