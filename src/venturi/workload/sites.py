"""Hosts of sites that exchange files with one mover, and their service ports."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import Field

from venturi.errors import UnitError
from venturi.messages import Problem, one_of, path_text
from venturi.mover import Mover, resolve_options
from venturi.mover.base import OptionError
from venturi.plan import Call, Dataset, TransferStep
from venturi.plan.header import OptionValue
from venturi.plan.steps import FactorValue
from venturi.scenario.fields import Rate, ScenarioTable, Text
from venturi.scenario.tools import resolve_movers
from venturi.testbed.network import scaled_bytes
from venturi.units import format_bytes_exact
from venturi.workload.endpoints import EndpointError, EndpointRequest, EndpointResolver, TransferEndpoints
from venturi.workload.streams import draw_bits

if TYPE_CHECKING:
    from venturi.scenario import Scenario
    from venturi.testbed.plan import ResolvedTestbed

__all__ = ["Exchange", "SiteHost", "SiteTable", "build_dataset", "list_site_hosts"]


class SiteTable(ScenarioTable):
    """A participating site with all hosts that have its name."""

    bandwidth: Rate | None = Field(
        None, description="Weight in the selection of partners. Default: the rate of link."
    )
    link: Text | None = Field(
        None,
        description="Access link, for the traffic in the report; the site is the first name in between.",
    )


@dataclass(frozen=True, slots=True)
class SiteHost:
    """Participating host with its site, its storage and the unscaled bandwidth of its site."""

    host: str
    site: str
    storage: str
    weight_bit_per_s: float


def list_site_hosts(
    scenario: Scenario, sites: Mapping[str, SiteTable], parts: ResolvedTestbed, problems: list[Problem]
) -> tuple[SiteHost, ...]:
    """Return the hosts of the sites in the order of the testbed; errors are appended to ``problems``."""
    weights = {name: _weight(scenario, name, part, problems) for name, part in sites.items()}
    found = []
    for host, about in scenario.testbed.host.items():
        if about.site is None or about.site not in sites:
            continue
        storages = [name for name, storage in scenario.testbed.storage.items() if storage.host == host]
        if len(storages) != 1:
            what = f"one storage on {host} of site {about.site}"
            problems.append(
                ("testbed.storage", f"expected {what}, found {', '.join(storages) or 'none'}; change testbed.storage")
            )
            continue
        found.append(SiteHost(host, about.site, storages[0], weights[about.site]))
    for name, part in sites.items():
        where = path_text(("workload", "site", name))
        site_hosts = [machine.host for machine in found if machine.site == name]
        if not site_hosts and not any(host.site == name for host in scenario.testbed.host.values()):
            known = dict.fromkeys(host.site for host in scenario.testbed.host.values() if host.site)
            problems.append((where, one_of("the sites of hosts", known, name)))
        elif site_hosts and part.link in scenario.testbed.link:
            _check_access(scenario, name, part.link, found, parts, problems)
    return tuple(found)


def _weight(scenario: Scenario, name: str, part: SiteTable, problems: list[Problem]) -> float:
    link = scenario.testbed.link.get(part.link or "")
    if part.link is not None and link is None:
        where = path_text(("workload", "site", name, "link"))
        problems.append((where, one_of("the links", scenario.testbed.link, part.link)))
    if part.bandwidth is not None:
        return part.bandwidth
    if link is None:
        where = path_text(("workload", "site", name, "bandwidth"))
        problems.append((where, 'expected a rate such as "34 Mb/s", or the key link, found neither; set one of them'))
        return 1.0
    return max(link.rate)


def _check_access(
    scenario: Scenario,
    name: str,
    link: str,
    machines: list[SiteHost],
    parts: ResolvedTestbed,
    problems: list[Problem],
) -> None:
    """Reject an access link that traffic to other sites does not use, or with the site as its second name."""
    first, second = scenario.testbed.link[link].between
    own = next(machine for machine in machines if machine.site == name)
    for other in machines:
        route = None if other.site == name else parts.paths.links(own.host, other.host)
        if route is None:
            continue
        if not any(used.partition("@")[0] == f"{first}>{second}" for used in route):
            where = path_text(("workload", "site", name, "link"))
            problems.append(
                (where, f"expected a link on the route from {own.host} to {other.host} with {name} first in between, "
                 f'found {link} between "{first}" and "{second}" (route: {", ".join(route)}); use a link of the route')
            )  # fmt: skip
        return


class Exchange:
    """Service ports between hosts, for one mover and one set of options.

    Attributes
    ----------
    call
        Name of the call.
    calls
        Calls for the header.
    """

    def __init__(
        self, scenario: Scenario, mover: str, options: Mapping[str, Any], timeout_s: float, parts: ResolvedTestbed,
        problems: list[Problem],
    ) -> None:  # fmt: skip
        self.call = mover
        self.calls: dict[str, Call] = {}
        self._parts = parts
        self._resolver = EndpointResolver(scenario, (), parts)
        self._mover = _mover(scenario, mover, problems)
        self._problems = problems
        self._endpoints: dict[tuple[str, str, str], tuple[str | None, str | None]] = {}
        self._rates: dict[tuple[str, str], float] = {}
        self.add_call(mover, options, timeout_s)

    def add_call(
        self,
        name: str,
        options: Mapping[str, Any],
        timeout_s: float,
        where: tuple[str, ...] = ("workload", "options"),
    ) -> None:
        """Add a call of the mover with these options; ``where`` is their location in the scenario."""
        if self._mover is None:
            return
        values = _options(self._mover, options, self._problems, where)
        try:
            call = dataclasses.replace(self._mover.call(resolve_options(self._mover, values)), timeout_s=timeout_s)
            self.calls[name] = call
        except OptionError as error:
            self._problems.append((path_text(where), str(error)))

    def check(self, pairs: Iterable[tuple[SiteHost, SiteHost]]) -> None:
        """Collect the errors of the routes between these hosts, in both directions."""
        for own, partner in pairs:
            self._service_ports(own.host, own.storage, partner.storage)
            self._service_ports(own.host, partner.storage, own.storage)

    def transfer(
        self, own: SiteHost, source: str, destination: str, size_bytes: int, labels: Mapping[str, FactorValue], call: str = "",
    ) -> TransferStep:  # fmt: skip
        """Return a transfer of the host ``own`` between two endpoints, by :attr:`call` or an added call."""
        source_via, destination_via = self._service_ports(
            own.host, source.partition(":")[0], destination.partition(":")[0]
        )
        return TransferStep(
            call or self.call, 0, source, destination, 1, size_bytes, False, labels, source_via, destination_via
        )

    def fastest_bit_per_s(self, origin: SiteHost, to: SiteHost) -> float:
        """Return an upper limit of the rate between two hosts: the slowest link of the route, at its highest rate.

        It is infinite without a network, because the rate between existing hosts is unknown.
        """
        network = self._parts.network
        key = (origin.host, to.host)
        if key not in self._rates:
            widest: dict[str, float] = {}
            route = () if network is None else self._parts.paths.links(*key) or ()
            for link in route:
                assert network is not None
                changed = [
                    float(change.set["rate_bit_per_s"])  # type: ignore[arg-type]
                    for change in network.changes
                    if change.link == link and "rate_bit_per_s" in change.set
                ]
                widest[link] = max([network.links[link].rate_bit_per_s, *changed])
            self._rates[key] = min(widest.values(), default=float("inf"))
        return self._rates[key]

    def _service_ports(self, client: str, source: str, destination: str) -> tuple[str | None, str | None]:
        key = (client, source, destination)
        if key not in self._endpoints:
            self._endpoints[key] = self._find(client, source, destination)
        return self._endpoints[key]

    def _find(self, client: str, source: str, destination: str) -> tuple[str | None, str | None]:
        if self._mover is None:
            return None, None
        try:
            endpoints: TransferEndpoints = self._resolver.resolve(
                self._mover, EndpointRequest(source, destination, client, None, None)
            )
        except EndpointError as error:
            problem = ("workload.mover", str(error))
            if problem not in self._problems:
                self._problems.append(problem)
            return None, None
        return endpoints.source_via, endpoints.destination_via


def _mover(scenario: Scenario, name: str, problems: list[Problem]) -> Mover | None:
    known = resolve_movers(scenario)[0]
    candidates = {key: mover for key, mover in known.items() if mover.reads and mover.writes}
    if name not in candidates:
        problems.append(("workload.mover", one_of("the movers that copy files", candidates, name)))
        return None
    return candidates[name]


def _options(
    mover: Mover, written: Mapping[str, Any], problems: list[Problem], at: tuple[str, ...] = ("workload", "options")
) -> dict[str, OptionValue]:
    known = {option.name: option for option in mover.options}
    found: dict[str, OptionValue] = {}
    for name, value in written.items():
        where = path_text((*at, name))
        if name not in known:
            problems.append((where, one_of(f"the options of {mover.name}", known, name)))
            continue
        try:
            found[name] = known[name].parse(value)
        except UnitError as error:
            problems.append((where, str(error)))
    return found


def build_dataset(scenario: Scenario, storage: str, size_bytes: int, files: int = 1) -> Dataset:
    """Return a dataset of equal files on a storage; ``size_bytes`` is unscaled."""
    scaled = scaled_bytes(size_bytes, scenario.scale)
    word = format_bytes_exact(scaled).replace(" ", "")
    seed = draw_bits(scenario.seed, "dataset", word, bits=53)
    return Dataset(storage, f"sets/seed{scenario.seed}/{word}", files, scaled, seed)
