"""The logs of a GridFTP server, read: each line of its control channels, and each transfer.

The control log (``-d ALL``) has times of whole seconds, but its lines *Transfer stats* are those of the transfer log
(``-Z``), with microseconds. Both are in UTC where :mod:`venturi.testbed.services.gridftp` started the server.

What the control log cannot tell: the server of the Grid Community Toolkit writes a command down when it begins with it,
not when it arrives. So :attr:`Session.most_outstanding` is 1 there, pipelined or not. Pipelining shows in
:attr:`Session.pauses_s`: a client that does not pipeline leaves a round trip between a transfer's end and the next begin.
The one type to read first: :class:`Session`.
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

# Not only at the beginning of a line: some of the server's messages end without a line feed.
_HEAD = re.compile(r"\[(\d{1,10})\] (\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4}) :: ", re.ASCII)
_SPOKEN = re.compile(r"(\S+:\d+): \[(CLIENT|SERVER)\]: (.*)", re.DOTALL)
_CONNECTED = re.compile(r"New connection from: (\S+)")
_SUBJECT = re.compile(r"DN (.+) successfully authorized[.]")
_USER = re.compile(r"User (\S+) successfully authorized[.]")
_STATISTICS = "Transfer stats: "

_PART_CHARS = 1 << 20
"""Of a log, read at a time."""

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
    """A transfer as the server reports it (log field in brackets).

    Attributes
    ----------
    start_s, end_s
        Unix time by the server's clock, to the microsecond [START, DATE].
    host
        The server's name [HOST].
    user
        Local account, or ``anonymous`` [USER].
    path
        The file [FILE].
    bytes
        Of the file that this server moved; a data node of a striped server tells of its part [NBYTES].
    buffer_bytes
        Socket buffer: what getsockopt says where the client set none; 0 if there was no data channel [BUFFER].
    block_bytes
        Read or written at a time [BLOCK].
    streams, stripes
        Data connections asked for, and data nodes [STREAMS, STRIPES].
    peers
        Addresses at the other end of the data channels [DEST].
    kind
        Command: ``RETR``, ``STOR``, ``ERET``, ``LIST``, ``MLSD`` … [TYPE].
    code
        Of the final reply: 226 for success [CODE].
    retransmits
        TCP segments sent again, one number a data connection; None if the server did not say [retrans].
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
        """From the begin of the data's move to its end, on the server."""
        return self.end_s - self.start_s


@dataclass(frozen=True, slots=True)
class ControlEvent:
    """One message of a control log.

    Attributes
    ----------
    time_s
        Unix time, whole seconds.
    pid
        Of the server process, as its own PID namespace numbers it; each session has its own.
    client
        ``host:port`` of the control connection; None for notes.
    direction
        Who said it: the client, the server to the client, or the server to its log (a note).
    text
        Without line ends; a reply of several lines has them in between.
    """

    time_s: float
    pid: int
    client: str | None
    direction: Direction
    text: str

    @property
    def verb(self) -> str:
        """The command or the code of the reply: the first word, without the hyphen of a reply of several lines."""
        words = self.text.split(None, 1)
        return words[0].partition("-")[0].upper() if words else ""


@dataclass(frozen=True, slots=True)
class Authentication:
    """A login that succeeded; ``subject`` is None without certificates."""

    time_s: float
    client: str
    subject: str | None
    user: str


