"""Progress of a session from its finished trials: counts, a current rate, and an estimate of the remaining time."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from typing import Any

from venturi.backend.base import RunProgress
from venturi.backend.event_messages import format_failure
from venturi.run import RunWriter

__all__ = ["ProgressMeter"]

RATE_WINDOW_S = 5.0
"""Time window of the current rate: long enough for some trials of a second, short enough to show a change."""

OVERHEAD_BYTES = 10_000_000
"""Weight of a trial in the time estimate, in addition to its bytes: 50 ms at 200 MB/s, as in the estimate of a plan."""


class ProgressMeter:
    """Counters of a session.

    Parameters
    ----------
    run
        The run at the start of the session.
    now_s
        Monotonic time, in seconds.
    """

    def __init__(self, run: RunWriter, now_s: float) -> None:
        self._run = run
        self._started_s = now_s
        self._failed = 0
        self._failure = ""
        self._message = ""
        self._factors: Mapping[str, Any] = {}
        self._recent: deque[tuple[float, int]] = deque()
        rows = run.trials.values()
        self._bytes_total = None if any(row.bytes is None for row in rows) else sum(row.bytes or 0 for row in rows)
        self._finished_bytes = sum(run.trials[trial].bytes or 0 for trial in run.finished if trial in run.trials)
        self._remaining_weight = sum(self._weight(trial) for trial in run.remaining())
        self._finished_weight = 0

    @property
    def failed(self) -> int:
        """Trials of this session that failed."""
        return self._failed

    def set_message(self, message: str) -> None:
        """Set the current activity outside trials. The next trial clears it."""
        self._message = message

    def start_trial(self, trial: str) -> None:
        """Record the start of a trial."""
        row = self._run.trials.get(trial)
        self._factors = row.factors if row is not None else {}
        self._message = ""

    def finish(self, record: Mapping[str, Any], outcome: str, now_s: float) -> None:
        """Record the end of a trial, with its outcome and bytes."""
        trial = str(record["trial"])
        transfers = record.get("transfers") or ()
        if outcome != "ok":
            self._failed += 1
            self._failure = self._failure or format_failure(record)
        self._finished_bytes += self._run.trials[trial].bytes or 0
        self._recent.append((now_s, sum(transfer.get("received_bytes") or 0 for transfer in transfers)))
        weight = self._weight(trial)
        self._finished_weight += weight
        self._remaining_weight -= weight

    def progress(self, now_s: float | None = None) -> RunProgress:
        """Return the progress of the run."""
        now_s = time.monotonic() if now_s is None else now_s
        elapsed_s = now_s - self._started_s
        while self._recent and self._recent[0][0] < now_s - RATE_WINDOW_S:
            self._recent.popleft()
        rate = sum(size for _, size in self._recent) / min(elapsed_s, RATE_WINDOW_S) if elapsed_s > 0 else None
        return RunProgress(
            trials_done=len(self._run.finished),
            trials_total=len(self._run.trials),
            bytes_done=self._finished_bytes,
            bytes_total=self._bytes_total,
            failed=self._failed,
            elapsed_s=elapsed_s,
            rate_bytes_per_s=rate if self._finished_weight else None,
            remaining_s=elapsed_s * self._remaining_weight / self._finished_weight if self._finished_weight else None,
            factors=self._factors,
            message=self._message,
            failure=self._failure,
        )

    def _weight(self, trial: str) -> int:
        return (self._run.trials[trial].bytes or 0) + OVERHEAD_BYTES
