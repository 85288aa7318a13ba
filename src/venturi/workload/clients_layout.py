"""Who fetches from whom in the workload ``clients``: points, pairs of interfaces, calls."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from venturi.errors import UnitError
from venturi.mover import Mover, resolve_options
from venturi.mover.base import OptionError
from venturi.plan import Call, Dataset, Service
from venturi.plan.header import OptionValue
from venturi.plan.steps import FactorValue
from venturi.plan.words import shown
from venturi.scenario.expression import Expression, ExpressionError, Quantity, parse_expression
from venturi.scenario.tools import movers_of
from venturi.scenario.words import Problem, one_of, path_text
from venturi.testbed.network import host_name
from venturi.workload.design import MAX_TRIALS
from venturi.workload.sites import data_set

if TYPE_CHECKING:
    from venturi.scenario import Scenario
    from venturi.testbed.plan import ResolvedTestbed
    from venturi.workload.clients import Clients, Group

__all__ = ["FACTORS", "MAX_CLIENTS", "Cell", "Fetcher", "Layout", "lay_out"]

FACTORS = ("group", "pairing", "clients", "mover")
PAIRINGS = ("one to one", "all to all")
MAX_CLIENTS = 100_000
"""On one host: more than this no load generator of one thread keeps busy."""
MAX_PROCESSES = 10_000
"""Of a mover that is one client a process: more than this no host starts together."""
OBJECT = "object"
"""Name of the data set."""


@dataclass(frozen=True, slots=True)
class Fetcher:
    """Clients of one host that use one interface of one server: ``count`` times ``call``.

    ``labels`` tell the service and both interfaces.
    """

    call: str
    count: int
    source_via: str
    labels: Mapping[str, FactorValue]


@dataclass(frozen=True, slots=True)
class Cell:
    """One point: for each client host its fetchers. ``alone``: one process is all clients of a fetcher."""

    fetchers: Mapping[str, tuple[Fetcher, ...]]
    alone: bool
    factors: Mapping[str, FactorValue]


@dataclass(frozen=True, slots=True)
class Layout:
    """The cells by number of point, and what they refer to. ``services``: those that some cell needs."""

    cells: tuple[Cell, ...]
    calls: Mapping[str, Call]
    dataset: Dataset
    services: Mapping[str, Service]


@dataclass(frozen=True, slots=True)
class _Point:
    group: str
    pairing: str
    clients: int
    mover: Mover


def lay_out(scenario: Scenario, clients: Clients, parts: ResolvedTestbed, problems: list[Problem]) -> Layout | None:
    """Return the points resolved, or ``None`` with what is wrong appended to ``problems``."""
    before = len(problems)
    _check_bounds(clients, problems)
    _check_groups(scenario, clients, parts, problems)
    if clients.source not in scenario.testbed.storage:
        problems.append(("workload.source", one_of("the storages", scenario.testbed.storage, clients.source)))
    points = _points(scenario, clients, problems)
    if len(problems) > before:
        return None
    maker = _Cells(scenario, clients, parts, problems)
    cells = tuple(maker.cell(point) for point in points)
    if len(problems) > before:
        return None
    return Layout(cells, maker.calls, data_set(scenario, clients.source, clients.size), maker.needed_services())


def _check_bounds(clients: Clients, problems: list[Problem]) -> None:
    if (clients.duration is None) == (clients.fetches is None):
        found = "neither" if clients.duration is None else "both"
        problems.append(("workload.duration", f"expected duration, or fetches (of each client), found {found}"))
    if clients.duration is not None and clients.ramp >= clients.duration:
        problems.append(
            ("workload.ramp", f"expected less than duration ({clients.duration:g} s), found {clients.ramp:g} s")
        )


def _check_groups(scenario: Scenario, clients: Clients, parts: ResolvedTestbed, problems: list[Problem]) -> None:
    if not clients.group:
        problems.append(("workload.group", "expected a group of servers, found none"))
    reserved = (*FACTORS, "clients_per_nic", "size_bytes")
    for name, group in clients.group.items():
        where = path_text(("workload", "group", name))
        for index, service in enumerate(group.services):
            if service not in parts.services:
                problems.append((f"{where}.services[{index}]", one_of("the services", parts.services, service)))
            elif not {"http-proxy", "http"} & set(parts.services[service].doors):
                kind = parts.services[service].kind
                problems.append(
                    (
                        f"{where}.services[{index}]",
                        f"expected a proxy or a server for HTTP, found {service} of kind {kind}",
                    )
                )
        for index, host in enumerate(group.clients):
            if host not in scenario.testbed.host:
                problems.append((f"{where}.clients[{index}]", one_of("the hosts", scenario.testbed.host, host)))
        problems += [
            (f"{where}.labels.{label}", f"expected a name other than {', '.join(reserved)}, found {label}")
            for label in group.labels
            if label in reserved
        ]


def _points(scenario: Scenario, clients: Clients, problems: list[Problem]) -> list[_Point]:
    """Return the combinations that pass all filters; the last factor varies fastest."""
    before = len(problems)
    movers = {name: mover for name, mover in movers_of(scenario)[0].items() if mover.reads and "http" in mover.speaks}
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
                _Point(str(one["group"]), str(one["pairing"]), cast(int, one["clients"]), movers[str(one["mover"])])
            )
        if len(problems) > before:
            return []
    if not found:
        problems.append(("workload.filter", "expected filters that leave a point, found none that passes all"))
    if len(found) * clients.repeat * max((len(g.clients) for g in clients.group.values()), default=1) > MAX_TRIALS:
        problems.append(("workload.repeat", f"expected at most {MAX_TRIALS} trials in all, found more"))
    return found


def _values(clients: Clients, name: str, movers: Mapping[str, Mover], problems: list[Problem]) -> list[str | int]:
    where = path_text(("workload", "factors", name)) if name in clients.factors else f"workload.{name}"
    given: Any = clients.factors.get(name, getattr(clients, name))
    if name == "group" and name not in clients.factors:
        return list(clients.group)
    if name not in clients.factors:
        given = [given]
    if not isinstance(given, (list, tuple)) or not given or len({shown(value) for value in given}) < len(given):
        problems.append((where, f"expected distinct values, one or more, found {shown(given)}"))
        return []
    for index, value in enumerate(given):
        here = f"{where}[{index}]" if name in clients.factors else where
        wrong = _wrong_value(name, value, clients, movers)
        if wrong:
            problems.append((here, wrong))
    return list(given)


def _wrong_value(name: str, value: object, clients: Clients, movers: Mapping[str, Mover]) -> str | None:
    if name == "clients":
        good = type(value) is int and 1 <= value <= MAX_CLIENTS
        return None if good else f"expected a whole number, 1 to {MAX_CLIENTS}, found {shown(value)}"
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
    rules: list[tuple[str, Expression, str]], one: Mapping[str, str | int], group: Group, problems: list[Problem]
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
                (where, f"expected labels that every group has, found that {one['group']} has no {missing[0]}")
            )
            return False
        try:
            if not rule.holds(operands):
                return False
        except ExpressionError as error:
            problems.append((where, str(error)))
            return False
    return True


def _each(clients: float, ways: int) -> tuple[int, bool]:
    """Return how many clients a way has, and whether it is that many exactly, and some."""
    exact = clients / max(ways, 1)
    # A scale such as 0.04 is no binary number: 3000 times it is 120 but for the last bit.
    return max(1, round(exact)), round(exact) >= 1 and abs(exact - round(exact)) < 1e-6 * exact


class _Cells:
    """Makes the cell of each point."""

    def __init__(self, scenario: Scenario, clients: Clients, parts: ResolvedTestbed, problems: list[Problem]) -> None:
        self._clients, self._parts, self._problems = clients, parts, problems
        self.calls: dict[str, Call] = {}
        self._used: set[str] = set()
        self._origin = self._find_origin(scenario)
        interfaces = parts.network.interfaces if parts.network is not None else {}
        self._devices: dict[str, list[str]] = {}
        for interface in interfaces.values():
            self._devices.setdefault(interface.host, []).append(interface.device)

    def needed_services(self) -> dict[str, Service]:
        """Return the services that cells use, and those that these need: others need not be started."""
        needed, left = set[str](), list(self._used)
        while left:
            name = left.pop()
            if name not in needed:
                needed.add(name)
                left += self._parts.services[name].after
        return {name: service for name, service in self._parts.services.items() if name in needed}

    def cell(self, point: _Point) -> Cell:
        """Return the cell of a point; what is wrong with it is noted."""
        group = self._clients.group[point.group]
        alone = any(option.name == "clients" for option in point.mover.options)
        fetchers, each = {}, 0
        for index, host in enumerate(group.clients):
            ways = list(self._ways(point, group, host, index))
            number = point.clients * self._clients.clients_scale
            each, whole = _each(number, len(ways))
            if ways and not whole:
                self._note(
                    "clients",
                    f"expected a multiple of {len(ways)} (interfaces of the servers that {host} talks with {point.pairing}), "
                    f"found {number:g}",
                )
            if not alone and number > MAX_PROCESSES:
                self._note(
                    "clients",
                    f"expected at most {MAX_PROCESSES} ({point.mover.name} is a process each), found {number:g}; "
                    "http-load is many clients in one process",
                )
            fetchers[host] = tuple(
                Fetcher(self._call(point.mover, proxy, bind, each if alone else None), each, via, labels)
                for proxy, bind, via, labels in ways
            )
        factors: dict[str, FactorValue] = {
            "group": point.group, **group.labels, "pairing": point.pairing, "clients": point.clients, "clients_per_nic": each,
            "mover": point.mover.name,
        }  # fmt: skip
        return Cell(fetchers, alone, factors)

    def _ways(
        self, point: _Point, group: Group, host: str, index: int
    ) -> Iterator[tuple[str | None, str | None, str, dict[str, FactorValue]]]:
        """Yield proxy, own interface, way to the object and labels for each interface of each server of a client host."""
        services: tuple[str, ...] = group.services
        if point.pairing == "one to one":
            if len(group.clients) != len(services):
                found = f"{len(services)} services for {len(group.clients)} client hosts"
                self._note(
                    "pairing",
                    f"expected as many services as client hosts for one to one, found {found} in {point.group}",
                )
                return
            services = (services[index],)
        own = self._devices.get(host, [])
        for name in services:
            service = self._parts.services[name]
            self._used.add(name)
            proxied = "http-proxy" in service.doors
            devices = self._serving(service, proxied)
            for number, device in enumerate(devices):
                device_there = f"{service.host}.{device}" if device else None
                if device_there is not None and self._parts.paths.links(host, device_there) is None:
                    self._note("group", f"expected a way from {host} to {device_there} for {name}, found none")
                # The same number of clients on each of its own interfaces: the n-th talks with the n-th there.
                near = own[number % len(own)] if own else None
                bind = self._name(host, near) if near is not None and len(own) > 1 else None
                labels: dict[str, FactorValue] = {"service": name, "server_nic": device, "client_nic": near}
                if proxied:
                    far = self._name(service.host, device) if device else "localhost"
                    yield f"http://{far}:{service.ports[0]}", bind, self._origin or "", labels
                else:
                    yield None, bind, f"{name}/http", labels

    def _serving(self, service: Service, proxied: bool) -> list[str | None]:
        if service.interface is None:
            return [None]
        if proxied and service.options.get("all_interfaces"):
            return list(self._devices[service.host])
        return [service.interface.partition(".")[2]]

    def _name(self, host: str, device: str) -> str:
        # The first interface has the name of the host.
        return host_name(host, None if self._devices[host][0] == device else device)

    def _find_origin(self, scenario: Scenario) -> str | None:
        """Return the way to the object for proxies: ``service/http``."""
        clients, services = self._clients, self._parts.services
        proxies = {
            name
            for group in clients.group.values()
            for name in group.services
            if "http-proxy" in services[name].doors
        }
        if not proxies:
            return None
        able = [
            name for name, service in services.items() if clients.source in service.places and "http" in service.doors
        ]
        asked = clients.source_service
        if asked is not None and asked not in able:
            self._problems.append(
                ("workload.source_service", one_of(f"the services with {clients.source} over HTTP", able, asked))
            )
            return None
        if asked is None and len(able) != 1:
            found = " and ".join(able) or "none"
            self._problems.append(
                (
                    "workload.source_service",
                    f"expected the one service with {clients.source} over HTTP, found {found}; say which",
                )
            )
            return None
        name = asked or able[0]
        self._used.add(name)
        return f"{name}/http"

    def _call(self, mover: Mover, proxy: str | None, bind: str | None, count: int | None) -> str:
        clients = self._clients
        given = self._options(mover)
        own: dict[str, OptionValue] = {"proxy": proxy, "bind": bind}
        if count is not None:
            own |= {"clients": count, "duration": clients.duration, "fetches": clients.fetches}
            own |= {"ramp": clients.ramp or None, "think": clients.think or None}
        known = {option.name for option in mover.options}
        for name, value in own.items():
            if value is not None and name not in known:
                self._note("mover", f"expected a mover with the option {name}, which this needs, found {mover.name}")
        given |= {name: value for name, value in own.items() if value is not None and name in known}
        parts = [
            f"{name}={value}"
            for name, value in own.items()
            if value is not None and name in ("proxy", "bind", "clients")
        ]
        call_name = ",".join([mover.name, *parts])
        if call_name not in self.calls:
            try:
                call = mover.call(resolve_options(mover, given))
                self.calls[call_name] = dataclasses.replace(call, timeout_s=clients.timeout, expect="nothing")
            except OptionError as error:
                self._note("options", str(error))
        return call_name

    def _options(self, mover: Mover) -> dict[str, OptionValue]:
        known = {option.name: option for option in mover.options}
        found: dict[str, OptionValue] = {}
        for name, value in self._clients.options.items():
            if name not in known:
                self._note("options", one_of(f"the options of {mover.name}", known, name))
                continue
            try:
                found[name] = known[name].parse(value)
            except UnitError as error:
                self._note("options", f"{name}: {error}")
        return found

    def _note(self, key: str, problem: str) -> None:
        where = path_text(("workload", "factors", key)) if key in self._clients.factors else f"workload.{key}"
        if (where, problem) not in self._problems:
            self._problems.append((where, problem))
