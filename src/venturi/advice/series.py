"""Cumulative counters of a run as arrays, and their growth in any window."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from venturi.run import Run

__all__ = ["CounterSeries", "load_counters"]

_PATTERNS = (
    "cpu.%",
    "cgroup.%",
    "pressure.%",
    "process.%",
    "disk.%",
    "mount.%",
    "nic.%_bytes",
    "link.%",
    "emulator.%",
    "tcp.%",
    "softnet.%",
)

FloatArray = npt.NDArray[np.float64]

MAX_VALUES = 4_000_000
"""Number of values above which only every n-th value is read."""


@dataclass(frozen=True, slots=True)
class CounterSeries:
    """Times and values of a cumulative counter. The values do not decrease when the counter restarts."""

    time_s: FloatArray
    value: FloatArray

    def growth(self, start_s: float, end_s: float) -> float | None:
        """Return the interpolated growth between two times, or None if the samples do not cover half of the window."""
        covered = min(end_s, float(self.time_s[-1])) - max(start_s, float(self.time_s[0]))
        if len(self.time_s) < 2 or covered <= 0.5 * (end_s - start_s):
            return None
        first, last = np.interp([start_s, end_s], self.time_s, self.value)
        return float(last - first) * (end_s - start_s) / covered if covered < end_s - start_s else float(last - first)

    def steps(self, start_s: float, end_s: float) -> tuple[FloatArray, FloatArray]:
        """Return the lengths of the sampling intervals in a window, and the growth in each."""
        inside = np.flatnonzero((self.time_s >= start_s) & (self.time_s <= end_s))
        return np.diff(self.time_s[inside]), np.diff(self.value[inside])

    def last(self, end_s: float) -> float:
        """Return the value of a gauge at a time."""
        return float(self.value[max(0, int(np.searchsorted(self.time_s, end_s, side="right")) - 1)])

    def maximum(self, start_s: float, end_s: float) -> float | None:
        """Return the maximum of a gauge in a window, or None without a sample."""
        inside = (self.time_s >= start_s) & (self.time_s <= end_s)
        return float(self.value[inside].max()) if inside.any() else None


def load_counters(run: Run) -> Mapping[tuple[str, str], CounterSeries]:
    """Return (host, counter) → series of every counter that a verdict uses."""
    condition = " OR ".join(f"counter LIKE '{pattern}'" for pattern in _PATTERNS)
    number = int(run.query(f"SELECT count(*) AS n FROM samples WHERE {condition}")["n"][0])
    rows = run.query(
        f"""SELECT host, counter, list(time_s ORDER BY time_s) AS time_s, list(value ORDER BY time_s) AS value
            FROM (SELECT *, row_number() OVER (PARTITION BY host, counter ORDER BY time_s) AS number FROM samples WHERE {condition})
            WHERE number % $every = 0 GROUP BY host, counter ORDER BY host, counter""",
        {"every": 1 + number // MAX_VALUES},
    )
    found = {}
    for host, counter, times, counts in zip(
        rows["host"], rows["counter"], rows["time_s"], rows["value"], strict=True
    ):
        values = np.asarray(counts, dtype=np.float64)
        if not _is_gauge(str(counter)) and (np.diff(values) < 0).any():
            grown = np.diff(values, prepend=values[0])
            values = np.cumsum(np.where(grown < 0, 0.0, grown))
        found[str(host), str(counter)] = CounterSeries(np.asarray(times, dtype=np.float64), values)
    return found


def _is_gauge(counter: str) -> bool:
    return counter.startswith(_GAUGES) or counter.endswith(".queue_high_bytes")


_GAUGES = ("emulator.late", "cgroup.memory.used", "cgroup.memory.limit_bytes")
