"""Resolution of the workload ``clients``: design points, pairs of interfaces, calls."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from venturi.errors import UnitError
from venturi.messages import Problem, one_of, path_text, quote_value
from venturi.mover import Mover, resolve_options
from venturi.mover.base import OptionError
from venturi.plan import Call, Dataset, PlanService
from venturi.plan.header import OptionValue
from venturi.plan.steps import FactorValue
from venturi.scenario.expression import Expression, ExpressionError, Quantity, parse_expression
from venturi.scenario.tools import resolve_movers
from venturi.testbed.network import host_name
from venturi.workload.design import MAX_TRIALS
from venturi.workload.sites import build_dataset

if TYPE_CHECKING:
    from venturi.scenario import Scenario
    from venturi.testbed.plan import ResolvedTestbed
    from venturi.workload.clients import ClientGroup, Clients

__all__ = ["FACTORS", "MAX_CLIENTS", "ClientsLayout", "ClientsPoint", "Fetcher", "resolve_clients"]

FACTORS = ("group", "pairing", "clients", "mover")
PAIRINGS = ("one to one", "all to all")
MAX_CLIENTS = 100_000
"""Maximum number of clients on one host, limited by a load generator with one thread."""
MAX_PROCESSES = 10_000
"""Maximum number of processes on one host, for a mover with one client per process."""
OBJECT = "object"
"""Name of the dataset."""


@dataclass(frozen=True, slots=True)
class Fetcher:
    """Clients of one host that use one interface of one server: ``count`` times ``call``.

    ``labels`` contain the service and both interfaces.
    """

    call: str
    count: int
    source_via: str
    labels: Mapping[str, FactorValue]


@dataclass(frozen=True, slots=True)
class ClientsPoint:
    """One resolved point: the fetchers of each client host. ``one_process``: one process runs all clients of a fetcher."""

    fetchers: Mapping[str, tuple[Fetcher, ...]]
    one_process: bool
    factors: Mapping[str, FactorValue]


@dataclass(frozen=True, slots=True)
class ClientsLayout:
    """Resolved points by number, with their calls and dataset. ``services`` are the services that the points need."""

    resolved_points: tuple[ClientsPoint, ...]
    calls: Mapping[str, Call]
    dataset: Dataset
    services: Mapping[str, PlanService]


@dataclass(frozen=True, slots=True)
class _PointFactors:
    group: str
    pairing: str
    clients: int
    mover: Mover


def resolve_clients(
    scenario: Scenario, clients: Clients, parts: ResolvedTestbed, problems: list[Problem]
) -> ClientsLayout | None:
    """Return the resolved points, or ``None`` after errors, which are appended to ``problems``."""
    before = len(problems)
    _check_bounds(clients, problems)
    _check_groups(scenario, clients, parts, problems)
    if clients.source not in scenario.testbed.storage:
        problems.append(("workload.source", one_of("the storages", scenario.testbed.storage, clients.source)))
    points = _points(scenario, clients, problems)
    if len(problems) > before:
        return None
    resolver = _ClientsPointResolver(scenario, clients, parts, problems)
    resolved_points = tuple(resolver.resolve(point) for point in points)
    if len(problems) > before:
        return None
    return ClientsLayout(
        resolved_points,
        resolver.calls,
        build_dataset(scenario, clients.source, clients.size),
        resolver.needed_services(),
    )


def _check_bounds(clients: Clients, problems: list[Problem]) -> None:
    if (clients.duration is None) == (clients.fetches is None):
        found = "neither" if clients.duration is None else "both"
        problems.append(("workload.duration", f"expected duration or fetches, found {found}; set one of them"))
    if clients.duration is not None and clients.ramp >= clients.duration:
        problems.append(
            (
                "workload.ramp",
                f"expected less than duration ({clients.duration:g} s), found {clients.ramp:g} s; use a shorter ramp",
            )
        )


def _check_groups(scenario: Scenario, clients: Clients, parts: ResolvedTestbed, problems: list[Problem]) -> None:
    if not clients.group:
        problems.append(
            ("workload.group", "expected a group of servers, found none; add a table [workload.group.NAME]")
        )
    reserved = (*FACTORS, "clients_per_nic", "size_bytes")
    for name, group in clients.group.items():
        where = path_text(("workload", "group", name))
        for index, service in enumerate(group.services):
            if service not in parts.services:
                problems.append((f"{where}.services[{index}]", one_of("the services", parts.services, service)))
            elif not {"http-proxy", "http"} & set(parts.services[service].service_ports):
                kind = parts.services[service].kind
                problems.append(
                    (
                        f"{where}.services[{index}]",
                        f"expected a proxy or an HTTP server, found {service} of kind {kind}; name another service",
                    )
                )
        for index, host in enumerate(group.clients):
            if host not in scenario.testbed.host:
                problems.append((f"{where}.clients[{index}]", one_of("the hosts", scenario.testbed.host, host)))
        problems += [
            (
                f"{where}.labels.{label}",
                f"expected a name other than {', '.join(reserved)}, found {label}; choose another label",
            )
            for label in group.labels
            if label in reserved
        ]


def _points(scenario: Scenario, clients: Clients, problems: list[Problem]) -> list[_PointFactors]:
    """Return the combinations that pass all filters; the last factor changes first."""
    before = len(problems)
    movers = {
        name: mover
        for name, mover in resolve_movers(scenario)[0].items()
        if mover.reads and "http" in mover.protocols
    }
    values = {name: _values(clients, name, movers, problems) for name in FACTORS}
    problems += [
        (path_text(("workload", "factors", name)), one_of("the factors", FACTORS, name))
        for name in clients.factors
        if name not in FACTORS
    ]
    rules = _rules(clients, problems)
    if len(problems) > before:
        return []
    order = [name for name in clients.factors if name in FACTORS]
    order += [name for name in FACTORS if name not in order]
    found = []
    for combination in itertools.product(*(values[name] for name in order)):
        one = dict(zip(order, combination, strict=True))
        if _holds(rules, one, clients.group[str(one["group"])], problems):
            found.append(
                _PointFactors(
                    str(one["group"]), str(one["pairing"]), cast(int, one["clients"]), movers[str(one["mover"])]
                )
            )
        if len(problems) > before:
            return []
    if not found:
        problems.append(
            ("workload.filter", "expected at least one point that passes all filters, found none; change a filter")
        )
    if len(found) * clients.repeat * max((len(g.clients) for g in clients.group.values()), default=1) > MAX_TRIALS:
        problems.append(
            (
                "workload.repeat",
                f"expected at most {MAX_TRIALS} trials in total, found more; reduce repeat or the factors",
            )
        )
    return found


def _values(clients: Clients, name: str, movers: Mapping[str, Mover], problems: list[Problem]) -> list[str | int]:
    where = path_text(("workload", "factors", name)) if name in clients.factors else f"workload.{name}"
    written: Any = clients.factors.get(name, getattr(clients, name))
    if name == "group" and name not in clients.factors:
        return list(clients.group)
    if name not in clients.factors:
        written = [written]
    if (
        not isinstance(written, (list, tuple))
        or not written
        or len({quote_value(value) for value in written}) < len(written)
    ):
        problems.append(
            (
                where,
                f"expected one or more distinct values, found {quote_value(written)}; write a list without duplicates",
            )
        )
        return []
    for index, value in enumerate(written):
        item_path = f"{where}[{index}]" if name in clients.factors else where
        wrong = _wrong_value(name, value, clients, movers)
        if wrong:
            problems.append((item_path, wrong))
    return list(written)


def _wrong_value(name: str, value: object, clients: Clients, movers: Mapping[str, Mover]) -> str | None:
    if name == "clients":
        good = type(value) is int and 1 <= value <= MAX_CLIENTS
        return (
            None
            if good
            else f"expected a whole number from 1 to {MAX_CLIENTS}, found {quote_value(value)}; change the number"
        )
    known = {"group": tuple(clients.group), "pairing": PAIRINGS, "mover": tuple(movers)}[name]
    what = {"group": "the groups", "pairing": "the pairings", "mover": "the movers that read over HTTP"}[name]
    return None if value in known else one_of(what, known, value)


def _rules(clients: Clients, problems: list[Problem]) -> list[tuple[str, Expression, str]]:
    known = tuple(dict.fromkeys((*FACTORS, *(label for group in clients.group.values() for label in group.labels))))
    found = []
    for index, text in enumerate(clients.filter):
        where = f"workload.filter[{index}]"
        try:
            rule = parse_expression(text)
        except ExpressionError as error:
            problems.append((where, str(error)))
            continue
        unknown = [name for name in rule.names if name not in known]
        problems += [(where, one_of("the factors and labels", known, name)) for name in unknown]
        found.append((where, rule, text))
    return found


def _holds(
    rules: list[tuple[str, Expression, str]],
    one: Mapping[str, str | int],
    group: ClientGroup,
    problems: list[Problem],
) -> bool:
    named: dict[str, Any] = {**group.labels, **one}
    operands = {
        name: Quantity(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else value
        for name, value in named.items()
    }
    for where, rule, _ in rules:
        missing = [name for name in rule.names if name not in operands]
        if missing:
            problems.append(
                (
                    where,
                    f"expected labels of every group, found group {one['group']} without {missing[0]}; add the label",
                )
            )
            return False
        try:
            if not rule.holds(operands):
                return False
        except ExpressionError as error:
            problems.append((where, str(error)))
            return False
    return True


def _each(clients: float, routes: int) -> tuple[int, bool]:
    """Return the number of clients of a route, and whether the clients divide evenly."""
    exact = clients / max(routes, 1)
    # A scale such as 0.04 is inexact in binary: 3000 × 0.04 differs from 120 in the last bit.
    return max(1, round(exact)), round(exact) >= 1 and abs(exact - round(exact)) < 1e-6 * exact


@dataclass(frozen=True, slots=True)
class _Proxy:
    """Proxy of a client: its URL in the lab, and its service port, whose URL replaces it at the start of the service."""

    url: str
    service_port: str | None


class _ClientsPointResolver:
    """Resolves the points."""

    def __init__(self, scenario: Scenario, clients: Clients, parts: ResolvedTestbed, problems: list[Problem]) -> None:
        self._clients, self._parts, self._problems = clients, parts, problems
        self.calls: dict[str, Call] = {}
        self._used: set[str] = set()
        self._origin = self._find_origin(scenario)
        interfaces = parts.network.interfaces if parts.network is not None else {}
        self._devices: dict[str, list[str]] = {}
        for interface in interfaces.values():
            self._devices.setdefault(interface.host, []).append(interface.device)

    def needed_services(self) -> dict[str, PlanService]:
        """Return the services of the points and their dependencies."""
        needed, left = set[str](), list(self._used)
        while left:
            name = left.pop()
            if name not in needed:
                needed.add(name)
                left += self._parts.services[name].after
        return {name: service for name, service in self._parts.services.items() if name in needed}

    def resolve(self, point: _PointFactors) -> ClientsPoint:
        """Return the resolved point; errors are appended to the problems."""
        group = self._clients.group[point.group]
        one_process = any(option.name == "clients" for option in point.mover.options)
        fetchers, each = {}, 0
        for index, host in enumerate(group.clients):
            routes = list(self._routes(point, group, host, index))
            number = point.clients * self._clients.clients_scale
            each, divides = _each(number, len(routes))
            if routes and not divides:
                self._add_problem(
                    "clients",
                    f"expected a multiple of {len(routes)} (interfaces of the servers of {host}, {point.pairing}), "
                    f"found {number:g}; change clients or clients_scale",
                )
            if not one_process and number > MAX_PROCESSES:
                self._add_problem(
                    "clients",
                    f"expected at most {MAX_PROCESSES} ({point.mover.name} runs one process per client), found {number:g}; "
                    "use http-load, which runs many clients in one process",
                )
            fetchers[host] = tuple(
                Fetcher(self._call(point.mover, proxy, bind, each if one_process else None), each, via, labels)
                for proxy, bind, via, labels in routes
            )
        factors: dict[str, FactorValue] = {
            "group": point.group, **group.labels, "pairing": point.pairing, "clients": point.clients, "clients_per_nic": each,
            "mover": point.mover.name,
        }  # fmt: skip
        return ClientsPoint(fetchers, one_process, factors)

    def _routes(
        self, point: _PointFactors, group: ClientGroup, host: str, index: int
    ) -> Iterator[tuple[_Proxy | None, str | None, str, dict[str, FactorValue]]]:
        """Yield proxy, local interface, service port and labels for each interface of each server of a client host."""
        services: tuple[str, ...] = group.services
        if point.pairing == "one to one":
            if len(group.clients) != len(services):
                found = f"{len(services)} services for {len(group.clients)} client hosts"
                self._add_problem(
                    "pairing",
                    f"expected equal numbers of services and client hosts, found {found} in {point.group}; use all to all",
                )
                return
            services = (services[index],)
        own = self._devices.get(host, [])
        for name in services:
            service = self._parts.services[name]
            self._used.add(name)
            proxied = "http-proxy" in service.service_ports
            devices = self._serving(service, proxied)
            for number, device in enumerate(devices):
                remote_device = f"{service.host}.{device}" if device else None
                if remote_device is not None and self._parts.paths.links(host, remote_device) is None:
                    self._add_problem(
                        "group", f"expected a route from {host} to {remote_device} for {name}, found none; add a link"
                    )
                # Distribute clients evenly over the local interfaces: the n-th connects to the n-th remote interface.
                near = own[number % len(own)] if own else None
                bind = self._name(host, near) if near is not None and len(own) > 1 else None
                labels: dict[str, FactorValue] = {"service": name, "server_nic": device, "client_nic": near}
                if proxied:
                    yield self._proxy(name, service, host, device), bind, self._origin or "", labels
                else:
                    yield None, bind, f"{name}/http", labels

    def _serving(self, service: PlanService, proxied: bool) -> list[str | None]:
        if service.interface is None:
            return [None]
        if proxied and service.options.get("all_interfaces") and service.host is not None:
            return list(self._devices[service.host])
        return [service.interface.partition(".")[2]]

    def _proxy(self, name: str, service: PlanService, client: str, device: str | None) -> _Proxy:
        """Return a proxy at an interface of its host, for clients on the host ``client``."""
        if service.host is None:
            return _Proxy(service.service_ports["http-proxy"], None)
        if device is not None:
            address = self._name(service.host, device)
        else:
            address = "localhost" if client == service.host else host_name(service.host)
        # The service port has the address of the interface that the service listens on, not of further interfaces.
        is_own = device is None or service.interface == f"{service.host}.{device}"
        return _Proxy(f"http://{address}:{service.ports[0]}", f"{name}/http-proxy" if is_own else None)

    def _name(self, host: str, device: str) -> str:
        # The first interface has the name of the host.
        return host_name(host, None if self._devices[host][0] == device else device)

    def _find_origin(self, scenario: Scenario) -> str | None:
        """Return the origin of the proxies as ``service/http``."""
        clients, services = self._clients, self._parts.services
        proxies = {
            name
            for group in clients.group.values()
            for name in group.services
            if "http-proxy" in services[name].service_ports
        }
        if not proxies:
            return None
        candidates = [
            name
            for name, service in services.items()
            if clients.source in service.storages and "http" in service.service_ports
        ]
        requested = clients.source_service
        if requested is not None and requested not in candidates:
            self._problems.append(
                (
                    "workload.source_service",
                    one_of(f"the services with {clients.source} over HTTP", candidates, requested),
                )
            )
            return None
        if requested is None and len(candidates) != 1:
            found = " and ".join(candidates) or "none"
            self._problems.append(
                (
                    "workload.source_service",
                    f"expected one service with {clients.source} over HTTP, found {found}; set source_service",
                )
            )
            return None
        name = requested or candidates[0]
        self._used.add(name)
        return f"{name}/http"

    def _call(self, mover: Mover, proxy: _Proxy | None, bind: str | None, count: int | None) -> str:
        clients = self._clients
        options = self._options(mover)
        own: dict[str, OptionValue] = {"proxy": None if proxy is None else proxy.url, "bind": bind}
        if count is not None:
            own |= {"clients": count, "duration": clients.duration, "fetches": clients.fetches}
            own |= {"ramp": clients.ramp or None, "think": clients.think or None}
        known = {option.name for option in mover.options}
        for name, value in own.items():
            if value is not None and name not in known:
                self._add_problem(
                    "mover", f"expected a mover with the option {name}, found {mover.name}; use another mover"
                )
        options |= {name: value for name, value in own.items() if value is not None and name in known}
        parts = [
            f"{name}={value}"
            for name, value in own.items()
            if value is not None and name in ("proxy", "bind", "clients")
        ]
        call_name = ",".join([mover.name, *parts])
        if call_name not in self.calls:
            try:
                call = mover.call(resolve_options(mover, options))
                urls = {} if proxy is None or proxy.service_port is None else {"proxy": proxy.service_port}
                self.calls[call_name] = dataclasses.replace(
                    call, timeout_s=clients.timeout, expect="nothing", urls=urls
                )
            except OptionError as error:
                self._add_problem("options", str(error))
        return call_name

    def _options(self, mover: Mover) -> dict[str, OptionValue]:
        known = {option.name: option for option in mover.options}
        found: dict[str, OptionValue] = {}
        for name, value in self._clients.options.items():
            if name not in known:
                self._add_problem("options", one_of(f"the options of {mover.name}", known, name))
                continue
            try:
                found[name] = known[name].parse(value)
            except UnitError as error:
                self._add_problem("options", f"{name}: {error}")
        return found

    def _add_problem(self, key: str, problem: str) -> None:
        where = path_text(("workload", "factors", key)) if key in self._clients.factors else f"workload.{key}"
        if (where, problem) not in self._problems:
            self._problems.append((where, problem))
