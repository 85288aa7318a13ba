"""Probe of the hosts and paths of a plan, without a run: for ``venturi plan --probe``.

It connects to the hosts, reads their clocks, and probes the path between each client and each server of the plan in both
directions. It starts no service and writes no file of a run.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from venturi.backend.connection import CONNECTIONS_AT_ONCE, Connection, open_shell
from venturi.backend.engine import find_engines
from venturi.backend.host_services import HostServices
from venturi.backend.path_probe import ClosedPath, PathTarget, ProbedPath, try_paths
from venturi.backend.plan_usage import plan_usage
from venturi.backend.remote_shell import RemoteHostShell
from venturi.backend.shell_client import ShellError
from venturi.errors import BackendError
from venturi.plan import Plan, write_plan
from venturi.run.directory import PLAN
from venturi.testbed.record_buffer import RecordBuffer

__all__ = ["PathProbe", "PlanProbe", "probe_plan"]


@dataclass(frozen=True, slots=True)
class PathProbe:
    """Result for one direction between a client and a server.

    Attributes
    ----------
    service
        Service of the plan.
    needed
        Whether the plan uses this direction. The other direction matters for tools that open data connections to the client.
    path
        Its properties, or the error.
    """

    service: str
    needed: bool
    path: ProbedPath | ClosedPath

    @property
    def to(self) -> str:
        """Host that the connection goes to, or address of an existing server."""
        return self.path.target.host or self.path.target.address

    @property
    def error(self) -> str | None:
        """Reason why the path does not work, or None."""
        return self.path.error if isinstance(self.path, ClosedPath) else None

    def to_json(self) -> dict[str, Any]:
        """Return the result for ``--json``."""
        found: dict[str, Any] = {
            "from": self.path.client,
            "to": self.to,
            "service": self.service,
            "address": self.path.target.address,
            "port": self.path.port,
            "needed": self.needed,
            "error": self.error,
        }
        if isinstance(self.path, ProbedPath):
            measured = asdict(self.path.measured)
            times_s = measured.pop("times_s")
            found |= {**measured, "connect_s": min(times_s, default=None)}
        return found


@dataclass(frozen=True, slots=True)
class PlanProbe:
    """Result of :func:`probe_plan`.

    Attributes
    ----------
    hosts
        Host → ``address``, ``node_name``, and for other machines ``clock_offset_s`` and ``clock_uncertainty_s``.
    paths
        One result for each direction.
    """

    hosts: Mapping[str, Mapping[str, Any]]
    paths: tuple[PathProbe, ...]

    @property
    def problem(self) -> str | None:
        """Errors of the paths that the plan needs, one per line. None if all work."""
        errors = dict.fromkeys(path.error for path in self.paths if path.needed and path.error is not None)
        return "\n".join(error for error in errors if error is not None) or None

    def to_json(self) -> dict[str, Any]:
        """Return the result for ``--json``."""
        return {
            "hosts": {name: dict(properties) for name, properties in self.hosts.items()},
            "paths": [path.to_json() for path in self.paths],
            "problem": self.problem,
        }


def probe_plan(plan: Plan, on_step: Callable[[str], None] = lambda step: None) -> PlanProbe:
    """Connect to the hosts of a plan and probe the paths between them.

    Parameters
    ----------
    plan
        The plan, with the hosts of ``--hosts``.
    on_step
        Called with a message before each step.

    Raises
    ------
    BackendError
        If a host cannot be reached, or has too few free ports.
    """
    header = plan.header
    connections = {
        name: Connection.to(name, ssh=host.ssh, connect=host.connect) for name, host in header.hosts.items()
    }
    with ExitStack() as stack:
        on_step(f"connecting to {', '.join(connections)}")
        shells = _open_shells(plan, connections, stack)
        hosts = {name: _host_properties(shell, connections[name]) for name, shell in shells.items()}
        with tempfile.TemporaryDirectory() as directory:
            write_plan(plan, Path(directory) / PLAN)
            usage = plan_usage(Path(directory), header)
        services = HostServices(
            header, header.hosts, connections, shells, {}, usage, Path(os.devnull), RecordBuffer(0)
        )
        stack.callback(services.forget)
        targets = services.find_targets()
        if targets:
            on_step("probing the paths")
        found = [PathProbe(path.target.service, True, path) for path in try_paths(targets, shells)]
        found += _reverse_paths(plan, targets, shells)
    return PlanProbe(hosts, tuple(found))


def _open_shells(plan: Plan, connections: Mapping[str, Connection], stack: ExitStack) -> dict[str, RemoteHostShell]:
    engines = find_engines()
    # Other hosts reach this machine by its name, unless all hosts are this machine.
    own_name = None if all(connection.is_local for connection in connections.values()) else os.uname().nodename

    def connect(name: str) -> RemoteHostShell:
        host, connection = plan.header.hosts[name], connections[name]
        address = host.address or (own_name if connection.is_local else None)
        return open_shell(connection, engines, cache=host.cache, address=address, environment=host.environment)

    with ThreadPoolExecutor(CONNECTIONS_AT_ONCE, "connection") as pool:
        futures = {name: pool.submit(connect, name) for name in connections}
    for future in futures.values():
        if future.exception() is None:
            stack.callback(_close, future.result())
    for future in futures.values():
        error = future.exception()
        if isinstance(error, OSError) and error.strerror:
            raise BackendError(error.strerror) from error
        if error is not None:
            raise error
    return {name: future.result() for name, future in futures.items()}


def _close(shell: RemoteHostShell) -> None:
    with suppress(BackendError):
        shell.close()


def _host_properties(shell: RemoteHostShell, connection: Connection) -> dict[str, Any]:
    found: dict[str, Any] = {"address": shell.address, "node_name": shell.node_name}
    if not connection.is_local:
        clock = shell.clock()
        found |= {"clock_offset_s": clock.offset_s, "clock_uncertainty_s": clock.uncertainty_s}
    return found


def _reverse_paths(plan: Plan, targets: list[PathTarget], shells: Mapping[str, RemoteHostShell]) -> list[PathProbe]:
    """Probe the paths from the hosts of servers to their clients, once for each pair."""
    servers: dict[tuple[str, str], str] = {}
    for target in targets:
        server = target.host or _host_of(plan, target.service)
        for client in target.clients:
            if server is not None and client != server:
                servers.setdefault((server, client), target.service)
    found: list[PathProbe] = []
    for (server, client), service in servers.items():
        open_ports = plan.header.hosts[client].open_ports
        low, high = open_ports or (None, None)
        try:
            listener = shells[client].listen(low=low, high=high)
        except ShellError:
            continue  # all ports of the client are in use
        listener.close()
        target = PathTarget(service, client, shells[client].address, (listener.port,), open_ports, (server,))
        found += [PathProbe(service, False, path) for path in try_paths([target], shells)]
    return found


def _host_of(plan: Plan, service: str) -> str | None:
    return plan.header.services[service].host
