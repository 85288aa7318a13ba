"""What the header of a plan asks of a lab, host by host, checked once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from venturi.errors import BackendError
from venturi.plan.header import Header, LabHost, Place, Service
from venturi.plan.network import Network
from venturi.testbed.plan import why_not_in_lab

__all__ = ["DOMAIN", "Asked", "AskedHost", "Nic", "read_asked", "throttled"]

DOMAIN = "lab.test"
"""Names of hosts end in it. The top-level domain `test` never exists outside (RFC 6761, section 6.2)."""


@dataclass(frozen=True, slots=True)
class Nic:
    """A network interface: its name in the plan, and what it is on its host."""

    name: str
    device: str
    address: str
    mtu: int


@dataclass(frozen=True, slots=True)
class AskedHost:
    """A host, its limits and tuning (``lab``), and its interfaces in the order of the plan."""

    name: str
    lab: LabHost
    nics: tuple[Nic, ...]

    @property
    def host_name(self) -> str:
        """Its name within the lab, which resolves to its first address."""
        return f"{self.name}.{DOMAIN}"

    @property
    def address(self) -> str:
        """The address of its first interface; loopback where it has none."""
        return self.nics[0].address if self.nics else "127.0.0.1"

    @property
    def default_device(self) -> str | None:
        """The device by which addresses without a route of their own are reached."""
        return self.lab.default_device or (self.nics[0].device if self.nics else None)

    def name_of(self, nic: Nic) -> str:
        """Return the name that resolves to an interface of this host."""
        return self.host_name if nic == self.nics[0] else f"{self.name}-{nic.device}.{DOMAIN}"

    def device(self, device: str | None) -> Nic | None:
        """Return the interface of this device, None if there is none."""
        return next((nic for nic in self.nics if nic.device == device), None)


@dataclass(frozen=True, slots=True)
class Asked:
    """All that a lab is to be; ``network`` is empty where the plan has none."""

    header: Header
    hosts: Mapping[str, AskedHost]
    network: Network

    @property
    def places(self) -> Mapping[str, Place]:
        """Storages by name."""
        return self.header.places

    @property
    def services(self) -> Mapping[str, Service]:
        """Server programs by name."""
        return self.header.services

    def nic(self, name: str) -> tuple[AskedHost, Nic]:
        """Return the interface of this name, and its host."""
        host = self.hosts[self.network.interfaces[name].host]
        return host, next(nic for nic in host.nics if nic.name == name)

    def owner(self, address: str) -> tuple[AskedHost, Nic] | None:
        """Return who has an address."""
        return next(
            ((host, nic) for host in self.hosts.values() for nic in host.nics if nic.address == address), None
        )


def read_asked(header: Header) -> Asked:
    """Read the header of a plan.

    Raises
    ------
    BackendError
        If the plan is not one for a lab: a host is elsewhere, or something refers to what is not there.
    """
    network = header.network or Network({}, {})
    problem = why_not_in_lab(header)
    if problem:
        raise BackendError(problem)
    hosts = {}
    for name, host in header.hosts.items():
        nics = tuple(
            Nic(key, nic.device, nic.address, nic.mtu) for key, nic in network.interfaces.items() if nic.host == name
        )
        hosts[name] = AskedHost(name, host.lab or LabHost(), nics)
    asked = Asked(header, hosts, network)
    _check(asked)
    return asked


def throttled(place: Place) -> bool:
    """Return whether a rate is asked for."""
    storage = place.storage
    return storage is not None and (storage.read_bytes_per_s is not None or storage.write_bytes_per_s is not None)


def _check(asked: Asked) -> None:
    for name, place in asked.places.items():
        _known(place.host, asked.hosts, f"testbed.storage.{name}.host")
        if throttled(place) and place.storage is not None and place.storage.kind != "disk":
            raise BackendError(
                f'testbed.storage.{name}: expected kind = "disk" where a rate is given, found {place.storage.kind}: only'
                " a disk of its own can be throttled; set the kind, or leave read_rate and write_rate out"
            )
    for name, service in asked.services.items():
        where = f"testbed.service.{name}"
        _known(service.host, asked.hosts, f"{where}.host")
        if service.interface is not None:
            _known(service.interface, asked.network.interfaces, f"{where}.interface")
        for place_name in service.places:
            _known(place_name, asked.places, f"{where}.storage")
        for other in service.after:
            _known(other, asked.services, f"{where}.after")


def _known(name: str, among: Mapping[str, object], where: str) -> None:
    if name not in among:
        raise BackendError(f'{where}: expected one of {", ".join(among) or "(there are none)"}, found "{name}"')
