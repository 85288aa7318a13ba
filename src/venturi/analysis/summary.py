"""Summary of a report in a few sentences below the headline, made from the data by rules.

The sentences give the bottlenecks of groups of points, the rates of few and many parallel files, the saturation of the
total, the network and the caveats. Each statement has a number from the data.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from venturi.analysis.format import (
    format_factor_name,
    format_factor_value,
    format_factors,
    format_rate_with_interval,
    format_sentences,
    plural,
)
from venturi.analysis.headline import nothing_measured
from venturi.analysis.lateness import LATE
from venturi.analysis.result import (
    BestFamily,
    Counts,
    FactorColumn,
    FactorValue,
    FindingSummary,
    FittedCurves,
    LoadCurve,
    PointResult,
)
from venturi.analysis.result_lab import NetworkPath, TestbedResult
from venturi.stats import Interval
from venturi.units import format_bit_rate, format_duration

__all__ = ["caveat", "summary_sentence", "testbed_sentence"]

MAX_CLAUSES = 3
"""Maximum number of combinations of other factors (movers, cache states) in the summary. The table has all."""
SHORT_FORMULA = 24
"""Maximum length of a formula in the summary. Longer formulas are only in the tables."""
POOR_R2 = 0.5
"""Minimum mean R². Below it, the best family is not a useful description."""
OWN_UNIT = {"size_bytes": "the file size", "files": "the number of parallel files"}


def summary_sentence(
    counts: Counts, points: Sequence[PointResult], factors: Sequence[FactorColumn], loads: Sequence[LoadCurve],
    best: Sequence[BestFamily], mover: str, curves: Sequence[FittedCurves] = (), limits: str = "",
) -> str:  # fmt: skip
    """Return the facts that the headline lacks: parallel files, saturation and the shape of the curves.

    Rates are of one size, never means over sizes.

    Parameters
    ----------
    limits
        Clause with the bottlenecks of groups of points, or an empty text.
    """
    if empty := nothing_measured(counts):
        return empty
    sized = [point for point in points if point.throughput_bytes_per_s is not None]
    text = _parallel(sized, factors, loads, mover) if sized else _zero_sized(points)
    return format_sentences([limits, *text, _shape(best, curves)])


def _zero_sized(points: Sequence[PointResult]) -> list[str]:
    if any(point.mean_time_s is not None for point in points):
        return ["only empty files were moved, so the result is a fixed cost and not a rate"]
    if any(point.together_bytes_per_s for point in points):
        return ["the transfers have no common size, so only whole trials have a rate"]
    return ["no result: no transfer has both a size and a time"]


def _parallel(
    sized: Sequence[PointResult], factors: Sequence[FactorColumn], loads: Sequence[LoadCurve], mover: str
) -> list[str]:
    """Return the rates of few and of many parallel files for each combination of other factors, with files of one size.

    Combinations without this size are only in the table.
    """
    varied = [factor.name for factor in factors if factor.varied]
    kinds = [name for name in varied if name not in ("files", "size_bytes")]
    groups: dict[tuple[FactorValue, ...], list[PointResult]] = {}
    for point in sized:
        groups.setdefault(tuple(point.factors[name] for name in kinds), []).append(point)
    alike = {values: _comparable(group) for values, group in groups.items()}
    alike = {values: group for values, group in alike.items() if max(point.files for point in group) > 1}
    if not alike:
        return []
    often = Counter(size for group in alike.values() for size in {point.size_bytes or 0.0 for point in group})
    size = max(often, key=lambda one: (often[one], one))
    chosen = {v: own for v, group in alike.items() if (own := [p for p in group if p.size_bytes == size])}
    clauses = []
    for values, group in list(chosen.items())[:MAX_CLAUSES]:
        kind = dict(zip(kinds, values, strict=True))
        curves = [load for load in loads if all(load.others.get(name) == value for name, value in kind.items())]
        clauses += _clauses(group, curves, kind, mover, brief=len(groups) > 1)
    left = len(groups) - min(len(chosen), MAX_CLAUSES)
    more = f"{plural(left, 'more combination')} {'is' if left == 1 else 'are'} in the table" if left > 0 else ""
    return [f"with files of {format_factor_value('size_bytes', size)}, {clauses[0]}", *clauses[1:], more]


def _clauses(
    group: Sequence[PointResult],
    loads: Sequence[LoadCurve],
    kind: Mapping[str, FactorValue],
    mover: str,
    *,
    brief: bool,
) -> list[str]:
    """Return the rates of the points with the fewest and the most files, which have one size."""
    subject = str(kind.get("mover", mover))
    rest = format_factors(kind, [name for name in kind if name != "mover"])
    subject += f" ({rest})" if rest else ""
    few, many = min(group, key=lambda point: point.files), max(group, key=lambda point: point.files)
    each = _rate(few.throughput_bytes_per_s, few.interval)
    together = _rate(many.together_bytes_per_s, many.together_interval)
    if few.files == many.files:
        return [f"{few.files} {subject} in parallel move {each} each and {together} together"]
    start = f"one {subject} at a time moves" if few.files == 1 else f"{few.files} {subject} in parallel move"
    text = f"{start} {each}{'' if few.files == 1 else ' each'} and {many.files} in parallel"
    if brief:
        return [f"{text} {together} together"]
    text += f" {_rate(many.throughput_bytes_per_s, many.interval)} each, {together} together"
    return [text, _bend(loads, many.files)]


def _rate(rate: float | None, interval: Interval | None) -> str:
    return format_rate_with_interval(rate or 0.0, interval)


def _comparable(group: Sequence[PointResult]) -> list[PointResult]:
    """Return the points with the fewest and the most files that have a size in common.

    In an interrupted run, few files can have other sizes than many files. The result has the pair of file counts with
    the most sizes in common. Among equal pairs it has the pair with the largest difference.
    """
    sizes: dict[int, set[float | None]] = {}
    for point in group:
        sizes.setdefault(point.files, set()).add(point.size_bytes)

    def worth(pair: tuple[int, int]) -> tuple[bool, int, int]:
        shared = len(sizes[pair[0]] & sizes[pair[1]])
        return pair[0] < pair[1] and shared > 0, shared, pair[1] - pair[0]

    few, many = max(((a, b) for a in sizes for b in sizes if a <= b), key=worth)
    common = sizes[few] & sizes[many]
    return [point for point in group if point.files in (few, many) and point.size_bytes in common]


def _bend(loads: Sequence[LoadCurve], many: int) -> str:
    points = [load.saturation for load in loads if load.saturation is not None]
    if not points:
        return ""
    reached = [s.load for s in points if s.outcome != "not reached" and s.load is not None]
    if 2 * len(reached) <= len(points):
        return f"the total still rises at {many} files"
    if all(s.outcome == "below range" for s in points):
        return "the total does not rise with more files"
    low, high = min(reached), max(reached)
    if low < high:
        return f"the total stops rising at {low:g} to {high:g} files, depending on the size"
    return f"the total stops rising at {low:g} file{'' if low == 1 else 's'}"


def _shape(best: Sequence[BestFamily], curves: Sequence[FittedCurves]) -> str:
    """Return a clause with the function that describes the first axis with fits, or a clause that none does."""
    for against in dict.fromkeys(curve.against for curve in curves):
        own = [curve for curve in curves if curve.against == against and (curve.fits or curve.independent)]
        independent = sum(curve.independent for curve in own)
        if own and 2 * independent > len(own):
            axis = OWN_UNIT.get(against, format_factor_name(against))
            return f"no dependence of throughput per file on {axis} was found on {independent} of {plural(len(own), 'curve')}"
        if own:
            break
    for row in best:
        fit = row.by_criterion
        against = OWN_UNIT.get(row.against, format_factor_name(row.against))
        if fit.mean_r2 is None or fit.mean_r2 < POOR_R2 or 2 * fit.first < row.curves:
            return f"no single function is best on most curves of throughput per file against {against}"
        formula = f" ({fit.formula})" if len(fit.formula) <= SHORT_FORMULA else ""
        return (f"throughput per file against {against} is best described by {fit.family}{formula},"
                f" first on {fit.first} of {plural(row.curves, 'curve')}, mean R² {fit.mean_r2:.3f}")  # fmt: skip
    return ""


def testbed_sentence(testbed: TestbedResult | None) -> str:
    """Return a sentence with the hosts, network and scale of an emulated or simulated testbed."""
    if testbed is None:
        return ""
    scaled = "" if testbed.scale == 1 else f"; sizes{' and rates' if testbed.rates_scale != 1 else ''} are {testbed.scale:g} times those in the scenario"  # fmt: skip
    if not testbed.paths:
        hosts = " and ".join(testbed.local_hosts)
        return f"All bytes stayed on {hosts}: no link was used{scaled}."
    pairs = {frozenset((path.source, path.destination)): path for path in testbed.paths}
    if len(pairs) > 1:
        rates = [path.rate_bit_per_s for path in pairs.values() if path.rate_bit_per_s]
        rtts = [path.rtt_s for path in pairs.values() if path.rtt_s is not None]
        parts = [_span(format_bit_rate, rates), f"RTT {_span(format_duration, rtts)}" if rtts else ""]
        between = f"The bytes went over {len(pairs)} paths between {plural(len(testbed.hosts), 'host')}"
    else:
        (path,) = pairs.values()
        parts = _path_parts(path)
        both = len(testbed.paths) > 1
        first, second = sorted((path.source, path.destination), key=testbed.hosts.index)
        ends = f"between {first} and {second}" if both else f"from {path.source} to {path.destination}"
        between = f"The bytes went {ends}"
    text = ", ".join(part for part in parts if part)
    network = "a simulated network" if testbed.simulated else "an emulated network"
    local = f"; {plural(testbed.local_transfers, 'transfer')} stayed on one host" if testbed.local_transfers else ""
    return f"{between} over {network}{f' ({text})' if text else ''}{local}{scaled}."


def _path_parts(path: NetworkPath) -> list[str]:
    rate = "" if path.rate_bit_per_s is None else format_bit_rate(path.rate_bit_per_s)
    return [rate, "" if path.rtt_s is None else f"RTT {format_duration(path.rtt_s)}"]


def _span(form: Callable[[float], str], values: Sequence[float]) -> str:
    if not values:
        return ""
    ends = form(min(values)), form(max(values))
    return ends[0] if ends[0] == ends[1] else f"{ends[0]} to {ends[1]}"


def caveat(counts: Counts, findings: Sequence[FindingSummary]) -> str:
    """Return the caveats of the result, the most serious first.

    The text is empty without caveats, and without successful transfers.
    """
    if not counts.transfers_ok:
        return ""
    by_code = {finding.code: finding for finding in findings}
    texts = []
    if counts.transfers_failed:
        verb = "is" if counts.transfers_failed == 1 else "are"
        texts.append(
            f"{counts.transfers_failed:,} of {plural(counts.transfers, 'transfer')} failed and {verb} excluded from the rates."
        )
    cached = by_code.get("page-cache")
    if cached is not None and cached.evidence.endswith("page cache"):
        texts.append(
            f"The sources came from the page cache, not from the disk ({cached.evidence.rpartition(':')[0]})."
        )
    late = by_code.get(LATE)
    if late is not None and late.severity == "warning":
        texts.append("The network emulator delivered packets late: round-trip times exceed the configured values.")
    if "bytes-disagree" in by_code:
        texts.append("The byte counts of two parties disagree.")
    if "few-repetitions" in by_code:
        texts.append("Too few repetitions for reliable confidence intervals.")
    if "incomplete" in by_code and counts.trials_planned is not None:
        texts.append(f"{counts.trials:,} of {counts.trials_planned:,} planned trials have finished.")
    return " ".join(texts)
