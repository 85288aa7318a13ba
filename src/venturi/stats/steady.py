"""Steady part of a series: without the ramp at its start and the tail at its end.

Document 003 slices its batches but does not state the rule (003-SLICE; tables 6.1 and 6.2 are the two forms). This
module uses MSER-5 (White, Simulation 69 (1997) 323; White, Cobb & Spratt, Winter Simulation Conference 2000, 755).
Values are averaged in batches of 5. The first a batches are cut so that the squared error of the mean of the rest is
smallest:

    Σ_{j>a} (Z_j − Z̄_a)² / (k − a)²,   k batches Z_j

A ramp makes the numerator large; cutting too much makes the denominator small. The mirrored statistic finds the end.
Both ends are searched jointly, because a remaining tail would hide a ramp and vice versa. A known end can be given
instead, for example when the first client ran out of work ("first done").

As usual for MSER, less than half of the series may be cut. In a short series, noise alone often moves the minimum to
this limit. Two tests decide:

1. If half would be cut, the batches next to the slice are added again, nearest first, as long as they do not differ from
   the slice, alone or together (Student's t, 1 %). If none is added, there is no steady part.
2. A slice with a trend is not a steady part. It has a trend if the slope of a straight line through at most 12 batches
   differs from zero (Student's t, 5 %), and the line changes by more than 2 % of the mean.

Simulated series with normal noise, as percentage with a slice and bias of its mean (800 each):

==========================  =============  =============  =============  =============
shape                       60, 5 % noise  60, 20 %       120, 5 %       120, 20 %
==========================  =============  =============  =============  =============
level from end to end       96 %           95 %           96 %           95 %
linear ramp over 20 %       96 %, −0.1 %   94 %, −0.1 %   96 %, 0.0 %    97 %, −0.1 %
ramp over 20 %, tail 10 %   92 %, −0.1 %   95 %, −0.4 %   94 %, 0.0 %    96 %, −0.2 %
linear ramp over 40 %       92 %, −0.2 %   92 %, −1.1 %   94 %, −0.1 %   96 %, −0.4 %
linear ramp over 70 %       0 %            19 %           0 %            29 %
rise from end to end        0 %            2 %            0 %            2 %
half at 100, half at 30     0 %            0 %            0 %            0 %
==========================  =============  =============  =============  =============

A ramp over more than half of a noisy series can pass as steady.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from venturi.errors import SampleError
from venturi.stats._arrays import FloatArray, as_sample, same_length
from venturi.stats.quantiles import student_reach
from venturi.stats.summary import Summary, summarise

__all__ = ["MSER_BATCH", "SteadyState", "fixed_slice", "steady_state"]

MSER_BATCH = 5
"""Values averaged into one batch, the 5 of MSER-5."""

_FEWEST_BATCHES = 10
"""Minimum number of batches (50 values); fewer give the statistic too little choice."""

_MOST_BATCHES = 1000
"""Maximum number of batches k. Longer series get longer batches, because the search examines k² / 8 pairs of ends."""

_SAME_MEAN = 0.99
_NO_TREND = 0.95
"""Levels of the two tests."""

_MOST_TREND_BATCHES = 12
"""Maximum number of batches in the test for a trend; long batches are nearly independent of each other."""

_HARMLESS_DRIFT = 0.02
"""Change over the slice, relative to its mean, that does not count as a trend.

