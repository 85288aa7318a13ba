"""Transport of bytes between two hosts: direction and address of connections, servers, and calls of clients.

If the source can connect to the destination, the mover runs at the source and uploads by GridFTP to ``venturi serve``.
Otherwise the mover runs at the destination and downloads over HTTPS, which needs no connection in the other direction.
Two directories of one host need no server: the mover copies the file there.
"""

from __future__ import annotations

import secrets
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any, Protocol

from venturi.backend.remote_shell import PathProperties, RemoteHostShell
from venturi.backend.shell_client import ShellError
from venturi.errors import MeasureError
from venturi.measure.credentials import CredentialStore, check_clocks
from venturi.measure.engine import call_engine, start_server, try_engine
from venturi.measure.hosts import MeasureHost

__all__ = ["CopyTimes", "Transport", "open_transports"]

TOKEN_VARIABLE = "VENTURI_STREAM_TOKEN"
CONNECT_TIMEOUT_S = 3.0
_PROBE_S = 0.1
_PROBE_TIMEOUT_S = 40.0


@dataclass(frozen=True, slots=True)
class CopyTimes:
    """Result of one copy.

    Attributes
    ----------
    bytes
        Copied bytes.
    duration_s
        Time from the start of the mover to its end.
    detail
        Output of the engine.
    """

    bytes: int
    duration_s: float
    detail: Mapping[str, Any] = field(default_factory=dict)


class Transport(Protocol):
    """Transport of bytes from a source to a destination.

    Attributes
    ----------
    source, destination
        The hosts.
    has_network
        Whether the hosts differ.
    properties
        Properties of the path for the saved result.
    notes
        Remarks for the result.
    """

    @property
    def source(self) -> MeasureHost: ...  # noqa: D102 - described above
    @property
    def destination(self) -> MeasureHost: ...  # noqa: D102
    @property
    def has_network(self) -> bool: ...  # noqa: D102
    @property
    def properties(self) -> Mapping[str, Any]: ...  # noqa: D102
    @property
    def notes(self) -> tuple[str, ...]: ...  # noqa: D102

    def network(self, connections: int, time_s: float, max_bytes: int) -> dict[str, Any]:
        """Send from memory to memory and return the output of the engine.

        Raises
        ------
        MeasureError
            If no byte arrives.
        """
        ...

    def copy(self, file: str, name: str, *, in_memory: bool, timeout_s: float) -> CopyTimes:
        """Copy a file of the measurement's directory to a new name at the destination; a disk includes the sync.

        Raises
        ------
        MeasureError
            If it fails.
        """
        ...


@contextmanager
def open_transports(
    directions: Sequence[tuple[MeasureHost, MeasureHost]],
    *,
    connections: int,
    ports: tuple[int, int] | None,
    limit_s: float,
    max_rate_bytes_per_s: int | None = None,
) -> Iterator[list[Transport]]:
    """Find a route for each direction, and start the servers.

    Parameters
    ----------
    directions
        Sources and destinations.
    connections
        Data connections of the mover.
    ports
        Open ports; None: any.
    limit_s
        Servers of the network test exit after this time, in seconds.
    max_rate_bytes_per_s
        Limit of the rate of network and copies; None: no limit.

    Raises
    ------
    MeasureError
        If no host can connect to the other; the message has all addresses and ports that were tried.
    """
    if all(source.shell is destination.shell for source, destination in directions):
        yield [_LocalTransport(source, destination, max_rate_bytes_per_s) for source, destination in directions]
        return
    with TemporaryDirectory(prefix="venturi-measure-") as directory:
        servers = _Servers(secrets.token_hex(16), Path(directory), ports, limit_s, max_rate_bytes_per_s)
        routes = [_find_route(source, destination, servers) for source, destination in directions]
        check_clocks([host.shell for host in directions[0]])
        transports = [servers.start_mover(route, connections) for route in routes]
    # The key of the CA is removed before the measurement, so that a killed process cannot leave it behind.
    yield transports


