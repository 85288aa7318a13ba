"""GridFTP markers: progress reports of a receiving server during a transfer, and bytes skipped after a restart.

At the start, every five seconds and at the end, the server sends a performance marker for each stripe (112: time and bytes
so far). In mode E only, it also sends a range marker (111: ranges that are stored, with exclusive ends). See GFD.20; the
behaviour was observed with ``globus-gridftp-server`` 13. A client that restarts a transfer names all stored ranges (REST),
which are not sent again. Start with :class:`MarkerProgress`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from venturi.testbed.gridftp_log import ControlEvent

__all__ = ["MarkerProgress", "marked_transfers"]

_MOVES = frozenset({"APPE", "ERET", "ESTO", "RETR", "STOR"})
_RANGE = re.compile(r"(\d+)-(\d+)")
_MARKER = re.compile(
    r"112-.*?Timestamp:\s*(?P<time>\d+(?:\.\d+)?).*?Stripe Index:\s*(?P<stripe>\d+).*?Stripe Bytes Transferred:\s*(?P<bytes>\d+)"
    r".*?Total Stripe Count:\s*(?P<stripes>\d+)",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class MarkerProgress:
    """Progress of one transfer according to its markers.

    Attributes
    ----------
    path
        Path of the file in the command of the client.
    times_s
        Times of the performance markers by the server's clock, relative to the first one.
    bytes
        Bytes that all stripes together had received at each of these times.
    stripes
        Number of data nodes with markers.
    range_markers
        Number of range markers.
    skipped_bytes
        Bytes that were not sent again after a restart, from the ranges of the client; 0 for a transfer from the start.
    complete
        Whether the final reply reports success.
    """

    path: str
    times_s: tuple[float, ...]
    bytes: tuple[int, ...]
    stripes: int
    range_markers: int
    skipped_bytes: int
    complete: bool


@dataclass(slots=True)
class _PendingTransfer:
    verb: str
    path: str = ""
    skipped_bytes: int = 0
    markers: list[tuple[float, int]] = field(default_factory=list)
    of_stripe: dict[int, int] = field(default_factory=dict)
    range_markers: int = 0

    def ended(self, *, complete: bool) -> MarkerProgress:
        start_s = self.markers[0][0]
        return MarkerProgress(
            path=self.path,
            times_s=tuple(round(time_s - start_s, 6) for time_s, _ in self.markers),
            bytes=tuple(count for _, count in self.markers),
            stripes=len(self.of_stripe),
            range_markers=self.range_markers,
            skipped_bytes=self.skipped_bytes,
            complete=complete,
        )


def marked_transfers(events: Iterable[ControlEvent]) -> Iterator[MarkerProgress]:
    """Yield the progress of the transfers of a control connection, in the order of their completion.

    Parameters
    ----------
    events
        All messages after the login. Replies have the order of the commands (RFC 959, section 5.4). So a marker belongs to
        the first command without a final reply, with and without pipelining.
    """
    pending: list[_PendingTransfer] = []
    skipped_bytes = 0
    for event in events:
        if event.direction == "client":
            of_restart = event.verb == "REST"
            moves = event.verb in _MOVES
            pending.append(
                _PendingTransfer(
                    event.verb, event.text.partition(" ")[2] if moves else "", skipped_bytes if moves else 0
                )
            )
            skipped_bytes = _range_bytes(event.text) if of_restart else 0 if moves else skipped_bytes
        elif event.direction == "server" and pending:
            if event.verb in ("111", "112"):
                _add_marker(pending[0], event)
            elif event.verb[:1] in {"2", "3", "4", "5"}:
                finished = pending.pop(0)
                if finished.markers:
                    yield finished.ended(complete=event.verb.startswith("2"))
    yield from (unfinished.ended(complete=False) for unfinished in pending if unfinished.markers)


def _add_marker(transfer: _PendingTransfer, event: ControlEvent) -> None:
    if event.verb == "111":
        transfer.range_markers += 1
    elif found := _MARKER.match(event.text):
        transfer.of_stripe[int(found["stripe"])] = int(found["bytes"])
        transfer.markers.append((float(found["time"]), sum(transfer.of_stripe.values())))


def _range_bytes(text: str) -> int:
    """Return the bytes of the ranges of a REST command, or its offset in stream mode."""
    ranges = _RANGE.findall(text)
    if ranges:
        return sum(int(end) - int(start) for start, end in ranges)
    offset = text.partition(" ")[2].strip()
    return int(offset) if offset.isdigit() else 0