In a long series, even the smallest drift is significant.
"""


@dataclass(frozen=True, slots=True)
class SteadyState:
    """Slice of a series, with the statistics of the slice and of the whole series.

    Attributes
    ----------
    found
        Whether there is a slice.
    start, stop
        The slice is ``value[start:stop]``; ``None`` if none was found. The search uses whole batches, so up to one
        batch less one value is cut at the end.
    start_s, end_s
        Times of its first and last value.
    whole, steady
        Mean, deviation and percentage of all values and of the slice (tables 6.1 and 6.2 of document 003).
    rule
        Rule of the slice, as text for a report.
    reason
        Why no slice was found; ``None`` if there is one.
    """

    found: bool
    start: int | None
    stop: int | None
    start_s: float | None
    end_s: float | None
    whole: Summary
    steady: Summary | None
    rule: str
    reason: str | None


def steady_state(time_s: npt.ArrayLike, value: npt.ArrayLike, *, end_s: float | None = None) -> SteadyState:
    """Return the steady part of a series by MSER-5, at both ends.

    Parameters
    ----------
    time_s
        Time of each value, ascending and equally spaced, shape (n,).
    value
        Rates or other values, shape (n,), any unit.
    end_s
        Known end of the slice. Later values are cut, and only the start is searched.

    Returns
    -------
    SteadyState
        ``found`` is false, with a ``reason``, if the series is shorter than 50 values, if half of it or more would be
        cut, or if the rest has a trend.

    Examples
    --------
    >>> import numpy as np
    >>> rate = np.concatenate([np.linspace(0, 100, 20), np.full(80, 100.0), np.linspace(100, 0, 20)])
    >>> steady = steady_state(np.arange(120.0), rate)
    >>> steady.start, steady.stop, steady.steady.mean, round(steady.whole.mean, 1)
    (20, 100, 100.0, 83.3)
    """
    time, values = _series(time_s, value)
    usable = values if end_s is None else values[: int(np.searchsorted(time, end_s, side="right"))]
    size = max(MSER_BATCH, math.ceil(usable.size / _MOST_BATCHES))
    rule = f"MSER-{size} at the start, " + ("mirrored at the end" if end_s is None else f"end set to {end_s:g} s")
    batches = usable.size // size
    if batches < _FEWEST_BATCHES:
        expected = _FEWEST_BATCHES * MSER_BATCH
        return _none(values, rule, f"{usable.size} values; at least {expected} are needed to find a steady part")
    means = usable[: batches * size].reshape(batches, size).mean(axis=1)
    first, last = _least_error(means, cut_end=end_s is None)
    if last - first <= _shortest(batches):
        first, last = (
            first - _same(means[first:last], means[:first][::-1]),
            last + _same(means[first:last], means[last:]),
        )
    if last - first <= _shortest(batches):
        return _none(values, rule, "at least half of the series would have to be cut: it never became steady")
    if _has_trend(means[first:last]):
        return _none(values, rule, "its steadiest part rises or falls: it never became steady")
    return _slice(time, values, first * size, last * size, rule)


def fixed_slice(time_s: npt.ArrayLike, value: npt.ArrayLike, start_s: float, end_s: float) -> SteadyState:
    """Return the slice of all values with ``start_s`` ≤ time ≤ ``end_s``.

    Parameters
    ----------
    time_s, value
        As for :func:`steady_state`, with any spacing.
    start_s, end_s
        Ends of the slice, on the clock of ``time_s``.

    Examples
    --------
    >>> part = fixed_slice([0, 1, 2, 3], [0, 8, 10, 1], 1, 2)
    >>> part.start, part.stop, part.steady.mean, part.whole.mean
    (1, 3, 9.0, 4.75)
    """
    time, values = _series(time_s, value)
    rule = f"fixed, {start_s:g} s to {end_s:g} s"
    start, stop = np.searchsorted(time, start_s, side="left"), np.searchsorted(time, end_s, side="right")
    if stop <= start:
        return _none(values, rule, f"no value in this interval; the series runs from {time[0]:g} s to {time[-1]:g} s")
    return _slice(time, values, int(start), int(stop), rule)


def _series(time_s: npt.ArrayLike, value: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
    time, values = as_sample(time_s, "time_s"), as_sample(value, "value")
    same_length(time_s=time, value=values)
    if np.any(np.diff(time) <= 0):
        raise SampleError("time_s: expected ascending times, found one that is not later than the one before it")
    return time, values


def _shortest(batches: int) -> int:
    return math.ceil(batches / 2)


def _least_error(means: FloatArray, *, cut_end: bool) -> tuple[int, int]:
    """Return the slice [first, last) of batches, at least half of them, with the smallest MSER statistic."""
    centred = means - np.median(means)
    k = len(means)
    total = np.concatenate(([0.0], np.cumsum(centred)))
    square = np.concatenate(([0.0], np.cumsum(centred**2)))
    first = np.arange(k - _shortest(k) + 1)[:, None]
    last = np.arange(_shortest(k), k + 1)[None, :] if cut_end else np.array([[k]])
    length = np.maximum(last - first, 1)
    spread = (square[last] - square[first]) - (total[last] - total[first]) ** 2 / length
    error = np.where(last - first >= _shortest(k), spread / length**2, np.inf)
    # Among equal errors within rounding (a level series), choose the longest slice, then the earliest.
    rounding = 1e-12 * square[-1] / k**2
    row, column = np.nonzero(error <= error.min() + rounding)
    best = int(np.argmax(length[row, column]))
    return int(first[row[best], 0]), int(last[0, column[best]])


def _same(kept: FloatArray, beyond: FloatArray) -> int:
    """Return how many batches beyond an end of ``kept``, nearest first, do not differ from it, alone and together."""
    reach = student_reach(_SAME_MEAN, kept.size - 1) * float(kept.std(ddof=1))
    difference = np.abs(beyond - kept.mean())
    count = np.arange(1, beyond.size + 1)
    together = np.abs(np.cumsum(beyond) / count - kept.mean())
    same = (difference <= reach * math.sqrt(1 + 1 / kept.size)) & (
        together <= reach * np.sqrt(1 / count + 1 / kept.size)
    )
    return int(np.argmin(np.append(same, False)))


def _has_trend(means: FloatArray) -> bool:
    """Return whether batch means rise or fall by more than :data:`_HARMLESS_DRIFT`, beyond chance."""
    size = math.ceil(means.size / _MOST_TREND_BATCHES)
    batches = means.size // size
    grouped = means[: batches * size].reshape(batches, size).mean(axis=1)
    position, centred = np.arange(batches) - (batches - 1) / 2, grouped - grouped.mean()
    squares = float(position @ position)
    slope = float(position @ centred) / squares
    if abs(slope) * batches <= _HARMLESS_DRIFT * abs(float(grouped.mean())):
        return False
    residual = centred - slope * position
    error = math.sqrt(float(residual @ residual) / (batches - 2) / squares)
    return abs(slope) > student_reach(_NO_TREND, batches - 2) * error


def _slice(time: FloatArray, values: FloatArray, start: int, stop: int, rule: str) -> SteadyState:
    return SteadyState(
        found=True,
        start=start,
        stop=stop,
        start_s=float(time[start]),
        end_s=float(time[stop - 1]),
        whole=summarise(values),
        steady=summarise(values[start:stop]),
        rule=rule,
        reason=None,
    )


def _none(values: FloatArray, rule: str, reason: str) -> SteadyState:
    return SteadyState(False, None, None, None, None, summarise(values), None, rule, reason)
