"""Readers of the two logs of a GridFTP server: each line of its control channels, and each transfer.

The control log (``-d ALL``) has times of whole seconds. Its lines *Transfer stats* repeat the transfer log (``-Z``), with
microseconds. Both logs are in UTC if :mod:`venturi.testbed.services.gridftp` started the server.

The server of the Grid Community Toolkit logs a command when it starts to process the command, not on arrival. In its logs,
:attr:`Session.max_outstanding` is therefore 1, with and without pipelining. :attr:`Session.pauses_s` shows pipelining:
without it, at least one round-trip time lies between two transfers. Start with :class:`Session`.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, TextIO, TypeAlias

from venturi.mover.base import OutputError

__all__ = [
    "Authentication",
    "ControlEvent",
    "Direction",
    "Session",
    "TransferRecord",
    "numbered",
    "read_control",
    "read_transfers",
]

Direction: TypeAlias = Literal["client", "server", "note"]

# Matches anywhere in a line, because some messages of the server end without a line feed.
_HEAD = re.compile(r"\[(\d{1,10})\] (\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4}) :: ", re.ASCII)
_SPOKEN = re.compile(r"(\S+:\d+): \[(CLIENT|SERVER)\]: (.*)", re.DOTALL)
_CONNECTED = re.compile(r"New connection from: (\S+)")
_SUBJECT = re.compile(r"DN (.+) successfully authorized[.]")
_USER = re.compile(r"User (\S+) successfully authorized[.]")
_STATISTICS = "Transfer stats: "

_PART_CHARS = 1 << 20
"""Part of a log that is read at a time."""

_TRANSFERS = frozenset({"APPE", "ERET", "ESTO", "LIST", "MLSD", "MLSR", "NLST", "RETR", "STOR"})
_DATA_CHANNELS = frozenset({"EPRT", "EPSV", "PASV", "PORT", "SPAS", "SPOR"})

_RECORD = re.compile(
    r"DATE=(?P<end>[\d.]+) HOST=(?P<host>\S*) PROG=\S+ NL[.]EVNT=FTP_INFO START=(?P<start>[\d.]+) "
    r"USER=(?P<user>.*?) FILE=(?P<path>.*) BUFFER=(?P<buffer>-?\d+) BLOCK=(?P<block>\d+) NBYTES=(?P<bytes>\d+) "
    r"VOLUME=(?P<volume>.*) STREAMS=(?P<streams>\d+) STRIPES=(?P<stripes>\d+) DEST=\[(?P<peers>[^]]*)\] "
    r"TYPE=(?P<kind>\S+) CODE=(?P<code>\d+)(?: TASKID=\S+)?(?: retrans=(?P<retransmits>[-\d,]+))?\s*"
)


@dataclass(frozen=True, slots=True)
class TransferRecord:
    """Transfer as reported by the server (log field in brackets).

    Attributes
    ----------
    start_s, end_s
        Unix time of the server's clock, to the microsecond [START, DATE].
    host
        Name of the server [HOST].
    user
        Local account, or ``anonymous`` [USER].
    path
        Path of the file [FILE].
    bytes
        Bytes of the file that this server moved; a data node of a striped server counts its part [NBYTES].
    buffer_bytes
        Socket buffer: the value of getsockopt if the client set none; 0 without a data channel [BUFFER].
    block_bytes
        Size of one read or write [BLOCK].
    streams, stripes
        Requested data connections, and data nodes [STREAMS, STRIPES].
    peers
        Peer addresses of the data channels [DEST].
    kind
        Command: ``RETR``, ``STOR``, ``ERET``, ``LIST``, ``MLSD`` … [TYPE].
    code
        Code of the final reply: 226 for success [CODE].
    retransmits
        Retransmitted TCP segments per data connection; None if the server does not report them [retrans].
    """

    start_s: float
    end_s: float
    host: str
    user: str
    path: str
    bytes: int
    buffer_bytes: int
    block_bytes: int
    streams: int
    stripes: int
    peers: tuple[str, ...]
    kind: str
    code: int
    retransmits: tuple[int, ...] | None

    @property
    def duration_s(self) -> float:
        """Time from the start to the end of the data transfer, on the server."""
        return self.end_s - self.start_s


@dataclass(frozen=True, slots=True)
class ControlEvent:
    """Message of a control log.

    Attributes
    ----------
    time_s
        Unix time, whole seconds.
    pid
        PID of the server process in its own PID namespace; each session has its own process.
    client
        ``host:port`` of the control connection; None for notes.
    direction
        Sender: the client, the server, or a note of the server in its log.
    text
        Text without the final line end; the lines of a multi-line reply are separated by line ends.
    """

    time_s: float
    pid: int
    client: str | None
    direction: Direction
    text: str

    @property
    def verb(self) -> str:
        """Command or reply code: the first word, without the hyphen of a multi-line reply."""
        fields = self.text.split(None, 1)
        return fields[0].partition("-")[0].upper() if fields else ""


@dataclass(frozen=True, slots=True)
class Authentication:
    """Successful login; ``subject`` is None without certificates."""

    time_s: float
    client: str
    subject: str | None
    user: str


@dataclass(frozen=True, slots=True)
class Session:
    """Control connection, complete from its start.

    Attributes
    ----------
    events
        Messages of its process, in the order of the log.
    """

    pid: int
    client: str
    events: tuple[ControlEvent, ...]

    @property
    def authentication(self) -> Authentication | None:
        """Successful login, or None."""
        subject = None
        for event in self.events:
            if event.direction != "note":
                continue
            if found := _SUBJECT.match(event.text):
                subject = found[1]
            elif found := _USER.match(event.text):
                return Authentication(event.time_s, self.client, subject, found[1])
        return None

    @property
    def dialogue(self) -> tuple[ControlEvent, ...]:
        """Messages between client and server after the login."""
        return tuple(_after_login(self.events))

    @property
    def transfers(self) -> tuple[TransferRecord, ...]:
        """Transfers that the server reports, in the order of their completion.

        Raises
        ------
        OutputError
            If a report is not of the known form.
        """
        return tuple(
            _record(event.text.removeprefix(_STATISTICS))
            for event in self.events
            if event.direction == "note" and event.text.startswith(_STATISTICS)
        )

    @property
    def pauses_s(self) -> tuple[float, ...]:
        """Time from the end of each transfer to the start of the next. Without pipelining, at least a round-trip time."""
        moved = sorted(self.transfers, key=lambda transfer: transfer.start_s)
        return tuple(after.start_s - before.end_s for before, after in itertools.pairwise(moved))

    @property
    def data_channels(self) -> int:
        """Number of negotiated data channels (PASV, PORT and similar). Each has as many connections as streams."""
        data_commands = 0
        for verb, reply in _match_replies(self.events):
            data_commands += verb in _DATA_CHANNELS and reply.verb.startswith("2")
        return data_commands

    def outstanding(self) -> list[tuple[float, int]]:
        """Return the number of transfer commands without a final reply, as pairs of time and number at each change."""
        steps: list[tuple[float, int]] = []
        pending: list[str] = []
        for event in _after_login(self.events):
            before = _transfers_in(pending)
            _advance(pending, event)
            if _transfers_in(pending) != before:
                steps.append((event.time_s, _transfers_in(pending)))
        return steps

    @property
    def max_outstanding(self) -> int:
        """Largest number of transfer commands without a final reply. The module docstring describes its limits."""
        return max((number for _, number in self.outstanding()), default=0)


def read_control(log: TextIO) -> Iterator[ControlEvent]:
    """Yield the messages of a control log, reading it in parts; text before the first message is ignored.

    Examples
    --------
    >>> from io import StringIO
    >>> line = "[46] Sun Nov 22 01:02:01 2026 :: b.lab.test:36448: [CLIENT]: RETR /data/f\\n"
    >>> [event.verb for event in read_control(StringIO(line))]
    ['RETR']
    """
    buffer = ""
    while part := log.read(_PART_CHARS):
        buffer += part
        heads = [head for head in _HEAD.finditer(buffer) if _written_s(head[2]) is not None]
        for head, following in itertools.pairwise(heads):
            yield _event(head, buffer[head.end() : following.start()])
        # The end of the last message is known only when the next one starts.
        buffer = buffer[heads[-1].start() :] if heads else buffer
    if (last := _HEAD.match(buffer)) and _written_s(last[2]) is not None:
        yield _event(last, buffer[last.end() :])


def numbered(events: Iterable[ControlEvent]) -> Iterator[tuple[int, str, ControlEvent]]:
    """Yield the messages of control connections, each with the number and client of its connection.

    Connections are numbered from 0 in the order of their start. A reused PID starts a new connection.
    """
    session_numbers = itertools.count()
    current: dict[int, tuple[int, str]] = {}
    for event in events:
        connected = _CONNECTED.match(event.text) if event.direction == "note" else None
        if connected:
            current[event.pid] = (next(session_numbers), connected[1])
        if event.pid in current:
            yield *current[event.pid], event


def read_transfers(log: Iterable[str]) -> Iterator[TransferRecord]:
    """Yield the records of a transfer log. An incomplete last line is still being written and is ignored.

    Raises
    ------
    OutputError
        If a line has an unknown form.
    """
    return (_record(line) for line in log if line.endswith("\n") and line.strip())


@functools.lru_cache
def _written_s(text: str) -> float | None:
    """Return the time of a message, or None if the text is no time and so no message starts here."""
    try:
        return datetime.strptime(text, "%a %b %d %H:%M:%S %Y").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None


def _event(head: re.Match[str], message: str) -> ControlEvent:
    pid, time_s, text = int(head[1]), _written_s(head[2]), message.rstrip("\r\n")
    assert time_s is not None
    spoken = _SPOKEN.match(text)
    if spoken is None:
        return ControlEvent(time_s, pid, None, "note", text)
    return ControlEvent(time_s, pid, spoken[1], "client" if spoken[2] == "CLIENT" else "server", spoken[3])


def _record(line: str) -> TransferRecord:
    found = _RECORD.fullmatch(line)
    if found is None:
        raise OutputError('"DATE=… NL.EVNT=FTP_INFO START=… TYPE=… CODE=…"', line)
    retransmits_text = found["retransmits"]
    return TransferRecord(
        start_s=_time_s(found["start"], line),
        end_s=_time_s(found["end"], line),
        host=found["host"],
        user=found["user"],
        path=found["path"],
        bytes=int(found["bytes"]),
        buffer_bytes=int(found["buffer"]),
        block_bytes=int(found["block"]),
        streams=int(found["streams"]),
        stripes=int(found["stripes"]),
        peers=tuple(peer for peer in found["peers"].split(",") if peer),
        kind=found["kind"],
        code=int(found["code"]),
        retransmits=tuple(int(number) for number in retransmits_text.split(",") if number)
        if retransmits_text
        else None,
    )


def _time_s(text: str, line: str) -> float:
    try:
        return datetime.strptime(text, "%Y%m%d%H%M%S.%f").replace(tzinfo=UTC).timestamp()
    except ValueError as error:
        raise OutputError("a time as YYYYMMDDhhmmss.ffffff", line) from error


def _after_login(events: tuple[ControlEvent, ...]) -> Iterator[ControlEvent]:
    """Yield the messages after the login. During the login, the server logs commands twice."""
    logged_in = False
    for event in events:
        if logged_in and event.direction != "note":
            yield event
        logged_in = logged_in or (event.direction == "server" and event.verb == "230")


def _advance(pending: list[str], event: ControlEvent) -> str | None:
    """Add a command to those without a final reply, or remove and return the command of a final reply."""
    if event.direction == "client":
        pending.append(event.verb)
    elif pending and event.verb[:1] in {"2", "3", "4", "5"}:
        return pending.pop(0)
    return None


def _match_replies(events: tuple[ControlEvent, ...]) -> Iterator[tuple[str, ControlEvent]]:
    """Yield commands with their final replies, which have the order of the commands (RFC 959, section 5.4)."""
    pending: list[str] = []
    for event in _after_login(events):
        command = _advance(pending, event)
        if command is not None:
            yield command, event


def _transfers_in(pending: list[str]) -> int:
    return sum(verb in _TRANSFERS for verb in pending)
