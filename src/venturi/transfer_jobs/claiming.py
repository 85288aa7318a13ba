"""Selection and activation of the next transfers of a worker, in one transaction and within the limits of jobs and hosts."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

from venturi.mover import movers
from venturi.transfer_jobs.address import Address
from venturi.transfer_jobs.checksum import Checksum
from venturi.transfer_jobs.choice import takes_pairs
from venturi.transfer_jobs.cleanup import fingerprint
from venturi.transfer_jobs.options import JobOptions
from venturi.transfer_jobs.task import CallBatch, TransferTask

__all__ = ["ActiveCalls", "choose_calls", "claim_transfers"]

_CALLS_OF_ONE = 1_000_000
"""The number of a call is the id of its first transfer times this, plus the number of the attempt."""

_LOOK_AHEAD = 64
"""Number of additional candidates beyond the available capacity."""


class ActiveCalls:
    """Numbers of active calls by job and by host."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._jobs: dict[int, int] = {}
        self.hosts: dict[str, int] = {}
        calls = db.execute(
            "SELECT DISTINCT job, call, source_host, destination_host FROM transfer WHERE state = 'active'"
        )
        for row in calls.fetchall():
            self.add(row["job"], row["source_host"], row["destination_host"])

    def calls(self, job: int) -> int:
        """Return the number of active calls of a job."""
        return self._jobs.get(job, 0)

    def add(self, job: int, *hosts: str) -> None:
        """Count another call."""
        self._jobs[job] = self._jobs.get(job, 0) + 1
        for host in {*hosts} - {""}:
            self.hosts[host] = self.hosts.get(host, 0) + 1

    def full(self, limit: int | None) -> list[str]:
        """Return the hosts that have reached the limit."""
        return [] if limit is None else [host for host, calls in self.hosts.items() if calls >= limit]


def choose_calls(
    db: sqlite3.Connection, job: int, options: JobOptions, load: ActiveCalls, capacity: int, now_unix_s: float
) -> Iterator[list[sqlite3.Row]]:
    """Yield the transfers of each of up to ``capacity`` calls, within the limits of hosts."""
    full = load.full(options.per_host)
    marks = ", ".join("?" * len(full))
    candidates = db.execute(
        "SELECT * FROM transfer t INDEXED BY transfer_of_job WHERE state = 'queued' AND job = ? AND due_unix_s <= ?"
        f" AND source_host NOT IN ({marks}) AND destination_host NOT IN ({marks})"
        # Two jobs can have the same destination: their transfers run one after the other.
        " AND NOT EXISTS (SELECT 1 FROM transfer o WHERE o.state = 'active' AND o.destination = t.destination)"
        " ORDER BY id LIMIT ?",
        (job, now_unix_s, *full, *full, capacity * options.files_per_call + _LOOK_AHEAD),
    ).fetchall()
    groups: dict[object, list[sqlite3.Row]] = {}
    for row in candidates:
        together = (
            options.files_per_call > 1
            and not row["alone"]
            and not row["copied"]
            and takes_pairs(movers()[row["mover"]])
        )
        key = (row["source_host"], row["destination_host"], row["mover"]) if together else row["id"]
        group = groups.setdefault(key, [])
        group.append(row)
        if len(group) == options.files_per_call:
            groups[object()] = groups.pop(key)
    for group in sorted(groups.values(), key=lambda group: int(group[0]["id"])):
        hosts = {group[0]["source_host"], group[0]["destination_host"]}
        if capacity > 0 and not hosts & set(load.full(options.per_host)):
            capacity -= 1
            load.add(job, *hosts)
            yield group


def claim_transfers(
    db: sqlite3.Connection, worker: int, options: JobOptions, group: list[sqlite3.Row], now_unix_s: float
) -> CallBatch:
    """Mark transfers as active for a worker."""
    call = group[0]["id"] * _CALLS_OF_ONE + group[0]["attempts"] + 1
    tasks = tuple(_task(row) for row in group)
    db.executemany(
        "UPDATE transfer SET state = 'active', worker = ?, call = ?, attempts = ?, found = ?,"
        " first_unix_s = coalesce(first_unix_s, ?) WHERE id = ?",
        [(worker, call, task.attempt, task.found, now_unix_s, task.id) for task in tasks],
    )
    db.executemany(
        "INSERT INTO attempt (transfer, number, worker, call, files, waited_s, start_unix_s) VALUES (?, ?, ?, ?, ?, ?, ?)",
        [
            (task.id, task.attempt, worker, call, len(tasks), max(now_unix_s - row["due_unix_s"], 0.0), now_unix_s)
            for task, row in zip(tasks, group, strict=True)
        ],
    )
    return CallBatch(call, group[0]["mover"], options, tasks)


def _task(row: sqlite3.Row) -> TransferTask:
    destination = Address.parse(row["destination"], "/")
    return TransferTask(
        row["id"], row["job"], row["line"], Address.parse(row["source"], "/"), destination, row["size_bytes"],
        Checksum.parse(row["checksum"]) if row["checksum"] else None, bool(row["copied"]), row["attempts"] + 1,
        row["failures"], row["found"] or fingerprint(destination),
    )  # fmt: skip
