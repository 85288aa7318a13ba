"""Machines at sites that move files among each other with one mover: who they are, and how each reaches the others."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import Field

from venturi.errors import UnitError
from venturi.mover import Mover, resolve_options
from venturi.mover.base import OptionError
from venturi.plan import Call, Dataset, Transfer
from venturi.plan.header import OptionValue
from venturi.plan.steps import FactorValue
from venturi.scenario.fields import Part, Rate, Text
from venturi.scenario.tools import movers_of
from venturi.scenario.words import Problem, one_of, path_text
from venturi.testbed.network import scaled_bytes
from venturi.units import format_bytes_exact
from venturi.workload.ends import Asked, Ends, EndsError, Router
from venturi.workload.streams import draw_bits

if TYPE_CHECKING:
    from venturi.scenario import Scenario
    from venturi.testbed.plan import ResolvedTestbed

__all__ = ["Exchange", "Machine", "SitePart", "data_set", "machines_of"]


class SitePart(Part):
    """A site that takes part: its machines are the hosts that name it."""

    bandwidth: Rate | None = Field(None, description="Weight in the choice of partners; by default the rate of link.")
    link: Text | None = Field(
        None,
        description="Its access link, which stands for its traffic in the report; its end comes first in between.",
    )


@dataclass(frozen=True, slots=True)
class Machine:
    """A host that takes part, where it stands, its storage, and the bandwidth of its site at full scale."""

    host: str
    site: str
    place: str
    weight_bit_per_s: float


def machines_of(
    scenario: Scenario, sites: Mapping[str, SitePart], parts: ResolvedTestbed, problems: list[Problem]
) -> tuple[Machine, ...]:
    """Return the machines of the sites in the order of the hosts; what is wrong is appended to ``problems``."""
    weights = {name: _weight(scenario, name, part, problems) for name, part in sites.items()}
    found = []
    for host, about in scenario.testbed.host.items():
        if about.site is None or about.site not in sites:
            continue
        places = [name for name, storage in scenario.testbed.storage.items() if storage.host == host]
        if len(places) != 1:
            what = f"one storage on {host}, a machine of {about.site}"
            problems.append(("testbed.storage", f"expected {what}, found {', '.join(places) or 'none'}"))
            continue
        found.append(Machine(host, about.site, places[0], weights[about.site]))
    for name, part in sites.items():
        where = path_text(("workload", "site", name))
        here = [machine.host for machine in found if machine.site == name]
        if not here and not any(host.site == name for host in scenario.testbed.host.values()):
            known = dict.fromkeys(host.site for host in scenario.testbed.host.values() if host.site)
            problems.append((where, one_of("the sites that hosts name", known, name)))
        elif here and part.link in scenario.testbed.link:
            _check_access(scenario, name, part.link, found, parts, problems)
    return tuple(found)


def _weight(scenario: Scenario, name: str, part: SitePart, problems: list[Problem]) -> float:
    link = scenario.testbed.link.get(part.link or "")
    if part.link is not None and link is None:
        where = path_text(("workload", "site", name, "link"))
        problems.append((where, one_of("the links", scenario.testbed.link, part.link)))
    if part.bandwidth is not None:
        return part.bandwidth
    if link is None:
        where = path_text(("workload", "site", name, "bandwidth"))
        problems.append((where, 'expected its rate such as "34 Mb/s", or its access link under link, found neither'))
        return 1.0
    return max(link.rate)


def _check_access(
    scenario: Scenario, name: str, link: str, machines: list[Machine], parts: ResolvedTestbed, problems: list[Problem]
) -> None:
    """Refuse an access link that traffic to other sites does not take, or that is written the other way round."""
    first, second = scenario.testbed.link[link].between
    own = next(machine for machine in machines if machine.site == name)
    for other in machines:
        way = None if other.site == name else parts.paths.links(own.host, other.host)
        if way is None:
            continue
        if not any(used.partition("@")[0] == f"{first}>{second}" for used in way):
            where = path_text(("workload", "site", name, "link"))
            problems.append(
                (where, f"expected a link on the way from {own.host} to {other.host}, the end of {name} first in between, "
                 f'found {link} between "{first}" and "{second}" (the way: {", ".join(way)})')
            )  # fmt: skip
        return


class Exchange:
    """How machines reach each other with one mover and one set of options.

    Attributes
    ----------
    call
        Name of the call.
    calls
        For the header.
    """

    def __init__(
        self, scenario: Scenario, mover: str, options: Mapping[str, Any], timeout_s: float, parts: ResolvedTestbed,
        problems: list[Problem],
    ) -> None:  # fmt: skip
        self.call = mover
        self.calls: dict[str, Call] = {}
        self._parts = parts
        self._router = Router(scenario, (), parts)
        self._mover = _mover(scenario, mover, problems)
        self._problems = problems
        self._ends: dict[tuple[str, str, str], tuple[str | None, str | None]] = {}
        self._rates: dict[tuple[str, str], float] = {}
        self.add_call(mover, options, timeout_s)

    def add_call(
        self,
        name: str,
        options: Mapping[str, Any],
        timeout_s: float,
        where: tuple[str, ...] = ("workload", "options"),
    ) -> None:
        """Add a call of the mover with these options; ``where`` they stand in the scenario."""
        if self._mover is None:
            return
        given = _options(self._mover, options, self._problems, where)
        try:
            call = dataclasses.replace(self._mover.call(resolve_options(self._mover, given)), timeout_s=timeout_s)
            self.calls[name] = call
        except OptionError as error:
            self._problems.append((path_text(where), str(error)))

    def check(self, pairs: Iterable[tuple[Machine, Machine]]) -> None:
        """Note what is wrong with the ways between these machines, both up and down; each thing once."""
        for own, partner in pairs:
            self._ways(own.host, own.place, partner.place)
            self._ways(own.host, partner.place, own.place)

    def transfer(
        self, own: Machine, source: str, destination: str, size_bytes: int, labels: Mapping[str, FactorValue], call: str = "",
    ) -> Transfer:  # fmt: skip
        """Return the transfer that ``own`` makes from one endpoint to another; by :attr:`call`, or one that was added."""
        source_via, destination_via = self._ways(own.host, source.partition(":")[0], destination.partition(":")[0])
        return Transfer(
            call or self.call, 0, source, destination, 1, size_bytes, False, labels, source_via, destination_via
        )

    def fastest_bit_per_s(self, origin: Machine, to: Machine) -> float:
        """Return the rate that nothing from one machine to another can exceed: of its narrowest link at its widest.

        Infinite without a network: what hosts that exist can do is not known.
        """
        network = self._parts.network
        key = (origin.host, to.host)
        if key not in self._rates:
            widest: dict[str, float] = {}
            way = () if network is None else self._parts.paths.links(*key) or ()
            for link in way:
                assert network is not None
                changed = [
                    float(change.set["rate_bit_per_s"])  # type: ignore[arg-type]
                    for change in network.changes
                    if change.link == link and "rate_bit_per_s" in change.set
                ]
                widest[link] = max([network.links[link].rate_bit_per_s, *changed])
            self._rates[key] = min(widest.values(), default=float("inf"))
        return self._rates[key]

    def _ways(self, client: str, source: str, destination: str) -> tuple[str | None, str | None]:
        key = (client, source, destination)
        if key not in self._ends:
            self._ends[key] = self._find(client, source, destination)
        return self._ends[key]

    def _find(self, client: str, source: str, destination: str) -> tuple[str | None, str | None]:
        if self._mover is None:
            return None, None
        try:
            ends: Ends = self._router.ends(self._mover, Asked(source, destination, client, None, None))
        except EndsError as error:
            problem = ("workload.mover", str(error))
            if problem not in self._problems:
                self._problems.append(problem)
            return None, None
        return ends.source_via, ends.destination_via


def _mover(scenario: Scenario, name: str, problems: list[Problem]) -> Mover | None:
    known = movers_of(scenario)[0]
    able = {key: mover for key, mover in known.items() if mover.reads and mover.writes}
    if name not in able:
        problems.append(("workload.mover", one_of("the movers that copy files", able, name)))
        return None
    return able[name]


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


def data_set(scenario: Scenario, place: str, size_bytes: int, files: int = 1) -> Dataset:
    """Return the data set of so many files of one size at a place; ``size_bytes`` is that before ``scale``."""
    scaled = scaled_bytes(size_bytes, scenario.scale)
    word = format_bytes_exact(scaled).replace(" ", "")
    seed = draw_bits(scenario.seed, "dataset", word, bits=53)
    return Dataset(place, f"sets/seed{scenario.seed}/{word}", files, scaled, seed)
