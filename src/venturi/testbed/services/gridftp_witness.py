"""What GridFTP servers saw: their transfer log, and their control channels from the log or from captured packets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from venturi.testbed.capture import captured_sessions
from venturi.testbed.services.base import Room
from venturi.testbed.services.witness import ControlLine, ServerTransfer
from venturi.testbed.trace import ControlEvent, TransferRecord, numbered, read_control, read_transfers

__all__ = ["logged_control", "logged_transfers", "seen_control"]

# GET and PUT: our own server over HTTP, which writes the same log.
_FILES = ("APPE", "ERET", "ESTO", "GET", "PUT", "RETR", "STOR")
_SENT = ("ERET", "GET", "RETR")
# Of the server's own remarks only who logged in: its statistics stand in the transfer log.
_WORTH_KEEPING = ("successfully authorized.",)


def logged_transfers(log: Path) -> Iterator[ServerTransfer]:
    """Yield the files of a transfer log; listings are left out.

    Raises
    ------
    OutputError
        If a line is not of the known form.
    """
    if not log.exists():
        return
    with log.open(encoding="utf-8", errors="replace") as lines:
        yield from map(_transfer, (one for one in read_transfers(lines) if one.kind in _FILES))


def _transfer(one: TransferRecord) -> ServerTransfer:
    sent = one.kind in _SENT
    return ServerTransfer(
        end_unix_s=one.end_s,
        start_unix_s=one.start_s,
        path=one.path,
        command=one.kind,
        code=str(one.code),
        sent_bytes=one.bytes if sent else None,
        received_bytes=None if sent else one.bytes,
        file_bytes=one.bytes,
        peer=",".join(one.peers) or None,
        streams=one.streams,
        stripes=one.stripes,
        buffer_bytes=one.buffer_bytes,
        block_bytes=one.block_bytes,
        # -1 is what it says where the kernel did not tell.
        retransmits=None if one.retransmits is None or min(one.retransmits, default=0) < 0 else sum(one.retransmits),
    )


def logged_control(log: Path) -> Iterator[ControlLine]:
    """Yield the control channels of a control log."""
    if not log.exists():
        return
    with log.open(encoding="utf-8", errors="replace") as text:
        for number, client, event in numbered(read_control(text)):
            if _kept(event):
                yield ControlLine(event.time_s, number, client, event.direction, event.text, "log")


def seen_control(capture: Path, room: Room) -> Iterator[ControlLine]:
    """Yield the control channels of captured packets, of all ports of a server.

    Raises
    ------
    OutputError
        If the file is no capture.
    """
    if not capture.exists():
        return
    found = [one for port in room.spec.ports for one in captured_sessions([capture], port)]
    for number, session in enumerate(found):
        for event in filter(_kept, session.events):
            yield ControlLine(event.time_s, number, session.client, event.direction, event.text, "wire")


def _kept(event: ControlEvent) -> bool:
    return event.direction != "note" or event.text.endswith(_WORTH_KEEPING)
