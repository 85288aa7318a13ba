"""What a service of a lab has: see :class:`venturi.testbed.services.base.Room`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from venturi.errors import BackendError
from venturi.testbed.lab.asked import Asked
from venturi.testbed.lab.machine import LabMachine
from venturi.testbed.pki import Pki
from venturi.testbed.services.base import Machine, ServiceSpec

if TYPE_CHECKING:
    from venturi.testbed.services.base import Room

__all__ = ["Grounds", "LabRoom", "place_path"]


def place_path(asked: Asked, folder: Path, place: str) -> Path:
    """Return where a place is within the lab: an absolute path stays one."""
    known = asked.places.get(place)
    if known is None:
        raise BackendError(f'expected a storage of the lab ({", ".join(asked.places)}), found "{place}"')
    return folder / "hosts" / known.host / known.path


@dataclass(frozen=True)
class Grounds:
    """What all rooms of a lab have in common.

    Attributes
    ----------
    folder
        The lab's.
    client_environment
        What services add variables for clients to.
    """

    asked: Asked
    folder: Path
    machines: Mapping[str, LabMachine]
    pki: Pki
    client_environment: dict[str, str]


class LabRoom:
    """The room of one service."""

    def __init__(self, name: str, grounds: Grounds) -> None:
        service = grounds.asked.services[name]
        host = grounds.asked.hosts[service.host]
        nic = grounds.asked.nic(service.interface)[1] if service.interface is not None else None
        interface = service.interface or (host.nics[0].name if host.nics else "")
        self.spec = ServiceSpec(
            name, service.kind, service.host, interface, service.places, service.options, service.after, service.ports
        )
        self.machine: Machine = grounds.machines[service.host]
        self.address = nic.address if nic is not None else host.address
        self.host_name = host.name_of(nic) if nic is not None else host.host_name
        self.folder = grounds.folder / "services" / name
        self.pki: Any = grounds.pki
        self.client_environment = grounds.client_environment
        self._grounds = grounds

    def path(self, place: str) -> Path:
        """Return the absolute path, within the lab, of a place; any place of the lab."""
        return place_path(self._grounds.asked, self._grounds.folder, place)

    def peer(self, service: str) -> Room:
        """Return the room of another service of the lab."""
        if service not in self._grounds.asked.services:
            known = ", ".join(self._grounds.asked.services)
            raise BackendError(f'testbed.service.{self.spec.name}: expected one of {known}, found "{service}"')
        return LabRoom(service, self._grounds)

    def hosts(self) -> Mapping[str, Machine]:
        """Return all machines of the lab."""
        return self._grounds.machines
