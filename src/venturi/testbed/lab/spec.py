"""Validated lab specification from the header of a plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from venturi.errors import BackendError
from venturi.plan.header import Header, LabHost, PlanService, Storage
from venturi.plan.network import Network
from venturi.testbed.plan import lab_obstacle

__all__ = ["DOMAIN", "LabHostSpec", "LabSpec", "Nic", "read_lab_spec", "throttled"]

DOMAIN = "lab.test"
"""Domain of the hosts. The top-level domain ``test`` never exists in the public DNS (RFC 6761, section 6.2)."""


@dataclass(frozen=True, slots=True)
class Nic:
    """Network interface: name in the plan, and device, address and MTU on its host."""

    name: str
    device: str
    address: str
    mtu: int


@dataclass(frozen=True, slots=True)
class LabHostSpec:
    """Host with its limits and tuning (``lab``), and its interfaces in the order of the plan."""

    name: str
    lab: LabHost
    nics: tuple[Nic, ...]

    @property
    def host_name(self) -> str:
        """Name within the lab, which resolves to the first address."""
        return f"{self.name}.{DOMAIN}"

    @property
    def address(self) -> str:
        """Address of the first interface; loopback without interfaces."""
        return self.nics[0].address if self.nics else "127.0.0.1"

    @property
    def default_device(self) -> str | None:
        """Device for addresses without a specific route."""
        return self.lab.default_device or (self.nics[0].device if self.nics else None)

    def interface_name(self, nic: Nic) -> str:
        """Return the name that resolves to an interface of this host."""
        return self.host_name if nic == self.nics[0] else f"{self.name}-{nic.device}.{DOMAIN}"

    def device(self, device: str | None) -> Nic | None:
        """Return the interface of a device; ``None`` if it does not exist."""
        return next((nic for nic in self.nics if nic.device == device), None)


@dataclass(frozen=True, slots=True)
class LabSpec:
    """Specification of a lab; ``network`` is empty if the plan has none."""

    header: Header
    hosts: Mapping[str, LabHostSpec]
    network: Network

    @property
    def storages(self) -> Mapping[str, Storage]:
        """Storages by name."""
        return self.header.storages

    @property
    def services(self) -> Mapping[str, PlanService]:
        """Server programs by name."""
        return self.header.services

    def storage_host(self, name: str) -> str:
        """Return the host of a storage; in a lab, each storage has one."""
        host = self.storages[name].host
        assert host is not None
        return host

    def nic(self, name: str) -> tuple[LabHostSpec, Nic]:
        """Return an interface and its host, by interface name."""
        host = self.hosts[self.network.interfaces[name].host]
        return host, next(nic for nic in host.nics if nic.name == name)

    def owner(self, address: str) -> tuple[LabHostSpec, Nic] | None:
        """Return the host and interface with an address."""
        return next(
            ((host, nic) for host in self.hosts.values() for nic in host.nics if nic.address == address), None
        )


def read_lab_spec(header: Header) -> LabSpec:
    """Return the lab specification of a plan's header.

    Raises
    ------
    BackendError
        If the plan is not for a lab: it has a host elsewhere, or refers to an unknown object.
    """
    network = header.network or Network({}, {})
    problem = lab_obstacle(header)
    if problem:
        raise BackendError(problem)
    hosts = {}
    for name, host in header.hosts.items():
        nics = tuple(
            Nic(key, nic.device, nic.address, nic.mtu) for key, nic in network.interfaces.items() if nic.host == name
        )
        hosts[name] = LabHostSpec(name, host.lab or LabHost(), nics)
    spec = LabSpec(header, hosts, network)
    _check(spec)
    return spec


def throttled(storage: Storage) -> bool:
    """Return whether a storage has a rate limit."""
    spec = storage.spec
    return spec is not None and (spec.read_bytes_per_s is not None or spec.write_bytes_per_s is not None)


def _check(spec: LabSpec) -> None:
    for name, storage in spec.storages.items():
        _check_name(storage.host, spec.hosts, f"testbed.storage.{name}.host")
        if throttled(storage) and storage.spec is not None and storage.spec.kind != "disk":
            raise BackendError(
                f'testbed.storage.{name}: expected kind = "disk" with a rate, found {storage.spec.kind}: only'
                " storages of this kind can be throttled; set the kind, or remove read_rate and write_rate"
            )
    for name, service in spec.services.items():
        where = f"testbed.service.{name}"
        _check_name(service.host, spec.hosts, f"{where}.host")
        if service.interface is not None:
            _check_name(service.interface, spec.network.interfaces, f"{where}.interface")
        for storage_name in service.storages:
            _check_name(storage_name, spec.storages, f"{where}.storage")
        for other in service.after:
            _check_name(other, spec.services, f"{where}.after")


def _check_name(name: str | None, among: Mapping[str, object], where: str) -> None:
    if name is None:
        raise BackendError(
            f"{where}: expected a host of the lab, found none, because the server exists already; run on hosts"
        )
    if name not in among:
        raise BackendError(f'{where}: expected one of {", ".join(among) or "(there are none)"}, found "{name}"')
