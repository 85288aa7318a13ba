"""The table of the interoperability matrix: who moves what to whom, and how. Nothing is carried out here.

A cell is one file moved once. The short table, of every test run, varies one thing at a time; the long one has every channel with
every security and every size, all names and a file beyond 2 GiB. Read `Cell` first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

OURS = "venturi"
GLOBUS = "globus"
XROOTD, NGINX, APACHE, RCLONE = "xrootd", "nginx", "apache", "rclone"
"""Servers of HTTP and WebDAV."""

GET, PUT, THIRD = "get", "put", "third party"

SIZES = {
    "0 B": 0,
    "1 B": 1,
    "256 KiB": 262_144,
    "256 KiB + 1": 262_145,
    "5 MB": 5_000_000,
    "64 MB": 64_000_000,
    "512 MB": 512_000_000,
    "2 GiB + 1": (1 << 31) + 1,
}
"""Around the block of a Globus server, and beyond 31 bits; from 512 MB on they are sparse."""

NAMES = {
    "plain": b"plain",
    "blank": b"two  words ",
    "percent": b"100%25%2F",
    "quotes": b'it\'s "quoted" \\',
    "query": b"a?b#c&d=e;f",
    "wildcards": b"[a]*b{c}",
    "dash": b"-rf",
    "equals": b"x=1,y",
    "utf-8": "Müon→π".encode(),
    "latin-1": b"caf\xe9",
    "dots": b"...",
}
"""What a name is called here → its bytes; `\\r` and `\\n` are not among them, since they end a command of FTP."""


@dataclass(frozen=True)
class Cell:
    """One file, moved once.

    Attributes
    ----------
    client, server
        Programs; `server` has the other end of a local file, and the source of a third-party transfer.
    way
        `GET`, `PUT` or `THIRD`.
    channel
        How data travel: "E 4" is MODE E over 4 connections, "S passive" MODE S; "auto" what the client decides; "http", "https", "https pull"
        (third party: the target is asked), "https push" (the server is).
    security
        "anonymous", "password", "token" (of HTTP), "ssh" (`sshftp:`), or "gsi" with what data channels are: "nodcau", "dcau", "safe", "private".
    size, name
        Keys of `SIZES` and `NAMES`.
    killed
        Whether the client is killed on its way and called again.
    target
        Server that a third-party transfer goes to.
    """

    client: str
    server: str
    way: str
    channel: str
    security: str = "anonymous"
    size: str = "5 MB"
    name: str = "plain"
    killed: bool = False
    target: str = ""

    @property
    def id(self) -> str:
        """What a test and a row are called."""
        ends = f"{self.client} {self.way} {self.server}" + (f" to {self.target}" if self.target else "")
        what = [self.channel, self.security, self.size, *([self.name] if self.name != "plain" else [])]
        return ", ".join([ends, *what, *(["killed"] if self.killed else [])])

    @property
    def is_web(self) -> bool:
        """Whether it goes by HTTP."""
        return self.channel.startswith("http")

    @property
    def size_bytes(self) -> int:
        """Of the file."""
        return SIZES[self.size]


@dataclass(frozen=True)
class Pairing:
    """A client, a server and a way, with all that can be varied between them; what stands first is the usual."""

    client: str
    server: str
    way: str
    channels: tuple[str, ...]
    security: tuple[str, ...] = ("anonymous",)
    resumes: bool = False
    target: str = ""

    def usual(self) -> Cell:
        """Return the cell that the others vary."""
        return Cell(self.client, self.server, self.way, self.channels[0], self.security[0], target=self.target)


_GSI = ("gsi nodcau", "gsi dcau", "gsi safe", "gsi private")
_MODES = ("E 1", "E 2", "E 4", "E 16", "S passive")
_SSH = ("ssh",)
_PLAIN_FTP = ("S passive", "S extended", "S active")
"""PASV, EPSV, PORT."""

PAIRINGS = (
    # The rig itself: two programs of others. What fails here is no fault of ours.
    *(Pairing("globus-url-copy", GLOBUS, way, _MODES, ("anonymous", *_GSI, *_SSH)) for way in (GET, PUT)),
    Pairing("globus-url-copy", GLOBUS, THIRD, _MODES[:4], ("anonymous", *_GSI, *_SSH), target=GLOBUS),
    *(Pairing("gfal-copy", GLOBUS, way, ("S passive", "E 4"), _GSI[:2]) for way in (GET, PUT)),
    # Our client, a server of others.
    *(Pairing(OURS, GLOBUS, way, ("auto", *_MODES[:4]), ("anonymous", *_GSI, *_SSH), resumes=True) for way in (GET, PUT)),
    Pairing(OURS, GLOBUS, THIRD, ("auto", *_MODES[:4]), ("anonymous", *_GSI, *_SSH), target=GLOBUS),
    # Our server, clients of others.
    *(Pairing("globus-url-copy", OURS, way, _MODES, ("anonymous", "password", *_GSI)) for way in (GET, PUT)),
    *(Pairing("globus-url-copy", source, THIRD, _MODES[:4], ("password",), target=target)
      for source, target in ((OURS, OURS), (OURS, GLOBUS), (GLOBUS, OURS))),
    *(Pairing("gfal-copy", OURS, way, ("S passive", "E 4"), ("anonymous", *_GSI[:2])) for way in (GET, PUT)),
    *(Pairing(client, OURS, way, _PLAIN_FTP, ("anonymous", "password"), resumes=True)
      for client in ("curl", "ftplib") for way in (GET, PUT)),
    *(Pairing("lftp", OURS, way, ("S passive", "S active"), ("anonymous", "password"), resumes=True) for way in (GET, PUT)),
    Pairing("wget", OURS, GET, ("S passive", "S active"), ("anonymous", "password"), resumes=True),
    # Our client, our server.
    *(Pairing(OURS, OURS, way, ("auto", *_MODES[:4]), ("anonymous", "password", *_GSI), resumes=True) for way in (GET, PUT)),
    Pairing(OURS, OURS, THIRD, ("auto", *_MODES[:4]), ("password", *_GSI), target=OURS),
    *(Pairing(OURS, source, THIRD, ("auto",), _GSI, target=target) for source, target in ((OURS, GLOBUS), (GLOBUS, OURS))),
)  # fmt: skip


_WEB = ("http", "https")
_WEB_THIRD = ("https pull", "https push")
_BETWEEN = ((OURS, OURS), (OURS, XROOTD), (XROOTD, OURS))

WEB_PAIRINGS = (
    # Our client, servers of others.
    *(Pairing(OURS, server, way, _WEB, resumes=True) for server in (XROOTD, NGINX, APACHE, RCLONE) for way in (GET, PUT)),
    # Our server, clients of others.
    *(Pairing(client, OURS, GET, _WEB, ("anonymous", "token"), resumes=True) for client in ("curl", "wget")),
    *(Pairing(client, OURS, way, _WEB, ("anonymous", "token")) for client, way in
      (("curl", PUT), ("davix-get", GET), ("davix-put", PUT), *product(("gfal-copy", "rclone"), (GET, PUT)))),
    *(Pairing("xrdcp", OURS, way, ("https",)) for way in (GET, PUT)),
    # Our client, our server.
    *(Pairing(OURS, OURS, way, _WEB, ("anonymous", "token"), resumes=True) for way in (GET, PUT)),
    # From server to server.
    *(Pairing(client, source, THIRD, _WEB_THIRD, ("token",), target=target)
      for client in ("curl", "gfal-copy") for source, target in _BETWEEN),
    *(Pairing(OURS, source, THIRD, ("https",), ("token",), target=target) for source, target in _BETWEEN),
    # Servers of others: what fails here is no fault of ours.
    *(Pairing("curl", server, way, ("https",)) for server in (XROOTD, NGINX, APACHE, RCLONE) for way in (GET, PUT)),
    Pairing("curl", XROOTD, THIRD, _WEB_THIRD, ("token",), target=XROOTD),
)  # fmt: skip


def cells(*, whole: bool) -> list[Cell]:
    """Return the table: of every test run, or the whole."""
    found = (cell for pairing in (*PAIRINGS, *WEB_PAIRINGS) for cell in (_all if whole else _one_at_a_time)(pairing))
    return list(dict.fromkeys(found))


def _one_at_a_time(pairing: Pairing) -> Iterator[Cell]:
    usual = pairing.usual()
    if usual.is_web and _is_rig(pairing):
        return
    yield from (replace(usual, channel=channel) for channel in pairing.channels)
    yield from (replace(usual, security=security) for security in pairing.security)
    if usual.is_web and pairing.way == THIRD and pairing.client == OURS:
        yield replace(usual, size="0 B")
    if _is_rig(pairing) or pairing.way == THIRD:
        return
    if usual.is_web:
        yield from (replace(usual, size="0 B"), replace(usual, name="query"), replace(usual, name="utf-8"))
        if pairing.resumes and pairing.way == GET and pairing.server == OURS:
            yield replace(usual, size="512 MB", killed=True)
        return
    yield from (replace(usual, size=size) for size in ("0 B", "1 B", "256 KiB + 1"))
    yield from (replace(usual, name=name) for name in ("blank", "percent", "query", "utf-8"))
    if pairing.client == OURS and pairing.server == GLOBUS:
        yield replace(usual, size="2 GiB + 1")
    if pairing.resumes:
        yield replace(usual, size="512 MB", killed=True)


def _is_rig(pairing: Pairing) -> bool:
    return OURS not in (pairing.client, pairing.server, pairing.target)


def _all(pairing: Pairing) -> Iterator[Cell]:
    usual = pairing.usual()
    for channel, security in product(pairing.channels, pairing.security):
        yield replace(usual, channel=channel, security=security)
    if _is_rig(pairing):
        return
    for channel, size in product(pairing.channels[:3:2], list(SIZES)[:6]):
        yield replace(usual, channel=channel, size=size)
    yield from (replace(usual, name=name) for name in NAMES)
    yield replace(usual, size="2 GiB + 1")
    if pairing.resumes:
        yield from (replace(usual, channel=channel, size="512 MB", killed=True) for channel in pairing.channels)
