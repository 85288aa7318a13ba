"""Conversion of the testbed of a scenario to parts of a plan's header, and the backends that can execute the plan.

The header has a ``network`` if the testbed has links, services, limits of hosts or file systems; without links, the network
is empty. The plan does not depend on the backend. On existing hosts, links and limits are expectations. In the lab, ``ssh``,
``connect`` and ``address`` have no effect.
"""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from venturi.messages import Problem, one_of, path_text
from venturi.plan.header import Call, Header, Host, PlanService, Storage, StorageSpec
from venturi.plan.network import Network
from venturi.testbed.network import DOMAIN, resolve_network, scaled_bytes
from venturi.testbed.paths import NetworkPaths
from venturi.testbed.service_ports import LOOPBACK, resolve_services
from venturi.testbed.services.base import ServiceSpec, find_hosts_obstacle
from venturi.testbed.services.table import SERVICES
from venturi.testbed.storage_urls import add_url_services, url_storage
from venturi.testbed.topology import lab_name_problem
from venturi.units import BITS_PER_BYTE

if TYPE_CHECKING:
    from venturi.scenario.testbed import StorageTable as WrittenStorage
    from venturi.scenario.testbed import TestbedTable

__all__ = [
    "SMALLEST_DISK_BYTES",
    "BackendName",
    "ResolvedTestbed",
    "backend_obstacle",
    "default_backend",
    "hosts_obstacle",
    "is_remote",
    "lab_obstacle",
    "resolve_testbed",
    "sim_obstacle",
]

BackendName: TypeAlias = Literal["hosts", "lab", "sim"]

SMALLEST_DISK_BYTES = 32 * 2**20
"""Minimum size at any scale, because a smaller file system has mostly tables and little space for data."""


@dataclass(frozen=True, slots=True)
class ResolvedTestbed:
    """Parts of a header. ``network`` is ``None`` for a testbed of hosts and storages only.

    A workload adds the services that the scenario does not contain to ``services`` (:mod:`venturi.workload.implicit_services`).
    """

    hosts: Mapping[str, Host]
    storages: Mapping[str, Storage]
    services: dict[str, PlanService]
    network: Network | None
    paths: NetworkPaths

    @property
    def has_links(self) -> bool:
        """Whether the testbed has links; without links, all hosts reach each other."""
        return self.network is not None and bool(self.network.links)


def resolve_testbed(testbed: TestbedTable, scale: float, problems: list[Problem]) -> ResolvedTestbed | None:
    """Return the testbed of a scenario as parts of a header; on errors, append them to ``problems`` and return ``None``.

    Parameters
    ----------
    scale
        Factor for rates and queues of links, and for sizes and rates of storage. Times, loss and counts do not change.
    """
    if _latest and _latest[0][0]() is testbed and _latest[0][1] == scale:
        return _copy(_latest[0][2])
    resolved = _resolve(testbed, scale, problems)
    if resolved is None:
        return None
    _latest[:] = [(weakref.ref(testbed), scale, resolved)]
    return _copy(resolved)


def _copy(resolved: ResolvedTestbed) -> ResolvedTestbed:
    """Return the same parts with a separate table of services, because workloads add services."""
    return dataclasses.replace(resolved, services=dict(resolved.services))


_latest: list[tuple[weakref.ref[TestbedTable], float, ResolvedTestbed]] = []
"""The last resolved testbed, needed to load, check and expand a scenario. Resolving 200 sites takes a second."""


def _resolve(testbed: TestbedTable, scale: float, problems: list[Problem]) -> ResolvedTestbed | None:
    before = len(problems)
    _check_connections(testbed, problems)
    problems += [
        ("testbed.without", one_of("the hosts and services", (*testbed.host, *testbed.service), name))
        for name in testbed.without
    ]
    storages = {name: _storage(name, storage, testbed, scale, problems) for name, storage in testbed.storage.items()}
    resolved = resolve_network(testbed, scale, problems)
    # Check services even if the network is invalid, but without interfaces: errors about interfaces would be misleading.
    unwired = testbed.model_copy(
        update={"service": {n: s.model_copy(update={"interface": None}) for n, s in testbed.service.items()}}
    )
    interfaces = resolved.network.interfaces if resolved else {}
    services = resolve_services(testbed if resolved else unwired, interfaces, problems, scale)
    if len(problems) > before or resolved is None:
        return None
    add_url_services(testbed, services)
    described = testbed.needs_lab or any(service.url is None for service in testbed.service.values())
    hosts = {
        name: Host(
            ssh=host.ssh,
            memory_bytes=host.memory,
            lab=resolved.hosts[name] if described else None,
            connect=host.connect,
            address=host.address,
            open_ports=host.open_ports,
            cache=host.cache,
            environment=host.environment or {},
        )
        for name, host in testbed.host.items()
    }
    return ResolvedTestbed(hosts, storages, services, resolved.network if described else None, resolved.paths)


def _check_connections(testbed: TestbedTable, problems: list[Problem]) -> None:
    for name, host in testbed.host.items():
        if host.ssh is not None and host.connect is not None:
            where = path_text(("testbed", "host", name, "connect"))
            problems.append((where, "expected ssh or connect, found both; remove one of them"))


