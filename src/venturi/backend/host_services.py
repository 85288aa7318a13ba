"""Services of a plan on existing hosts: ports, probe of the paths, start, watch and stop through the shells of the hosts."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from ipaddress import ip_address
from pathlib import Path, PurePath
from typing import Any

from venturi.backend.connection import CONNECTIONS_AT_ONCE, Connection, resolve_ssh
from venturi.backend.path_probe import PathTarget, ProbedPath, probe_paths
from venturi.backend.pipelined_shell import PipelinedShell
from venturi.backend.plan_usage import HostUsage
from venturi.backend.remote_shell import RemoteHostShell
from venturi.backend.shell_client import ShellError
from venturi.errors import BackendError
from venturi.plan.header import Header, Host, PlanService
from venturi.testbed.host_pki import HostPki
from venturi.testbed.host_ports import SSH_PORT, HostPorts, find_ports, reported_addresses
from venturi.testbed.pki import Pki
from venturi.testbed.record_buffer import RecordBuffer
from venturi.testbed.server_events import record_server_events
from venturi.testbed.service_context import SESSION, SharedServices, ShellServiceContext
from venturi.testbed.service_manager import RunningService, ServiceManager, describe_service, exit_description
from venturi.testbed.service_ports import SCHEME_PORTS
from venturi.testbed.services.base import ServiceAccess, ServiceSpec, SshTarget
from venturi.testbed.services.ssh import HostSsh

__all__ = ["LOGS", "HostServices", "bracketed"]

LOGS = "services"
"""Directory of a run with the logs of its services, if a failure occurred."""

LOOPBACK = "127.0.0.1"
_PKI_PREFIX = "venturi-pki-"
_PKI_PAUSE_S = 60.0
PROBED_PORTS = 2
"""Maximum number of probed ports of a service: the first and the last."""


class HostServices:
    """The services of one session, from their ports to their logs.

    Parameters
    ----------
    header
        Header of the plan.
    hosts
        Hosts with the values of the targets.
    connections
        Connection by host.
    shells
        Shell by host. Replaced shells are used after the next :meth:`find_paths`.
    storages
        Storage → its host and its absolute path there.
    usage
        Usage of services by host. These three mappings can be filled until :meth:`find_paths`.
    directory
        Directory of the run, for copies of logs.
    records
        Receiver of events and findings.
    """

    def __init__(
        self,
        header: Header,
        hosts: Mapping[str, Host],
        connections: Mapping[str, Connection],
        shells: Mapping[str, RemoteHostShell],
        storages: Mapping[str, tuple[str, PurePath]],
        usage: Mapping[str, HostUsage],
        directory: Path,
        records: RecordBuffer,
    ) -> None:
        self.client_environment: dict[str, str] = {}
        self.paths: list[ProbedPath] = []
        self.has_failures = False
        self._header = header
        self._hosts = hosts
        self._connections = connections
        self._shells = shells
        self._storages = storages
        self._usage = usage
        self._directory = directory
        self._records = records
        # Not in the directory of the run, where keys would stay after a crash.
        _remove_abandoned_keys()
        self._pki_directory = Path(tempfile.mkdtemp(prefix=_PKI_PREFIX))
        self._pki_lock = os.open(self._pki_directory / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._pki_lock, fcntl.LOCK_EX)
        self._pki = Pki(self._pki_directory / "pki")
        self._host_pkis: dict[str, HostPki] = {}
        self._ssh_targets: dict[str, SshTarget] = {}
        self._specs: dict[str, ServiceSpec] = {}
        self._pipelines: dict[str, PipelinedShell] = {}
        self._reported: dict[str, list[str]] = {}
        self._manager: ServiceManager | None = None
        self._is_started = False
        self._certificates: threading.Thread | None = None

    @property
    def addresses(self) -> dict[str, dict[str, Any]]:
        """Service → address and ports for agents."""
        return {
            name: {
                "address": bracketed(self._address(name)),
                "ports": list(spec.ports[: len(self._header.services[name].ports)]),
            }
            for name, spec in self._specs.items()
        }

    @property
    def running(self) -> Mapping[str, RunningService]:
        """Services that were started, by name."""
        return self._manager.services if self._manager is not None else {}

    def prepare_certificates(self) -> None:
        """Start to create the keys that do not depend on hosts, if a service needs them.

        This takes about as long as connecting.
        """
        if any(one.host is not None and one.options.get("auth") == "gsi" for one in self._header.services.values()):
            self._certificates = threading.Thread(target=self._create_certificates, name="certificates")
            self._certificates.start()

    def _create_certificates(self) -> None:
        with suppress(BackendError, OSError):  # a service that needs them has the same error
            self._pki.client_environment()

    def bring_up(self, on_step: Callable[[str], None], *, probe: bool = True) -> None:
        """Find the paths, configure all services and start them: all three steps."""
        self.find_paths(on_step, probe=probe)
        self.configure()
        self.start(on_step)

    def find_paths(self, on_step: Callable[[str], None], *, probe: bool = True) -> None:
        """Choose ports, and probe the paths to them.

        Parameters
        ----------
        on_step
            Called with a message before each step.
        probe
            Whether to probe the paths. They are not probed again after a lost connection.

        Raises
        ------
        BackendError
            If a host has too few free ports, or a path does not work.
        """
        self._pipelines = {name: PipelinedShell(shell) for name, shell in self._shells.items()}
        own = {service.host for service in self._header.services.values() if service.host is not None}
        # Over a long path, each wait takes a round trip: other commands are in flight during the probes.
        with ThreadPoolExecutor(CONNECTIONS_AT_ONCE, "addresses") as pool:
            reported = pool.map(reported_addresses, self._shells.values() if own else ())
            # The logs of an earlier start are not part of this one.
            cleared = [pool.submit(self._shells[host].remove, self._directory_of(host)) for host in sorted(own)]
            targets = self.find_targets()
            if probe and targets:
                on_step(f"probing the paths to {', '.join(target.service for target in targets)}")
                self.paths = probe_paths(targets, self._pipelines)
            self._reported = dict(zip(self._shells, reported, strict=False))
            with _file_errors():
                for one in cleared:
                    one.result()

    def configure(self) -> bool:
        """Configure the services that need no other service, and return whether these are all.

        If so, the variables of clients are complete. Otherwise :meth:`start` completes them.

        Raises
        ------
        BackendError
            If a service cannot be configured.
        """
        if not self._specs:
            return True
        self._manager = ServiceManager(self._contexts(), self._ended)
        self._is_started = False
        return self._manager.configure()

    def start(self, on_step: Callable[[str], None]) -> None:
        """Start all services once. :meth:`stop` in another thread interrupts this.

        Raises
        ------
        BackendError
            If a service does not start.
        """
        if self._manager is None or self._is_started:
            return
        self._is_started = True
        on_step(f"starting {', '.join(self._specs)}")
        self._manager.start()
        with _file_errors():
            for shell in self._pipelines.values():
                shell.flush()

    def find_targets(self) -> list[PathTarget]:
        """Choose the ports of all services, and return the paths to probe.

        Raises
        ------
        BackendError
            If a host has too few free ports.
        """
        ports = self._find_ports()
        self._specs = {
            name: self._spec(name, service, ports[name])
            for name, service in self._header.services.items()
            if service.host is not None
        }
        return [*self._own_targets(), *self._existing_targets()]

    def stop(self) -> list[str]:
        """Stop all services, and return the problems."""
        if self._manager is None:
            return []
        problems = self._manager.stop()
        self.has_failures = self.has_failures or any(one.ended for one in self.running.values())
        return problems

    def record_logs(self) -> None:
        """Record the transfers and control connections in the logs of the servers."""
        record_server_events(
            self.running.values(), self._storages, self._records, clock_offset_s=self._clock_offset_s
        )

    def keep_logs(self) -> None:
        """Copy the logs of all services to the directory of the controller. A log that cannot be read is skipped."""
        for one in self.running.values():
            for log in one.logs():
                with suppress(OSError, BackendError):
                    one.context.fetch(log)

    def remove_logs(self) -> None:
        """Remove the copies of logs that were read."""
        shutil.rmtree(self._directory / LOGS, ignore_errors=True)

    def forget(self) -> None:
        """Remove the certificate authority and all its keys from this machine."""
        if self._certificates is not None:
            self._certificates.join()
        shutil.rmtree(self._pki_directory, ignore_errors=True)
        if self._pki_lock >= 0:
            os.close(self._pki_lock)
            self._pki_lock = -1

    def properties(self) -> dict[str, dict[str, Any]]:
        """Return host → its services, for the table ``environment``."""
        found: dict[str, dict[str, Any]] = {}
        for name, one in self.running.items():
            found.setdefault(one.context.spec.host, {}).setdefault("services", {})[name] = describe_service(one)
        return found

    def _find_ports(self) -> dict[str, tuple[int, ...]]:
        """Return the ports of the services that this session starts or, for kind ``ssh``, uses."""
        targets = {name: self._ssh_target(name) for name in self._shells}
        return find_ports(
            self._header.services,
            {
                name: HostPorts(
                    shell, self._hosts[name].open_ports, target.port if (target := targets[name]) else SSH_PORT
                )
                for name, shell in self._shells.items()
            },
        )

    def _spec(self, name: str, service: PlanService, ports: tuple[int, ...]) -> ServiceSpec:
        assert service.host is not None
        return ServiceSpec(
            name,
            service.kind,
            service.host,
            service.interface or "",
            service.storages,
            service.options,
            service.after,
            ports,
        )

    def _is_loopback(self, name: str) -> bool:
        """Return whether a service is only for clients on its own host: it has no interface in a plan with links."""
        network = self._header.network
        return self._header.services[name].interface is None and network is not None and bool(network.links)

    def _address(self, name: str) -> str:
        return LOOPBACK if self._is_loopback(name) else self._shells[self._specs[name].host].address

    def _own_targets(self) -> list[PathTarget]:
        return [
            PathTarget(
                name,
                # The SSH server of a host already listens.
                spec.host if spec.kind != HostSsh.kind else None,
                self._address(name),
                tuple(dict.fromkeys((spec.ports[0], spec.ports[-1])))[:PROBED_PORTS],
                self._hosts[spec.host].open_ports if spec.kind != HostSsh.kind else None,
                self._clients(name),
            )
            for name, spec in self._specs.items()
            if spec.ports
        ]

    def _existing_targets(self) -> list[PathTarget]:
        found: list[PathTarget] = []
        for name, service in self._header.services.items():
            if service.host is None and (clients := self._clients(name)):
                addresses = {one for url in service.service_ports.values() if (one := _url_address(url)) is not None}
                found += [PathTarget(name, None, host, (port,), None, clients) for host, port in sorted(addresses)]
        return found

    def _clients(self, service: str) -> tuple[str, ...]:
        """Return the hosts that connect to a service: clients, and hosts of services that exchange data with it."""
        found = {host for host, used in self._usage.items() if service in used.services and host in self._shells}
        for used in self._usage.values():
            for pair in used.between:
                if service in pair:
                    other = pair[0] if pair[1] == service else pair[1]
                    host = self._header.services[other].host
                    found |= {host} if host is not None else set()
        return tuple(sorted(found))

    def _contexts(self) -> dict[str, ShellServiceContext]:
        self.client_environment.clear()
        shared = SharedServices(
            self._pipelines,
            {name: path for name, (_, path) in self._storages.items()},
            f"{SESSION}/clients",
            fetched=self._directory / LOGS,
            client_environment=self.client_environment,
            clients={name: clients for name in self._specs if (clients := self._clients(name))},
        )
        addresses = self._client_addresses()
        self._host_pkis = {}
        contexts = {
            name: ShellServiceContext(
                spec,
                shared,
                address=self._address(name),
                host_name=self._address(name),
                directory=self._directory_of(spec.host) / name,
                pki=self._host_pki(spec.host),
                access=ServiceAccess(
                    self._bind_address(name),
                    addresses,
                    self._hosts[spec.host].open_ports,
                    self._ssh_target(spec.host),
                ),
            )
            for name, spec in self._specs.items()
        }
        shared.contexts.update(contexts)
        return contexts

    def _directory_of(self, host: str) -> PurePath:
        """Return the directory of all services of a host."""
        return self._shells[host].session / "services"

    def _host_pki(self, host: str) -> HostPki:
        """Return the certificates of a host, shared by its services."""
        if host not in self._host_pkis:
            shell = self._pipelines[host]
            clients = {name for service in self._specs for name in self._clients(service)}
            names = dict.fromkeys((shell.address, shell.host_name, shell.node_name))
            self._host_pkis[host] = HostPki(
                self._pki, shell, [self._pipelines[name] for name in sorted(clients)], tuple(names)
            )
        return self._host_pkis[host]

    def _client_addresses(self) -> tuple[str, ...]:
        """Return the addresses that hosts of the testbed connect from, as reported by the probes and the hosts."""
        # Members of a cluster connect to each other without a probe.
        found = {LOOPBACK, "::1"}.union(*self._reported.values())
        for path in self.paths:
            found |= {address for address in (path.measured.local_address, path.measured.remote_address) if address}
        return tuple(sorted(found))

    def _bind_address(self, name: str) -> str | None:
        """Return the single address that clients connect to, if it is an address of the host itself."""
        if self._is_loopback(name):
            return LOOPBACK
        host = self._specs[name].host
        # Services without clients, such as data nodes, have the same address as their host.
        reached = {path.measured.remote_address for path in self.paths if path.target.service == name} or {
            path.measured.remote_address for path in self.paths if path.target.host == host
        }
        if len(reached) != 1 or (address := reached.pop()) is None:
            return None
        if address in self._reported.get(host, ()) or ip_address(address).is_loopback:
            return address
        try:
            self._shells[host].listen(address=address).close()
        except ShellError:
            return None  # an address before a translation (NAT)
        return address

    def _ssh_target(self, host: str) -> SshTarget | None:
        ssh = self._connections[host].ssh
        if ssh is not None and host not in self._ssh_targets:
            destination = resolve_ssh(ssh)
            self._ssh_targets[host] = SshTarget(destination.user, destination.host, destination.port)
        return self._ssh_targets.get(host)

    def _clock_offset_s(self, host: str) -> float:
        shell = self._shells.get(host)
        return shell.clock_offset.offset_s if shell is not None and shell.clock_offset is not None else 0.0

    def _ended(self, one: RunningService, code: int, reason: str) -> None:
        host = one.context.spec.host
        if self._shells[host].is_lost:
            return  # the connection failed, and its finding reports it
        self.has_failures = True
        detail = {
            "service": one.name,
            "exit_code": code if code >= 0 else None,
            "signal": -code if code < 0 else None,
        }
        self._records.event(host, "service-exited", {**detail, "log": reason})
        self._records.finding(
            host,
            "service-exited",
            one.name,
            f"a process of {one.context.spec.kind} exited at {self._records.now_s():.3f} s with {exit_description(code)}",
            f"Transfers that needed it failed. The event has its last log lines; the directory {LOGS}/ of the run has its logs.",
        )


@contextmanager
def _file_errors() -> Iterator[None]:
    """Raise errors of files on hosts as errors of the backend."""
    try:
        yield
    except OSError as error:
        raise BackendError(error.strerror or str(error)) from error


def _remove_abandoned_keys() -> None:
    """Remove the certificate authorities of killed controllers of this user. Their locks are free."""
    for directory in Path(tempfile.gettempdir()).glob(f"{_PKI_PREFIX}*"):
        with suppress(OSError):
            found = directory.lstat()
            if found.st_uid != os.geteuid() or time.time() - found.st_mtime < _PKI_PAUSE_S:
                continue  # a new one may not have its lock yet
            lock = os.open(directory / "lock", os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(directory, ignore_errors=True)
            finally:
                os.close(lock)


def bracketed(address: str) -> str:
    """Return an address in the form for URLs: IPv6 addresses in brackets.

    Examples
    --------
    >>> bracketed("fd00::1"), bracketed("dtn1.example.org")
    ('[fd00::1]', 'dtn1.example.org')
    """
    return f"[{address}]" if ":" in address and not address.startswith("[") else address


_PORTS = SCHEME_PORTS | {"dav": 80, "iperf3": 5201, "rsync": 873, "s3": 443, "s3s": 443, "sshftp": 22}
"""Default ports of all schemes that services can have."""


def _url_address(url: str) -> tuple[str, int] | None:
    """Return host and port of a URL template. None without a host, or without a known port."""
    scheme, found, rest = url.partition("://")
    # `{path}` follows the authority without a slash.
    authority = rest.partition("/")[0].partition("{")[0].rpartition("@")[2]
    if not found or not authority:
        return None
    host, colon, port = authority.rpartition(":")
    if colon and port.isdigit():
        return host.strip("[]"), int(port)
    known = _PORTS.get(scheme)
    return (authority.strip("[]"), known) if known is not None else None
