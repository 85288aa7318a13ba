"""What servers saw: the transfers that they logged, and what was said on their control channels.

A service that keeps such logs is a :class:`Witness` besides; one that keeps none need not say so. The logs are read when the
servers have stopped, so what stands in them is all there will be. The one type to read first: :class:`ServerTransfer`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from venturi.testbed.services.base import Room

__all__ = ["ControlLine", "ServerTransfer", "Witness"]


@dataclass(frozen=True, slots=True)
class ServerTransfer:
    """One file that a server sent or received, as it logged it; ``None``: its log does not tell.

    Attributes
    ----------
    end_unix_s, start_unix_s
        By the clock of the server, which in a lab is that of the run. What a start is differs: GridFTP's is the begin of the
        data's move, HTTP's the first byte of the request.
    path
        The file: a path of the server, or a URL for a proxy.
    command
        What was asked for: ``RETR``, ``STOR``, ``GET``, ``PUT`` …
    sent_bytes, received_bytes
        What went over the wire by its count, to and from its peer. Of HTTP, heads are in it.
    file_bytes
        What it says of the file itself, without heads.
    code
        Of its final reply, as text: ``"226"``, ``"200"``.
    peer
        The other end of the data, or the client.
    cache
        ``"hit"`` or ``"miss"``, as a proxy classes it.
    status
        The class in the proxy's own words.
    streams, stripes
        Data connections, and data nodes.
    buffer_bytes, block_bytes
        Socket buffer, and bytes read or written at a time.
    retransmits
        TCP segments sent again, of all connections.
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
    """One message of a control channel.

    Attributes
    ----------
    unix_s
        When: to the second if ``seen`` in the server's log, to the microsecond if on the wire.
    session
        Number of the control connection, from 0, in the order in which they began.
    client
        Address and port of the client.
    direction
        Who said it; a ``note`` the server wrote into its log.
    line
        Command, reply or note, without its end.
    seen
        ``"log"``: as the server came to it, so that commands that wait are not seen; ``"wire"``: as it arrived.
    """

    unix_s: float
    session: int
    client: str
    direction: Literal["client", "server", "note"]
    line: str
    seen: Literal["log", "wire"]


@runtime_checkable
class Witness(Protocol):
    """A service that keeps logs of transfers or of control channels."""

    def transfers(self, room: Room) -> Iterable[ServerTransfer]:
        """Yield the transfers that it logged, in any order; nothing if it keeps no such log.

        Raises
        ------
        OSError, ValueError
            If a log cannot be read; what was yielded before stands.
        """
        ...

    def control(self, room: Room) -> Iterable[ControlLine]:
        """Yield what was said on its control channels, each in its order; nothing if it keeps no such log.

        Raises
        ------
        OSError, ValueError
            If a log cannot be read; what was yielded before stands.
        """
        ...