def _storage(
    name: str, storage: WrittenStorage, testbed: TestbedTable, scale: float, problems: list[Problem]
) -> Storage:
    where = path_text(("testbed", "storage", name))
    if storage.url and not storage.host:
        return url_storage(name, storage, testbed, problems)
    for key, value in (("host", storage.host), ("path", storage.url or storage.path)):
        if not value:
            problems.append(
                (f"{where}.{key}", f"expected the {key} of the storage, found nothing; add the key {key}")
            )
    if storage.host and storage.host not in testbed.host:
        problems.append((f"{where}.host", one_of("the hosts", testbed.host, storage.host)))
    for index, host in enumerate(storage.shared):
        others = [other for other in testbed.host if other != storage.host]
        if host not in others:
            problems.append((f"{where}.shared[{index}]", one_of("the other hosts", others, host)))
    if storage.url:
        return url_storage(name, storage, testbed, problems)
    if storage.checksum is not None:
        problems.append(
            (f"{where}.checksum", "expected url (checksums verify existing servers), found path; remove checksum")
        )
    for key in ("size", "read_rate", "write_rate"):
        needed = ("tmpfs", "disk") if key == "size" else ("disk",)
        if getattr(storage, key) is not None and storage.kind not in needed:
            kinds = " or ".join(f'"{kind}"' for kind in needed)
            found = f'"{storage.kind}"' if storage.kind else "nothing"
            problems.append((f"{where}.kind", f"expected {kinds} (because {key} is set), found {found}"))
    if storage.kind in ("tmpfs", "disk"):
        if storage.size is None:
            problems.append((f"{where}.size", f'expected a size such as "4 GB" (of a {storage.kind}), found nothing'))
        if storage.path.startswith("/"):
            problems.append(
                (
                    f"{where}.path",
                    f'expected a relative path (a {storage.kind} is mounted there), found "{storage.path}"',
                )
            )
    if storage.kind is not None and storage.existing is not None:
        problems.append(
            (f"{where}.existing", "expected no existing files in a storage of the lab, found kind; remove kind")
        )
    if storage.kind is None:
        return Storage(storage.host, storage.path, existing=storage.existing is not None)
    size = None if storage.size is None else max(SMALLEST_DISK_BYTES, scaled_bytes(storage.size, scale))
    rates = [rate and rate / BITS_PER_BYTE * scale for rate in (storage.read_rate, storage.write_rate)]
    return Storage(storage.host, storage.path, StorageSpec(storage.kind, size, *rates))


def is_remote(host: Host) -> bool:
    """Return whether a host is reached by ``ssh`` or ``connect``."""
    return host.ssh is not None or host.connect is not None


def default_backend(testbed: TestbedTable, header: Header) -> BackendName:
    """Return the backend of a plan without ``--on``.

    It is ``hosts`` if a host has ``ssh`` or ``connect``, or if existing hosts can provide all parts of the testbed; otherwise ``lab``.
    """
    if testbed.has_remote_hosts:
        return "hosts"
    return "lab" if testbed.needs_lab or hosts_obstacle(header) is not None else "hosts"


def backend_obstacle(header: Header, backend: BackendName) -> str | None:
    """Return why a backend cannot execute a plan; ``None`` if it can."""
    find = {"hosts": hosts_obstacle, "lab": lab_obstacle, "sim": sim_obstacle}[backend]
    return find(header)


def hosts_obstacle(header: Header) -> str | None:
    """Return why existing hosts cannot execute a plan; ``None`` if they can. They treat links and limits as expectations."""
    for name, service in header.services.items():
        kind = SERVICES.get(service.kind)
        if service.host is None or kind is None:
            continue
        spec = ServiceSpec(
            name=name,
            kind=service.kind,
            host=service.host,
            interface=service.interface or f"{service.host}.{LOOPBACK}",
            storages=service.storages,
            options=service.options,
            after=service.after,
            ports=service.ports,
        )
        reason = find_hosts_obstacle(kind, spec)
        if reason is not None:
            return f"testbed.service.{name}: {reason}; change the service, or use --on lab"
    for call in header.calls.values():
        found = _lab_name(call)
        if found is not None:
            return (
                f"expected options that hold on existing hosts, found {found} of {call.mover}, a name that exists only"
                " in the lab; use --on lab, or set the name of an existing host"
            )
    return None


def _lab_name(call: Call) -> str | None:
    """Return the first option of a call with a host name of the lab; the URLs of service ports replace such names."""
    for key, value in call.options.items():
        if isinstance(value, str) and f".{DOMAIN}" in value and key not in call.urls:
            return f'{key} = "{value}"'
    return None


def lab_obstacle(header: Header) -> str | None:
    """Return why the lab cannot execute a plan; ``None`` if it can."""
    for name in header.hosts:
        problem = lab_name_problem(name)
        if problem is not None:
            return f"testbed.host.{name}: {problem}; rename the host, or use --on hosts"
    return _emulation_obstacle(header, "the lab")


def sim_obstacle(header: Header, *, only: bool = False) -> str | None:
    """Return why the simulator cannot execute a plan; ``None`` if it can.

    With ``only``, the message does not advise another backend, because the command only simulates.
    """
    return _emulation_obstacle(header, "the simulation", only=only)


def _emulation_obstacle(header: Header, emulation: str, *, only: bool = False) -> str | None:
    hosts = "" if only else "use --on hosts, or "
    for name, storage in header.storages.items():
        if storage.existing and storage.url is None:
            return (
                f"testbed.storage.{name}: expected generated files (your files are not in {emulation}), found existing;"
                f" {hosts}remove existing"
            )
        if storage.url is not None:
            return (
                f"testbed.storage.{name}: expected a directory (Venturi knows neither the links nor the rates of existing"
                f" servers), found url and {emulation}; {hosts}replace url by host and path and add a service"
            )
    existing = [name for name, service in header.services.items() if service.host is None]
    if existing:
        return (
            f"expected services within {emulation}, found {existing[0]}, an existing server;"
            f" {hosts}replace url by host"
        )
    if header.services and len(header.hosts) > 1 and not (header.network and header.network.links):
        return (
            f"expected links between the hosts (they are the network of {emulation}), found none;"
            f" {hosts}add testbed.link tables with the expected network"
        )
    return None
