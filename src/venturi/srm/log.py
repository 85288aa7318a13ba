"""The server's log: one JSON object per line for each connection, each rejected connection, and each request.

``{"event": "connection", "connection": 3, "peer": "10.77.0.2:4711", "begin_unix_s": …, "end_unix_s": …, "subject":
"/O=Venturi/CN=Lab User", "account": "root", "proxies": 1, "tls": "TLSv1.3", "delegated": false}``: ``begin`` is the
time of acceptance, ``end`` the time of mutual authentication. The event ``refused`` has a ``reason`` instead of the
identity. The event ``request`` has ``operation``, ``begin_unix_s`` (time of its last byte), ``end_unix_s`` (time when
the response was passed to the kernel), ``status``, ``token``, and ``files`` (``surl``, ``status``, ``turl``), the first
1000 of them.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TextIO

__all__ = ["FILES_LOGGED", "LogFile", "LogRecord", "LogWriter", "read_log"]

FILES_LOGGED = 1000
"""Maximum number of logged files of one request. ``files_left_out`` is the number of further files."""


@dataclass(frozen=True, slots=True)
class LogFile:
    """Result for a file in a request."""

    surl: str
    status: str
    turl: str | None = None


@dataclass(frozen=True, slots=True)
class LogRecord:
    """A line of the log. Fields that the event does not have are empty."""

    event: Literal["connection", "refused", "request"]
    connection: int
    peer: str
    start_unix_s: float
    end_unix_s: float
    subject: str = ""
    account: str = ""
    tls: str = ""
    reason: str = ""
    operation: str = ""
    status: str = ""
    token: str = ""
    files: tuple[LogFile, ...] = ()


class LogWriter:
    """Writer of log records. Safe to use from several threads.

    Attributes
    ----------
    connections
        Number of the next connection, which continues the numbers of an existing log.
    """

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        self.connections = 1 + max((record.connection for record in read_log(path)), default=-1)
        self._file: TextIO = path.open("a", encoding="utf-8", buffering=1)

    def write(self, event: str, **values: Any) -> None:  # noqa: ANN401 - any value of JSON
        """Append a record. Values that are None or empty are omitted."""
        logged = {key: value for key, value in values.items() if value is not None and value != ""}
        line = json.dumps({"event": event, **logged}, ensure_ascii=False) + "\n"
        with self._lock:
            self._file.write(line)

    def request(self, files: Sequence[LogFile], **values: Any) -> None:  # noqa: ANN401
        """Append the record of a request."""
        shown = [
            {key: value for key, value in (("surl", one.surl), ("status", one.status), ("turl", one.turl)) if value}
            for one in files[:FILES_LOGGED]
        ]
        omitted = len(files) - len(shown)
        self.write("request", **values, files=shown or None, files_left_out=omitted or None)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._file.close()


def read_log(path: Path) -> Iterator[LogRecord]:
    """Yield the records of a log. A missing log has none.

    An unterminated last line is skipped, because it is still being written.

    Raises
    ------
    ValueError
        If a line does not have the form above.
    """
    if not path.exists():
        return
    text = path.read_text(encoding="utf-8", errors="replace").rpartition("\n")[0]
    for number, line in enumerate(text.split("\n") if text else (), 1):
        try:
            record = _record(json.loads(line))
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"{path}:{number}: expected a record of the SRM server, found {line[:100]}: {error}"
            ) from error
        if record is not None:
            yield record


def _record(line: Mapping[str, Any]) -> LogRecord | None:
    if line["event"] not in ("connection", "refused", "request"):
        return None
    files = tuple(LogFile(one["surl"], one["status"], one.get("turl")) for one in line.get("files", ()))
    texts = {
        name: str(line.get(name, ""))
        for name in ("subject", "account", "tls", "reason", "operation", "status", "token")
    }
    return LogRecord(
        event=line["event"],
        connection=int(line["connection"]),
        peer=str(line["peer"]),
        start_unix_s=float(line["begin_unix_s"]),
        end_unix_s=float(line["end_unix_s"]),
        files=files,
        **texts,
    )
