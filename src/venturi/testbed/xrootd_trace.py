"""Files that an XRootD server served, from its log and the datagrams of its monitoring.

The log has the times at which files were opened and closed, to the microsecond. The monitoring has the bytes read and
written, but times only to the second. :func:`trace` combines both. They come from a server with the option ``monitor``
(:mod:`venturi.testbed.services.xrootd`).

Formats: XRootD System Monitoring Reference, release 5 (streams ``u``, ``f`` and ``g``). The lines of the log are
undocumented; the parser is for release 5.5.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, tzinfo
from typing import Any

from venturi.errors import RunError
from venturi.testbed.services.xrootd_collector import PREFIX

__all__ = ["FileAccess", "FileCount", "Monitoring", "parse_log", "parse_monitoring", "trace"]


@dataclass(frozen=True, slots=True)
class FileAccess:
    """File that a client had open.

    Attributes
    ----------
    client
        ``user.pid``, as reported by the client; for a server that fetches a third-party copy, ``xrootd.pid``.
    host
        Host of the client, the first part of its name.
    account
        Authenticated name, or None without authentication.
    mode
        ``r`` or ``w``.
    streams
        Connections of the client's session: 1, plus those bound to it for data.
    login_s, opened_s, closed_s
        Unix time; ``closed_s`` is None if the log ends before.
    read_bytes, written_bytes
        Counts of the monitoring, or None. Written bytes include the checksums of paged writes (4 bytes for each 4 KiB). The
        destination of a third-party copy does not count its bytes; the event of the copy in the monitoring has its size.
    """

    client: str
    host: str
    account: str | None
    path: str
    mode: str
    streams: int
    login_s: float
    opened_s: float
    closed_s: float | None
    read_bytes: int | None = None
    written_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class FileCount:
    """Bytes read and written of a file between its opening and closing.

    ``closed_between_s``: the whole seconds (Unix time) between which it was closed. ``client`` and ``host``: see
    :class:`FileAccess`; empty if the server did not report the client.
    """

    client: str
    host: str
    path: str
    size_bytes: int
    read_bytes: int
    written_bytes: int
    closed_between_s: tuple[int, int]
    forced: bool


@dataclass(frozen=True, slots=True)
class Monitoring:
    """Counts of files, in the order of closing, and events (third-party copies, cached files) as JSON objects."""

    files: tuple[FileCount, ...]
    events: tuple[dict[str, Any], ...]


_LINE = re.compile(r"(\d{6} \d\d:\d\d:\d\d\.\d{6}) \d+ (.*)")
_CLIENT = r"(?P<link>(?P<client>\S+\.\d+):\d+@(?P<host>[^\s:]+))"
_LOGIN = re.compile(rf"Xrootd(?:Xeq|Bridge): {_CLIENT} .*?login(?: as (?P<account>\S+))?$")
_BOUND = re.compile(rf"XrootdXeq: FD \S+ bound {_CLIENT}$")
_OPEN = re.compile(rf"{_CLIENT} Xrootd_Protocol: open \S+ (?P<path>[^?]+)")
_CLOSE = re.compile(rf"{_CLIENT} Xrootd_File: closing (?P<mode>[rw]) (?P<path>.+)$")
_DISCONNECT = re.compile(rf"XrootdXeq: {_CLIENT} disc ")


def parse_log(text: str, zone: tzinfo | None = None) -> list[FileAccess]:
    """Return the files of a server's log, in the order of opening.

    Parameters
    ----------
    text
        Log of a server with ``xrootd.trace fs`` and ``-z``; other lines are ignored.
    zone
        Time zone of the log. Default: the zone of this machine.
    """
    sessions: dict[str, _Session] = {}
    found: list[FileAccess] = []
    opened: dict[tuple[str, str], list[int]] = {}
    for stamp, message in (match.groups() for match in map(_LINE.match, text.splitlines()) if match):
        if match := _LOGIN.match(message):
            sessions[match["link"]] = _Session(match["account"], _seconds(stamp, zone))
        elif (match := _BOUND.match(message)) and match["link"] in sessions:
            session = sessions[match["link"]]
            session.streams += 1
            for index in session.files:
                found[index] = replace(found[index], streams=session.streams)
        elif match := _OPEN.match(message):
            now = _seconds(stamp, zone)
            session = sessions.setdefault(match["link"], _Session(None, now))
            opened.setdefault((match["link"], match["path"]), []).append(len(found))
            session.files.append(len(found))
            client_key = (match["client"], match["host"], session.account)
            found.append(FileAccess(*client_key, match["path"], "r", session.streams, session.login_s, now, None))
        elif match := _CLOSE.match(message):
            waiting = opened.get((match["link"], match["path"]))
            if waiting:
                index = waiting.pop(0)
                found[index] = replace(found[index], mode=match["mode"], closed_s=_seconds(stamp, zone))
        elif match := _DISCONNECT.match(message):
            sessions.pop(match["link"], None)
    return found


@dataclass(slots=True)
class _Session:
    account: str | None
    login_s: float
    streams: int = 1
    files: list[int] = None  # type: ignore[assignment]  # made below

    def __post_init__(self) -> None:
        self.files = []


def _seconds(stamp: str, zone: tzinfo | None) -> float:
    return datetime.strptime(stamp, "%y%m%d %H:%M:%S.%f").replace(tzinfo=zone).timestamp()


_HEADER = struct.Struct(">cBHi")
_RECORD = struct.Struct(">BBHI")
_TIMES = struct.Struct(">ii")
_SIZE = struct.Struct(">q")
_COUNTS = struct.Struct(">qqq")
_CLOSED, _OPENED, _TIME = 0, 1, 2
_FORCED, _HAS_NAME = 0x01, 0x01


def parse_monitoring(data: bytes) -> Monitoring:
    """Return the content of a collector's file; datagrams of other streams are ignored.

    Raises
    ------
    RunError
        If a datagram is truncated or has an unknown form. A truncated last datagram is ignored, because the collector stopped.
    """
    clients: dict[int, tuple[str, str]] = {}
    opened: dict[int, tuple[int, str, int]] = {}
    files: list[FileCount] = []
    events: list[dict[str, Any]] = []
    for offset, datagram in _datagrams(data):
        try:
            code = _HEADER.unpack_from(datagram)[0]
            body = datagram[_HEADER.size :]
            if code == b"u":
                number, text = struct.unpack_from(">I", body)[0], body[4:].decode(errors="replace")
                clients[number] = _client(text)
            elif code == b"f":
                files += _file_records(body, clients, opened)
            elif code == b"{":
                events += _events(datagram)
        except (struct.error, ValueError, RecursionError) as error:
            raise RunError(
                f"monitoring of XRootD: expected a datagram of release 5, found {error} at byte {offset}; "
                "use the file of a collector of such a server"
            ) from error
    return Monitoring(tuple(files), tuple(events))


def trace(log: str, monitoring: bytes = b"", zone: tzinfo | None = None) -> list[FileAccess]:
    """Return the files of a log with the byte counts of the monitoring, in the order of opening.

    A count belongs to the earliest closing of the file by the client that has no count yet.
    """
    accesses = parse_log(log, zone)
    waiting: dict[tuple[str, str, str], list[int]] = {}
    for index in sorted(range(len(accesses)), key=lambda index: accesses[index].closed_s or float("inf")):
        access = accesses[index]
        waiting.setdefault((access.client, access.host, access.path), []).append(index)
    for count in parse_monitoring(monitoring).files:
        candidates = waiting.get((count.client, count.host, count.path))
        if candidates:
            index = candidates.pop(0)
            accesses[index] = replace(accesses[index], read_bytes=count.read_bytes, written_bytes=count.written_bytes)
    return accesses


def _datagrams(data: bytes) -> Iterator[tuple[int, bytes]]:
    offset = 0
    while offset + PREFIX.size <= len(data):
        length = PREFIX.unpack_from(data, offset)[1]
        offset += PREFIX.size
        if offset + length > len(data):
            return
        yield offset, data[offset : offset + length]
        offset += length


def _client(text: str) -> tuple[str, str]:
    """Return client and host of ``protocol/user.pid:session@host.domain``; further lines are ignored."""
    match = re.match(r"[^/]*/(\S+\.\d+):\d+@([^.\s]+)", text)
    return (match[1], match[2]) if match else ("", "")


def _events(datagram: bytes) -> list[dict[str, Any]]:
    """Return the JSON events of a ``g`` stream. Other JSON streams describe the server only, and yield none."""
    header, *events = (json.loads(line) for line in datagram.rstrip(b"\0").decode().splitlines() if line.strip())
    return events if header.get("code") == "g" else []


def _file_records(
    body: bytes, clients: dict[int, tuple[str, str]], opened: dict[int, tuple[int, str, int]]
) -> Iterator[FileCount]:
    offset, window = 0, (0, 0)
    while offset < len(body):
        kind, flags, length, number = _RECORD.unpack_from(body, offset)
        if length < _RECORD.size:
            raise ValueError(f"a record of {length} bytes")
        record = body[offset + _RECORD.size : offset + length]
        if kind == _TIME:
            window = _TIMES.unpack_from(record)
        elif kind == _OPENED:
            user, path = 0, ""
            if flags & _HAS_NAME:
                user = struct.unpack_from(">I", record, _SIZE.size)[0]
                path = record[_SIZE.size + 4 :].split(b"\0", 1)[0].decode(errors="replace")
            opened[number] = (user, path, _SIZE.unpack_from(record)[0])
        elif kind == _CLOSED:
            user, path, size = opened.pop(number, (0, "", 0))
            read, vector, written = _COUNTS.unpack_from(record)
            client_key = clients.get(user, ("", ""))
            yield FileCount(*client_key, path, size, read + vector, written, window, bool(flags & _FORCED))
        offset += length
