"""What is handed between queue, worker and attempt: tasks, claims and verdicts, and what becomes of a transfer."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal

from venturi.managed.address import Address
from venturi.managed.causes import Cause
from venturi.managed.checksum import Checksum
from venturi.managed.options import JobOptions

__all__ = ["Claim", "Task", "Verdict", "fate"]


@dataclass(frozen=True, slots=True)
class Task:
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
class Claim:
    """What goes into one call of a mover: one task, or several of the same two hosts."""

    call: int
    mover: str
    options: JobOptions
    tasks: tuple[Task, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """How an attempt ended.

    Attributes
    ----------
    outcome
        ``interrupted`` counts as no try.
    cause, error
        Of what is not ``ok``.
    move_s, verify_s
        Times of the mover and of the comparison; None: it did not come to that.
    moved_bytes
        What the destination got; None where nobody could tell.
    verified, unverified
        The algorithm by which both ends are the same, or why they were not compared.
    alone
        Not to be put into a call with others again.
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


def fate(task: Task, verdict: Verdict, options: JobOptions, now_unix_s: float) -> tuple[str, int, float]:
    """Return the state of a transfer after an attempt, its failures so far, and when it is due again."""
    if verdict.outcome == "ok":
        return "done", task.failures, now_unix_s
    if verdict.outcome == "cancelled":
        return "cancelled", task.failures, now_unix_s
    if verdict.outcome == "interrupted":
        return "queued", task.failures, now_unix_s
    failures = task.failures + 1
    if verdict.alone:  # one of many in a call that failed: nobody knows yet whose fault it was
        return "queued", task.failures, now_unix_s
    if (verdict.cause or Cause.OTHER).is_permanent or failures > options.retries:
        return "failed", failures, now_unix_s
    delay_s = options.delay_s(failures, random.Random(f"{task.id}/{task.attempt}"))
    return "queued", failures, now_unix_s + delay_s
