"""Where the mover of a point runs, and through which doors of which services it reaches its two ends."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from venturi.mover import Mover
from venturi.plan import Service
from venturi.plan.header import BUILT_IN_PLACES, OptionValue
from venturi.testbed.doors import on_host
from venturi.testbed.services.base import ServiceSpec, Use
from venturi.testbed.services.table import SERVICES
from venturi.wording import Problem, path_text

if TYPE_CHECKING:
    from venturi.scenario import Scenario
    from venturi.testbed.plan import ResolvedTestbed

__all__ = ["Asked", "Ends", "EndsError", "Router"]

Role: TypeAlias = Literal["source", "destination"]

_USES: Mapping[str, Use] = {"zero": "zero", "null": "null"}
_DEVICES: Mapping[str, str] = {"zero": "/dev/zero", "null": "/dev/null"}


class EndsError(Exception):
    """Ends that a mover cannot reach: ``key`` of the workload, and what is wrong with it."""

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(problem)
        self.key = key


class _NotServedError(EndsError):
    """No service serves a storage in a protocol of the mover."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a point says of its ends; ``None`` where it says nothing, or the mover has no such end."""

    source: str | None
    destination: str | None
    client: str | None
    source_service: str | None
    destination_service: str | None

    @property
    def back(self) -> Asked:
        """The same the other way round."""
        return replace(
            self,
            source=self.destination,
            destination=self.source,
            source_service=self.destination_service,
            destination_service=self.source_service,
        )


@dataclass(frozen=True, slots=True)
class Ends:
    """The host of a mover, and ``service/door`` of each end (``None``: a file of that host)."""

    client: str
    source_via: str | None
    destination_via: str | None


