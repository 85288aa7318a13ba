"""Records of server logs: transfers and lines of control connections.

A service with logs also implements :class:`ServerLogSource`. The logs are read after the servers have stopped, so they
are complete. Start with :class:`ServerTransfer`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from venturi.testbed.services.base import ServiceContext

__all__ = ["ControlLine", "ServerLogSource", "ServerTransfer"]


@dataclass(frozen=True, slots=True)
class ServerTransfer:
    """File that a server sent or received, from its log; ``None``: the log lacks the value.

    Attributes
    ----------
    end_unix_s, start_unix_s
        Times of the server's clock; in a lab, it is the clock of the run. The start is the first data for GridFTP, and the
        first byte of the request for HTTP.
    path
        Path on the server, or a URL for a proxy.
    command
        Command: ``RETR``, ``STOR``, ``GET``, ``PUT`` …
    sent_bytes, received_bytes
        Bytes sent to and received from the peer, as counted by the server. For HTTP, they include the headers.
    file_bytes
        Bytes of the file alone, without headers.
    code
        Code of the final reply, as text: ``"226"``, ``"200"``.
    peer
        Address of the data connection's peer, or of the client.
    cache
        ``"hit"`` or ``"miss"``, derived from ``status``.
    status
        Cache status as logged by the proxy.
    streams, stripes
        Data connections, and data nodes.
    buffer_bytes, block_bytes
        Socket buffer, and size of one read or write.
    retransmits
        Retransmitted TCP segments, total of all connections.
    """

    end_unix_s: float
    path: str
    command: str
    code: str
    start_unix_s: float | None = None
    sent_bytes: int | None = None
    received_bytes: int | None = None
    file_bytes: int | None = None
    peer: str | None = None
    cache: Literal["hit", "miss"] | None = None
    status: str | None = None
    streams: int | None = None
    stripes: int | None = None
    buffer_bytes: int | None = None
    block_bytes: int | None = None
    retransmits: int | None = None


@dataclass(frozen=True, slots=True)
class ControlLine:
    """Message of a control connection.

    Attributes
    ----------
    unix_s
        Time, to the second for ``seen="log"``, to the microsecond for ``"wire"``.
    session
        Number of the control connection, from 0, in the order of their start.
    client
        Address and port of the client.
    direction
        Sender; a ``note`` is a remark of the server in its log.
    line
        Command, reply or note, without line end.
    seen
        ``"log"``: when the server processed the command, so queued commands are invisible. ``"wire"``: on arrival.
    """

    unix_s: float
    session: int
    client: str
    direction: Literal["client", "server", "note"]
    line: str
    seen: Literal["log", "wire"]


@runtime_checkable
class ServerLogSource(Protocol):
    """Service with logs of transfers or control connections."""

    def transfers(self, context: ServiceContext) -> Iterable[ServerTransfer]:
        """Yield the logged transfers, in any order; nothing without a log of transfers.

        Raises
        ------
        OSError, ValueError
            If a log cannot be read; earlier records are valid.
        """
        ...

    def control(self, context: ServiceContext) -> Iterable[ControlLine]:
        """Yield the lines of the control connections, each connection in order; nothing without a log of them.

        Raises
        ------
        OSError, ValueError
            If a log cannot be read; earlier records are valid.
        """
        ...
