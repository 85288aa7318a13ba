"""Time and bytes of the samples: the remaining time in equal parts, and sizes of files from measured rates."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from venturi.measure.result import Part

__all__ = ["WEIGHTS", "Budget", "next_size_bytes"]

WEIGHTS: Mapping[Part, float] = {"network": 1.0, "read": 0.6, "write": 0.8, "mover": 1.2, "copy": 1.4}
"""Time of each part relative to an equal fraction of the time: a copy needs time to start, a disk needs little."""

MIN_PART_S = 0.5
MAX_PART_S = 20.0
MIN_FILE_BYTES = 4 << 20

_PREPARATION_SAMPLES = 10
"""Files, warm-up and changed file sizes of one direction need the bytes of 10 samples."""

_GROWTH = 8
"""A file grows at most by this factor from one round to the next: a rate from a small file is uncertain."""


@dataclass
class Budget:
    """Remaining time of a measurement.

    Attributes
    ----------
    time_s
        Time of the whole measurement.
    samples
        Number of samples in all rounds.
    max_bytes
        Limit of all bytes that are sent or written.
    directions
        Number of directions, each with its own files and warm-up.
    """

    time_s: float
    samples: int
    max_bytes: int
    directions: int = 1
    started_s: float = field(default_factory=time.monotonic)
    _done: int = 0
    _extra_s: float = 0.0

    @property
    def elapsed_s(self) -> float:
        """Time since the start."""
        return time.monotonic() - self.started_s

    @property
    def sample_bytes(self) -> int:
        """Largest number of bytes of one sample, and of one file."""
        return self.max_bytes // self._equal_parts

    @property
    def smallest_max_bytes(self) -> int:
        """Smallest `max_bytes` that allows a file of the smallest size for each sample."""
        return MIN_FILE_BYTES * self._equal_parts

    @property
    def smallest_time_s(self) -> float:
        """Smallest `time_s` that allows the smallest time for each sample."""
        return MIN_PART_S * self.samples

    @property
    def _equal_parts(self) -> int:
        return self.samples + _PREPARATION_SAMPLES * self.directions

    def part_s(self) -> float:
        """Return the time of the next sample: an equal fraction of the remaining time, without the usual extra time."""
        left = max(self.samples - self._done, 1)
        extra_s = self._extra_s / self._done if self._done else 0.0
        remaining_s = (self.time_s - self.elapsed_s) / left - extra_s
        return min(max(remaining_s, MIN_PART_S), MAX_PART_S)

    def add(self, measured_s: float, elapsed_s: float) -> None:
        """Count one sample: its measured time, and all of its time with preparation."""
        self._done += 1
        self._extra_s += max(0.0, elapsed_s - measured_s)


def next_size_bytes(size_bytes: int, rate_bytes_per_s: float | None, part_s: float, limit_bytes: int) -> int:
    """Return the size of files whose copy takes about ``part_s``.

    The size stays if the copy would take between 75 % and 150 % of the time: equal sizes in all rounds are better.

    Examples
    --------
    >>> next_size_bytes(100_000_000, 100e6, 1.2, 10**9), next_size_bytes(100_000_000, 100e6, 0.25, 10**9)
    (100000000, 25000000)
    """
    if not rate_bytes_per_s:
        return min(max(size_bytes // 4, MIN_FILE_BYTES), limit_bytes)
    expected_s = size_bytes / rate_bytes_per_s
    if 0.75 * part_s <= expected_s <= 1.5 * part_s:
        return min(size_bytes, limit_bytes)
    requested = min(round(rate_bytes_per_s * part_s), size_bytes * _GROWTH)
    return min(max(requested, MIN_FILE_BYTES), limit_bytes)
