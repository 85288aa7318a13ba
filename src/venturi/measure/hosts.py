"""The two hosts of a measurement: connections, the directories of the measurement, and counters."""

from __future__ import annotations

import secrets
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, TypeVar

from venturi.backend.connection import Connection, open_shell
from venturi.backend.remote_shell import RemoteHostShell
from venturi.errors import BackendError, MeasureError
from venturi.measure.endpoint import Endpoint
from venturi.measure.engine import call_engine

__all__ = ["PREFIX", "MeasureHost", "new_session", "open_client", "open_hosts", "read_counters"]

PREFIX = ".venturi-measure-"
"""Start of the names of the directories of a measurement. Only these are removed."""

_MEMORY = PurePosixPath("/dev/shm")
_MEMORY_BYTES = 64 << 20
"""Smallest free space that a file system in memory must have."""

_COMMAND_S = 30.0
_Name = TypeVar("_Name", bound=str)


@dataclass(frozen=True, slots=True)
class MeasureHost:
    """The host of an endpoint.

    Attributes
    ----------
    endpoint
        As the user wrote it.
    shell
        Process on the host. Two endpoints on one host have the same shell.
    name
        Name of the host in messages.
    directory
        Directory of the measurement, in the directory of the endpoint.
    memory
        Directory of the measurement in memory, or in the session directory if the host has no file system in memory.
    in_memory
        Whether `memory` is in memory.
    """

    endpoint: Endpoint
    shell: RemoteHostShell
    name: str
    directory: PurePosixPath
    memory: PurePosixPath
    in_memory: bool


@contextmanager
def open_hosts(a: Endpoint, b: Endpoint, on_step: Callable[[str], None]) -> Iterator[tuple[MeasureHost, MeasureHost]]:
    """Connect to both hosts, create the directories, and remove them at the end, also after an error.

    Raises
    ------
    MeasureError
        If a directory does not exist or is not writable.
    BackendError
        If a host cannot be reached.
    """
    session = new_session()
    names = _host_names(a, b)
    endpoints = (a,) if a.host == b.host else (a, b)
    shells: list[RemoteHostShell] = []
    hosts: list[MeasureHost] = []
    try:
        on_step("connecting")
        shells += _connect(endpoints, names)
        both = ((a, shells[0], names[0]), (b, shells[-1], names[-1]))
        for (endpoint, shell, name), letter in zip(both, "ab", strict=True):
            hosts.append(_prepare(endpoint, shell, name, f"{session}-{letter}"))
        yield hosts[0], hosts[1]
    finally:
        # Each shell removes the directories at its end, also if this process or the connection is lost.
        for shell in shells:
            with suppress(BackendError):
                shell.close()


@contextmanager
def open_client(
    a: Endpoint, b: Endpoint, session: str, on_step: Callable[[str], None]
) -> Iterator[tuple[MeasureHost, tuple[MeasureHost | None, MeasureHost | None]]]:
    """Connect to the client, whose programs and credentials access the servers; yield it with the hosts of both ends.

    The client is the host of the endpoint with a path, or this machine. An end with a URL has no host. Directories are
    removed at the end.

    Raises
    ------
    MeasureError
        If a directory does not exist or is not writable.
    BackendError
        If the host cannot be reached.
    """
    endpoint = next((one for one in (a, b) if one.url is None), Endpoint(""))
    name = _host_name(endpoint)
    on_step("connecting")
    (shell,) = _connect((endpoint,), (name, name))
    try:
        hosts = [
            _prepare(one, shell, name, f"{session}-{letter}") if one.url is None else None
            for one, letter in ((a, "a"), (b, "b"))
        ]
        directory = PurePosixPath(str(shell.session))
        client = hosts[0] or hosts[1] or MeasureHost(endpoint, shell, name, directory, directory, in_memory=False)
        yield client, (hosts[0], hosts[1])
    finally:
        with suppress(BackendError):
            shell.close()


def new_session() -> str:
    """Return a unique name of a measurement, for its directories."""
    return f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{secrets.token_hex(4)}"


