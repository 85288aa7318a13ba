"""From finished trials to progress: counts, a live rate, and an estimate of the time left."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from typing import Any

from venturi.backend.base import Progress
from venturi.backend.words import failure_in_words
from venturi.run import RunWriter

__all__ = ["Meter"]

RATE_WINDOW_S = 5.0
"""Span of the live rate: long enough to hold some trials of a second, short enough to show a change."""

OVERHEAD_BYTES = 10_000_000
"""What a trial weighs in the estimate of time beside its bytes: 50 ms at 200 MB/s, as in the estimate of a plan."""


class Meter:
    """Keeps count of a session.

    Parameters
    ----------
    run
        The run as it stands when the session begins.
    now_s
        Monotonic time, in seconds.
    """

    def __init__(self, run: RunWriter, now_s: float) -> None:
        self._run = run
        self._began_s = now_s
        self._failed = 0
        self._failure = ""
        self._message = ""
        self._factors: Mapping[str, Any] = {}
        self._recent: deque[tuple[float, int]] = deque()
        rows = run.trials.values()
        self._bytes_total = None if any(row.bytes is None for row in rows) else sum(row.bytes or 0 for row in rows)
        self._bytes_done = sum(run.trials[trial].bytes or 0 for trial in run.finished if trial in run.trials)
        self._weight_left = sum(self._weight(trial) for trial in run.remaining())
        self._weight_done = 0

    @property
    def failed(self) -> int:
        """Trials of this session that failed."""
        return self._failed

    def say(self, message: str) -> None:
        """Set what is going on beside trials; the next trial wipes it out."""
        self._message = message

    def begin(self, trial: str) -> None:
        """Note that a trial has begun."""
        row = self._run.trials.get(trial)
        self._factors = row.factors if row is not None else {}
        self._message = ""

    def finish(self, record: Mapping[str, Any], outcome: str, now_s: float) -> None:
        """Note that a trial has ended, how, and what it moved."""
        trial = str(record["trial"])
        transfers = record.get("transfers") or ()
        if outcome != "ok":
            self._failed += 1
            self._failure = self._failure or failure_in_words(record)
        self._bytes_done += self._run.trials[trial].bytes or 0
        self._recent.append((now_s, sum(transfer.get("received_bytes") or 0 for transfer in transfers)))
        weight = self._weight(trial)
        self._weight_done += weight
        self._weight_left -= weight

    def progress(self, now_s: float | None = None) -> Progress:
        """Return how far the campaign is."""
        now_s = time.monotonic() if now_s is None else now_s
        elapsed_s = now_s - self._began_s
        while self._recent and self._recent[0][0] < now_s - RATE_WINDOW_S:
            self._recent.popleft()
        rate = sum(size for _, size in self._recent) / min(elapsed_s, RATE_WINDOW_S) if elapsed_s > 0 else None
        return Progress(
            trials_done=len(self._run.finished),
            trials_total=len(self._run.trials),
            bytes_done=self._bytes_done,
            bytes_total=self._bytes_total,
            failed=self._failed,
            elapsed_s=elapsed_s,
            rate_bytes_per_s=rate if self._weight_done else None,
            remaining_s=elapsed_s * self._weight_left / self._weight_done if self._weight_done else None,
            factors=self._factors,
            message=self._message,
            failure=self._failure,
        )

    def _weight(self, trial: str) -> int:
        return (self._run.trials[trial].bytes or 0) + OVERHEAD_BYTES