@dataclass(frozen=True, slots=True)
class _TransportRoute:
    """Usable direction of connections for one direction of data."""

    source: MeasureHost
    destination: MeasureHost
    uploads: bool
    address: str
    port: int
    path: PathProperties
    notes: tuple[str, ...]

    @property
    def client(self) -> MeasureHost:
        return self.source if self.uploads else self.destination

    @property
    def server(self) -> MeasureHost:
        return self.destination if self.uploads else self.source


@dataclass(frozen=True, slots=True)
class _LocalTransport:
    """Two directories of one host."""

    source: MeasureHost
    destination: MeasureHost
    max_rate_bytes_per_s: int | None = None
    has_network: bool = False
    notes: tuple[str, ...] = ("Both directories are on one host: there is no network part.",)

    @property
    def properties(self) -> Mapping[str, Any]:
        """Return the limit of the rate."""
        return _limit_property(self.max_rate_bytes_per_s)

    def network(self, connections: int, time_s: float, max_bytes: int) -> dict[str, Any]:
        """Raise an error: there is no network."""
        raise MeasureError(f"{self.source.name}: there is no network between two directories of one host.")

    def copy(self, file: str, name: str, *, in_memory: bool, timeout_s: float) -> CopyTimes:
        """Copy a file on this host."""
        argv = [*_COPY, "--method", "copy", *_sync(in_memory), *_max_rate(self.max_rate_bytes_per_s)]
        argv += [str(_directory(self.source, in_memory) / file), str(_directory(self.destination, in_memory) / name)]
        return _times(call_engine(self.source.shell, argv, timeout_s=timeout_s))


@dataclass(frozen=True, slots=True)
class _NetworkTransport:
    """Two hosts: the client connects to a stream server and two servers of the mover, for disk and memory."""

    route: _TransportRoute
    token: str
    connections: int
    environment: Mapping[str, str]
    ports: Mapping[bool, int]
    max_rate_bytes_per_s: int | None = None
    has_network: bool = True

    @property
    def source(self) -> MeasureHost:
        """Return the source."""
        return self.route.source

    @property
    def destination(self) -> MeasureHost:
        """Return the destination."""
        return self.route.destination

    @property
    def notes(self) -> tuple[str, ...]:
        """Return the remarks of the route."""
        return self.route.notes

    @property
    def properties(self) -> Mapping[str, Any]:
        """Return the properties of the route."""
        route, path = self.route, self.route.path
        return {
            "client": route.client.name,
            "server": route.server.name,
            "protocol": "gsiftp" if route.uploads else "https",
            "address": route.address,
            "stream_port": route.port,
            "connect_rtt_s": path.rtt_s,
            "path_mtu_bytes": path.path_mtu_bytes,
            "mss_bytes": path.mss_bytes,
            "interface": path.interface,
            "interface_bit_per_s": path.interface_bit_per_s,
            **_limit_property(self.max_rate_bytes_per_s),
        }

    def network(self, connections: int, time_s: float, max_bytes: int) -> dict[str, Any]:
        """Run a test of the network in the direction of the data."""
        route = self.route
        argv = _stream_call(route.address, route.port, route.uploads, connections, time_s, max_bytes)
        if self.max_rate_bytes_per_s is not None:
            argv += ["--max-rate", str(self.max_rate_bytes_per_s)]
        return call_engine(
            route.client.shell, argv, timeout_s=time_s + _PROBE_TIMEOUT_S, environment={TOKEN_VARIABLE: self.token}
        )

    def copy(self, file: str, name: str, *, in_memory: bool, timeout_s: float) -> CopyTimes:
        """Upload or download a file."""
        route = self.route
        scheme = "gsiftp" if route.uploads else "https"
        server = f"{scheme}://{_in_url(route.address)}:{self.ports[in_memory]}/"
        # One session with as many connections as the network test, for files of all sizes.
        argv = [*_COPY, "--concurrency", "1", "--streams", str(self.connections)]
        argv += _max_rate(self.max_rate_bytes_per_s)
        if route.uploads:
            argv += ["--block", "256KiB", str(_directory(self.source, in_memory) / file), f"{server}{name}"]
        else:
            argv += [*_sync(in_memory), f"{server}{file}", str(_directory(self.destination, in_memory) / name)]
        return _times(call_engine(route.client.shell, argv, timeout_s=timeout_s, environment=self.environment))


