"""How far a job is, and what its transfers took: read from the queue, at any time, beside any worker."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from venturi.managed.causes import Cause
from venturi.managed.queue import Queue, QueueError

__all__ = ["JobStatus", "failed_transfers", "job_status"]

_RECENT_S = 10.0

JobState = Literal["queued", "active", "done", "failed", "cancelled"]


@dataclass(frozen=True, slots=True)
class JobStatus:
    """How far a job is.

    Attributes
    ----------
    job, name, submitted_unix_s
        Which one.
    state
        ``active``: some of it is under way; ``queued``: some of it waits for a worker; else it is over, and ``failed`` or
        ``cancelled`` if any transfer is.
    transfers
        State → number of transfers.
    done_bytes, asked_bytes
        Of the transfers that are done, each counted once, as far as sizes are known; of all, None unless all are.
    unsized
        Transfers done whose size nobody has told: from server to server, and not said in the list.
    attempts, retries
        Attempts; those that were made because one before had failed.
    verified, unverified
        Transfers done whose ends were compared, and reason → number of those whose ends were not.
    causes
        Cause → number of transfers that failed for good; ``passing``: cause → number of attempts that failed.
    elapsed_s
        From submission to the end of its last transfer, or to now.
    wait_s
        Mean over transfers from submission to their first attempt.
    move_s, verify_s, overhead_s
        Sums over calls of movers: the mover itself, comparing, and the rest: looking, agent, writing down. Beside each
        other, as calls run.
    rate_bytes_per_s
        Bytes done within the last ten seconds, over them; of a job that is over, all over ``elapsed_s``.
    """

    job: int
    name: str
    submitted_unix_s: float
    state: JobState
    transfers: Mapping[str, int]
    done_bytes: int
    asked_bytes: int | None
    unsized: int
    attempts: int
    retries: int
    verified: int
    unverified: Mapping[str, int]
    elapsed_s: float
    wait_s: float | None
    move_s: float
    verify_s: float
    overhead_s: float
    calls: int
    rate_bytes_per_s: float
    causes: Mapping[str, int] = field(default_factory=dict)
    passing: Mapping[str, int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """Number of its transfers."""
        return sum(self.transfers.values())


def job_status(queue: Queue, job: int, now_unix_s: float) -> JobStatus:
    """Return how far a job is.

    Raises
    ------
    QueueError
        If there is no such job.
    """
    queue.options(job)
    (about,) = queue.rows("SELECT * FROM job WHERE id = ?", job)
    counts = {
        row[0]: row[1] for row in queue.rows("SELECT state, count(*) FROM transfer WHERE job = ? GROUP BY state", job)
    }
    sums = queue.rows(
        "SELECT sum(iif(state = 'done', moved_bytes, 0)) AS done_bytes, sum(size_bytes) AS asked_bytes,"
        " count(size_bytes) AS sizes, sum(attempts) AS attempts, sum(failures) AS failures, count(verified) AS verified,"
        " sum(iif(state = 'failed', 1, 0)) AS failed, sum(iif(state = 'done' AND moved_bytes IS NULL, 1, 0)) AS unsized, max(ended_unix_s) AS ended_unix_s,"
        " avg(first_unix_s) - ? AS wait_s, sum(iif(state = 'done' AND ended_unix_s > ?, moved_bytes, 0)) AS recent_bytes"
        " FROM transfer WHERE job = ?",
        about["submitted_unix_s"], now_unix_s - _RECENT_S, job,
    )[0]  # fmt: skip
    state = _state(counts)
    over = state not in ("queued", "active")
    end_unix_s = sums["ended_unix_s"] if over and sums["ended_unix_s"] is not None else now_unix_s
    elapsed_s = max(end_unix_s - about["submitted_unix_s"], 0.0)
    done_bytes = sums["done_bytes"] or 0
    span_s = elapsed_s if over else min(elapsed_s, _RECENT_S)
    calls, move_s, verify_s, overhead_s = _times(queue, job)
    passing = _counts(queue, "cause", "attempt JOIN transfer ON id = transfer", "outcome = 'failed' AND job = ?", job)
    return JobStatus(
        job, about["name"], about["submitted_unix_s"], state, counts, done_bytes,
        sums["asked_bytes"] if sums["sizes"] == sum(counts.values()) else None,
        sums["unsized"] or 0, sums["attempts"] or 0, sum(passing.values()) - (sums["failed"] or 0) if passing else 0, sums["verified"],
        _counts(queue, "unverified", "transfer", "state = 'done' AND verified IS NULL AND job = ?", job),
        elapsed_s, sums["wait_s"], move_s, verify_s, overhead_s, calls,
        (done_bytes if over else sums["recent_bytes"] or 0) / span_s if span_s else 0.0,
        _counts(queue, "cause", "transfer", "state = 'failed' AND job = ?", job), passing,
    )  # fmt: skip


def failed_transfers(queue: Queue, job: int) -> list[sqlite3.Row]:
    """Return line, source, destination, cause, error and attempts of the transfers that failed, in the order of the list.

    Raises
    ------
    QueueError
        If there is no such job.
    """
    queue.options(job)
    return queue.rows(
        "SELECT line, source, destination, cause, error, attempts FROM transfer WHERE job = ? AND state = 'failed' ORDER BY line",
        job,
    )


def _state(counts: Mapping[str, int]) -> JobState:
    for state in ("active", "queued", "failed", "cancelled", "done"):
        if counts.get(state):
            return state
    raise QueueError("expected a job with transfers, found one without; the queue was written by something else")


def _counts(queue: Queue, column: str, table: str, where: str, job: int) -> dict[str, int]:
    sql = f"SELECT {table.split()[0]}.{column}, count(*) FROM {table} WHERE {where} GROUP BY 1 ORDER BY 2 DESC"
    return {str(row[0] or Cause.OTHER): row[1] for row in queue.rows(sql, job)}


def _times(queue: Queue, job: int) -> tuple[int, float, float, float]:
    """Return the number of calls that have ended, and what they took. Attempts of one call have its times in common."""
    (row,) = queue.rows(
        "SELECT count(*), sum(move_s), sum(verify_s), sum(wall_s - move_s - verify_s) FROM (SELECT"
        " coalesce(max(move_s), 0) AS move_s, coalesce(max(verify_s), 0) AS verify_s, max(end_unix_s) - min(start_unix_s) AS wall_s"
        " FROM attempt a JOIN transfer t ON t.id = a.transfer WHERE job = ? AND end_unix_s IS NOT NULL GROUP BY a.call)", job,
    )  # fmt: skip
    return row[0], row[1] or 0.0, row[2] or 0.0, max(row[3] or 0.0, 0.0)
