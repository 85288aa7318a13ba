"""Endpoints of a measurement: a directory of this machine, of a host behind ssh, or of an existing server."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from pydantic import ValidationError

from venturi.backend.targets import Target
from venturi.errors import MeasureError
from venturi.scenario.problems import describe_problems
from venturi.scenario.testbed import StorageTable

__all__ = ["Endpoint", "parse_endpoint"]

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_REMOTE = re.compile(r"(?P<host>(?:[^\s/:@]+@)?(?:\[[0-9A-Fa-f:.%]+\]|[^\s/:@\[\]]+)):(?P<path>.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A directory that a measurement reads from or writes to, or a file on a server that it reads.

    Attributes
    ----------
    path
        Directory on its host. Relative paths start in the login directory (ssh) or the current directory. Empty with a URL.
    ssh
        Destination of ssh, ``user@host`` or a name of the user's configuration; None: ``connect``, or this machine.
    connect
        Connection prefix that replaces ssh; None: ssh, or this machine.
    address
        Address for data; None: found by Venturi.
    open_ports
        First and last port for servers on the host; None: any.
    cache
        Directory for the engine on the host; None: the first usable one.
    name
        Name of the host in messages; None: the destination of ssh, or this machine.
    environment
        Variables for the programs on the host, such as paths of credentials.
    url
        Directory or file on an existing server; None: a directory of a host.
    """

    path: str
    ssh: str | None = None
    connect: tuple[str, ...] | None = None
    address: str | None = None
    open_ports: tuple[int, int] | None = None
    cache: str | None = None
    name: str | None = None
    environment: Mapping[str, str] | None = None
    url: str | None = None

    @property
    def host(self) -> tuple[str | None, tuple[str, ...] | None]:
        """Identity of the host; endpoints with the same identity share one connection."""
        return self.ssh, self.connect

    def __str__(self) -> str:
        return self.url or (f"{self.ssh}:{self.path}" if self.ssh else self.path)

    def at(self, targets: Mapping[str, Target]) -> Endpoint:
        """Return the endpoint on the target of its name, or itself if no target has this name.

        Parameters
        ----------
        targets
            Result of :func:`venturi.backend.targets.read_targets`.
        """
        target = targets.get(self.ssh or "")
        if target is None:
            return self
        reached = target.ssh is not None or target.connect is not None
        return replace(
            self,
            name=self.ssh,
            path=str(PurePosixPath(target.path or "", self.path)),
            ssh=target.ssh if reached else self.ssh,
            connect=target.connect,
            address=self.address or target.address,
            open_ports=target.open_ports,
            cache=target.cache,
            environment=target.environment,
        )


def parse_endpoint(text: str) -> Endpoint:
    """Return the endpoint that a command line names.

    Parameters
    ----------
    text
        ``host:/path``, ``user@host:/path``, ``host:path`` (from the login directory), a local path, or a URL. A path with
        a colon needs a slash before it, such as ``./a:b``.

    Raises
    ------
    MeasureError
        If the text is empty, is a URL with an unknown scheme or a password, or looks like an option of ssh.

    Examples
    --------
    >>> endpoint = parse_endpoint("alice@dtn1:/scratch")
    >>> endpoint.ssh, endpoint.path
    ('alice@dtn1', '/scratch')
    >>> parse_endpoint("davs://se.example.org/dteam/").url
    'davs://se.example.org/dteam'
    """
    if not text or "\0" in text:
        raise MeasureError(f"{text!r}: expected HOST:/PATH, a local path or a URL, found none")
    if _URL.match(text):
        return _server_endpoint(text)
    match = _REMOTE.fullmatch(text)
    if match is None:
        if ":" in text.partition("/")[0]:
            raise MeasureError(
                f"{text}: expected HOST:/PATH, found an invalid host name. Write a local path as ./PATH."
            )
        return Endpoint(str(Path(text).absolute()))
    host = match["host"].replace("[", "").replace("]", "")
    if host.startswith("-"):
        raise MeasureError(f"{text}: expected a host name, found an option. Put options of ssh into ~/.ssh/config.")
    return Endpoint(match["path"] or ".", ssh=host)


def _server_endpoint(text: str) -> Endpoint:
    """Return the endpoint of a URL, with the rules of a storage on an existing server."""
    try:
        StorageTable.model_validate({"url": text})
    except ValidationError as error:
        problem = describe_problems(error, StorageTable, {"url": text})[0][1]
        raise MeasureError(f"{_without_password(text)}: {problem}") from error
    # The root of an XRootD server is `//`.
    return Endpoint("", url=text if text.endswith("//") else text.rstrip("/"))


def _without_password(url: str) -> str:
    return re.sub(r"(://[^/@:]*):[^/@]*@", r"\1:***@", url)
