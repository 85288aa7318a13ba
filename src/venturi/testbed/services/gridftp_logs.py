"""Logs of GridFTP servers: transfer log, and control channels from the control log or from captured packets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from venturi.testbed.capture import captured_sessions
from venturi.testbed.gridftp_log import ControlEvent, TransferRecord, numbered, read_control, read_transfers
from venturi.testbed.services.base import ServiceContext
from venturi.testbed.services.log_source import ControlLine, ServerTransfer

__all__ = ["captured_control", "logged_control", "logged_transfers"]

# GET and PUT: Venturi's server over HTTP, which writes the same log.
_FILES = ("APPE", "ERET", "ESTO", "GET", "PUT", "RETR", "STOR")
_SENT = ("ERET", "GET", "RETR")
# The only relevant notes are logins, because the transfer log has the statistics.
_RELEVANT_NOTES = ("successfully authorized.",)


def logged_transfers(log: Path) -> Iterator[ServerTransfer]:
    """Yield the files of a transfer log, without listings.

    Raises
    ------
    OutputError
        If a line has an unknown form.
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
        # The server reports -1 if the kernel did not report retransmissions.
        retransmits=None if one.retransmits is None or min(one.retransmits, default=0) < 0 else sum(one.retransmits),
    )


def logged_control(log: Path) -> Iterator[ControlLine]:
    """Yield the lines of the control channels in a control log."""
    if not log.exists():
        return
    with log.open(encoding="utf-8", errors="replace") as text:
        for number, client, event in numbered(read_control(text)):
            if _is_relevant(event):
                yield ControlLine(event.time_s, number, client, event.direction, event.text, "log")


def captured_control(capture: Path, context: ServiceContext) -> Iterator[ControlLine]:
    """Yield the lines of the control channels in captured packets, for all ports of a server.

    Raises
    ------
    OutputError
        If the file is not a capture.
    """
    if not capture.exists():
        return
    found = [one for port in context.spec.ports for one in captured_sessions([capture], port)]
    for number, session in enumerate(found):
        for event in filter(_is_relevant, session.events):
            yield ControlLine(event.time_s, number, session.client, event.direction, event.text, "wire")


def _is_relevant(event: ControlEvent) -> bool:
    return event.direction != "note" or event.text.endswith(_RELEVANT_NOTES)
