"""Requests and their files in SQLite, which survive a kill of the server.

A commit reaches the kernel before the client receives its reply (write-ahead log, ``synchronous = NORMAL``), so that it
survives the death of the process. The last commits can be lost if the machine loses power. This is acceptable in a lab
and saves a flush for each request.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass, fields
from pathlib import Path

from venturi.srm.protocol import SrmStatus
from venturi.srm.state import LIVE, FileRequest, Kind, State

__all__ = ["Store", "StoredRequest"]

_VERSION = 1
_BUSY_S = 10.0
_COLUMNS = tuple(field.name for field in fields(FileRequest))
_SCHEMA = """
CREATE TABLE IF NOT EXISTS requests (
    token TEXT PRIMARY KEY, kind TEXT NOT NULL, subject TEXT NOT NULL, created_s REAL NOT NULL, lifetime_s REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS files (
    number INTEGER PRIMARY KEY AUTOINCREMENT, token TEXT NOT NULL REFERENCES requests, position INTEGER NOT NULL, kind TEXT NOT NULL,
    surl TEXT NOT NULL, path TEXT NOT NULL, protocol TEXT NOT NULL, state TEXT NOT NULL, until_s REAL NOT NULL, size_bytes INTEGER, turl TEXT,
    status TEXT, explanation TEXT, UNIQUE (token, position));
CREATE INDEX IF NOT EXISTS live ON files (state, number) WHERE state IN ('queued', 'ready');
CREATE INDEX IF NOT EXISTS writing ON files (path) WHERE kind = 'put' AND state IN ('queued', 'ready');
"""


@dataclass(frozen=True, slots=True)
class StoredRequest:
    """A request. ``subject`` identifies its client; ``lifetime_s`` is the lifetime of its transfer URLs."""

    token: str
    kind: Kind
    subject: str
    created_s: float
    lifetime_s: float


class Store:
    """A database file, which is created if missing. Safe to use from several threads: one transaction at a time.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     store = Store(Path(directory) / "requests.db")
    ...     store.request("none"), store.count(State.READY)
    ...     store.close()
    (None, 0)
    """

    def __init__(self, path: Path) -> None:
        self._lock = threading.RLock()
        self._depth = 0
        self._connection = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = NORMAL")
        found = self._connection.execute("PRAGMA user_version").fetchone()[0]
        if found > _VERSION:
            self._connection.close()
            raise sqlite3.DatabaseError(
                f"{path}: expected version {_VERSION} or older, found {found}. Remove the file or update Venturi."
            )
        self._connection.executescript(_SCHEMA)
        self._connection.execute(f"PRAGMA user_version = {_VERSION}")

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Execute the block atomically with exclusive access to the database. Transactions can be nested."""
        with self._lock:
            if self._depth == 0:
                self._connection.execute("BEGIN IMMEDIATE")
            self._depth += 1
            try:
                yield
            except BaseException:
                self._depth -= 1
                if self._depth == 0:
                    self._connection.execute("ROLLBACK")
                raise
            self._depth -= 1
            if self._depth == 0:
                self._connection.execute("COMMIT")

    def add(self, request: StoredRequest, files: Sequence[FileRequest]) -> None:
        """Store a request with its files."""
        with self.transaction():
            self._connection.execute("INSERT INTO requests VALUES (?, ?, ?, ?, ?)", astuple(request))
            marks = ", ".join("?" * len(_COLUMNS))
            insert = f"INSERT INTO files ({', '.join(_COLUMNS)}) VALUES ({marks})"
            self._connection.executemany(insert, [astuple(file) for file in files])

    def request(self, token: str) -> StoredRequest | None:
        """Return a request, or None if it is unknown."""
        with self._lock:
            row = self._connection.execute("SELECT * FROM requests WHERE token = ?", (token,)).fetchone()
        return None if row is None else StoredRequest(*row)

    def files(self, token: str) -> list[FileRequest]:
        """Return the files of a request, in their order."""
        return self._select("token = ? ORDER BY position", (token,))

    def queued(self, limit: int) -> list[FileRequest]:
        """Return the queued files, the oldest first."""
        return self._select("state = 'queued' ORDER BY number LIMIT ?", (limit,))

    def overdue(self, now_s: float) -> list[FileRequest]:
        """Return the live files whose time has expired."""
        return self._select("state IN ('queued', 'ready') AND until_s <= ? ORDER BY number", (now_s,))

    def writing(self, path: str) -> list[FileRequest]:
        """Return the live puts of a path."""
        return self._select("kind = 'put' AND state IN ('queued', 'ready') AND path = ? ORDER BY number", (path,))

    def reading(self, path: str, subject: str) -> list[FileRequest]:
        """Return the live gets of a path that belong to a client."""
        return self._select(
            "kind = 'get' AND state IN ('queued', 'ready') AND path = ? "
            "AND token IN (SELECT token FROM requests WHERE subject = ?) ORDER BY number",
            (path, subject),
        )

    def count(self, *states: State) -> int:
        """Return the number of files in these states."""
        marks = ", ".join("?" * len(states))
        with self._lock:
            row = self._connection.execute(f"SELECT count(*) FROM files WHERE state IN ({marks})", states).fetchone()
        return int(row[0])

    def change(self, files: Iterable[FileRequest]) -> None:
        """Store the new state of files, which are identified by token and position."""
        with self.transaction():
            self._connection.executemany(
                "UPDATE files SET state = ?, until_s = ?, size_bytes = ?, turl = ?, status = ?, explanation = ? WHERE token = ? AND position = ?",
                [(f.state, f.until_s, f.size_bytes, f.turl, f.status, f.explanation, f.token, f.position) for f in files],
            )  # fmt: skip

    def forget(self, before_s: float) -> None:
        """Remove requests that were created before a time and have no live files."""
        live = ", ".join(f"'{state}'" for state in LIVE)
        with self.transaction():
            old = f"SELECT token FROM requests WHERE created_s < ? AND token NOT IN (SELECT token FROM files WHERE state IN ({live}))"
            self._connection.execute(f"DELETE FROM files WHERE token IN ({old})", (before_s,))
            self._connection.execute(
                "DELETE FROM requests WHERE created_s < ? AND token NOT IN (SELECT token FROM files)", (before_s,)
            )

    def _select(self, where: str, values: Sequence[object]) -> list[FileRequest]:
        with self._lock:
            rows = self._connection.execute(
                f"SELECT {', '.join(_COLUMNS)} FROM files WHERE {where}", values
            ).fetchall()
        return [_file(dict(zip(_COLUMNS, row, strict=True))) for row in rows]


def _file(row: dict[str, object]) -> FileRequest:
    status = row.pop("status")
    state = State(str(row.pop("state")))
    return FileRequest(**row, state=state, status=None if status is None else SrmStatus(str(status)))  # type: ignore[arg-type]
