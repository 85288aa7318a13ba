"""Progress and times of a job. They can be read from the queue at any time, while workers run."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from venturi.transfer_jobs.causes import Cause
from venturi.transfer_jobs.queue import QueueError, TransferQueue

__all__ = ["JobStatus", "failed_transfers", "job_status"]

_RECENT_S = 10.0

JobState = Literal["queued", "active", "done", "failed", "cancelled"]


@dataclass(frozen=True, slots=True)
class JobStatus:
    """Progress of a job.

    Attributes
    ----------
    job, name, submitted_unix_s
        Number, name and submission time.
    state
        ``active``: some transfers are in progress. ``queued``: some transfers wait for a worker. Otherwise the job has
        ended, and is ``failed`` or ``cancelled`` if any transfer is.
    transfers
        State → number of transfers.
    done_bytes, requested_bytes
        Known bytes of transfers that are done, each counted once. Bytes of all transfers, or None if a size is unknown.
    unsized
        Number of transfers done with unknown size: between servers, without a size in the list.
    attempts, retries
        Number of attempts, and of attempts after a failure.
    verified, unverified
        Number of compared transfers, and reason → number of transfers done without comparison.
    causes
        Cause → number of failed transfers. ``passing``: cause → number of failed attempts.
    elapsed_s
        Time from submission to the end of the last transfer, or to now.
    wait_s
        Mean time from submission to the first attempt.
    move_s, verify_s, overhead_s
        Sums over calls of movers: time of the mover, of the comparison, and of the rest, such as size checks, the agent
        and the database. Calls can overlap.
    rate_bytes_per_s
        Bytes done in the last ten seconds, divided by that time. For an ended job: all bytes divided by ``elapsed_s``.
    """

    job: int
    name: str
    submitted_unix_s: float
    state: JobState
    transfers: Mapping[str, int]
    done_bytes: int
    requested_bytes: int | None
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
        """Number of transfers."""
        return sum(self.transfers.values())


def job_status(queue: TransferQueue, job: int, now_unix_s: float) -> JobStatus:
    """Return the progress of a job.

    Raises
    ------
    QueueError
        If the job does not exist.
    """
    queue.options(job)
    (about,) = queue.rows("SELECT * FROM job WHERE id = ?", job)
    counts = {
        row[0]: row[1] for row in queue.rows("SELECT state, count(*) FROM transfer WHERE job = ? GROUP BY state", job)
    }
    sums = queue.rows(
        "SELECT sum(iif(state = 'done', moved_bytes, 0)) AS done_bytes, sum(size_bytes) AS requested_bytes,"
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
        sums["requested_bytes"] if sums["sizes"] == sum(counts.values()) else None,
        sums["unsized"] or 0, sums["attempts"] or 0, sum(passing.values()) - (sums["failed"] or 0) if passing else 0, sums["verified"],
        _counts(queue, "unverified", "transfer", "state = 'done' AND verified IS NULL AND job = ?", job),
        elapsed_s, sums["wait_s"], move_s, verify_s, overhead_s, calls,
        (done_bytes if over else sums["recent_bytes"] or 0) / span_s if span_s else 0.0,
        _counts(queue, "cause", "transfer", "state = 'failed' AND job = ?", job), passing,
    )  # fmt: skip


def failed_transfers(queue: TransferQueue, job: int) -> list[sqlite3.Row]:
    """Return line, source, destination, cause, error and attempts of failed transfers, in the order of the list.

    Raises
    ------
    QueueError
        If the job does not exist.
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
    raise QueueError("expected a job with transfers, found none; another program wrote the queue")


def _counts(queue: TransferQueue, column: str, table: str, where: str, job: int) -> dict[str, int]:
    sql = f"SELECT {table.split()[0]}.{column}, count(*) FROM {table} WHERE {where} GROUP BY 1 ORDER BY 2 DESC"
    return {str(row[0] or Cause.OTHER): row[1] for row in queue.rows(sql, job)}


def _times(queue: TransferQueue, job: int) -> tuple[int, float, float, float]:
    """Return the number of ended calls, and their times. All attempts of a call have the same times."""
    (row,) = queue.rows(
        "SELECT count(*), sum(move_s), sum(verify_s), sum(wall_s - move_s - verify_s) FROM (SELECT"
        " coalesce(max(move_s), 0) AS move_s, coalesce(max(verify_s), 0) AS verify_s, max(end_unix_s) - min(start_unix_s) AS wall_s"
        " FROM attempt a JOIN transfer t ON t.id = a.transfer WHERE job = ? AND end_unix_s IS NOT NULL GROUP BY a.call)", job,
    )  # fmt: skip
    return row[0], row[1] or 0.0, row[2] or 0.0, max(row[3] or 0.0, 0.0)
