"""The queue: jobs and transfers in an SQLite database, and all changes of their states.

    queued ──claim──▶ active ──finalize──▶ done | failed | cancelled
       ▲                 │
       └── transient failure, worker stopped or dead

Every method that changes the database is one transaction, which is on disk when the method returns. So the transfers of
a worker that died stay *active* in its name until another process detects that its lock is free.
"""

from __future__ import annotations

import os
import socket
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from venturi.errors import RunError
from venturi.transfer_jobs.causes import Cause
from venturi.transfer_jobs.choice import choose_all
from venturi.transfer_jobs.claiming import ActiveCalls, choose_calls, claim_transfers
from venturi.transfer_jobs.cleanup import remove_partial_files
from venturi.transfer_jobs.lease import Lease, is_held
from venturi.transfer_jobs.listing import TransferRequest
from venturi.transfer_jobs.options import JobOptions
from venturi.transfer_jobs.task import AttemptResult, CallBatch, TransferTask, next_state

__all__ = ["DATABASE", "QueueError", "TransferQueue"]

DATABASE = "queue.sqlite"
_WORKERS = "workers"
_VERSION = 1
_BUSY_S = 60.0
"""Maximum wait for the transaction of another process. A submission of a million lines takes some seconds."""


class QueueError(RunError):
    """A queue that cannot be read or written, or that does not contain a job."""


