"""Resolution of endpoints: the host of a mover, and the service ports of source and destination."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from venturi.messages import Problem, path_text
from venturi.mover import Mover
from venturi.mover.table import BUILT_IN
from venturi.plan import PlanService
from venturi.plan.header import BUILT_IN_STORAGES, URL_SERVICE, OptionValue
from venturi.testbed.service_ports import LOOPBACK, on_host
from venturi.testbed.services.base import ServiceSpec, Use
from venturi.testbed.services.table import SERVICES
from venturi.testbed.storage_urls import url_schemes
from venturi.workload.implicit_services import ImplicitServices, suggested_services

if TYPE_CHECKING:
    from venturi.scenario import Scenario
    from venturi.testbed.plan import ResolvedTestbed

__all__ = ["EndpointError", "EndpointRequest", "EndpointResolver", "TransferEndpoints"]

Role: TypeAlias = Literal["source", "destination"]

_USES: Mapping[str, Use] = {"zero": "zero", "null": "null"}
_DEVICES: Mapping[str, str] = {"zero": "/dev/zero", "null": "/dev/null"}

_TOKEN_VARIABLES = ("BEARER_TOKEN", "BEARER_TOKEN_FILE")
_TOKEN_PROTOCOLS = ("http", "https", "davs")


class EndpointError(Exception):
    """Endpoint that a mover cannot reach; ``key`` is the key of the workload."""

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(problem)
        self.key = key


class _NotServedError(EndpointError):
    """No service exports the storage over a protocol of the mover."""


@dataclass(frozen=True, slots=True)
class EndpointRequest:
    """Requested endpoints of a point; ``None`` if not set, or if the mover has no such endpoint."""

    source: str | None
    destination: str | None
    client: str | None
    source_service: str | None
    destination_service: str | None

    @property
    def back(self) -> EndpointRequest:
        """The request in the opposite direction."""
        return replace(
            self,
            source=self.destination,
            destination=self.source,
            source_service=self.destination_service,
            destination_service=self.source_service,
        )


@dataclass(frozen=True, slots=True)
class TransferEndpoints:
    """Host of a mover, and ``service/port`` of each endpoint (``None``: a local file)."""

    client: str
    source_via: str | None
    destination_via: str | None


class EndpointResolver:
    """Resolves endpoints, with a cache for repeated requests.

    ``factors`` are the keys of ``workload.factors``; they determine the location of an error.
    """

    def __init__(self, scenario: Scenario, factors: Collection[str], parts: ResolvedTestbed) -> None:
        self._storages = scenario.testbed.storage
        self._hosts = scenario.testbed.host
        self._factors = factors
        self._parts = parts
        self._written_services = scenario.testbed.service
        self._implicit = ImplicitServices(parts, scenario.testbed.service)
        self._cache: dict[tuple[str, EndpointRequest], TransferEndpoints | EndpointError] = {}
        self._services_by_storage: dict[str, list[str]] = {}
        for name, service in parts.services.items():
            for storage in (
                service.storages if service.kind == URL_SERVICE or not self._implicit.is_implicit(name) else ()
            ):
                self._services_by_storage.setdefault(storage, []).append(name)

    def resolve(self, mover: Mover, request: EndpointRequest) -> TransferEndpoints:
        """Return the resolved endpoints of a mover.

        Raises
        ------
        EndpointError
            If the mover cannot reach one of them.
        """
        destination = self._storages.get(request.destination or "")
        if destination is not None and destination.existing is not None:
            raise EndpointError(
                "destination",
                f"expected a storage for new files, found {request.destination} with existing files, which are never"
                " changed; use another storage",
            )
        key = (mover.name, request)
        if key not in self._cache:
            try:
                self._cache[key] = self._find(mover, request)
            except EndpointError as error:
                self._cache[key] = error
        found = self._cache[key]
        if isinstance(found, EndpointError):
            raise found
        return found

    def single_ports(self, name: str) -> int | None:
        """Return the number of ports of a service with one client per port, ``None`` for other services."""
        service = self._parts.services.get(name)
        if service is None or not getattr(SERVICES.get(service.kind), "single_client_per_port", False):
            return None
        return len(service.ports)

    def to_problem(self, error: EndpointError) -> Problem:
        """Return the error with the location of its key: a factor or a fixed value."""
        table = ("workload", "factors") if error.key in self._factors else ("workload",)
        return path_text((*table, error.key)), str(error)

    def option_conflict(
        self, mover: Mover, options: Mapping[str, OptionValue], endpoints: TransferEndpoints
    ) -> Problem | None:
        """Return the conflict of an option with these endpoints, with its location."""
        find_conflict = getattr(mover, "option_conflict", None)
        service_ports = (
            via.partition("/")[2] if via else None for via in (endpoints.source_via, endpoints.destination_via)
        )
        found: tuple[str, str] | None = find_conflict(options, *service_ports) if find_conflict else None
        if found is None:
            return None
        key, problem = found
        if key in options and key not in self._factors:
            return path_text(("workload", "options", key)), problem
        return self.to_problem(EndpointError(key, problem))

    def sends_token(self, mover: Mover, endpoints: TransferEndpoints) -> bool:
        """Return whether ``environment`` of the mover's host names a bearer token for an existing server of HTTP."""
        host = self._hosts.get(endpoints.client)
        if host is None or not set(host.environment or {}) & set(_TOKEN_VARIABLES):
            return False
        for via in (endpoints.source_via, endpoints.destination_via):
            name, _, protocol = (via or "").partition("/")
            service = self._parts.services.get(name)
            if protocol in _TOKEN_PROTOCOLS and service is not None and service.host is None:
                return True
        return False

    def _find(self, mover: Mover, request: EndpointRequest) -> TransferEndpoints:
        usual = self._client(mover, request) if request.client is None else request.client
        try:
            return self._find_from(mover, request, usual, implicit=False)
        except _NotServedError as error:
            not_served = error
        clients = [usual]
        destination = self._storages.get(request.destination or "")
        if request.client is None and destination is not None and destination.host != usual:
            # If only the source has a service, the mover runs on the destination host.
            clients.append(destination.host)
        attempts = [(client, False) for client in clients[1:]]
        if self._implicit.kind(mover) is not None:
            attempts += [(client, True) for client in clients]
        reported: EndpointError = not_served
        for client, implicit in attempts:
            before = dict(self._parts.services)
            try:
                return self._find_from(mover, request, client, implicit=implicit)
            except EndpointError as error:
                self._implicit.restore(before)
                if implicit and reported is not_served:
                    reported = error
        raise reported

    def _find_from(self, mover: Mover, request: EndpointRequest, client: str, *, implicit: bool) -> TransferEndpoints:
        """Return the endpoints of a mover on the host ``client``; with ``implicit``, add services if necessary."""
        source = self._via(mover, "source", request, client, implicit=implicit)
        destination = self._via(mover, "destination", request, client, implicit=implicit)
        needs_server = getattr(mover, "needs_server", None)
        if (
            request.source in self._storages
            and source is None
            and (needs_server == "source" or (needs_server == "either" and destination is None))
        ):
            source = self._only_service_port(mover, "source", request.source, client, implicit=False)
        if not (mover.reads or mover.writes) and mover.protocols and source is None and destination is None:
            destination = self._only_service_port(mover, "destination", None, client, implicit=False)
        self._check_routes(mover, client, source, destination)
        return TransferEndpoints(client, source, destination)

    def _client(self, mover: Mover, request: EndpointRequest) -> str:
        """Return the default host of a mover: the host of its local endpoint, or of its source."""
        source = self._storages.get(request.source or "")
        destination = self._storages.get(request.destination or "")
        is_local_source = source is not None and request.source_service is None and not source.url
        if source is not None and is_local_source:
            # Read a shared storage on the destination host, if possible.
            if destination is not None and request.destination_service is None and on_host(source, destination.host):
                return destination.host if destination.host in source.shared else source.host
            return source.host
        if destination is not None and request.destination_service is None and not destination.url:
            return destination.host
        if source is not None:
            return source.host
        if destination is not None and destination.url:
            return destination.host
        if mover.protocols:
            raise EndpointError("client", f"expected the host of {mover.name}, found nothing; add workload.client")
        return next(iter(self._hosts), "")

    def _via(self, mover: Mover, role: Role, request: EndpointRequest, client: str, *, implicit: bool) -> str | None:
        storage, other, service = request.source, request.destination, request.source_service
        if role == "destination":
            storage, other, service = other, storage, request.destination_service
        if service is not None:
            return self._service_port(mover, role, storage, service)
        if storage is None or storage in BUILT_IN_STORAGES or on_host(self._storages[storage], client):
            return None
        if self._storages[storage].url:
            self._check_schemes(mover, role, storage)
        if mover.protocols:
            return self._only_service_port(mover, role, storage, client, implicit=implicit)
        near = self._storages.get(other or "")
        where = f", like {other}" if near is not None and on_host(near, client) else ""
        host = self._storages[storage].host
        between_hosts = ", ".join(self._implicit.movers())
        next_step = (
            f"use a mover that copies between hosts: {between_hosts}, or a mover for servers"
            if mover.reads and mover.writes
            else f"set client to {host}, or use a mover for servers"
        )
        raise EndpointError(
            role,
            f"expected a storage on {client}{where} ({mover.name} copies within one host), found {storage} on {host}; {next_step}",
        )

    def _check_schemes(self, mover: Mover, role: Role, storage: str) -> None:
        """Reject a mover that has no protocol of a storage on existing servers."""
        protocols = {
            protocol for name in self._serving(storage) for protocol in self._parts.services[name].service_ports
        }
        if protocols & set(mover.protocols):
            return
        schemes = ", ".join(url_schemes(self._storages[storage]))
        usable = [
            name
            for name, other in BUILT_IN.items()
            if protocols & set(other.protocols) and (other.reads if role == "source" else other.writes)
        ]
        own = f"protocols {', '.join(mover.protocols)}" if mover.protocols else "no protocol"
        raise EndpointError(
            role,
            f"expected a mover for the schemes of {storage} ({schemes}), found {mover.name} with {own};"
            + (f" use {' or '.join(usable)}, or" if usable else "")
            + f" add a URL to testbed.storage.{storage}.url",
        )

    def _service_port(self, mover: Mover, role: Role, storage: str | None, name: str) -> str:
        """Return the port of the requested service: the first protocol of the mover that the service has."""
        key = f"{role}_service"
        service = self._parts.services[name]
        if not mover.protocols:
            raise EndpointError(
                key, f"expected no service ({mover.name} copies local files), found {name}; remove it"
            )
        if storage is not None and storage not in BUILT_IN_STORAGES and storage not in service.storages:
            known = ", ".join(self._serving(storage)) or "(none defined)"
            raise EndpointError(
                key,
                f"expected one of the services with {storage}: {known}, found {name}; add {storage} to storage of {name}",
            )
        service_port = next((protocol for protocol in mover.protocols if protocol in service.service_ports), None)
        if service_port is None:
            service_ports = ", ".join(service.service_ports) or "no port"
            raise EndpointError(
                key,
                f"expected a service with a protocol of {mover.name} ({', '.join(mover.protocols)}), found {name} with {service_ports}; name another service",
            )
        rejection = self._service_rejection(role, storage, name)
        if rejection is not None:
            action = "reads" if role == "source" else "writes"
            what = _DEVICES.get(storage or "", storage)
            raise EndpointError(
                key,
                f"expected a service that {action} {what}, found {name} of kind {service.kind}: {rejection}; use another service",
            )
        return f"{name}/{service_port}"

    def _service_rejection(self, role: Role, storage: str | None, name: str) -> str | None:
        """Return why a service cannot be this endpoint, ``None`` if it can, or without a storage."""
        service = self._parts.services[name]
        find_unsupported = getattr(SERVICES.get(service.kind), "unsupported_use", None)
        if storage is None or find_unsupported is None:
            return None
        use: Use = _USES.get(storage) or ("read" if role == "source" else "write")
        spec = ServiceSpec(
            name, service.kind, service.host or "", service.interface or "", service.storages, service.options, service.after,
            service.ports,
        )  # fmt: skip
        found: str | None = find_unsupported(spec, use)
        return found

    def _only_service_port(
        self, mover: Mover, role: Role, storage: str | None, client: str, *, implicit: bool
    ) -> str:
        """Return the port of the only service that exports a storage over a protocol of the mover.

        With ``implicit``, add a service if there is none.
        """
        candidates = [
            name
            for name in (self._serving(storage) if storage is not None else self._parts.services)
            if any(protocol in self._parts.services[name].service_ports for protocol in mover.protocols)
        ]
        if storage is None:
            # A network test needs another host, if there is one.
            candidates = [name for name in candidates if self._parts.services[name].host != client] or candidates
        candidates = [
            name for name in candidates if self._service_rejection(role, storage, name) is None
        ] or candidates[:1]
        protocol_names = " or ".join(mover.protocols)
        what = (
            f"with {storage} over {protocol_names} for {mover.name} on {client}"
            if storage
            else f"with {protocol_names} for {mover.name}"
        )
        if not candidates:
            added = self._implicit.add(mover, storage) if implicit and storage is not None else None
            if added is not None:
                return self._service_port(mover, role, storage, added)
            suggested = suggested_services(mover)
            kinds = f" of kind {suggested}" if suggested else ""
            raise _NotServedError(
                f"{role}_service", f"expected a service {what}, found none; add one to testbed.service{kinds}"
                + (", or set client to the host of the storage" if storage and not on_host(self._storages[storage], client) else "")
            )  # fmt: skip
        if len(candidates) > 1:
            raise EndpointError(
                f"{role}_service",
                f"expected one service {what}, found {' and '.join(candidates)}; set {role}_service",
            )
        return self._service_port(mover, role, storage, candidates[0])

    def _serving(self, storage: str) -> list[str]:
        return self._services_by_storage.get(storage, [])

    def _check_routes(self, mover: Mover, client: str, source: str | None, destination: str | None) -> None:
        """Reject hosts without a route: between the client and each service, or between two services."""
        services = [self._parts.services[via.partition("/")[0]] for via in (source, destination) if via is not None]
        for service in services:
            if not self._has_route(client, service):
                raise EndpointError("client", self._no_route_message(client, service, f"{mover.name} on {client}"))
        # The protocol determines which of the two services opens the connection.
        if len(services) == 2 and not (
            self._has_route(services[0].host, services[1]) or self._has_route(services[1].host, services[0])
        ):
            raise EndpointError(
                "destination_service",
                self._no_route_message(services[0].host or "", services[1], f"{mover.name} between the two"),
            )

    def _has_route(self, host: str | None, service: PlanService) -> bool:
        """Return whether a host reaches a service. The routes to existing servers are unknown."""
        if host is None or service.host is None or host == service.host:
            return True
        if service.interface is not None:
            return self._parts.paths.links(host, service.interface) is not None
        # Without links, hosts reach each other. With links, the service listens on the loopback interface.
        return not self._parts.has_links and not self._is_on_loopback(service)

    def _is_on_loopback(self, service: PlanService) -> bool:
        return any(
            written.interface == LOOPBACK and self._parts.services.get(name) is service
            for name, written in self._written_services.items()
        )

    def _no_route_message(self, host: str, service: PlanService, user: str) -> str:
        addresses = self._parts.network.interfaces if self._parts.network is not None else {}
        own = [interface.address for interface in addresses.values() if interface.host == host]
        reason = ""
        if service.interface is None:
            reason = f" (the service of {service.host} listens on its loopback interface)"
        elif _private([addresses[service.interface].address]):
            reason = f" ({service.interface} has a private address, and only {service.host} can open connections)"
        elif own and _private(own):
            reason = f" ({host} has only private addresses and needs a host with nat)"
        return f"expected a route from {host} to {service.host} for {user}, found none{reason}; add a link"


def _private(addresses: Iterable[str]) -> bool:
    return all(address.startswith("192.168.") for address in addresses)
