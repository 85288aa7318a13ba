"""Markers of GridFTP: what a server that receives tells its client while a file is under way, and what is sent again after a break.

Every five seconds, at the begin and at the end, it sends a performance marker for each stripe (112: its time, and bytes so far), and a range marker
(111: ranges that are safe, ends exclusive), in mode E only (GFD.20; what is said here was seen of ``globus-gridftp-server`` 13). A client that begins
again names all safe ranges (REST), and these are not sent again. The one type to read first: :class:`Progress`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from venturi.testbed.trace import ControlEvent

__all__ = ["Progress", "marked_transfers"]

_MOVES = frozenset({"APPE", "ERET", "ESTO", "RETR", "STOR"})
_RANGE = re.compile(r"(\d+)-(\d+)")
_MARKER = re.compile(
    r"112-.*?Timestamp:\s*(?P<time>\d+(?:\.\d+)?).*?Stripe Index:\s*(?P<stripe>\d+).*?Stripe Bytes Transferred:\s*(?P<bytes>\d+)"
    r".*?Total Stripe Count:\s*(?P<stripes>\d+)",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Progress:
    """What markers told of one transfer.

    Attributes
    ----------
    path
        Of the file, as the client named it.
    times_s, bytes
        Of each performance marker: its time by the server's clock, from the first one, and what all stripes together had received by then.
    stripes
        Data nodes that told of themselves.
    range_markers
        How often it was told which ranges are safe.
    skipped_bytes
        What was not sent again after a break, by the ranges that the client named; 0 for a transfer from the beginning.
    complete
        Whether its final reply was one of success.
    """

    path: str
    times_s: tuple[float, ...]
    bytes: tuple[int, ...]
    stripes: int
    range_markers: int
    skipped_bytes: int
    complete: bool


@dataclass(slots=True)
class _UnderWay:
    verb: str
    path: str = ""
    skipped_bytes: int = 0
    markers: list[tuple[float, int]] = field(default_factory=list)
    of_stripe: dict[int, int] = field(default_factory=dict)
    range_markers: int = 0

    def ended(self, *, complete: bool) -> Progress:
        begin_s = self.markers[0][0]
        return Progress(
            path=self.path,
            times_s=tuple(round(time_s - begin_s, 6) for time_s, _ in self.markers),
            bytes=tuple(count for _, count in self.markers),
            stripes=len(self.of_stripe),
            range_markers=self.range_markers,
            skipped_bytes=self.skipped_bytes,
            complete=complete,
        )


def marked_transfers(events: Iterable[ControlEvent]) -> Iterator[Progress]:
    """Yield what markers told of the transfers of a control connection, in the order of their ends.

    Parameters
    ----------
    events
        All that was said after the login. Replies come in the order of the commands (RFC 959, section 5.4), and so a marker is of the
        first command without a final reply, pipelined or not.
    """
    pending: list[_UnderWay] = []
    skipped_bytes = 0
    for event in events:
        if event.direction == "client":
            of_restart = event.verb == "REST"
            moves = event.verb in _MOVES
            pending.append(
                _UnderWay(event.verb, event.text.partition(" ")[2] if moves else "", skipped_bytes if moves else 0)
            )
            skipped_bytes = _range_bytes(event.text) if of_restart else 0 if moves else skipped_bytes
        elif event.direction == "server" and pending:
            if event.verb in ("111", "112"):
                _take(pending[0], event)
            elif event.verb[:1] in {"2", "3", "4", "5"}:
                done = pending.pop(0)
                if done.markers:
                    yield done.ended(complete=event.verb.startswith("2"))
    yield from (left.ended(complete=False) for left in pending if left.markers)


def _take(transfer: _UnderWay, event: ControlEvent) -> None:
    if event.verb == "111":
        transfer.range_markers += 1
    elif found := _MARKER.match(event.text):
        transfer.of_stripe[int(found["stripe"])] = int(found["bytes"])
        transfer.markers.append((float(found["time"]), sum(transfer.of_stripe.values())))


def _range_bytes(text: str) -> int:
    """Return the bytes of the ranges of a REST; of one of stream mode, a mere offset, that is the offset."""
    ranges = _RANGE.findall(text)
    if ranges:
        return sum(int(end) - int(begin) for begin, end in ranges)
    offset = text.partition(" ")[2].strip()
    return int(offset) if offset.isdigit() else 0