class _Servers:
    """Servers of one measurement, on both hosts if necessary."""

    def __init__(
        self,
        token: str,
        directory: Path,
        ports: tuple[int, int] | None,
        limit_s: float,
        max_rate_bytes_per_s: int | None,
    ) -> None:
        self.token = token
        self._max_rate_bytes_per_s = max_rate_bytes_per_s
        # Use a separate token, because the network test sends its token without encryption.
        self._bearer = secrets.token_hex(16)
        self._credentials = CredentialStore(directory)
        self._ports = ports
        self._limit_s = limit_s
        self._stream_ports: dict[str, int] = {}

    def stream_port(self, server: MeasureHost) -> int:
        """Return the port of the stream server on a host; it is started at the first call."""
        if server.name not in self._stream_ports:
            ports = self._open_ports(server)
            options = ["--ports", f"{ports[0]}-{ports[1]}"] if ports is not None else []
            _, first = start_server(
                server.shell,
                ["stream", "serve", "--limit-s", round(self._limit_s), *options],
                name="stream",
                environment={TOKEN_VARIABLE: self.token},
            )
            self._stream_ports[server.name] = int(first["port"])
        return self._stream_ports[server.name]

    def start_mover(self, route: _TransportRoute, connections: int) -> Transport:
        """Start the servers of the mover and return the transport."""
        shell, store = route.server.shell, self._credentials
        ports = self._open_ports(route.server)
        if route.uploads:
            _check_ports(ports, connections, route.server.name)
            options = ["--write", *store.gsi_server(shell, route.address)]
            environment = store.gsi_client(route.client.shell)
            if ports is not None:
                options += ["--data-ports", f"{ports[0]}-{ports[1]}"]
        else:
            options = store.https_server(shell, route.address, self._bearer)
            environment = store.https_client(route.client.shell, self._bearer)
        found: dict[bool, int] = {}
        for in_memory in (False, True):
            argv = ["serve", str(_directory(route.server, in_memory)), "--json", "--drain-time", "1", *options]
            argv += _sync(in_memory) if route.uploads else []
            name = f"serve-{'gsiftp' if route.uploads else 'https'}-{'memory' if in_memory else 'disk'}"
            option = "--listen" if route.uploads else "--https"
            found[in_memory] = self._start_on_free_port(route.server, argv, option, name)
        return _NetworkTransport(route, self.token, connections, environment, found, self._max_rate_bytes_per_s)

    def _open_ports(self, server: MeasureHost) -> tuple[int, int] | None:
        return self._ports or server.endpoint.open_ports

    def _start_on_free_port(self, server: MeasureHost, argv: list[str], option: str, name: str) -> int:
        shell = server.shell
        low, high = self._open_ports(server) or (None, None)
        failure = ""
        # Hosts without IPv6 reject the first address. Another program can bind a port between its check and its use.
        for attempt, any_address in enumerate(("[::]", "0.0.0.0", "[::]", "0.0.0.0")):
            port = shell.free_ports(1, low, high)[0]
            try:
                start_server(shell, [*argv, option, f"{any_address}:{port}"], name=f"{name}-{attempt}")
            except MeasureError as error:
                failure = str(error)
            else:
                return port
        raise MeasureError(failure)


def _check_ports(ports: tuple[int, int] | None, connections: int, host: str) -> None:
    """Check that three servers and the data connections of an upload have ports."""
    needed = 3 + connections
    if ports is not None and ports[1] - ports[0] + 1 < needed:
        raise MeasureError(
            f"{host}: expected at least {needed} open ports for {connections} data connections, found"
            f" {ports[0]}-{ports[1]}. Use a larger range, or fewer connections (--connections)."
        )


_COPY = ("copy", "--json", "--recursive", "--existing", "keep")


def _sync(in_memory: bool) -> list[str]:
    return [] if in_memory else ["--sync"]


