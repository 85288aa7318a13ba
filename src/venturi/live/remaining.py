"""Time left of a run, from the durations of its finished trials. Read :class:`RemainingTime` first.

=====  ===============================================================  ====
n_p    finished trials of design point p                                –
m_p    remaining trials of design point p                               –
d_p    expected duration of a trial of design point p                   s
w_p    duration of such a trial by the plan                             s
c      relative standard deviation of trials around their design point  –
q      relative standard deviation of d_p around the plan               –
f      time of the session per second of its trials                     –
=====  ===============================================================  ====
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from venturi.plan.estimate import ASSUMED_RATE_BYTES_PER_S, ASSUMED_TRIAL_S

__all__ = ["PlannedTrial", "RemainingTime", "TimeLeft"]

NORMAL_95 = 1.96
"""Quantile of the normal distribution for a two-sided interval of 95 %."""


class PlannedTrial(Protocol):
    """Trial of a plan, such as :class:`venturi.plan.TrialRow`."""

    @property
    def point(self) -> int: ...  # noqa: D102 - design point
    @property
    def bytes(self) -> int | None: ...  # noqa: D102 - None if the plan does not fix them
    @property
    def until_s(self) -> float | None: ...  # noqa: D102 - the trial starts before this time, or never


@dataclass(frozen=True, slots=True)
class TimeLeft:
    """Estimate of the time left, in seconds.

    Attributes
    ----------
    expected_s
        The estimate.
    low_s, high_s
        Interval of about 95 %. None if the finished trials do not show how much trials differ.
    basis
        ``"trials"`` or ``"plan"``: the source of the estimate.
    """

    expected_s: float
    low_s: float | None
    high_s: float | None
    basis: str


@dataclass(slots=True)
class _Point:
    """Trials of one design point: remaining ones, and count, mean and squared deviations of the finished ones."""

    planned_s: float = 0.0
    left: int = 0
    count: int = 0
    mean_s: float = 0.0
    squares: float = 0.0


class RemainingTime:
    """Estimator of the time left.

    The rule:

    1. A remaining trial takes as long as the mean of the finished trials of its design point: d_p. Without a finished
       trial of the point, d_p = k w_p, with k = total duration of the finished trials / their duration by the plan.
    2. The session needs f seconds for each second of its trials. f covers preparation between trials and trials that run
       at the same time: f = (end of the last trial − start of the session) / total duration of the session's trials.
    3. Time left = f Σ m_p d_p − (now − end of the last trial), at least 0. If all remaining trials have a deadline, it
       ends at most one mean trial after the last deadline.
    4. Its variance is f² [Σ (m_p + m_p² / n_p) (c d_p)² + (q Σ' m_p d_p)²]: the spread of single trials, the error of each
       mean, and, for the points without trials (Σ'), the error of the plan, which is common to all of them. c is pooled
       over the points with two finished trials or more. The interval is ± 1.96 standard deviations.
    5. Before the first finished trial, the estimate comes from the plan, without an interval.

    There is no interval without c, or if q is needed and fewer than two points have finished trials.

    Parameters
    ----------
    trials
        Trial → its row in the plan.
    estimate_s
        Time of the whole run by the plan, in seconds. None if the plan does not fix it.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> rows = {f"t{i}": SimpleNamespace(point=0, bytes=0, until_s=None) for i in range(10)}
    >>> left = RemainingTime(rows, 3.0)
    >>> left.left(0.0, 1.0).basis
    'plan'
    >>> for index in range(5):
    ...     left.finish(f"t{index}", 2.0, of_session=True, end_s=2.5 * (index + 1))
    >>> left.left(0.0, 12.5).expected_s
    12.5
    """

    def __init__(self, trials: Mapping[str, PlannedTrial], estimate_s: float | None) -> None:
        self._trials = trials
        self._estimate_s = estimate_s
        self._points: dict[int, _Point] = {}
        self._has_sizes = all(row.bytes is not None for row in trials.values())
        self._open_ended = 0
        for row in trials.values():
            point = self._points.setdefault(row.point, _Point(self._planned_s(row)))
            point.left += 1
            self._open_ended += row.until_s is None
        self._last_deadline_s = max((row.until_s for row in trials.values() if row.until_s is not None), default=0.0)
        self._durations: dict[str, float] = {}
        self._session_s = 0.0
        self._last_end_s: float | None = None

    @property
    def points_done(self) -> int:
        """Design points without remaining trials."""
        return sum(1 for point in self._points.values() if point.left == 0)

    @property
    def points(self) -> int:
        """Design points of the plan."""
        return len(self._points)

    def start_session(self) -> None:
        """Record the start of a session: f belongs to its own trials."""
        self._session_s, self._last_end_s = 0.0, None

    def finish(self, trial: str, duration_s: float, *, of_session: bool, end_s: float) -> None:
        """Record a finished trial, its duration, and its end on the axis of :meth:`left`. Seconds."""
        row = self._trials.get(trial)
        if row is None or trial in self._durations:
            return
        self._durations[trial] = duration_s
        point = self._points[row.point]
        point.left -= 1
        point.count += 1
        change = duration_s - point.mean_s  # Welford: mean and squared deviations in one pass
        point.mean_s += change / point.count
        point.squares += change * (duration_s - point.mean_s)
        self._open_ended -= row.until_s is None
        if of_session:
            self._session_s += duration_s
            self._last_end_s = end_s if self._last_end_s is None else max(end_s, self._last_end_s)

    def repeat(self, trials: Iterable[str]) -> None:
        """Record that finished trials run again: their durations do not count."""
        for trial in trials:
            duration_s = self._durations.pop(trial, None)
            if duration_s is None:
                continue
            row = self._trials[trial]
            point = self._points[row.point]
            point.left += 1
            point.count -= 1
            before = point.mean_s
            point.mean_s = 0.0 if point.count == 0 else before - (duration_s - before) / point.count
            point.squares = max(0.0, point.squares - (duration_s - before) * (duration_s - point.mean_s))
            self._open_ended += row.until_s is None

    def fraction_done(self) -> float:
        """Return the finished share of the expected duration of all trials, 0 to 1."""
        scale = self._plan_scale()
        done = sum(point.mean_s * point.count for point in self._points.values())
        left = sum(point.left * _expected_s(point, scale) for point in self._points.values())
        total = sum(point.left + point.count for point in self._points.values())
        if done + left <= 0.0:  # trials without duration
            return len(self._durations) / total if total else 1.0
        return done / (done + left)

    def left(self, start_s: float, now_s: float) -> TimeLeft | None:
        """Return the time left; None without any basis.

        Parameters
        ----------
        start_s
            Start of the session, in seconds on the axis of ``now_s`` and of the ends of trials.
        now_s
            The current time.
        """
        if not any(point.left for point in self._points.values()):
            return TimeLeft(0.0, 0.0, 0.0, "trials")
        if self._last_end_s is None or self._session_s <= 0.0 or self._last_end_s <= start_s:
            if self._estimate_s is None:
                return None
            left = (1.0 - self.fraction_done()) * self._estimate_s - (now_s - start_s)
            return TimeLeft(max(left, 0.0), None, None, "plan")
        scale = self._plan_scale()
        factor = (self._last_end_s - start_s) / self._session_s
        expected = sum(point.left * _expected_s(point, scale) for point in self._points.values())
        left = max(factor * expected - (now_s - self._last_end_s), 0.0)
        deviation = self._deviation(scale)
        limit = math.inf
        if self._open_ended == 0 and self._last_deadline_s:
            mean_s = sum(self._durations.values()) / len(self._durations)
            limit = max(self._last_deadline_s + mean_s - now_s, 0.0)
        if deviation is None:
            return TimeLeft(min(left, limit), None, None, "trials")
        half = NORMAL_95 * factor * deviation
        return TimeLeft(min(left, limit), min(max(left - half, 0.0), limit), min(left + half, limit), "trials")

    def _planned_s(self, row: PlannedTrial) -> float:
        if not self._has_sizes:
            return 1.0  # only the ratio of the trials counts
        return (row.bytes or 0) / ASSUMED_RATE_BYTES_PER_S + ASSUMED_TRIAL_S

    def _plan_scale(self) -> float:
        """Return k: the duration of the finished trials over their duration by the plan."""
        planned = sum(point.planned_s * point.count for point in self._points.values())
        return sum(point.mean_s * point.count for point in self._points.values()) / planned if planned else 1.0

    def _deviation(self, scale: float) -> float | None:
        """Return the standard deviation of Σ m_p d_p in seconds; None if the finished trials do not show it."""
        measured = [point for point in self._points.values() if point.count and point.mean_s > 0.0]
        freedom = sum(point.count - 1 for point in measured)
        if freedom <= 0:
            return None
        pooled = sum(point.squares / point.mean_s**2 for point in measured) / freedom
        variance = sum((point.left + point.left**2 / point.count) * pooled * point.mean_s**2 for point in measured)
        unmeasured = sum(point.left * _expected_s(point, scale) for point in self._points.values() if not point.count)
        if unmeasured:
            if len(measured) < 2:
                return None
            ratios = [point.mean_s / (scale * point.planned_s) for point in measured]
            mean = sum(ratios) / len(ratios)
            variance += unmeasured**2 * sum((ratio - mean) ** 2 for ratio in ratios) / (len(ratios) - 1)
        return math.sqrt(variance)


def _expected_s(point: _Point, scale: float) -> float:
    return point.mean_s if point.count else scale * point.planned_s
