"""The cases of the interoperability matrix: client, server, direction and mode. This module only declares them.

A case moves one file once. The short table, for every test run, varies one attribute at a time. The long table has
every channel with every security and every size, all names, and a file beyond 2 GiB. Read `InteropCase` first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

OURS = "venturi"
GLOBUS = "globus"
XROOTD, NGINX, APACHE, RCLONE = "xrootd", "nginx", "apache", "rclone"
"""HTTP and WebDAV servers."""

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
"""Sizes around the block of a Globus server and beyond 31 bits; files of 512 MB or more are sparse."""

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
"""File names as bytes, by label. `\\r` and `\\n` are missing, because they end an FTP command."""


@dataclass(frozen=True)
class InteropCase:
    """One file, moved once.

    Attributes
    ----------
    client, server
        Programs. `server` is the remote end of a local file, or the source of a third-party transfer.
    direction
        `GET`, `PUT` or `THIRD`.
    channel
        Data transport. "E 4" is MODE E over 4 connections, "S passive" is MODE S; with "auto" the client decides. "http" and
        "https" are plain requests. Third-party transfers are "https pull" (request to the target) or "https push" (request to
        the server).
    security
        "anonymous", "password", "token" (HTTP), "ssh" (`sshftp:`), or "gsi" with the protection of data connections: "nodcau",
        "dcau", "safe", "private".
    size, name
        Keys of `SIZES` and `NAMES`.
    killed
        Whether the client is killed during the transfer and called again.
    target
        Destination server of a third-party transfer.
    """

    client: str
    server: str
    direction: str
    channel: str
    security: str = "anonymous"
    size: str = "5 MB"
    name: str = "plain"
    killed: bool = False
    target: str = ""

    @property
    def id(self) -> str:
        """Name of the test and of the row."""
        endpoints = f"{self.client} {self.direction} {self.server}" + (f" to {self.target}" if self.target else "")
        what = [self.channel, self.security, self.size, *([self.name] if self.name != "plain" else [])]
        return ", ".join([endpoints, *what, *(["killed"] if self.killed else [])])

    @property
    def is_web(self) -> bool:
        """Whether the transfer uses HTTP."""
        return self.channel.startswith("http")

    @property
    def size_bytes(self) -> int:
        """Size of the file."""
        return SIZES[self.size]


@dataclass(frozen=True)
class Pairing:
    """A client, a server and a direction, with all variations between them. The first value of each is the default."""

    client: str
    server: str
    direction: str
    channels: tuple[str, ...]
    security: tuple[str, ...] = ("anonymous",)
    resumes: bool = False
    target: str = ""

    def usual(self) -> InteropCase:
        """Return the default case, which the others vary."""
        return InteropCase(
            self.client, self.server, self.direction, self.channels[0], self.security[0], target=self.target
        )


_GSI = ("gsi nodcau", "gsi dcau", "gsi safe", "gsi private")
_MODES = ("E 1", "E 2", "E 4", "E 16", "S passive")
_SSH = ("ssh",)
_PLAIN_FTP = ("S passive", "S extended", "S active")
"""FTP modes: PASV, EPSV, PORT."""

PAIRINGS = (
    # The rig itself, with two third-party programs. A failure here is not a defect of Venturi.
    *(Pairing("globus-url-copy", GLOBUS, direction, _MODES, ("anonymous", *_GSI, *_SSH)) for direction in (GET, PUT)),
    Pairing("globus-url-copy", GLOBUS, THIRD, _MODES[:4], ("anonymous", *_GSI, *_SSH), target=GLOBUS),
    *(Pairing("gfal-copy", GLOBUS, direction, ("S passive", "E 4"), _GSI[:2]) for direction in (GET, PUT)),
    # Venturi client, third-party server.
    *(Pairing(OURS, GLOBUS, direction, ("auto", *_MODES[:4]), ("anonymous", *_GSI, *_SSH), resumes=True) for direction in (GET, PUT)),
    Pairing(OURS, GLOBUS, THIRD, ("auto", *_MODES[:4]), ("anonymous", *_GSI, *_SSH), target=GLOBUS),
    # Venturi server, third-party clients.
    *(Pairing("globus-url-copy", OURS, direction, _MODES, ("anonymous", "password", *_GSI)) for direction in (GET, PUT)),
    *(Pairing("globus-url-copy", source, THIRD, _MODES[:4], ("password",), target=target)
      for source, target in ((OURS, OURS), (OURS, GLOBUS), (GLOBUS, OURS))),
    *(Pairing("gfal-copy", OURS, direction, ("S passive", "E 4"), ("anonymous", *_GSI[:2])) for direction in (GET, PUT)),
    *(Pairing(client, OURS, direction, _PLAIN_FTP, ("anonymous", "password"), resumes=True)
      for client in ("curl", "ftplib") for direction in (GET, PUT)),
    *(Pairing("lftp", OURS, direction, ("S passive", "S active"), ("anonymous", "password"), resumes=True) for direction in (GET, PUT)),
    Pairing("wget", OURS, GET, ("S passive", "S active"), ("anonymous", "password"), resumes=True),
    # Venturi client and server.
    *(Pairing(OURS, OURS, direction, ("auto", *_MODES[:4]), ("anonymous", "password", *_GSI), resumes=True) for direction in (GET, PUT)),
    Pairing(OURS, OURS, THIRD, ("auto", *_MODES[:4]), ("password", *_GSI), target=OURS),
    *(Pairing(OURS, source, THIRD, ("auto",), _GSI, target=target) for source, target in ((OURS, GLOBUS), (GLOBUS, OURS))),
)  # fmt: skip


_WEB = ("http", "https")
_WEB_THIRD = ("https pull", "https push")
_BETWEEN = ((OURS, OURS), (OURS, XROOTD), (XROOTD, OURS))

WEB_PAIRINGS = (
    # Venturi client, third-party servers.
    *(Pairing(OURS, server, direction, _WEB, resumes=True) for server in (XROOTD, NGINX, APACHE, RCLONE) for direction in (GET, PUT)),
    # Venturi server, third-party clients.
    *(Pairing(client, OURS, GET, _WEB, ("anonymous", "token"), resumes=True) for client in ("curl", "wget")),
    *(Pairing(client, OURS, direction, _WEB, ("anonymous", "token")) for client, direction in
      (("curl", PUT), ("davix-get", GET), ("davix-put", PUT), *product(("gfal-copy", "rclone"), (GET, PUT)))),
    *(Pairing("xrdcp", OURS, direction, ("https",)) for direction in (GET, PUT)),
    # Venturi client and server.
    *(Pairing(OURS, OURS, direction, _WEB, ("anonymous", "token"), resumes=True) for direction in (GET, PUT)),
    # From server to server.
    *(Pairing(client, source, THIRD, _WEB_THIRD, ("token",), target=target)
      for client in ("curl", "gfal-copy") for source, target in _BETWEEN),
    *(Pairing(OURS, source, THIRD, ("https",), ("token",), target=target) for source, target in _BETWEEN),
    # Third-party servers. A failure here is not a defect of Venturi.
    *(Pairing("curl", server, direction, ("https",)) for server in (XROOTD, NGINX, APACHE, RCLONE) for direction in (GET, PUT)),
    Pairing("curl", XROOTD, THIRD, _WEB_THIRD, ("token",), target=XROOTD),
)  # fmt: skip


def cases(*, whole: bool) -> list[InteropCase]:
    """Return the long table if ``whole``, otherwise the short table."""
    found = (case for pairing in (*PAIRINGS, *WEB_PAIRINGS) for case in (_all if whole else _one_at_a_time)(pairing))
    return list(dict.fromkeys(found))


def _one_at_a_time(pairing: Pairing) -> Iterator[InteropCase]:
    usual = pairing.usual()
    if usual.is_web and _is_rig(pairing):
        return
    yield from (replace(usual, channel=channel) for channel in pairing.channels)
    yield from (replace(usual, security=security) for security in pairing.security)
    if usual.is_web and pairing.direction == THIRD and pairing.client == OURS:
        yield replace(usual, size="0 B")
    if _is_rig(pairing) or pairing.direction == THIRD:
        return
    if usual.is_web:
        yield from (replace(usual, size="0 B"), replace(usual, name="query"), replace(usual, name="utf-8"))
        if pairing.resumes and pairing.direction == GET and pairing.server == OURS:
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


def _all(pairing: Pairing) -> Iterator[InteropCase]:
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
