"""Logs of SRM servers: their requests, as lines of control connections.

A connection starts with a note, ``DN SUBJECT authenticated over TLSv1.3 as ACCOUNT in 0.0123 s``, or ``refused: REASON``. A
request is one line of the client, ``OPERATION [token=TOKEN] SURL …``. Its response has one line of the server,
``OPERATION STATUS [token=TOKEN]``, and for each file ``OPERATION STATUS SURL [TURL]``. Fields are separated by blanks,
because paths in a lab contain none.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from venturi.mover.base import OutputError
from venturi.srm.log import LogRecord, read_log
from venturi.testbed.services.log_source import ControlLine

__all__ = ["logged_requests"]

_MARK = " token="


def logged_requests(log: Path) -> Iterator[ControlLine]:
    """Yield the connections and requests of a log; nothing if the log does not exist.

    Raises
    ------
    OutputError
        If a line has an unknown form.
    """
    try:
        for record in read_log(log):
            yield from _lines(record)
    except ValueError as error:
        raise OutputError("a record of the SRM server", str(error)) from error


def _lines(record: LogRecord) -> Iterator[ControlLine]:
    session, peer = record.connection, record.peer
    if record.event == "refused":
        yield ControlLine(record.end_unix_s, session, peer, "note", f"refused: {record.reason}", "log")
        return
    if record.event == "connection":
        took_s = record.end_unix_s - record.start_unix_s
        account = f"as {record.account}" if record.account else "as nobody"
        note = f"DN {record.subject} authenticated over {record.tls} {account} in {took_s:.6f} s"
        yield ControlLine(record.end_unix_s, session, peer, "note", note, "log")
        return
    token = f"{_MARK}{record.token}" if record.token else ""
    named = "".join(f" {file.surl}" for file in record.files)
    # The response to these operations contains the token; the client did not know it in the request.
    request_token = "" if record.operation.startswith("srmPrepareTo") else token
    start_s, end_s = record.start_unix_s, record.end_unix_s
    yield ControlLine(start_s, session, peer, "client", f"{record.operation}{request_token}{named}", "log")
    yield ControlLine(end_s, session, peer, "server", f"{record.operation} {record.status}{token}", "log")
    for file in record.files:
        turl = f" {file.turl}" if file.turl else ""
        yield ControlLine(
            end_s, session, peer, "server", f"{record.operation} {file.status} {file.surl}{turl}", "log"
        )
