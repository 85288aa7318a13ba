"""What SRM servers saw: their log of requests, as lines of control channels.

A connection begins with a note, ``DN SUBJECT authenticated over TLSv1.3 as ACCOUNT in 0.0123 s``, or ``refused: REASON``. A request is a line of the
client, ``OPERATION [token=TOKEN] SURL …``, and its answer lines of the server: ``OPERATION STATUS [token=TOKEN]``, and for each file
``OPERATION STATUS SURL [TURL]``. Paths in a lab have no blanks, so words are told apart by them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from venturi.mover.base import OutputError
from venturi.srm.log import Record, read_log
from venturi.testbed.services.witness import ControlLine

__all__ = ["logged_requests"]

_MARK = " token="


def logged_requests(log: Path) -> Iterator[ControlLine]:
    """Yield the connections and requests of a log; nothing if there is none.

    Raises
    ------
    OutputError
        If a line is not of the known form.
    """
    try:
        for record in read_log(log):
            yield from _lines(record)
    except ValueError as error:
        raise OutputError("a record of the SRM server", str(error)) from error


def _lines(record: Record) -> Iterator[ControlLine]:
    session, peer = record.connection, record.peer
    if record.event == "refused":
        yield ControlLine(record.end_unix_s, session, peer, "note", f"refused: {record.reason}", "log")
        return
    if record.event == "connection":
        took_s = record.end_unix_s - record.begin_unix_s
        who = f"as {record.account}" if record.account else "as nobody"
        told = f"DN {record.subject} authenticated over {record.tls} {who} in {took_s:.6f} s"
        yield ControlLine(record.end_unix_s, session, peer, "note", told, "log")
        return
    token = f"{_MARK}{record.token}" if record.token else ""
    named = "".join(f" {file.surl}" for file in record.files)
    # The answer to these says which token it is; the client did not know yet.
    asked = "" if record.operation.startswith("srmPrepareTo") else token
    begin_s, end_s = record.begin_unix_s, record.end_unix_s
    yield ControlLine(begin_s, session, peer, "client", f"{record.operation}{asked}{named}", "log")
    yield ControlLine(end_s, session, peer, "server", f"{record.operation} {record.status}{token}", "log")
    for file in record.files:
        turl = f" {file.turl}" if file.turl else ""
        yield ControlLine(
            end_s, session, peer, "server", f"{record.operation} {file.status} {file.surl}{turl}", "log"
        )