class Router:
    """Finds ends; what was found once is kept, as workloads ask for the same ones again and again.

    ``factors`` are the keys that stand under ``workload.factors``: where a problem lies.
    """

    def __init__(self, scenario: Scenario, factors: Collection[str], parts: ResolvedTestbed) -> None:
        self._storages = scenario.testbed.storage
        self._hosts = scenario.testbed.host
        self._factors = factors
        self._parts = parts
        self._known: dict[tuple[str, Asked], Ends | EndsError] = {}
        self._of_place: dict[str, list[str]] = {}
        for name, service in parts.services.items():
            for place in service.places:
                self._of_place.setdefault(place, []).append(name)

    def ends(self, mover: Mover, asked: Asked) -> Ends:
        """Return the ends of a mover.

        Raises
        ------
        EndsError
            If it cannot reach one of them.
        """
        key = (mover.name, asked)
        if key not in self._known:
            try:
                self._known[key] = self._find(mover, asked)
            except EndsError as error:
                self._known[key] = error
        found = self._known[key]
        if isinstance(found, EndsError):
            raise found
        return found

    def single_ports(self, name: str) -> int | None:
        """Return how many ports a service has that serves one client a port, ``None`` if it is not of that kind."""
        service = self._parts.services.get(name)
        if service is None or not getattr(SERVICES[service.kind], "one_client_a_port", False):
            return None
        return len(service.ports)

    def problem(self, error: EndsError) -> Problem:
        """Return the problem with the place of its key: a factor, or a fixed value."""
        table = ("workload", "factors") if error.key in self._factors else ("workload",)
        return path_text((*table, error.key)), str(error)

    def refusal(self, mover: Mover, options: Mapping[str, OptionValue], ends: Ends) -> Problem | None:
        """Return what a mover would refuse between these ends of the options that it is given, with its place."""
        refusal = getattr(mover, "refusal", None)
        doors = (via.partition("/")[2] if via else None for via in (ends.source_via, ends.destination_via))
        found: tuple[str, str] | None = refusal(options, *doors) if refusal else None
        if found is None:
            return None
        key, problem = found
        if key in options and key not in self._factors:
            return path_text(("workload", "options", key)), problem
        return self.problem(EndsError(key, problem))

    def _find(self, mover: Mover, asked: Asked) -> Ends:
        if asked.client is not None:
            return self._find_from(mover, asked, asked.client)
        usual = self._client(mover, asked)
        try:
            return self._find_from(mover, asked, usual)
        except _NotServedError:
            # Where only the source is served, it is fetched: the mover runs where the copy is to be.
            destination = self._storages.get(asked.destination or "")
            if destination is None or destination.host == usual:
                raise
            with suppress(EndsError):
                return self._find_from(mover, asked, destination.host)
            raise

    def _find_from(self, mover: Mover, asked: Asked, client: str) -> Ends:
        source = self._via(mover, "source", asked, client)
        destination = self._via(mover, "destination", asked, client)
        if not (mover.reads or mover.writes) and mover.speaks and source is None and destination is None:
            destination = self._only_door(mover, "destination", None, client)
        self._check_ways(mover, client, source, destination)
        return Ends(client, source, destination)

    def _client(self, mover: Mover, asked: Asked) -> str:
        """Return the host where a mover runs that is told none: that of its local end, else of its source."""
        source = self._storages.get(asked.source or "")
        destination = self._storages.get(asked.destination or "")
        if source is not None and asked.source_service is None:
            # A storage that several hosts have is read where the copy is to be, if it can be.
            if destination is not None and asked.destination_service is None and on_host(source, destination.host):
                return destination.host if destination.host in source.shared else source.host
            return source.host
        if destination is not None and asked.destination_service is None:
            return destination.host
        if source is not None:
            return source.host
        if mover.speaks:
            raise EndsError("client", f"expected the host that {mover.name} runs on, found nothing")
        return next(iter(self._hosts), "")

    def _via(self, mover: Mover, role: Role, asked: Asked, client: str) -> str | None:
        place, other, service = asked.source, asked.destination, asked.source_service
        if role == "destination":
            place, other, service = other, place, asked.destination_service
        if service is not None:
            return self._door(mover, role, place, service)
        if place is None or place in BUILT_IN_PLACES or on_host(self._storages[place], client):
            return None
        if mover.speaks:
            return self._only_door(mover, role, place, client)
        near = self._storages.get(other or "")
        where = f", where {other} is" if near is not None and on_host(near, client) else ""
        found = f"{place} on {self._storages[place].host}"
        raise EndsError(
            role, f"expected a storage on {client}{where} ({mover.name} moves files within one host), found {found}"
        )

    def _door(self, mover: Mover, role: Role, place: str | None, name: str) -> str:
        """Return the door of a service that is asked for: the first protocol that the mover speaks and the service has."""
        key = f"{role}_service"
        service = self._parts.services[name]
        if not mover.speaks:
            raise EndsError(key, f"expected none ({mover.name} moves files of its own host), found {name}")
        if place is not None and place not in BUILT_IN_PLACES and place not in service.places:
            known = ", ".join(self._serving(place)) or "(there are none)"
            raise EndsError(
                key,
                f"expected one of the services with {place}: {known}, found {name}; storage of a service says what it serves",
            )
        door = next((protocol for protocol in mover.speaks if protocol in service.doors), None)
        if door is None:
            doors = ", ".join(service.doors) or "no door"
            raise EndsError(
                key,
                f"expected a service that {mover.name} can speak with ({', '.join(mover.speaks)}), found {name} with {doors}",
            )
        refusal = self._refusal(role, place, name)
        if refusal is not None:
            takes = "gives" if role == "source" else "takes"
            what = _DEVICES.get(place or "", place)
            raise EndsError(
                key, f"expected a service that {takes} {what}, found {name} of kind {service.kind}: {refusal}"
            )
        return f"{name}/{door}"

    def _refusal(self, role: Role, place: str | None, name: str) -> str | None:
        """Return why a service cannot be this end, ``None`` if it can, or the end is no file and no device."""
        service = self._parts.services[name]
        refusal = getattr(SERVICES[service.kind], "refusal", None)
        if place is None or refusal is None:
            return None
        use: Use = _USES.get(place) or ("read" if role == "source" else "write")
        spec = ServiceSpec(
            name, service.kind, service.host, service.interface or "", service.places, service.options, service.after,
            service.ports,
        )  # fmt: skip
        found: str | None = refusal(spec, use)
        return found

    def _only_door(self, mover: Mover, role: Role, place: str | None, client: str) -> str:
        """Return the door of the one service that serves a storage in a protocol of the mover."""
        able = [
            name
            for name in (self._serving(place) if place is not None else self._parts.services)
            if any(protocol in self._parts.services[name].doors for protocol in mover.speaks)
        ]
        if place is None:
            # A test of the network is with another host, where there is one to talk to.
            able = [name for name in able if self._parts.services[name].host != client] or able
        able = [name for name in able if self._refusal(role, place, name) is None] or able[:1]
        spoken = " or ".join(mover.speaks)
        what = (
            f"that serves {place} by {spoken} ({mover.name} on {client} needs one)"
            if place
            else f"with {spoken} for {mover.name}"
        )
        if not able:
            raise _NotServedError(
                f"{role}_service", f"expected a service {what}, found none; add one under testbed.service"
                + (", or run the mover where the storage is, with client" if place else "")
            )  # fmt: skip
        if len(able) > 1:
            raise EndsError(f"{role}_service", f"expected one service {what}, found {' and '.join(able)}; say which")
        return self._door(mover, role, place, able[0])

    def _serving(self, place: str) -> list[str]:
        return self._of_place.get(place, [])

    def _check_ways(self, mover: Mover, client: str, source: str | None, destination: str | None) -> None:
        """Refuse hosts that must talk and cannot: the client with each service, two services with each other."""
        services = [self._parts.services[via.partition("/")[0]] for via in (source, destination) if via is not None]
        for service in services:
            if not self._way(client, service):
                raise EndsError("client", self._no_way(client, service, f"{mover.name} on {client}"))
        # Which of the two opens the connection depends on the protocol.
        if len(services) == 2 and not (
            self._way(services[0].host, services[1]) or self._way(services[1].host, services[0])
        ):
            raise EndsError(
                "destination_service", self._no_way(services[0].host, services[1], f"{mover.name} between the two")
            )

    def _way(self, host: str, service: Service) -> bool:
        if service.interface is None or host == service.host:
            return host == service.host
        return self._parts.paths.links(host, service.interface) is not None

    def _no_way(self, host: str, service: Service, who: str) -> str:
        assert self._parts.network is not None
        addresses = self._parts.network.interfaces
        own = [interface.address for interface in addresses.values() if interface.host == host]
        reason = ""
        if service.interface is None:
            reason = f" (the service of {service.host} is on its loopback device)"
        elif _private([addresses[service.interface].address]):
            reason = f" ({service.interface} has a private address, and nobody but {service.host} can begin)"
        elif own and _private(own):
            reason = f" ({host} has private addresses alone: it needs a host with nat between)"
        return f"expected a way from {host} to {service.host} for {who}, found none{reason}"


def _private(addresses: Iterable[str]) -> bool:
    return all(address.startswith("192.168.") for address in addresses)
