"""Limit of the CPU time of a periodic task, as a share of one core."""

from __future__ import annotations

__all__ = ["UPDATE_FRACTION", "VERDICT_FRACTION", "CpuBudget"]

UPDATE_FRACTION = 0.005
"""Share of a core for the updates of the view: half of the 1 % that a view may cost.

Longer intervals lower the cost of an update, but not that of each new line of the run.
"""

VERDICT_FRACTION = 0.004
"""Share of a core for verdicts during the run."""


class CpuBudget:
    """Time of the next execution of a task, so that its CPU time stays below a share of one core.

    Parameters
    ----------
    fraction
        Share of a core, between 0 and 1.
    interval_s
        Least time between two executions. Seconds.
    expected_s
        CPU time of the first execution, if it has to wait until the share allows it. Seconds.

    Examples
    --------
    >>> budget = CpuBudget(0.005, interval_s=1.0)
    >>> budget.spend(0.002), budget.next_s(10.0)
    (None, 11.0)
    >>> budget.spend(0.05)
    >>> budget.next_s(11.0)
    21.0
    """

    def __init__(self, fraction: float, *, interval_s: float, expected_s: float = 0.0) -> None:
        self._fraction = fraction
        self._interval_s = interval_s
        self._last_s = expected_s

    def spend(self, cpu_s: float) -> None:
        """Record the CPU time of an execution, in seconds."""
        self._last_s = cpu_s

    def next_s(self, last_s: float) -> float:
        """Return the earliest time of the next execution after one at ``last_s``. Seconds."""
        return last_s + max(self._interval_s, self._last_s / self._fraction)