def read_counters(hosts: Mapping[_Name, MeasureHost]) -> dict[_Name, dict[str, Any]]:
    """Return the counters of each host, read at the same time."""

    def read(host: MeasureHost) -> dict[str, Any]:
        return call_engine(host.shell, ["counters", host.directory], timeout_s=_COMMAND_S)

    with ThreadPoolExecutor(len(hosts)) as pool:
        return dict(zip(hosts, pool.map(read, hosts.values()), strict=True))


def _host_names(a: Endpoint, b: Endpoint) -> tuple[str, str]:
    """Return names for messages: of ssh without the user, or this machine; different ones for different hosts."""
    names = [_host_name(endpoint) for endpoint in (a, b)]
    if names[0] == names[1] and a.host != b.host:
        return f"{names[0]} (A)", f"{names[1]} (B)"
    return names[0], names[1]


def _host_name(endpoint: Endpoint) -> str:
    if endpoint.name is not None:
        return endpoint.name
    if endpoint.ssh is not None:
        return endpoint.ssh.rpartition("@")[2]
    return "this machine" if endpoint.connect is None else "host"


def _connect(endpoints: tuple[Endpoint, ...], names: tuple[str, str]) -> list[RemoteHostShell]:
    def connect(endpoint: Endpoint, name: str) -> RemoteHostShell:
        connection = Connection.to(name, ssh=endpoint.ssh, connect=endpoint.connect)
        return open_shell(
            connection, address=endpoint.address, cache=endpoint.cache, environment=endpoint.environment
        )

    with ThreadPoolExecutor(len(endpoints)) as pool:
        futures = [pool.submit(connect, endpoint, name) for endpoint, name in zip(endpoints, names, strict=False)]
    failures = [error for future in futures if (error := future.exception()) is not None]
    if failures:
        for future in futures:
            if future.exception() is None:
                future.result().close()
        raise failures[0]
    return [future.result() for future in futures]


def _prepare(endpoint: Endpoint, shell: RemoteHostShell, name: str, session: str) -> MeasureHost:
    path = _absolute(endpoint.path, shell)
    where = f"{name}: {path}"
    try:
        found = shell.stat(path)
    except OSError as error:
        raise MeasureError(f"{where}: cannot examine the path: {_reason(error)}. Check its permissions.") from error
    if found.kind != "directory":
        wrong = "no such path" if found.kind == "absent" else f"a {found.kind}"
        raise MeasureError(f"{where}: expected a directory, found {wrong}. Name a directory in which you can write.")
    memory = _memory_directory(shell)
    in_memory = memory is not None
    parent = memory if memory is not None else PurePosixPath(str(shell.session))
    host = MeasureHost(
        endpoint, shell, name, path / f"{PREFIX}{session}", parent / f"{PREFIX}{session}-memory", in_memory
    )
    for directory in (host.directory, host.memory):
        try:
            _make_owned_directory(shell, directory)
        except OSError as error:
            raise MeasureError(
                f"{name}: {directory.parent}: cannot create a directory: {_reason(error)}. Name a directory in which you can write."
            ) from error
    return host


def _reason(error: OSError) -> str:
    """Return the reason of the host, without its own host and path."""
    return str(error.strerror).rpartition(": ")[2]


def _make_owned_directory(shell: RemoteHostShell, path: PurePosixPath) -> None:
    """Create a directory that the host shell removes if this process or the connection is lost.

    Raises
    ------
    OSError
        If it exists or cannot be created.
    """
    if not shell.make_directory(path, owned=True):
        raise FileExistsError(17, "it exists", str(path))


def _absolute(path: str, shell: RemoteHostShell) -> PurePosixPath:
    if path.startswith("/"):
        return PurePosixPath(path)
    try:
        home = shell.run(["sh", "-c", "cd && pwd"], timeout_s=_COMMAND_S).stdout.strip()
    except subprocess.TimeoutExpired:
        home = ""
    if not home.startswith("/"):
        raise MeasureError(f"{shell.name}: {path}: expected a home directory, found none. Write an absolute path.")
    return PurePosixPath(home) / path.removeprefix("~/").removeprefix("~")


def _memory_directory(shell: RemoteHostShell) -> PurePosixPath | None:
    found = shell.stat(_MEMORY)
    usable = found.kind == "directory" and found.writable and (found.free_bytes or 0) >= _MEMORY_BYTES
    return _MEMORY if usable and found.file_system in ("tmpfs", "ramfs") else None
