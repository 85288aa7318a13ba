"""The answer in one sentence, made from the data by rules: what one file gets, what many get, where it stops rising, and
what makes it doubtful. Nothing is said that has no number behind it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from venturi.analysis.result import BestFamily, Counts, Factor, FactorValue, Headline, LoadCurve, Notice, Point
from venturi.analysis.result_lab import NetworkPath, Testbed
from venturi.analysis.words import bit_rate, describe, factor_name, factor_value, plural, rate_with_interval
from venturi.stats import Interval
from venturi.units import format_duration, format_rate

__all__ = ["answer", "caveat", "headline", "setting"]

MOST_CLAUSES = 3
"""Combinations of other factors (movers, cache states) that one sentence can carry."""
SHORT_FORMULA = 24
"""Longer formulas stand in the tables, not in a sentence."""
POOR_R2 = 0.5
"""Below this mean R² the best of the families tried is no description."""
OWN_UNIT = {"size_bytes": "the file size", "files": "the number of parallel files"}


def headline(points: Sequence[Point]) -> Headline | None:
    """Return the point with the highest rate of a whole trial."""
    best = max(
        (p for p in points if p.together_bytes_per_s), key=lambda p: p.together_bytes_per_s or 0.0, default=None
    )
    if best is None or best.together_bytes_per_s is None:
        return None
    return Headline(best.together_bytes_per_s, best.together_interval, best.point, best.factors)


def answer(
    counts: Counts, points: Sequence[Point], factors: Sequence[Factor], loads: Sequence[LoadCurve],
    best: Sequence[BestFamily], mover: str,
) -> str:  # fmt: skip
    """Return the answer in one sentence."""
    if counts.transfers == 0 and counts.trials_failed:
        before = "its" if counts.trials_failed == 1 else "their"
        return f"Nothing was measured: {plural(counts.trials_failed, 'trial')} failed before {before} first transfer."
    if counts.transfers == 0:
        return "Nothing was measured: no trial has finished."
    if counts.transfers_ok == 0:
        return (
            f"Nothing was measured: {'all ' if counts.transfers > 1 else 'the one '}{_bare(counts.transfers)} failed."
        )
    sized = [point for point in points if point.throughput_bytes_per_s is not None]
    text = _rates(sized, factors, loads, mover) if sized else _zero_sized(points, mover)
    shape = _shape(best)
    return f"{text}; {shape}." if shape else f"{text}."


def _bare(count: int) -> str:
    return "transfer" if count == 1 else plural(count, "transfer")


def _zero_sized(points: Sequence[Point], mover: str) -> str:
    times = [point.mean_time_s for point in points if point.mean_time_s is not None]
    if not times:
        together = [point.together_bytes_per_s for point in points if point.together_bytes_per_s]
        if together:
            return f"A trial of {mover} moves up to {format_rate(max(together))}; its files are of different sizes"
        return "Nothing can be said: no transfer has both a size and a time"
    return (f"A {mover} of an empty file takes {format_duration(min(times))} to {format_duration(max(times))}:"
            " only files of size zero were moved, so there is a fixed cost and no rate")  # fmt: skip


def _rates(sized: Sequence[Point], factors: Sequence[Factor], loads: Sequence[LoadCurve], mover: str) -> str:
    varied = [factor.name for factor in factors if factor.varied]
    kinds = [name for name in varied if name not in ("files", "size_bytes")]
    groups: dict[tuple[FactorValue, ...], list[Point]] = {}
    for point in sized:
        groups.setdefault(tuple(point.factors[name] for name in kinds), []).append(point)
    clauses = []
    for values, group in list(groups.items())[:MOST_CLAUSES]:
        own = [load for load in loads if all(load.others.get(n) == v for n, v in zip(kinds, values, strict=True))]
        clauses.append(_clause(group, own, dict(zip(kinds, values, strict=True)), mover, brief=len(groups) > 1))
    left = len(groups) - MOST_CLAUSES
    used = {point.size_bytes for group in groups.values() for point in _comparable(group) if point.size_bytes}
    sizes = [factor_value("size_bytes", size) for size in sorted(used)]
    more = f"; {plural(left, 'more combination')} {'is' if left == 1 else 'are'} in the table" if left > 0 else ""
    text = "; ".join(clauses) + more
    over = f"over {len(sizes)} sizes ({sizes[0]} to {sizes[-1]})" if len(sizes) > 1 else f"with files of {sizes[0]}"
    return f"{over[0].upper()}{over[1:]}, {text}"


def _clause(
    group: Sequence[Point], loads: Sequence[LoadCurve], kind: Mapping[str, FactorValue], mover: str, *, brief: bool
) -> str:
    subject = str(kind.get("mover", mover))
    rest = describe(kind, [name for name in kind if name != "mover"])
    subject += f" ({rest})" if rest else ""
    group = _comparable(group)
    few, many = min(point.files for point in group), max(point.files for point in group)
    first, first_interval = _mean([p for p in group if p.files == few], together=False)
    if few == many:
        together, interval = _mean(group, together=True)
        if few == 1:
            return f"one {subject} at a time moves {rate_with_interval(first, first_interval)}"
        return (f"{few} {subject} in parallel move {rate_with_interval(first, first_interval)} each and"
                f" {rate_with_interval(together, interval)} together")  # fmt: skip
    last, last_interval = _mean([p for p in group if p.files == many], together=False)
    together, interval = _mean([p for p in group if p.files == many], together=True)
    start = f"one {subject} at a time moves" if few == 1 else f"{few} {subject} in parallel move"
    text = f"{start} {rate_with_interval(first, first_interval)}{'' if few == 1 else ' each'} and {many} in parallel"
    if brief:
        return f"{text} {rate_with_interval(together, interval)} together"
    text += f" {rate_with_interval(last, last_interval)} each, {rate_with_interval(together, interval)} together"
    bend = _bend(loads, many)
    return f"{text}; {bend}" if bend else text


def _comparable(group: Sequence[Point]) -> list[Point]:
    """Return the points whose means over sizes may be set side by side: in a run that was stopped, few files may have been
    tried with other sizes than many. Kept are two file counts, the widest apart that the most sizes share."""
    sizes: dict[int, set[float | None]] = {}
    for point in group:
        sizes.setdefault(point.files, set()).add(point.size_bytes)

    def worth(pair: tuple[int, int]) -> tuple[bool, int, int]:
        shared = len(sizes[pair[0]] & sizes[pair[1]])
        return pair[0] < pair[1] and shared > 0, shared, pair[1] - pair[0]

    few, many = max(((a, b) for a in sizes for b in sizes if a <= b), key=worth)
    common = sizes[few] & sizes[many]
    return [point for point in group if point.files in (few, many) and point.size_bytes in common]


def _mean(points: Sequence[Point], *, together: bool) -> tuple[float, Interval | None]:
    """Return the plain mean over points, and its interval with the half widths of the points added in squares."""
    pairs = [
        (p.together_bytes_per_s, p.together_interval) if together else (p.throughput_bytes_per_s, p.interval)
        for p in points
    ]
    rates = [rate for rate, _ in pairs if rate is not None]
    mean = float(np.mean(rates)) if rates else 0.0
    intervals = [interval for rate, interval in pairs if rate is not None and interval is not None]
    if not rates or len(intervals) < len(rates):
        return mean, None
    if len(intervals) == 1:
        return mean, intervals[0]
    low = math.sqrt(sum((i.estimate - i.low) ** 2 for i in intervals)) / len(intervals)
    high = math.sqrt(sum((i.high - i.estimate) ** 2 for i in intervals)) / len(intervals)
    return mean, Interval(
        mean, mean - low, mean + high, intervals[0].level, "half widths added in squares", len(intervals)
    )


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


def _shape(best: Sequence[BestFamily]) -> str:
    """Return which function describes the first axis that has fits, or that none does."""
    for row in best:
        fit = row.by_criterion
        against = OWN_UNIT.get(row.against, factor_name(row.against))
        if fit.mean_r2 is None or fit.mean_r2 < POOR_R2 or 2 * fit.first < row.curves:
            return f"no one function is best on most curves of throughput per file against {against}"
        formula = f" ({fit.formula})" if len(fit.formula) <= SHORT_FORMULA else ""
        return (f"throughput per file against {against} is best described by {fit.family}{formula},"
                f" first on {fit.first} of {plural(row.curves, 'curve')}, mean R² {fit.mean_r2:.3f}")  # fmt: skip
    return ""


def setting(testbed: Testbed | None) -> str:
    """Return where it was, of an emulated testbed: between which hosts, over which network, at which scale."""
    if testbed is None:
        return ""
    scaled = "" if testbed.scale == 1 else f"; sizes{' and rates' if testbed.rates_scale != 1 else ''} are {testbed.scale:g} of those in the scenario"  # fmt: skip
    if not testbed.paths:
        hosts = " and ".join(testbed.local_hosts)
        return f"All bytes stayed on {hosts}, over loopback: of the emulated testbed no link was used{scaled}."
    pairs = {frozenset((path.source, path.destination)): path for path in testbed.paths}
    if len(pairs) > 1:
        rates = [path.rate_bit_per_s for path in pairs.values() if path.rate_bit_per_s]
        rtts = [path.rtt_s for path in pairs.values() if path.rtt_s is not None]
        facts = [_span(bit_rate, rates), f"RTT {_span(format_duration, rtts)}" if rtts else ""]
        between = f"The bytes went over {len(pairs)} paths between {plural(len(testbed.hosts), 'host')}"
    else:
        (path,) = pairs.values()
        facts = _path_facts(path)
        both = len(testbed.paths) > 1
        first, second = sorted((path.source, path.destination), key=testbed.hosts.index)
        ends = f"between {first} and {second}" if both else f"from {path.source} to {path.destination}"
        between = f"The bytes went {ends}"
    text = ", ".join(fact for fact in facts if fact)
    local = f"; {plural(testbed.local_transfers, 'transfer')} stayed on one host" if testbed.local_transfers else ""
    return f"{between} over an emulated network{f' ({text})' if text else ''}{local}{scaled}."


def _path_facts(path: NetworkPath) -> list[str]:
    rate = "" if path.rate_bit_per_s is None else bit_rate(path.rate_bit_per_s)
    return [rate, "" if path.rtt_s is None else f"RTT {format_duration(path.rtt_s)}"]


def _span(form: Callable[[float], str], values: Sequence[float]) -> str:
    if not values:
        return ""
    ends = form(min(values)), form(max(values))
    return ends[0] if ends[0] == ends[1] else f"{ends[0]} to {ends[1]}"


def caveat(counts: Counts, notices: Sequence[Notice]) -> str:
    """Return what makes the answer doubtful, gravest first; empty if nothing does or nothing was measured."""
    if not counts.transfers_ok:
        return ""
    by_code = {notice.code: notice for notice in notices}
    texts = []
    if counts.transfers_failed:
        verb = "is" if counts.transfers_failed == 1 else "are"
        texts.append(
            f"{counts.transfers_failed:,} of {plural(counts.transfers, 'transfer')} failed and {verb} left out."
        )
    if "page-cache" in by_code:
        read = by_code["page-cache"].evidence.rpartition(":")[0]
        texts.append(f"This is the page cache, not the disk ({read}).")
    if "wire-late" in by_code:
        texts.append("The emulated network was late: round trips are longer than asked for.")
    if "bytes-disagree" in by_code:
        texts.append("Bytes are missing, or too many, in one of the counts.")
    if "few-repetitions" in by_code:
        texts.append("There are too few repetitions for intervals to be trusted.")
    if "incomplete" in by_code and counts.trials_planned is not None:
        texts.append(f"{counts.trials:,} of {counts.trials_planned:,} planned trials are done.")
    return " ".join(texts)
