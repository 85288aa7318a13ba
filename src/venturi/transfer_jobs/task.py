"""Types that queue, worker and attempt exchange (tasks, batches, results), and the next state of a transfer."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal

from venturi.transfer_jobs.address import Address
from venturi.transfer_jobs.causes import Cause
from venturi.transfer_jobs.checksum import Checksum
from venturi.transfer_jobs.options import JobOptions

__all__ = ["AttemptResult", "CallBatch", "TransferTask", "next_state"]


@dataclass(frozen=True, slots=True)
class TransferTask:
    """A transfer that a worker has claimed."""

    id: int
    job: int
    line: int
    source: Address
    destination: Address
    size_bytes: int | None
    checksum: Checksum | None
    copied: bool
    attempt: int
    failures: int
    found: str | None


@dataclass(frozen=True, slots=True)
class CallBatch:
    """Tasks of one call of a mover: one task, or several between the same two hosts."""

    call: int
    mover: str
    options: JobOptions
    tasks: tuple[TransferTask, ...]


@dataclass(frozen=True, slots=True)
class AttemptResult:
    """Result of an attempt.

    Attributes
    ----------
    outcome
        ``interrupted`` does not count as a failure.
    cause, error
        Cause and message if ``outcome`` is not ``ok``.
    move_s, verify_s
        Times of the mover and of the comparison. None if that step was not reached.
    moved_bytes
        Bytes at the destination. None if unknown.
    verified, unverified
        Algorithm of a successful comparison, or the reason why there was none.
    alone
        Whether the transfer must have a separate call from now on.
    """

    outcome: Literal["ok", "failed", "interrupted", "cancelled"]
    cause: Cause | None = None
    error: str = ""
    move_s: float | None = None
    verify_s: float | None = None
    moved_bytes: int | None = None
    verified: str | None = None
    unverified: str | None = None
    alone: bool = False


def next_state(
    task: TransferTask, verdict: AttemptResult, options: JobOptions, now_unix_s: float
) -> tuple[str, int, float]:
    """Return the state of a transfer after an attempt, its number of failures, and the time when it is due."""
    if verdict.outcome == "ok":
        return "done", task.failures, now_unix_s
    if verdict.outcome == "cancelled":
        return "cancelled", task.failures, now_unix_s
    if verdict.outcome == "interrupted":
        return "queued", task.failures, now_unix_s
    failures = task.failures + 1
    if verdict.alone:  # the call had several transfers, and the cause can be any of them
        return "queued", task.failures, now_unix_s
    if (verdict.cause or Cause.OTHER).is_permanent or failures > options.retries:
        return "failed", failures, now_unix_s
    delay_s = options.delay_s(failures, random.Random(f"{task.id}/{task.attempt}"))
    return "queued", failures, now_unix_s + delay_s