class TransferQueue:
    """A queue in a directory.

    Parameters
    ----------
    directory
        Directory of the queue.
    create
        Create the queue if it does not exist.

    Raises
    ------
    QueueError
        If the queue does not exist, or cannot be used.

    Examples
    --------
    >>> import tempfile, time
    >>> from venturi.transfer_jobs import JobOptions, read_list
    >>> queue = TransferQueue(Path(tempfile.mkdtemp()) / "transfers", create=True)
    >>> queue.submit("three", read_list(["/etc/hosts /tmp/copy-of-hosts"], "/"), JobOptions(), time.time())
    1
    """

    def __init__(self, directory: Path, *, create: bool = False) -> None:
        self.directory = directory.absolute()
        path = self.directory / DATABASE
        if not create and not path.exists():
            raise QueueError(
                f"{directory}: expected a transfer queue, found none; create one with: venturi transfer submit LIST"
            )
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None)
            self._db.row_factory = sqlite3.Row
            self._prepare(path)
        except (OSError, sqlite3.Error) as error:
            raise QueueError(f"{path}: cannot open the queue: {error}") from error

    def _prepare(self, path: Path) -> None:
        # FULL: a commit is on disk when it returns, even with a write-ahead log.
        for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON"):
            self._db.execute(f"PRAGMA {pragma}").fetchall()
        with self._changing():
            version = self._db.execute("PRAGMA user_version").fetchone()[0]
            if version == 0:
                for statement in (Path(__file__).with_name("schema.sql")).read_text(encoding="utf-8").split(";\n"):
                    self._db.execute(statement)
                self._db.execute(f"PRAGMA user_version = {_VERSION}")
        if version > _VERSION:
            raise QueueError(
                f"{path}: expected a queue of version {_VERSION}, found {version}; use the Venturi version that created it"
            )

    def close(self) -> None:
        """Close the database."""
        self._db.close()

    def __enter__(self) -> TransferQueue:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _changing(self) -> Iterator[sqlite3.Connection]:
        """Execute a block as one transaction without concurrent writers."""
        try:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:
                self._db.rollback()
                raise
        except sqlite3.Error as error:
            raise QueueError(f"{self.directory / DATABASE}: cannot write to the queue: {error}") from error

    def rows(self, sql: str, *values: object) -> list[sqlite3.Row]:
        """Return the rows of a query."""
        return self._db.execute(sql, values).fetchall()

    # Methods for users.

    def submit(
        self,
        name: str,
        requests: Sequence[TransferRequest],
        options: JobOptions,
        now_unix_s: float,
        source: str = "list",
    ) -> int:
        """Add a job to the queue and return its number.

        Raises
        ------
        ListError
            With all lines whose endpoints the mover does not support.
        """
        chosen = choose_all(requests, options.mover, source)
        with self._changing() as db:
            job = db.execute(
                "INSERT INTO job (name, submitted_unix_s, options) VALUES (?, ?, ?)",
                (name, now_unix_s, options.to_json()),
            ).lastrowid
            assert job is not None
            db.executemany(
                "INSERT INTO transfer (job, line, source, destination, source_host, destination_host, mover, size_bytes,"
                " checksum, due_unix_s) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    (job, one.line, one.source.text, one.destination.text, one.source.host, one.destination.host, mover,
                     one.size_bytes, one.checksum.text if one.checksum else None, now_unix_s)
                    for one, mover in zip(requests, chosen, strict=True)
                ),
            )  # fmt: skip
        return job

    def cancel(self, job: int, now_unix_s: float, line: int | None = None) -> tuple[int, int]:
        """Cancel the rest of a job, or one line of it.

        Return the numbers of cancelled transfers and of transfers that are being stopped. The worker of an active
        transfer stops it within about a second.
        """
        self.options(job)
        which, values = ("job = ?", [job]) if line is None else ("job = ? AND line = ?", [job, line])
        with self._changing() as db:
            if line is None:
                db.execute(
                    "UPDATE job SET cancelled_unix_s = ? WHERE id = ? AND cancelled_unix_s IS NULL", (now_unix_s, job)
                )
            elif not db.execute(f"SELECT 1 FROM transfer WHERE {which}", values).fetchone():
                raise QueueError(f"{self.directory}: expected a line of job {job}, found no line {line}")
            waiting = db.execute(
                f"SELECT destination, found FROM transfer WHERE {which} AND state = 'queued'", values
            )
            for row in waiting.fetchall():
                remove_partial_files(row["destination"], row["found"])
            ended = db.execute(
                f"UPDATE transfer SET state = 'cancelled', ended_unix_s = ?, cause = ? WHERE {which} AND state = 'queued'",
                [now_unix_s, Cause.CANCELLED, *values],
            ).rowcount
            stopping = db.execute(f"UPDATE transfer SET stop = 1 WHERE {which} AND state = 'active'", values).rowcount
        return ended, stopping

    def options(self, job: int) -> JobOptions:
        """Return the settings of a job.

        Raises
        ------
        QueueError
            If the job does not exist.
        """
        found = self.rows("SELECT options FROM job WHERE id = ?", job)
        if not found:
            known = ", ".join(map(str, self.jobs()))
            raise QueueError(f"{self.directory}: expected one of the jobs {known}, found {job}")
        return JobOptions.from_json(found[0]["options"])

    def jobs(self) -> list[int]:
        """Return the numbers of all jobs, at least one, the oldest first.

        Raises
        ------
        QueueError
            If there is no job.
        """
        found = [row["id"] for row in self.rows("SELECT id FROM job ORDER BY id")]
        if not found:
            raise QueueError(
                f"{self.directory}: expected a job in this queue, found none; create one with: venturi transfer submit LIST"
            )
        return found

    # Methods for workers.

    def enrol(self, now_unix_s: float) -> tuple[int, Lease]:
        """Return the number of a new worker, and its lock."""
        with self._changing() as db:
            worker = db.execute(
                "INSERT INTO worker (pid, host, started_unix_s) VALUES (?, ?, ?)",
                (os.getpid(), socket.gethostname(), now_unix_s),
            ).lastrowid
        assert worker is not None
        return worker, Lease(self._lock(worker))

    def leave(self, worker: int, lease: Lease, now_unix_s: float) -> None:
        """Record the end of a worker without active transfers, and release its lock."""
        with self._changing() as db:
            db.execute("UPDATE worker SET ended_unix_s = ? WHERE id = ?", (now_unix_s, worker))
        lease.release()

    def reclaim(self, now_unix_s: float) -> int:
        """Queue the active transfers of dead workers again, and return their number."""
        holders = [row[0] for row in self.rows("SELECT DISTINCT worker FROM transfer WHERE state = 'active'")]
        dead = [worker for worker in holders if not is_held(self._lock(worker))]
        count = 0
        for worker in dead:
            with self._changing() as db:
                db.execute(
                    "UPDATE attempt SET outcome = 'interrupted', cause = ?, error = 'the worker ended', end_unix_s = ?"
                    " WHERE worker = ? AND outcome = 'active'", (Cause.INTERRUPTED, now_unix_s, worker),
                )  # fmt: skip
                count += db.execute(
                    "UPDATE transfer SET state = iif(stop, 'cancelled', 'queued'), worker = NULL, due_unix_s = ?"
                    " WHERE worker = ? AND state = 'active'", (now_unix_s, worker),
                ).rowcount  # fmt: skip
                db.execute("UPDATE worker SET ended_unix_s = ? WHERE id = ?", (now_unix_s, worker))
            self._lock(worker).unlink(missing_ok=True)
        return count

    def _lock(self, worker: int) -> Path:
        return self.directory / _WORKERS / str(worker)

    def expire(self, now_unix_s: float) -> None:
        """Fail the queued transfers of jobs whose deadline has passed."""
        for job, options in self.open_jobs():
            if options.deadline_unix_s is not None and options.deadline_unix_s <= now_unix_s:
                with self._changing() as db:
                    for row in db.execute(
                        "SELECT destination, found FROM transfer WHERE job = ? AND state = 'queued'", (job,)
                    ):
                        remove_partial_files(row["destination"], row["found"])
                    db.execute(
                        "UPDATE transfer SET state = 'failed', ended_unix_s = ?, cause = ?,"
                        " error = coalesce('the deadline passed; last error: ' || error, 'the deadline passed')"
                        " WHERE job = ? AND state = 'queued'", (now_unix_s, Cause.DEADLINE, job),
                    )  # fmt: skip

    def open_jobs(self, jobs: Iterable[int] = ()) -> list[tuple[int, JobOptions]]:
        """Return the jobs with queued transfers, the oldest first. ``jobs`` restricts them unless it is empty."""
        chosen = set(jobs)
        found = self.rows(
            "SELECT id, options FROM job WHERE EXISTS (SELECT 1 FROM transfer WHERE job = job.id AND state = 'queued') ORDER BY id"
        )
        return [
            (row["id"], JobOptions.from_json(row["options"])) for row in found if not chosen or row["id"] in chosen
        ]

    def next_due_unix_s(self, jobs: Iterable[int] = ()) -> float | None:
        """Return the time when the next queued transfer is due; None if no transfer is queued."""
        times = [
            row[0]
            for job, _ in self.open_jobs(jobs)
            for row in self.rows("SELECT min(due_unix_s) FROM transfer WHERE job = ? AND state = 'queued'", job)
        ]
        return min(times, default=None)

    def claim(self, worker: int, now_unix_s: float, jobs: Iterable[int] = ()) -> list[CallBatch]:
        """Mark transfers as active for a worker, up to the limits of the jobs, and return them in batches."""
        open_jobs = self.open_jobs(jobs)
        if not open_jobs:
            return []
        claims: list[CallBatch] = []
        with self._changing() as db:
            load = ActiveCalls(db)
            for job, options in open_jobs:
                while (capacity := options.concurrency - load.calls(job)) > 0:
                    groups = list(choose_calls(db, job, options, load, capacity, now_unix_s))
                    claims += [claim_transfers(db, worker, options, group, now_unix_s) for group in groups]
                    if not groups:
                        break
        return claims

    def note_copied(self, tasks: Iterable[TransferTask], sizes: Iterable[int | None]) -> None:
        """Record that the mover succeeded.

        If the worker is killed, these transfers are verified but not transferred again.
        """
        with self._changing() as db:
            db.executemany(
                "UPDATE transfer SET copied = 1, size_bytes = coalesce(?, size_bytes) WHERE id = ?",
                [(size, task.id) for task, size in zip(tasks, sizes, strict=True)],
            )

    def stop_requested(self, worker: int) -> set[int]:
        """Return the active transfers of a worker that a user has cancelled."""
        return {
            row[0]
            for row in self.rows("SELECT id FROM transfer WHERE worker = ? AND state = 'active' AND stop", worker)
        }

    def finalize(
        self, options: JobOptions, verdicts: Sequence[tuple[TransferTask, AttemptResult]], now_unix_s: float
    ) -> None:
        """Record the results of attempts, and the next states of their transfers."""
        with self._changing() as db:
            for task, verdict in verdicts:
                state, failures, due_unix_s = next_state(task, verdict, options, now_unix_s)
                if (state in ("failed", "cancelled") or verdict.cause is Cause.CORRUPT) and not _is_others(db, task):
                    remove_partial_files(task.destination.text, task.found)
                db.execute(
                    "UPDATE attempt SET end_unix_s = ?, outcome = ?, cause = ?, error = ?, move_s = ?, verify_s = ?"
                    " WHERE transfer = ? AND number = ?",
                    (now_unix_s, verdict.outcome, verdict.cause, verdict.error or None, verdict.move_s, verdict.verify_s,
                     task.id, task.attempt),
                )  # fmt: skip
                db.execute(
                    "UPDATE transfer SET state = ?, failures = ?, due_unix_s = ?, worker = NULL,"
                    " copied = iif(? = 'interrupted', copied, ?), alone = max(alone, ?),"
                    " ended_unix_s = ?, moved_bytes = ?, verified = ?, unverified = ?, cause = ?, error = ? WHERE id = ?",
                    (state, failures, due_unix_s, verdict.outcome, verdict.outcome == "ok", verdict.alone,
                     None if state == "queued" else now_unix_s, verdict.moved_bytes, verdict.verified,
                     verdict.unverified, verdict.cause, verdict.error or None, task.id),
                )  # fmt: skip


def _is_others(db: sqlite3.Connection, task: TransferTask) -> bool:
    """Whether another transfer writes or has written this destination, so that its file must not be removed as partial."""
    sql = "SELECT 1 FROM transfer WHERE destination = ? AND id != ? AND state IN ('active', 'done') LIMIT 1"
    return db.execute(sql, (task.destination.text, task.id)).fetchone() is not None
