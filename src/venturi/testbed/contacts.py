"""Hosts and existing servers that a plan contacts when it runs on existing hosts, and its actions there.

``venturi plan`` prints the list, and ``venturi run`` requests consent before the first contact. Start with
:func:`find_contacts`.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any
from urllib.parse import urlsplit

from venturi.plan import Plan
from venturi.plan.header import URL_SERVICE, Header, Host, PlanService
from venturi.plan.steps import data_steps
from venturi.testbed.services.exposure import is_open_to_all
from venturi.testbed.services.table import SERVICES
from venturi.units import format_bytes

__all__ = ["Contacts", "HostContact", "ServerContact", "ServiceContact", "StorageContact", "find_contacts"]

HOST_SSH = "ssh"
"""Kind of the SSH server that a host already has; Venturi does not start it."""

OPEN = ", open to clients from all addresses without authentication"
"""Note for a service without access control."""

MAX_SAMPLED_LINES = 5_000
"""Maximum number of lines of a plan that are searched for programs; further lines repeat them."""


@dataclass(frozen=True, slots=True)
class StorageContact:
    """Storage of a host, or one on existing servers that the host handles; ``disk_bytes`` is its peak use.

    ``existing``: it has files of the user.
    """

    name: str
    path: str
    disk_bytes: int
    existing: bool = False


@dataclass(frozen=True, slots=True)
class ServiceContact:
    """Server that Venturi starts on a host, or the host's own SSH server.

    ``open_to_all``: it accepts clients from all addresses without authentication.
    """

    name: str
    kind: str
    programs: tuple[str, ...]
    storages: tuple[str, ...]
    open_to_all: bool = False


@dataclass(frozen=True, slots=True)
class HostContact:
    """Host and the actions of a plan there.

    Attributes
    ----------
    connection
        Connection prefix; empty for this machine.
    address
        Name or address for data connections, if set.
    programs
        Programs that movers need.
    open_ports
        First and last port for servers; ``None``: any free ports.
    environment
        Environment variables of the movers.
    """

    name: str
    connection: tuple[str, ...]
    address: str | None
    programs: tuple[str, ...]
    services: tuple[ServiceContact, ...]
    storages: tuple[StorageContact, ...]
    open_ports: tuple[int, int] | None
    environment: Mapping[str, str]

    @property
    def key(self) -> str | None:
        """Text that identifies the host for consent; ``None`` for this machine."""
        return shlex.join(self.connection) if self.connection else None


@dataclass(frozen=True, slots=True)
class ServerContact:
    """Existing server: its URLs, and the storages that it serves."""

    name: str
    kind: str
    urls: tuple[str, ...]
    storages: tuple[str, ...]

    @property
    def keys(self) -> tuple[str, ...]:
        """Texts that identify the server for consent: scheme, host and port of each URL."""
        parts = [urlsplit(url) for url in self.urls]
        return tuple(dict.fromkeys(f"{part.scheme}://{part.netloc}" for part in parts))


@dataclass(frozen=True, slots=True)
class Contacts:
    """Hosts and existing servers of a plan; ``bytes`` is the total of all transfers, ``None`` if the plan does not fix it."""

    hosts: tuple[HostContact, ...]
    servers: tuple[ServerContact, ...]
    bytes: int | None

    @property
    def keys(self) -> tuple[str, ...]:
        """Texts that identify all remote hosts and existing servers, for consent."""
        keys = [host.key for host in self.hosts if host.key is not None]
        return tuple(dict.fromkeys([*keys, *(key for server in self.servers for key in server.keys)]))

    def lines(self) -> list[tuple[str, str]]:
        """Return the list as rows for a terminal: name and text."""
        rows: list[tuple[str, str]] = []
        for host in self.hosts:
            rows += [
                (f"host {host.name}" if index == 0 else "", text) for index, text in enumerate(_host_lines(host))
            ]
        for server in self.servers:
            storages = f", with {' and '.join(server.storages)}" if server.storages else ""
            kind = "" if server.kind == URL_SERVICE else f" ({server.kind})"
            rows.append((f"server {server.name}", f"{' and '.join(server.urls)}{kind}{storages}"))
        return rows

    def to_json(self) -> dict[str, Any]:
        """Return the list as a JSON object."""
        return {
            "hosts": {host.name: _host_json(host) for host in self.hosts},
            "servers": {
                server.name: {"kind": server.kind, "urls": list(server.urls), "storages": list(server.storages)}
                for server in self.servers
            },
        }


def find_contacts(plan: Plan, hosts: Mapping[str, Host] | None = None) -> Contacts:
    """Return the hosts and existing servers of a plan.

    Parameters
    ----------
    plan
        The plan.
    hosts
        Hosts with the targets of this run. Default: the hosts of the plan.
    """
    header = plan.header
    programs = _programs(plan)
    found = [_host(name, host, header, programs.get(name, ())) for name, host in (hosts or header.hosts).items()]
    servers = [
        ServerContact(name, service.kind, _urls(service), service.storages)
        for name, service in header.services.items()
        if service.host is None
    ]
    return Contacts(tuple(found), tuple(servers), header.totals.bytes)


def _host(name: str, host: Host, header: Header, programs: Iterable[str]) -> HostContact:
    connection = ("ssh", host.ssh) if host.ssh is not None else host.connect or ()
    storages = tuple(
        StorageContact(key, storage.url or storage.path, header.totals.disk_bytes.get(key, 0), storage.existing)
        for key, storage in header.storages.items()
        if storage.host == name
    )
    services = tuple(_service(key, service) for key, service in header.services.items() if service.host == name)
    return HostContact(
        name, connection, host.address, tuple(programs), services, storages, host.open_ports, host.environment
    )


def _service(name: str, service: PlanService) -> ServiceContact:
    kind = SERVICES.get(service.kind)
    programs = (
        tuple(package.program for package in kind.packages) if kind is not None and service.kind != HOST_SSH else ()
    )
    is_open = kind is not None and is_open_to_all(kind, service.options)
    return ServiceContact(name, service.kind, programs, service.storages, is_open)


def _urls(service: PlanService) -> tuple[str, ...]:
    """Return the URLs of an existing server; for equivalent schemes of a storage, only the first."""
    urls = [_plain_url(template) for template in service.service_ports.values()]
    if service.kind != URL_SERVICE:
        return tuple(urls)
    return tuple({url.partition("://")[2]: url for url in reversed(urls)}.values())[::-1]


def _plain_url(template: str) -> str:
    """Return a URL template without the path of a file."""
    return template.partition("{")[0].rstrip("/")


def _programs(plan: Plan) -> dict[str, tuple[str, ...]]:
    """Return the programs that movers need on each host with actors. In a long plan, all hosts need all programs."""
    calls = plan.header.calls
    names: dict[str, set[str]] = {}
    number = 0
    for number, line in enumerate(islice(plan.lines, MAX_SAMPLED_LINES), 1):  # noqa: B007 - used after the loop
        for step in data_steps(line.steps):
            names.setdefault(line.host, set()).update([step.call] if step.call in calls else calls)
    if number == MAX_SAMPLED_LINES:
        for host in plan.header.hosts:
            names.setdefault(host, set(calls))
    return {
        host: tuple(
            dict.fromkeys(program for name, call in calls.items() if name in used for program in call.requires)
        )
        for host, used in names.items()
    }


def _host_lines(host: HostContact) -> list[str]:
    lines = [f"reached by: {shlex.join(host.connection)}" if host.connection else "this machine"]
    if host.address is not None:
        lines[0] += f", data connections to {host.address}"
    if host.programs:
        lines.append(f"runs {', '.join(host.programs)}")
    ports = "free ports" if host.open_ports is None else f"ports {host.open_ports[0]}-{host.open_ports[1]}"
    for service in host.services:
        programs = f" ({', '.join(service.programs)})" if service.programs else ""
        storages = f" with {' and '.join(service.storages)}" if service.storages else ""
        server = f"starts {service.name} of kind {service.kind}{programs} on {ports}"
        lines.append(
            ("uses its ssh server" if service.kind == HOST_SSH else server)
            + storages
            + (OPEN if service.open_to_all else "")
        )
    lines += [
        f"reads your files of {storage.name} in {storage.path}"
        if storage.existing
        else f"stores {storage.name} in {storage.path}, {format_bytes(storage.disk_bytes)} at the peak"
        for storage in host.storages
    ]
    if host.environment:
        lines.append("sets " + " ".join(f"{name}={shlex.quote(text)}" for name, text in host.environment.items()))
    return lines


def _host_json(host: HostContact) -> dict[str, Any]:
    return {
        "connection": list(host.connection),
        "address": host.address,
        "programs": list(host.programs),
        "services": {
            service.name: {
                "kind": service.kind, "programs": list(service.programs), "storages": list(service.storages),
                "open_to_all": service.open_to_all,
            }
            for service in host.services
        },
        "storages": {
            storage.name: {"path": storage.path, "disk_bytes": storage.disk_bytes} for storage in host.storages
        },
        "open_ports": None if host.open_ports is None else list(host.open_ports),
        "environment": dict(host.environment),
    }  # fmt: skip
