"""Headline of a report: the rate with its interval and the bottleneck, in at most 25 words.

Several design points have a range of rates and a best point. A mean over sizes or other factors would mislead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from venturi.advice import Advice, Verdict
from venturi.analysis.format import format_factor_name, format_factor_value, format_interval_ends, plural
from venturi.analysis.result import Counts, FactorColumn, FactorValue, Headline, PointResult, Trials
from venturi.analysis.section import ReportSection
from venturi.units import (
    BITS_PER_BYTE,
    format_bit_rate,
    format_bytes,
    format_duration,
    format_rate,
    format_rate_ends,
)

__all__ = ["MAX_WORDS", "headline", "nothing_measured"]

MAX_WORDS = 25
"""Maximum number of words in a headline."""
ALIKE = 1e-6
"""Relative difference of rates below which trials count as equal."""
IN_TIME = ("peers", "tiers", "routes", "injected")
"""Sections of workloads whose trials are transfers of one run in time, not repetitions."""
_COUNTED = {"files": "file", "streams": "stream", "jobs": "job", "processes": "process", "clients": "client"}
_PLURALS = {"process": "processes"}


def headline(
    counts: Counts, points: Sequence[PointResult], trials: Trials, factors: Sequence[FactorColumn],
    sections: Sequence[ReportSection], advice: Advice, *, sweep: bool, mover: str, complete: bool,
) -> Headline:  # fmt: skip
    """Return the headline of a run.

    Parameters
    ----------
    sections
        Sections of the kind of experiment. The first one with a headline gives the quantity of a workload other than a
        sweep.
    sweep
        Whether the points describe the workload.
    complete
        Whether the run has finished. Some workloads have fewer trials than planned because their time is over.
    """
    if empty := nothing_measured(counts):
        return Headline(empty)
    rated = [point for point in points if point.together_bytes_per_s]
    best = max(rated, key=lambda point: point.together_bytes_per_s or 0.0, default=None)
    if not sweep:
        levels = _of_workload(counts, points, sections, simulated=advice.backend == "sim")
        has_limit = any(section.headline for section in sections if section.name == "injected")
        limits: tuple[str, ...] = () if has_limit else tuple(f"; {limit}" for limit in _limits(advice.run))
    elif best is None:
        levels, limits = [_of_empty_files(points, counts, mover)], ()
    else:
        levels, phrases = _of_points(rated, best, trials, factors, advice)
        limits = tuple(f"{',' if phrase.startswith('limited') else ';'} {phrase}" for phrase in phrases)
    text = _first_fitting(_incomplete(counts, complete=complete), levels, limits)
    if best is None:
        return Headline(text)
    return Headline(text, best.together_bytes_per_s, best.together_interval, best.point, best.factors)


def nothing_measured(counts: Counts) -> str:
    """Return why a run has no result, or an empty text."""
    if counts.transfers == 0 and counts.trials_failed:
        before = "its" if counts.trials_failed == 1 else "their"
        return f"Nothing was measured: {plural(counts.trials_failed, 'trial')} failed before {before} first transfer."
    if counts.transfers == 0:
        return "Nothing was measured: no trial has finished."
    if counts.transfers_ok == 0:
        number = "the only transfer" if counts.transfers == 1 else f"all {plural(counts.transfers, 'transfer')}"
        return f"Nothing was measured: {number} failed."
    return ""


def _incomplete(counts: Counts, *, complete: bool) -> str:
    """Return the missing part of a run as a prefix, because it changes the meaning of all rates."""
    parts = []
    if not complete and counts.trials_planned and counts.trials < counts.trials_planned:
        parts.append(f"{counts.trials:,} of {plural(counts.trials_planned, 'trial')} done")
    if counts.transfers_failed:
        parts.append(f"{counts.transfers_failed:,} of {plural(counts.transfers, 'transfer')} failed")
    elif counts.trials_failed:
        parts.append(f"{counts.trials_failed:,} of {plural(counts.trials, 'trial')} failed")
    return f"{', '.join(parts)}: " if parts else ""


def _first_fitting(prefix: str, levels: Sequence[Sequence[str]], limits: Sequence[str]) -> str:
    """Return the longest text within the maximum length, of the first level that has one.

    Each level has forms of a quantity. A later level has fewer facts.
    """
    texts: list[str] = []
    for quantities in levels:
        texts = [f"{prefix}{quantity}{limit}." for quantity in quantities for limit in limits]
        texts = texts or [f"{prefix}{quantity}." for quantity in quantities]
        if fitting := [text for text in texts if len(text.split()) <= MAX_WORDS]:
            return max(fitting, key=lambda text: len(text.split()))
    shortest = f"{prefix}{levels[-1][-1]}."
    return shortest if len(shortest.split()) <= MAX_WORDS else f"{' '.join(shortest.split()[: MAX_WORDS - 1])} …"


def _limits(verdict: Verdict) -> tuple[str, ...]:
    """Return the bottleneck of a run: of all groups of points, or of the largest group."""
    decided = [group for group in verdict.groups if group.cause is not None]
    if not decided:
        return verdict.limit_phrases
    return verdict.limit_phrases[0], f"mostly limited by {decided[0].resource}"


# --- points of a sweep


def _of_points(
    rated: Sequence[PointResult], best: PointResult, trials: Trials, factors: Sequence[FactorColumn], advice: Advice
) -> tuple[list[list[str]], tuple[str, ...]]:
    verdict = next((one for one in advice.points if one.point == best.point), advice.run)
    slowest = min(rated, key=lambda point: point.together_bytes_per_s or 0.0)
    rate = format_rate_ends(slowest.together_bytes_per_s or 0.0, best.together_bytes_per_s or 0.0)
    bounds = _bounds(best, trials, simulated=advice.backend == "sim")
    if len(rated) == 1:
        return [[f"{rate}{bound}" for bound in bounds]], verdict.limit_phrases
    if _same(slowest, best):
        unclear = [f"{rate}{bound}; no clear difference between {len(rated)} points" for bound in bounds]
        return [unclear, [rate]], _limits(advice.run)
    if " to " not in rate:
        return [[f"{rate} at all {len(rated)} points{bound}" for bound in bounds]], _limits(advice.run)
    named = _choices(best.factors, [factor.name for factor in factors if factor.varied])
    levels = [[f"{rate}{bound}; highest with {name}" for bound in bounds] for name in named]
    return [*levels, [f"{rate}{bound}" for bound in bounds]], verdict.limit_phrases


def _same(slowest: PointResult, best: PointResult) -> bool:
    """Return whether the intervals of the slowest and the best point overlap."""
    low, high = slowest.together_interval, best.together_interval
    return low is not None and high is not None and low.high >= high.low and low.high > low.low


def _bounds(point: PointResult, trials: Trials, *, simulated: bool) -> tuple[str, ...]:
    """Return the interval of a rate, or the reason for a missing one in a long and a short form."""
    interval = point.together_interval
    if interval is not None and point.together_bytes_per_s:
        low, high = format_interval_ends(interval, format_rate(point.together_bytes_per_s).split(" ", 1)[1])
        if low != high:
            return (f" [{low}, {high}]",)
    rates = trials.together_bytes_per_s[(trials.point == point.point) & np.isfinite(trials.together_bytes_per_s)]
    return _reasons(rates.tolist(), simulated=simulated)


def _reasons(rates: Sequence[float], *, simulated: bool) -> tuple[str, ...]:
    """Return why there is no interval."""
    if len(rates) == 1:
        return (" (one simulated trial)", " (one trial)") if simulated else (" (one trial)",)
    if rates and max(rates) - min(rates) <= ALIKE * max(rates):
        return (
            (" (simulated: trials do not differ)", " (simulated, no scatter)")
            if simulated
            else (" (trials do not differ)",)
        )
    return (" (two trials)",) if len(rates) == 2 else (" (no interval)",)


def _choices(values: Mapping[str, FactorValue], names: Sequence[str]) -> Iterator[str]:
    """Yield the factors of a point as a phrase: all of them first, then the first ones."""
    texts = [_choice(name, values[name]) for name in names if name in values]
    for shown in range(len(texts), 0, -1):
        yield " and ".join([*filter(None, [", ".join(texts[: shown - 1])]), texts[shown - 1]])


def _choice(name: str, value: FactorValue) -> str:
    text = format_factor_value(name, value)
    noun = _COUNTED.get(name)
    if noun is not None:
        return f"{text} {noun if text == '1' else _PLURALS.get(noun, noun + 's')}"
    return text if name in ("size_bytes", "mover") else f"{format_factor_name(name)} {text}"


def _of_empty_files(points: Sequence[PointResult], counts: Counts, mover: str) -> list[str]:
    times = sorted(point.mean_time_s for point in points if point.mean_time_s is not None)
    if not times:
        return [f"{plural(counts.transfers_ok, 'transfer')} succeeded, but none has a size and a time"]
    ends = list(dict.fromkeys((format_duration(times[0]), format_duration(times[-1]))))
    return [f"A {mover} of an empty file takes {' to '.join(ends)}, and has no rate", f"{' to '.join(ends)} for an empty file"]  # fmt: skip


# --- other workloads


def _of_workload(
    counts: Counts, points: Sequence[PointResult], sections: Sequence[ReportSection], *, simulated: bool
) -> list[list[str]]:
    section = next((one for one in sections if one.headline), None)
    found = section.headline if section else _of_totals(counts)
    parts = list(_shorter(found))
    if "[" in found or "±" in found or not any(letter.isdigit() for letter in found):
        return [[part] for part in parts]
    trials = 1 if section is None or section.name in IN_TIME else min((point.trials for point in points), default=1)
    reason = f"means of {trials} trials" if trials > 1 else "one simulated run" if simulated else "one run"
    return [[f"{first} ({reason}){sign}{rest}"] for first, sign, rest in (part.partition(";") for part in parts)]


def _shorter(text: str) -> Iterator[str]:
    """Yield a text, then the text without its last parts after semicolons."""
    parts = text.split("; ")
    for shown in range(len(parts), 0, -1):
        yield "; ".join(parts[:shown])


def _of_totals(counts: Counts) -> str:
    moved = f"{plural(counts.transfers_ok, 'transfer')} moved {format_bytes(counts.received_bytes)}"
    if not counts.span_s:
        return moved
    rate = format_bit_rate(counts.received_bytes * BITS_PER_BYTE / counts.span_s)
    return f"{rate} over {format_duration(counts.span_s)}; {moved}"