def _max_rate(bytes_per_s: int | None) -> list[str]:
    return [] if bytes_per_s is None else ["--max-rate", f"{bytes_per_s}B/s"]


def _limit_property(bytes_per_s: int | None) -> dict[str, Any]:
    return {} if bytes_per_s is None else {"max_rate_bytes_per_s": bytes_per_s}


def _directory(host: MeasureHost, in_memory: bool) -> PurePosixPath:
    return host.memory if in_memory else host.directory


def _times(output: Mapping[str, Any]) -> CopyTimes:
    if output.get("outcome") != "done":
        raise MeasureError(f"expected a complete copy, found the outcome {output.get('outcome')}")
    return CopyTimes(int(output["moved_bytes"]), float(output["duration_s"]), output)


def _in_url(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def _stream_call(address: str, port: int, sends: bool, connections: int, time_s: float, max_bytes: int) -> list[str]:
    return [
        "stream", "run", address, str(port), "--direction", "send" if sends else "receive",
        "--connections", str(connections), "--time-s", f"{time_s:.3f}", "--bytes", str(max_bytes),
    ]  # fmt: skip


def _find_route(source: MeasureHost, destination: MeasureHost, servers: _Servers) -> _TransportRoute:
    """Return the first direction and address of connections over which a test succeeds."""
    tried: list[str] = []
    for uploads in (True, False):
        client, server = (source, destination) if uploads else (destination, source)
        port = servers.stream_port(server)
        for address in _addresses(server.shell, client.shell):
            path = _try_address(client, address, port, servers.token)
            if not isinstance(path, str):
                notes = () if uploads else (_download_note(source, destination, tried),)
                return _TransportRoute(source, destination, uploads, address, port, path, notes)
            tried.append(f"{client.name} to {server.name} at {address}, port {port}: {path}")
    raise MeasureError(
        "neither host can connect to the other:\n  "
        + "\n  ".join(tried)
        + "\nOpen a range of ports in one direction and name it with --ports, or name another address with --address-a or --address-b."
    )


def _download_note(source: MeasureHost, destination: MeasureHost, tried: list[str]) -> str:
    return (
        f"{source.name} cannot connect to {destination.name} ({'; '.join(tried)}): the mover runs on {destination.name}"
        " and downloads over HTTPS."
    )


def _try_address(client: MeasureHost, address: str, port: int, token: str) -> PathProperties | str:
    """Return the properties of the path, or why no test succeeds over it."""
    try:
        path = client.shell.connect(address, port, count=5, timeout_s=CONNECT_TIMEOUT_S)
    except ShellError as error:
        return error.kind if error.kind != "other" else error.reason
    # Only a test shows that this is the right host, and that the path carries large packets.
    argv = _stream_call(address, port, True, 1, _PROBE_S, 1 << 20)
    result = try_engine(client.shell, argv, timeout_s=_PROBE_TIMEOUT_S, environment={TOKEN_VARIABLE: token})
    return result if isinstance(result, str) else path


def _addresses(server: RemoteHostShell, client: RemoteHostShell) -> list[str]:
    """Return candidate addresses of a server for its client, the most likely first."""
    found = [server.address]
    # SSH_CONNECTION: address and port of the client, then of the server, as the server of ssh sees them.
    found += _ssh_connection(server)[2:3]
    if server.address == "127.0.0.1":
        found += _ssh_connection(client)[0:1]
    found += _words(server, ["hostname", "-I"])
    return [address for address in dict.fromkeys(found) if address and "%" not in address]


def _ssh_connection(shell: RemoteHostShell) -> list[str]:
    return _words(shell, ["sh", "-c", 'echo "$SSH_CONNECTION"'])


def _words(shell: RemoteHostShell, argv: Sequence[str]) -> list[str]:
    """Return the words in the output of a command; an empty list if it fails, because other addresses remain."""
    try:
        done = shell.run(argv, timeout_s=10.0)
    except subprocess.TimeoutExpired:
        return []
    return done.stdout.split() if done.returncode == 0 else []
