"""Control connections of FTP servers, read from packet captures, which show the arrival times that server logs lack.

A capture is a pcap file of one link, written by the network emulator or ``tcpdump``. Only unencrypted TCP over IPv4 is
read, so commands of sessions with certificates are invisible. For server logs, see :mod:`venturi.testbed.gridftp_log`.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from venturi.mover.base import OutputError
from venturi.testbed.gridftp_log import ControlEvent, Direction, Session

__all__ = ["captured_sessions"]

# draft-ietf-opsawg-pcap, section 4: the magic number determines the byte order and the unit of fractions of seconds.
_UNITS = {0xA1B2C3D4: 1e-6, 0xA1B23C4D: 1e-9}
_HEADER_BYTES = 24
_PACKET = "IIII"
_ETHERNET, _RAW = 1, 101
_LINK_HEADER_BYTES = {_ETHERNET: 14, _RAW: 0}
_TCP = 6
_SYN = 0x02
_SEQUENCES = 1 << 32
_MAX_WAITING = 10_000
"""Maximum segments of a stream that wait for a missing one. With a larger gap, the capture is incomplete."""


@dataclass(frozen=True, slots=True)
class _Segment:
    time_s: float
    source: tuple[str, int]
    destination: tuple[str, int]
    sequence: int
    syn: bool
    payload: bytes


@dataclass(slots=True)
class _Stream:
    """One direction of a connection, reassembled in order."""

    following: int | None = None
    waiting: dict[int, bytes] = field(default_factory=dict)
    rest: bytes = b""
    hole_s: float = math.inf
    """Arrival time of the first segment that still waits for an earlier one."""

    def add(self, segment: _Segment) -> Iterator[str]:
        """Yield the lines that a segment completes."""
        if segment.syn:
            self.following = (segment.sequence + 1) % _SEQUENCES
            return
        if self.following is None or not segment.payload or len(self.waiting) > _MAX_WAITING:
            return
        self.waiting[segment.sequence] = segment.payload
        while (ready := self._ready()) is not None:
            self.rest += ready
        self.hole_s = min(self.hole_s, segment.time_s) if self.waiting else math.inf
        *lines, self.rest = self.rest.split(b"\r\n")
        for line in lines:
            yield line.decode("utf-8", "replace")

    def _ready(self) -> bytes | None:
        """Return the next bytes, ``None`` if they are missing; earlier bytes are dropped."""
        assert self.following is not None
        for sequence, payload in list(self.waiting.items()):
            offset = (self.following - sequence) % _SEQUENCES
            if offset >= _SEQUENCES // 2:
                continue  # after the next byte
            del self.waiting[sequence]
            if offset < len(payload):
                self.following = (sequence + len(payload)) % _SEQUENCES
                return payload[offset:]
        return None


def captured_sessions(paths: Iterable[Path], port: int) -> list[Session]:
    """Return the sessions on a server's control port, in the order of their start.

    Parameters
    ----------
    paths
        Captures of both directions, in one file each or together. The time of a message is the capture time of the segment
        that completed it. Capture near the server to get its arrival times.
    port
        Port of the control connections.

    Returns
    -------
    list of Session
        Connections whose start was captured, with times to the microsecond or better; their ``pid`` is 0. If the
        capture lacks a segment, the session ends before the gap.

    Raises
    ------
    OutputError
        If a file is not a capture of IP packets. A truncated packet at the end of a file is ignored.
    """
    segments = sorted((segment for path in paths for segment in _segments(path)), key=lambda one: one.time_s)
    streams: dict[tuple[tuple[str, int], Direction], _Stream] = {}
    events: dict[tuple[str, int], list[ControlEvent]] = {}
    found: list[tuple[tuple[str, int], list[ControlEvent]]] = []
    for segment in segments:
        if port not in (segment.source[1], segment.destination[1]):
            continue
        from_client = segment.destination[1] == port
        client = segment.source if from_client else segment.destination
        direction: Direction = "client" if from_client else "server"
        if segment.syn:
            streams[client, direction] = _Stream()
            if from_client:
                events[client] = []
                found.append((client, events[client]))
        if client not in events:
            continue
        for line in streams.setdefault((client, direction), _Stream()).add(segment):
            _add(events[client], segment.time_s, _name(client), direction, line)
    return [
        Session(0, _name(client), _before_hole(events_of_client, client, streams))
        for client, events_of_client in found
    ]


def _before_hole(
    events_of_client: list[ControlEvent],
    client: tuple[str, int],
    streams: Mapping[tuple[tuple[str, int], Direction], _Stream],
) -> tuple[ControlEvent, ...]:
    both: tuple[Direction, ...] = ("client", "server")
    hole_s = min(
        (streams[client, direction].hole_s for direction in both if (client, direction) in streams), default=math.inf
    )
    return tuple(event for event in events_of_client if event.time_s < hole_s)


def _add(events: list[ControlEvent], time_s: float, client: str, direction: Direction, line: str) -> None:
    """Add a line. The lines of a reply form one message, which ends with the last line (RFC 959, section 4.2)."""
    last = next((index for index in range(len(events) - 1, -1, -1) if events[index].direction == direction), None)
    if direction == "server" and last is not None and _is_incomplete(events[last].text):
        line = f"{events.pop(last).text}\n{line}"
    events.append(ControlEvent(time_s, 0, client, direction, line))


def _is_incomplete(reply: str) -> bool:
    first, *more = reply.split("\n")
    if first[3:4] != "-":
        return False
    return not any(line.startswith(f"{first[:3]} ") for line in more)


def _segments(path: Path) -> Iterator[_Segment]:
    content = path.read_bytes()
    order = next((order for order in "<>" if _magic(content, order) in _UNITS), None)
    if order is None or len(content) < _HEADER_BYTES:
        raise OutputError("a pcap file", f"{path.name}: {content[:16].hex()}")
    (link,) = struct.unpack_from(f"{order}I", content, 20)
    if link not in _LINK_HEADER_BYTES:
        raise OutputError("a capture of Ethernet frames or IP packets", f"{path.name}: link type {link}")
    at = _HEADER_BYTES
    while at + 16 <= len(content):
        seconds, fraction, captured_bytes, _ = struct.unpack_from(f"{order}{_PACKET}", content, at)
        at += 16
        packet = content[at + _LINK_HEADER_BYTES[link] : at + captured_bytes]
        at += captured_bytes
        segment = (
            _segment(seconds + fraction * _UNITS[_magic(content, order)], packet) if at <= len(content) else None
        )
        if segment is not None:
            yield segment


def _magic(content: bytes, order: str) -> int:
    return int(struct.unpack_from(f"{order}I", content.ljust(4, b"\0"))[0])


def _segment(time_s: float, packet: bytes) -> _Segment | None:
    """Return the TCP segment of an IPv4 packet (RFC 791, RFC 9293); ``None`` for other packets and fragments."""
    if len(packet) < 20 or packet[0] >> 4 != 4 or packet[9] != _TCP or int.from_bytes(packet[6:8]) & 0x3FFF:
        return None
    start = (packet[0] & 0x0F) * 4
    # With segmentation offload, the length in the header can be 0.
    end = int.from_bytes(packet[2:4]) or len(packet)
    tcp = packet[start:end]
    if len(tcp) < 20:
        return None
    source, destination, sequence = struct.unpack_from(">HHI", tcp)
    return _Segment(
        time_s,
        (_address(packet[12:16]), source),
        (_address(packet[16:20]), destination),
        sequence,
        bool(tcp[13] & _SYN),
        tcp[(tcp[12] >> 4) * 4 :],
    )


def _address(octets: bytes) -> str:
    return ".".join(map(str, octets))


def _name(client: tuple[str, int]) -> str:
    return f"{client[0]}:{client[1]}"
