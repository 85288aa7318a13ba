"""Probe of the network paths that a run needs, before the first transfer.

The shell of a service's host listens on the service's future port, and the shell of each client host connects to it. A
closed port, a missing route, an unknown name and lost large packets end the run with a one-line error. For existing
servers, only the connection is tested.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from typing import Any

from venturi.backend.pipelined_shell import PipelinedShell
from venturi.backend.remote_shell import PathProperties, RemoteHostShell
from venturi.backend.shell_client import ShellError
from venturi.errors import BackendError
from venturi.run import Finding
from venturi.testbed.host_ports import reported_addresses

__all__ = [
    "LARGE_BYTES",
    "ClosedPath",
    "PathTarget",
    "ProbedPath",
    "path_findings",
    "path_properties",
    "probe_paths",
    "try_paths",
]

CONNECTS = 5
CONNECT_TIMEOUT_S = 10.0
"""Limit of all connects of a path together, in seconds."""
LARGE_BYTES = 8192
"""Bytes in each direction: several full segments, to detect a path that loses large packets."""
PROBES_AT_ONCE = 16
CLIENTS_AT_ONCE = 8
"""Number of concurrent clients of one port. A listener serves up to 64 connections, and each client makes several."""
USUAL_MTU_BYTES = 1500
OTHER_ADDRESSES = 4
"""Maximum number of other addresses of a host that are tried after a failure."""
OTHER_TIMEOUT_S = 3.0
"""Limit of one connect to another address, in seconds."""

_Shell = RemoteHostShell | PipelinedShell


@dataclass(frozen=True, slots=True)
class PathTarget:
    """Destination of probes.

    Attributes
    ----------
    service
        Service of the plan.
    host
        Its host. None for an existing server.
    address
        Name or address for clients, without brackets.
    ports
        Ports to probe.
    open_ports
        Range of the host, for messages.
    clients
        Hosts that connect to it.
    """

    service: str
    host: str | None
    address: str
    ports: tuple[int, ...]
    open_ports: tuple[int, int] | None
    clients: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ProbedPath:
    """Result for one client and one port."""

    client: str
    target: PathTarget
    port: int
    measured: PathProperties


@dataclass(frozen=True, slots=True)
class ClosedPath:
    """A path that does not work, for one client and one port.

    Attributes
    ----------
    error
        Client, address, port, direction, and the next step.
    """

    client: str
    target: PathTarget
    port: int
    error: str


def probe_paths(targets: Sequence[PathTarget], shells: Mapping[str, _Shell]) -> list[ProbedPath]:
    """Probe all targets from their clients.

    Raises
    ------
    BackendError
        If a path does not work: client, address, port, direction, and the next step.
    """
    found = []
    for path in try_paths(targets, shells):
        if isinstance(path, ClosedPath):
            raise BackendError(path.error)
        found.append(path)
    return found


def try_paths(targets: Sequence[PathTarget], shells: Mapping[str, _Shell]) -> list[ProbedPath | ClosedPath]:
    """Probe all targets from their clients, and return the results for working and failing paths."""
    with ThreadPoolExecutor(PROBES_AT_ONCE, "path probe") as pool:
        futures = [pool.submit(_probe_port, target, port, shells) for target in targets for port in target.ports]
        return [path for future in futures for path in future.result()]


def path_properties(paths: Sequence[ProbedPath]) -> dict[str, dict[str, Any]]:
    """Return client → properties for the table ``environment``: ``path.HOST.rtt_s`` and so on.

    An existing server is listed under its address.
    """
    found: dict[str, dict[str, Any]] = {}
    for path in paths:
        name = path.target.host or path.target.address
        known = {key: value for key, value in asdict(path.measured).items() if value is not None and key != "times_s"}
        known["connect_s"] = min(path.measured.times_s, default=None)
        found.setdefault(path.client, {}).setdefault("path", {}).setdefault(name, known)
    return found


def path_findings(paths: Sequence[ProbedPath]) -> list[Finding]:
    """Return findings about paths that work with a limitation: a small MTU."""
    found = []
    for path in paths:
        mtu = path.measured.path_mtu_bytes
        if mtu is not None and mtu < USUAL_MTU_BYTES:
            name = path.target.host or path.target.address
            found.append(
                Finding(
                    "path-mtu",
                    name,
                    f"the path from {path.client} to {name} has an MTU of {mtu} bytes",
                    f"Packets are smaller than the usual {USUAL_MTU_BYTES} bytes, for example in a tunnel. They cost more CPU time per byte.",
                    host=path.client,
                )
            )
    return list(dict.fromkeys(found))


def _probe_port(target: PathTarget, port: int, shells: Mapping[str, _Shell]) -> list[ProbedPath | ClosedPath]:
    with ExitStack() as stack:
        large = 0
        if target.host is not None:
            try:
                large = _listen(port, shells[target.host], stack)
            except ShellError as error:
                message = (
                    f"{target.service}: cannot listen on port {port} of {target.host}: {error.reason}."
                    f" Close the other server, or change testbed.host.{target.host}.open_ports."
                )
                return [ClosedPath(client, target, port, message) for client in target.clients]
        with ThreadPoolExecutor(CLIENTS_AT_ONCE, "path probe") as pool:
            return list(pool.map(lambda client: _connect(target, port, shells, client, large), target.clients))


def _listen(port: int, shell: _Shell, stack: ExitStack) -> int:
    """Open the port, and return the number of bytes that the listener sends to each client."""
    try:
        stack.enter_context(shell.listen(port=port, send_bytes=LARGE_BYTES))
        return LARGE_BYTES
    except ShellError as error:
        if error.kind != "invalid":
            raise
        stack.enter_context(shell.listen(port=port))
        return 0


def _connect(
    target: PathTarget, port: int, shells: Mapping[str, _Shell], client: str, large: int
) -> ProbedPath | ClosedPath:
    try:
        measured = shells[client].connect(
            target.address, port, count=CONNECTS, timeout_s=CONNECT_TIMEOUT_S, send_bytes=large, receive_bytes=large
        )
    except ShellError as error:
        other = _other_address(target, port, shells, client) if error.kind != "stalled" else None
        return ClosedPath(client, target, port, _message(target, port, client, error, other))
    return ProbedPath(client, target, port, measured)


def _other_address(target: PathTarget, port: int, shells: Mapping[str, _Shell], client: str) -> str | None:
    """Return another address of the host that accepts connections from the client to the port, or None."""
    if target.host is None:
        return None
    try:
        own = set(reported_addresses(shells[client]))
        others = [one for one in reported_addresses(shells[target.host]) if one not in own | {target.address}]
    except (BackendError, OSError, subprocess.SubprocessError):
        return None
    for address in others[:OTHER_ADDRESSES]:
        with suppress(ShellError):
            shells[client].connect(address, port, count=1, timeout_s=OTHER_TIMEOUT_S)
            return address
    return None


_CAUSES: Mapping[str, tuple[str, Callable[[PathTarget], str]]] = {
    "unresolved": (
        "the client cannot resolve the name",
        lambda target: _set_address(target, "a name or address that this host knows"),
    ),
    "refused": ("connection refused", lambda target: _open_port(target)),
    "timeout": ("no response", lambda target: _open_port(target)),
    "unreachable": ("no route", lambda target: _set_address(target, "an address that this host can reach")),
    "stalled": (
        "large packets are lost",
        lambda target: "Allow ICMP 'packet too big' on the path, or lower the MTU of the network interfaces.",
    ),
}


def _message(target: PathTarget, port: int, client: str, error: ShellError, other: str | None) -> str:
    cause, step = _CAUSES.get(error.kind, ("connection failed", _open_port))
    advice = (
        step(target)
        if other is None
        else f"Host {client} reaches {target.host} at {other}: set testbed.host.{target.host}.address to it."
    )
    server = f"host {target.host}" if target.host is not None else "an existing server"
    limits = "" if target.open_ports is None else f", open_ports {target.open_ports[0]}-{target.open_ports[1]}"
    return (
        f"{target.service}: no path from host {client} to {target.address} port {port} ({server}{limits}): {cause}"
        f" ({error.reason}). {advice}"
    )


def _set_address(target: PathTarget, what: str) -> str:
    if target.host is None:
        return f"Correct the URL of testbed.service.{target.service}, or the name service of the client."
    return f"Set testbed.host.{target.host}.address to {what}."


def _open_port(target: PathTarget) -> str:
    if target.host is None:
        return "Check that the server runs and that its firewall accepts this client."
    if target.open_ports is None:
        return (
            f"Open this port in the firewalls, or set testbed.host.{target.host}.open_ports to a range that is open,"
            f" or testbed.host.{target.host}.address to another interface."
        )
    return f"Open these ports in the firewalls, or correct testbed.host.{target.host}.open_ports and address."