@dataclass(frozen=True, slots=True)
class Session:
    """A control connection, from its beginning.

    Attributes
    ----------
    events
        All messages of its process, in the order of the log.
    """

    pid: int
    client: str
    events: tuple[ControlEvent, ...]

    @property
    def authentication(self) -> Authentication | None:
        """The login, None if there was none that succeeded."""
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
        """What client and server said to each other after the login."""
        return tuple(_after_login(self.events))

    @property
    def transfers(self) -> tuple[TransferRecord, ...]:
        """The transfers that the server reports, in the order in which they ended.

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
        """Time from the end of each transfer to the start of the next: a round trip and more without pipelining."""
        moved = sorted(self.transfers, key=lambda transfer: transfer.start_s)
        return tuple(after.start_s - before.end_s for before, after in itertools.pairwise(moved))

    @property
    def data_channels(self) -> int:
        """How often a data channel was agreed upon (PASV, PORT and their kin); each has as many connections as streams."""
        asked = 0
        for verb, reply in _answers(self.events):
            asked += verb in _DATA_CHANNELS and reply.verb.startswith("2")
        return asked

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
    def most_outstanding(self) -> int:
        """The largest number of transfer commands without a final reply; see the module on what it cannot tell."""
        return max((number for _, number in self.outstanding()), default=0)


def read_control(log: TextIO) -> Iterator[ControlEvent]:
    """Yield the messages of a control log, of which no more than a part is held; what stands before the first one is not one.

    Examples
    --------
    >>> from io import StringIO
    >>> line = "[46] Sun Nov 22 01:02:01 2026 :: b.lab.test:36448: [CLIENT]: RETR /data/f\\n"
    >>> [event.verb for event in read_control(StringIO(line))]
    ['RETR']
    """
    held = ""
    while part := log.read(_PART_CHARS):
        held += part
        heads = [head for head in _HEAD.finditer(held) if _written_s(head[2]) is not None]
        for head, following in itertools.pairwise(heads):
            yield _event(head, held[head.end() : following.start()])
        # How long the last message is, the next one tells.
        held = held[heads[-1].start() :] if heads else held
    if (last := _HEAD.match(held)) and _written_s(last[2]) is not None:
        yield _event(last, held[last.end() :])


def numbered(events: Iterable[ControlEvent]) -> Iterator[tuple[int, str, ControlEvent]]:
    """Yield the messages of control connections, each with the connection's number and client.

    They are numbered from 0 in the order in which they began. A process number that is used again begins a new one.
    """
    began = itertools.count()
    current: dict[int, tuple[int, str]] = {}
    for event in events:
        connected = _CONNECTED.match(event.text) if event.direction == "note" else None
        if connected:
            current[event.pid] = (next(began), connected[1])
        if event.pid in current:
            yield *current[event.pid], event


def read_transfers(log: Iterable[str]) -> Iterator[TransferRecord]:
    """Yield the records of the lines of a transfer log. A last line without its end is still being written and is left out.

    Raises
    ------
    OutputError
        If a line is not of the known form.
    """
    return (_record(line) for line in log if line.endswith("\n") and line.strip())


@functools.lru_cache
def _written_s(text: str) -> float | None:
    """Return the time of a message, None if it is no time and so no message begins here."""
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
    said = found["retransmits"]
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
        retransmits=tuple(int(number) for number in said.split(",") if number) if said else None,
    )


def _time_s(text: str, line: str) -> float:
    try:
        return datetime.strptime(text, "%Y%m%d%H%M%S.%f").replace(tzinfo=UTC).timestamp()
    except ValueError as error:
        raise OutputError("a time as YYYYMMDDhhmmss.ffffff", line) from error


def _after_login(events: tuple[ControlEvent, ...]) -> Iterator[ControlEvent]:
    """Yield what is said after the login, during which the server writes commands down twice."""
    logged_in = False
    for event in events:
        if logged_in and event.direction != "note":
            yield event
        logged_in = logged_in or (event.direction == "server" and event.verb == "230")


def _advance(pending: list[str], event: ControlEvent) -> str | None:
    """Add a command to those without a final reply, or take the one that is replied to; return that."""
    if event.direction == "client":
        pending.append(event.verb)
    elif pending and event.verb[:1] in {"2", "3", "4", "5"}:
        return pending.pop(0)
    return None


def _answers(events: tuple[ControlEvent, ...]) -> Iterator[tuple[str, ControlEvent]]:
    """Yield commands with their final replies, which come in the order of the commands (RFC 959, section 5.4)."""
    pending: list[str] = []
    for event in _after_login(events):
        answered = _advance(pending, event)
        if answered is not None:
            yield answered, event


def _transfers_in(pending: list[str]) -> int:
    return sum(verb in _TRANSFERS for verb in pending)
