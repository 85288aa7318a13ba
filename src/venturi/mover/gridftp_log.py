"""The transfer log of a GridFTP server (``-log-transfer``): what one end says of each transfer.

It tells what ``globus-url-copy`` does not: the bytes, connections, buffers and TCP retransmits of each file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

__all__ = ["LoggedTransfer", "logged_transfers"]

_FIELD = re.compile(r"([A-Za-z.]+)=(\S+)")
_STAMP = "%Y%m%d%H%M%S.%f"


@dataclass(frozen=True, slots=True)
class LoggedTransfer:
    """One file, as the server that sent or received it wrote down when it was done.

    Attributes
    ----------
    file
        Path on the server.
    kind
        ``RETR`` it sent, ``STOR`` it received, ``ERET`` it sent a part, ``ESTO`` it received one.
    code
        Of its last reply. A receiver whose sender died says 226 too: look at ``bytes``.
    start_unix_s, end_unix_s
        By the clock of the server.
    bytes, streams, stripes
        How much went through how many data connections of how many data nodes; what a restart sends again counts again.
    buffer_bytes, block_bytes
        Socket buffer as the kernel tells it (131072 by itself), and bytes a read or write.
    retransmits
        TCP segments sent again, of all data connections; ``None`` where it did not ask the kernel, which it does not for short
        transfers and connections that are kept.
    """

    file: str
    kind: str
    code: int
    start_unix_s: float
    end_unix_s: float
    bytes: int
    streams: int
    stripes: int
    buffer_bytes: int
    block_bytes: int
    retransmits: int | None


def logged_transfers(text: str) -> Iterator[LoggedTransfer]:
    """Yield the transfers of a log in its order; listings and lines that are not whole are passed over.

    Examples
    --------
    >>> line = ("DATE=20260101000001.500000 HOST=a PROG=globus-gridftp-server NL.EVNT=FTP_INFO START=20260101000000.250000 "
    ...         "USER=u FILE=/f BUFFER=131072 BLOCK=262144 NBYTES=8 VOLUME=/ STREAMS=2 STRIPES=1 DEST=[10.77.0.3] TYPE=RETR "
    ...         "CODE=226 TASKID=none retrans=0,3")
    >>> [(found.bytes, found.retransmits, found.end_unix_s - found.start_unix_s) for found in logged_transfers(line)]
    [(8, 3, 1.25)]
    """
    for line in text.splitlines():
        if "NL.EVNT=FTP_INFO" not in line:
            continue
        found = _transfer(dict(_FIELD.findall(line)))
        if found is not None:
            yield found


def _transfer(said: dict[str, str]) -> LoggedTransfer | None:
    try:
        if said["TYPE"] not in ("RETR", "STOR", "ERET", "ESTO"):
            return None
        retransmits = said.get("retrans")
        return LoggedTransfer(
            file=said["FILE"],
            kind=said["TYPE"],
            code=int(said["CODE"]),
            start_unix_s=_unix_s(said["START"]),
            end_unix_s=_unix_s(said["DATE"]),
            bytes=int(said["NBYTES"]),
            streams=int(said["STREAMS"]),
            stripes=int(said["STRIPES"]),
            buffer_bytes=int(said["BUFFER"]),
            block_bytes=int(said["BLOCK"]),
            retransmits=sum(map(int, retransmits.split(","))) if retransmits else None,
        )
    except (KeyError, ValueError):
        return None


def _unix_s(stamp: str) -> float:
    return datetime.strptime(stamp, _STAMP).replace(tzinfo=UTC).timestamp()
