"""Requests and their files in SQLite: what was promised is still known after a kill.

A commit is in the kernel's hands before a client has its answer (write-ahead log, ``synchronous = NORMAL``), so that it survives the death of the
process; of a machine that loses power the last ones may be lost, which is what a lab can bear and saves a flush for each request.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass, fields
from pathlib import Path

from venturi.srm.state import LIVE, FileRequest, Kind, State
from venturi.srm.words import Status

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
    """A request; ``subject`` is who made it, ``lifetime_s`` how long its transfer URLs hold."""

    token: str
    kind: Kind
    subject: str
    created_s: float
    lifetime_s: float


class Store:
    """A database file, made if there is none. Safe to use from several threads: one transaction at a time.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = Store(Path(folder) / "requests.db")
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
                f"{path}: expected version {_VERSION} or older, found {found}; remove it or update"
            )
        self._connection.executescript(_SCHEMA)
        self._connection.execute(f"PRAGMA user_version = {_VERSION}")

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Hold the database: all that is done in the block is done, or nothing of it. May be nested."""
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
        """Keep a request with its files."""
        with self.transaction():
            self._connection.execute("INSERT INTO requests VALUES (?, ?, ?, ?, ?)", astuple(request))
            marks = ", ".join("?" * len(_COLUMNS))
            insert = f"INSERT INTO files ({', '.join(_COLUMNS)}) VALUES ({marks})"
            self._connection.executemany(insert, [astuple(file) for file in files])

    def request(self, token: str) -> StoredRequest | None:
        """Return a request, None if it is not known."""
        with self._lock:
            row = self._connection.execute("SELECT * FROM requests WHERE token = ?", (token,)).fetchone()
        return None if row is None else StoredRequest(*row)

    def files(self, token: str) -> list[FileRequest]:
        """Return the files of a request in its order."""
        return self._select("token = ? ORDER BY position", (token,))

    def queued(self, most: int) -> list[FileRequest]:
        """Return the files that wait, the first come first."""
        return self._select("state = 'queued' ORDER BY number LIMIT ?", (most,))

    def overdue(self, now_s: float) -> list[FileRequest]:
        """Return the live files whose time is over."""
        return self._select("state IN ('queued', 'ready') AND until_s <= ? ORDER BY number", (now_s,))

    def writing(self, path: str) -> list[FileRequest]:
        """Return the live puts of a path."""
        return self._select("kind = 'put' AND state IN ('queued', 'ready') AND path = ? ORDER BY number", (path,))

    def reading(self, path: str, subject: str) -> list[FileRequest]:
        """Return the live gets of a path that belong to a user."""
        return self._select(
            "kind = 'get' AND state IN ('queued', 'ready') AND path = ? "
            "AND token IN (SELECT token FROM requests WHERE subject = ?) ORDER BY number",
            (path, subject),
        )

    def count(self, *states: State) -> int:
        """Return how many files are in these states."""
        marks = ", ".join("?" * len(states))
        with self._lock:
            row = self._connection.execute(f"SELECT count(*) FROM files WHERE state IN ({marks})", states).fetchone()
        return int(row[0])

    def change(self, files: Iterable[FileRequest]) -> None:
        """Write files as they are now, found again by token and position."""
        with self.transaction():
            self._connection.executemany(
                "UPDATE files SET state = ?, until_s = ?, size_bytes = ?, turl = ?, status = ?, explanation = ? WHERE token = ? AND position = ?",
                [(f.state, f.until_s, f.size_bytes, f.turl, f.status, f.explanation, f.token, f.position) for f in files],
            )  # fmt: skip

    def forget(self, before_s: float) -> None:
        """Remove requests that were made before a time and in which nothing is live."""
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
    return FileRequest(**row, state=state, status=None if status is None else Status(str(status)))  # type: ignore[arg-type]
