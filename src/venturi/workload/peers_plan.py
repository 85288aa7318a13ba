"""The transfers of ``peers`` as actor lines, drawn one after the other, and the header that goes before them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from venturi.plan import ActorLine, Dataset, Pause, Plan, Prepare, Signal, Step, Totals, Trial, Wait
from venturi.plan.steps import FactorValue
from venturi.scenario.words import Problem
from venturi.testbed.network import scaled_bytes
from venturi.units import BITS_PER_BYTE, format_bytes_exact
from venturi.workload.background import Load, loads
from venturi.workload.design import MAX_TRIALS, scale_clashes
from venturi.workload.header import plan_header
from venturi.workload.numbering import Points
from venturi.workload.partners import Partners, partner_weights
from venturi.workload.sites import Exchange, Machine, data_set, machines_of
from venturi.workload.streams import draw_bits, draw_unit

if TYPE_CHECKING:
    from venturi.scenario import Scenario
    from venturi.testbed.plan import ResolvedTestbed
    from venturi.workload.peers import Peers

__all__ = ["DIRECTIONS", "READY", "Layout", "lay_out", "peers_plan"]

DIRECTIONS = ("download", "upload")
READY = "peers.ready"
"""Counter of the machines whose files are there: nobody is asked for a file before."""


@dataclass(frozen=True)
class Layout:
    """Who takes part, how they reach each other, what they have, and what else goes on."""

    machines: tuple[Machine, ...]
    partners: Mapping[str, Partners]
    exchange: Exchange
    datasets: Mapping[str, Dataset]
    loads: tuple[Load, ...]


def lay_out(scenario: Scenario, peers: Peers, parts: ResolvedTestbed, problems: list[Problem]) -> Layout | None:
    """Return what the transfers are drawn from, or ``None`` with what is wrong appended to ``problems``."""
    before = len(problems)
    clash = scale_clashes({size: scaled_bytes(size, scenario.scale) for size in peers.sizes})
    if clash:
        problems.append(("scale", clash))
    machines = machines_of(scenario, peers.site, parts, problems)
    exchange = Exchange(scenario, peers.mover, peers.options, peers.timeout, parts, problems)
    partners = {
        own.host: Partners(machines, partner_weights(own, machines, peers.choice, peers.own_site)) for own in machines
    }
    alone = [host for host, able in partners.items() if not able]
    if alone or not machines:
        others = "machines" if peers.own_site else "machines at two sites or more"
        problems.append(("workload.site", f"expected {others}, found no partner for {alone[0] if alone else 'any'}"))
    exchange.check((own, other) for own in machines for other in partners[own.host])
    _check_bounds(peers, parts, problems)
    more = loads(scenario, peers, machines, parts, problems)
    if len(problems) > before:
        return None
    datasets = {
        f"{machine.place}-{_word(size)}": data_set(scenario, machine.place, size)
        for machine in machines
        for size in peers.sizes
    }
    return Layout(machines, partners, exchange, datasets, more)


def _check_bounds(peers: Peers, parts: ResolvedTestbed, problems: list[Problem]) -> None:
    if peers.transfers is None and peers.duration is None:
        where = "workload.transfers"
        problems.append((where, "expected transfers (of each machine), duration, or both, found neither"))
    elif peers.transfers is None and parts.network is None:
        problems.append(
            ("workload.transfers", "expected a number (without links nothing tells how many fit into duration), found nothing")
        )  # fmt: skip
    if peers.background is not None and peers.duration is None:
        problems.append(("workload.duration", "expected a time (background goes on until then), found nothing"))


def peers_plan(scenario: Scenario, peers: Peers, layout: Layout, parts: ResolvedTestbed) -> Plan:
    """Return the plan of a workload that is laid out.

    Raises
    ------
    ScenarioError
        If it would have more than :data:`venturi.workload.design.MAX_TRIALS` trials.
    """
    lines = _Lines(scenario, peers, layout)
    totals = _totals(scenario, peers, layout, lines)
    header = plan_header(
        scenario,
        parts,
        datasets=layout.datasets,
        calls={**layout.exchange.calls, **{name: call for load in layout.loads for name, call in load.calls.items()}},
        totals=totals,
    )
    return Plan(header, lines)


@dataclass(frozen=True, slots=True)
class _Exchanged:
    """One transfer as drawn."""

    machine: Machine
    number: int
    direction: str
    partner: Machine
    size_bytes: int
    pause_s: float


class _Lines:
    """The lines of the plan, the same ones each time they are gone through."""

    def __init__(self, scenario: Scenario, peers: Peers, layout: Layout) -> None:
        self._scenario, self._peers, self._layout = scenario, peers, layout

    def __iter__(self) -> Iterator[ActorLine]:
        count = len(self._layout.machines)
        for machine in self._layout.machines:
            own = [name for name, dataset in self._layout.datasets.items() if dataset.place == machine.place]
            ready: list[Step] = [Prepare(name, 0, 1, "as_is") for name in own]
            yield ActorLine(machine.host, machine.host, (*ready, Signal(READY, 1), Wait(READY, count)))
        points = Points()
        number = 0
        for one in self.drawn():
            yield ActorLine(one.machine.host, one.machine.host, (self._trial(number, one, points),))
            number += 1
        for load in self._layout.loads:
            yield from load.lines(number, points)
            number += load.trials

    def drawn(self) -> Iterator[_Exchanged]:
        """Yield all transfers, the first of each machine, then the second of each, and so on."""
        open_ = {machine.host: (machine, 0.0) for machine in self._layout.machines}
        limit = self._peers.transfers or MAX_TRIALS
        duration_s = math.inf if self._peers.duration is None else self._peers.duration
        number = 0
        while open_ and number < limit:
            for host, (machine, earliest_s) in list(open_.items()):
                one = self._draw(machine, number)
                yield one
                # No transfer is faster than its narrowest link: those that begin too late even so are left out.
                ends = (machine, one.partner) if one.direction == "upload" else (one.partner, machine)
                rate = self._layout.exchange.fastest_bit_per_s(*ends)
                scaled = scaled_bytes(one.size_bytes, self._scenario.scale)
                earliest_s += one.pause_s + BITS_PER_BYTE * scaled / rate
                open_[host] = machine, earliest_s
                if earliest_s >= duration_s:
                    del open_[host]
            number += 1

    def _draw(self, machine: Machine, number: int) -> _Exchanged:
        seed, peers = self._scenario.seed, self._peers
        name = ("peers", machine.host)
        begin = (
            DIRECTIONS.index(peers.begin) if peers.begin in DIRECTIONS else draw_bits(seed, *name, "begin", bits=1)
        )
        low, high = peers.pause
        pause_s = low + (high - low) * draw_unit(seed, *name, number, "pause") if number else 0.0
        return _Exchanged(
            machine,
            number,
            DIRECTIONS[(begin + number) % 2],
            self._layout.partners[machine.host].draw(seed, *name, number, "partner"),
            peers.sizes[int(draw_unit(seed, *name, number, "size") * len(peers.sizes))],
            round(pause_s, 3),
        )

    def _trial(self, number: int, one: _Exchanged, points: Points) -> Trial:
        trial = f"t{number:07d}"
        own, partner = one.machine, one.partner
        origin, to = (partner, own) if one.direction == "download" else (own, partner)
        dataset = self._layout.datasets[f"{origin.place}-{_word(one.size_bytes)}"]
        labels = {"machine": own.host, "partner": partner.host, "partner_site": partner.site}
        transfer = self._layout.exchange.transfer(
            own, dataset.endpoint(0), f"{to.place}:out/{trial}", dataset.size_bytes, labels
        )
        steps: tuple[Step, ...] = (Pause(one.pause_s), transfer) if one.pause_s else (transfer,)
        factors: dict[str, FactorValue] = {
            "files": 1,
            "size_bytes": dataset.size_bytes,
            "direction": one.direction,
            "site": own.site,
        }
        point, repetition = points.of(own.site, one.direction, dataset.size_bytes)
        return Trial(trial, point, repetition, one.number, factors, steps, self._peers.duration)


def _totals(scenario: Scenario, peers: Peers, layout: Layout, lines: _Lines) -> Totals:
    transfers = moved = 0
    for one in lines.drawn():
        transfers += 1
        moved += scaled_bytes(one.size_bytes, scenario.scale)
    more = sum(load.trials for load in layout.loads)
    fixed = peers.duration is None
    return Totals(
        transfers + more, transfers if fixed else None, moved if fixed else None, _disk_bytes(peers, layout)
    )


def _disk_bytes(peers: Peers, layout: Layout) -> dict[str, int]:
    """Return what each place needs: its files, what its machine fetches, and what others may be sending meanwhile.

    Others choose a machine independently: as many of them as do on average, rounded up, may be there at a time.
    """
    largest = max(dataset.size_bytes for dataset in layout.datasets.values())
    chosen = dict.fromkeys((machine.host for machine in layout.machines), 0.0)
    for own in layout.machines:
        weights = partner_weights(own, layout.machines, peers.choice, peers.own_site)
        for host, weight in weights.items():
            chosen[host] += weight / sum(weights.values())
    disk = {machine.place: largest * (1 + math.ceil(chosen[machine.host])) for machine in layout.machines}
    for dataset in layout.datasets.values():
        disk[dataset.place] += dataset.files * dataset.size_bytes
    return disk


def _word(size_bytes: int) -> str:
    return format_bytes_exact(size_bytes).replace(" ", "")
