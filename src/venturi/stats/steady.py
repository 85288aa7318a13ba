"""The steady part of a series: without the ramp at its start and the tail at its end.

Document 003 slices its batches and does not say by which rule (003-SLICE; tables 6.1 and 6.2 are the two forms). Here
the rule is MSER-5 (White, Simulation 69 (1997) 323; White, Cobb & Spratt, Winter Simulation Conference 2000, 755): of
means of 5 values, cut the first a so that the squared error of the mean of the rest,

    Σ_{j>a} (Z_j − Z̄_a)² / (k − a)²,   k batches Z_j,

is least. A ramp makes the numerator large; cutting too much makes the denominator small. The end is found by the same
statistic mirrored, and both jointly, since a tail left in would hide a ramp and the other way round. An end known
from elsewhere (the first client that ran out of work, "first done") may be given instead.

A longer series is judged better: of simulated series that are level from end to end, with noise and no ramp, a slice
is found in 70 % at 60 values, 90 % at 120 and 99 % at 400.

As usual for MSER a cut of half of the series or more is no answer but a sign that no steady part was seen.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from venturi.errors import SampleError
from venturi.stats._arrays import FloatArray, as_sample, same_length
from venturi.stats.summary import Summary, summarise

__all__ = ["MSER_BATCH", "SteadyState", "fixed_slice", "steady_state"]

MSER_BATCH = 5
"""Values averaged into one batch, the 5 of MSER-5."""

_FEWEST_BATCHES = 10
"""Below this the statistic has too little to choose from; 50 values."""

_MOST_BATCHES = 1000
"""Longer series get longer batches: all pairs of start and end are looked at, which is k² / 8 of them."""


@dataclass(frozen=True, slots=True)
class SteadyState:
    """A slice of a series, with the numbers of the slice and of the whole.

    Attributes
    ----------
    found
        Whether there is a slice.
    start, stop
        The slice is ``value[start:stop]``; ``None`` if none was found. The search moves by whole batches, so up to
        one batch less one value is left over at the end and cut.
    start_s, end_s
        Times of the first and the last value in it.
    whole, steady
        Mean, deviation, percentage of all values and of the slice (tables 6.1 and 6.2 of document 003).
    rule
        How the slice was chosen, in words for a report.
    reason
        Why none was found; ``None`` if one was.
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
        Rates or the like, shape (n,), any unit.
    end_s
        If given, the end of the slice: values after it are cut and only the start is searched for.

    Returns
    -------
    SteadyState
        ``found`` is false, with a ``reason``, if the series is shorter than 50 values, or half of it or more would
        have to go.

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
    rule = f"MSER-{size} at the start, " + ("mirrored at the end" if end_s is None else f"end given as {end_s:g} s")
    batches = usable.size // size
    if batches < _FEWEST_BATCHES:
        expected = _FEWEST_BATCHES * MSER_BATCH
        return _none(values, rule, f"{usable.size} values; at least {expected} are needed to find a steady part")
    means = usable[: batches * size].reshape(batches, size).mean(axis=1)
    first, last = _least_error(means, cut_end=end_s is None)
    if last - first <= _shortest(batches):
        return _none(values, rule, "half of the series or more would have to be cut: it never settled")
    return _slice(time, values, first * size, last * size, rule)


def fixed_slice(time_s: npt.ArrayLike, value: npt.ArrayLike, start_s: float, end_s: float) -> SteadyState:
    """Return the slice of all values with ``start_s`` ≤ time ≤ ``end_s``.

    Parameters
    ----------
    time_s, value
        As for :func:`steady_state`; spacing does not matter.
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
        return _none(values, rule, f"no value there; the series runs from {time[0]:g} s to {time[-1]:g} s")
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
    """Return the slice [first, last) of batches, at least half of them, with the least MSER statistic."""
    centred = means - np.median(means)
    k = len(means)
    total = np.concatenate(([0.0], np.cumsum(centred)))
    square = np.concatenate(([0.0], np.cumsum(centred**2)))
    first = np.arange(k - _shortest(k) + 1)[:, None]
    last = np.arange(_shortest(k), k + 1)[None, :] if cut_end else np.array([[k]])
    length = np.maximum(last - first, 1)
    spread = (square[last] - square[first]) - (total[last] - total[first]) ** 2 / length
    error = np.where(last - first >= _shortest(k), spread / length**2, np.inf)
    # Equal within rounding (a level stretch has none to cut): the longest slice, and of these the earliest.
    rounding = 1e-12 * square[-1] / k**2
    row, column = np.nonzero(error <= error.min() + rounding)
    best = int(np.argmax(length[row, column]))
    return int(first[row[best], 0]), int(last[0, column[best]])


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
