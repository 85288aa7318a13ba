"""Plan of the workload ``peers``: header and random transfers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from venturi.messages import Problem
from venturi.plan import ActorLine, Dataset, Pause, Plan, Prepare, Signal, Step, Totals, Trial, Wait
from venturi.plan.steps import FactorValue
from venturi.testbed.network import scaled_bytes
from venturi.units import BITS_PER_BYTE, format_bytes_exact
from venturi.workload.background_load import BackgroundLoad, resolve_background
from venturi.workload.design import MAX_TRIALS, scale_clashes
from venturi.workload.header import plan_header
from venturi.workload.numbering import PointNumbering
from venturi.workload.partners import Partners, compute_partner_weights
from venturi.workload.sites import Exchange, SiteHost, build_dataset, list_site_hosts
from venturi.workload.streams import draw_bits, draw_unit

if TYPE_CHECKING:
    from venturi.scenario import Scenario
    from venturi.testbed.plan import ResolvedTestbed
    from venturi.workload.peers import Peers

__all__ = ["DIRECTIONS", "READY", "PeersLayout", "peers_plan", "resolve_peers"]

DIRECTIONS = ("download", "upload")
READY = "peers.ready"
"""Counter of hosts with complete datasets; transfers start after all of them."""


@dataclass(frozen=True)
class PeersLayout:
    """Hosts, partners, service ports, datasets and background load."""

    machines: tuple[SiteHost, ...]
    partners: Mapping[str, Partners]
    exchange: Exchange
    datasets: Mapping[str, Dataset]
    resolve_background: tuple[BackgroundLoad, ...]


def resolve_peers(
    scenario: Scenario, peers: Peers, parts: ResolvedTestbed, problems: list[Problem]
) -> PeersLayout | None:
    """Return the resolved workload, or ``None`` after errors, which are appended to ``problems``."""
    before = len(problems)
    clash = scale_clashes({size: scaled_bytes(size, scenario.scale) for size in peers.sizes})
    if clash:
        problems.append(("scale", clash))
    machines = list_site_hosts(scenario, peers.site, parts, problems)
    exchange = Exchange(scenario, peers.mover, peers.options, peers.timeout, parts, problems)
    partners = {
        own.host: Partners(machines, compute_partner_weights(own, machines, peers.choice, peers.include_own_site))
        for own in machines
    }
    lonely_hosts = [host for host, candidates in partners.items() if not candidates]
    if lonely_hosts or not machines:
        others = "machines" if peers.include_own_site else "machines at two sites or more"
        problems.append(
            (
                "workload.site",
                f"expected {others}, found no partner for {lonely_hosts[0] if lonely_hosts else 'any host'}; add a site",
            )
        )
    exchange.check((own, other) for own in machines for other in partners[own.host])
    _check_bounds(peers, parts, problems)
    more = resolve_background(scenario, peers, machines, parts, problems)
    if len(problems) > before:
        return None
    datasets = {
        f"{machine.storage}-{_format_value(size)}": build_dataset(scenario, machine.storage, size)
        for machine in machines
        for size in peers.sizes
    }
    return PeersLayout(machines, partners, exchange, datasets, more)


def _check_bounds(peers: Peers, parts: ResolvedTestbed, problems: list[Problem]) -> None:
    if peers.transfers is None and peers.duration is None:
        where = "workload.transfers"
        problems.append((where, "expected transfers, duration or both, found neither; set one of them"))
    elif peers.transfers is None and parts.network is None:
        problems.append(
            ("workload.transfers", "expected a number (without links, duration does not limit it), found nothing; add transfers")
        )  # fmt: skip
    if peers.background is not None and peers.duration is None:
        problems.append(
            ("workload.duration", "expected a time (end of the background load), found nothing; add duration")
        )


def peers_plan(scenario: Scenario, peers: Peers, layout: PeersLayout, parts: ResolvedTestbed) -> Plan:
    """Return the plan of a resolved workload.

    Raises
    ------
    ScenarioError
        If it has more than :data:`venturi.workload.design.MAX_TRIALS` trials.
    """
    lines = _PeersActorLines(scenario, peers, layout)
    totals = _totals(scenario, peers, layout, lines)
    header = plan_header(
        scenario,
        parts,
        datasets=layout.datasets,
        calls={
            **layout.exchange.calls,
            **{name: call for load in layout.resolve_background for name, call in load.calls.items()},
        },
        totals=totals,
    )
    return Plan(header, lines)


@dataclass(frozen=True, slots=True)
class _DrawnTransfer:
    """Randomly drawn transfer."""

    machine: SiteHost
    number: int
    direction: str
    partner: SiteHost
    size_bytes: int
    pause_s: float


class _PeersActorLines:
    """Actor lines; each iteration yields the same lines."""

    def __init__(self, scenario: Scenario, peers: Peers, layout: PeersLayout) -> None:
        self._scenario, self._peers, self._layout = scenario, peers, layout

    def __iter__(self) -> Iterator[ActorLine]:
        count = len(self._layout.machines)
        for machine in self._layout.machines:
            own = [name for name, dataset in self._layout.datasets.items() if dataset.storage == machine.storage]
            ready: list[Step] = [Prepare(name, 0, 1, "as_is") for name in own]
            yield ActorLine(machine.host, machine.host, (*ready, Signal(READY, 1), Wait(READY, count)))
        points = PointNumbering()
        number = 0
        for one in self.draw_transfers():
            yield ActorLine(one.machine.host, one.machine.host, (self._trial(number, one, points),))
            number += 1
        for load in self._layout.resolve_background:
            yield from load.lines(number, points)
            number += load.trials

    def draw_transfers(self) -> Iterator[_DrawnTransfer]:
        """Yield all transfers: the first of each host, then the second of each host, and so on."""
        open_ = {machine.host: (machine, 0.0) for machine in self._layout.machines}
        limit = self._peers.transfers or MAX_TRIALS
        duration_s = math.inf if self._peers.duration is None else self._peers.duration
        number = 0
        while open_ and number < limit:
            for host, (machine, earliest_s) in list(open_.items()):
                one = self._draw(machine, number)
                yield one
                # A transfer cannot be faster than its slowest link: exclude transfers that would start after the end.
                endpoints = (machine, one.partner) if one.direction == "upload" else (one.partner, machine)
                rate = self._layout.exchange.fastest_bit_per_s(*endpoints)
                scaled = scaled_bytes(one.size_bytes, self._scenario.scale)
                earliest_s += one.pause_s + BITS_PER_BYTE * scaled / rate
                open_[host] = machine, earliest_s
                if earliest_s >= duration_s:
                    del open_[host]
            number += 1

    def _draw(self, machine: SiteHost, number: int) -> _DrawnTransfer:
        seed, peers = self._scenario.seed, self._peers
        name = ("peers", machine.host)
        first = (
            DIRECTIONS.index(peers.first_direction)
            if peers.first_direction in DIRECTIONS
            else draw_bits(seed, *name, "begin", bits=1)
        )
        low, high = peers.pause
        pause_s = low + (high - low) * draw_unit(seed, *name, number, "pause") if number else 0.0
        return _DrawnTransfer(
            machine,
            number,
            DIRECTIONS[(first + number) % 2],
            self._layout.partners[machine.host].draw(seed, *name, number, "partner"),
            peers.sizes[int(draw_unit(seed, *name, number, "size") * len(peers.sizes))],
            round(pause_s, 3),
        )

    def _trial(self, number: int, one: _DrawnTransfer, points: PointNumbering) -> Trial:
        trial = f"t{number:07d}"
        own, partner = one.machine, one.partner
        origin, to = (partner, own) if one.direction == "download" else (own, partner)
        dataset = self._layout.datasets[f"{origin.storage}-{_format_value(one.size_bytes)}"]
        labels = {"machine": own.host, "partner": partner.host, "partner_site": partner.site}
        transfer = self._layout.exchange.transfer(
            own, dataset.endpoint(0), f"{to.storage}:out/{trial}", dataset.size_bytes, labels
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


def _totals(scenario: Scenario, peers: Peers, layout: PeersLayout, lines: _PeersActorLines) -> Totals:
    transfers = moved = 0
    for one in lines.draw_transfers():
        transfers += 1
        moved += scaled_bytes(one.size_bytes, scenario.scale)
    more = sum(load.trials for load in layout.resolve_background)
    fixed = peers.duration is None
    return Totals(
        transfers + more, transfers if fixed else None, moved if fixed else None, _disk_bytes(peers, layout)
    )


def _disk_bytes(peers: Peers, layout: PeersLayout) -> dict[str, int]:
    """Return the bytes of each storage: its datasets, downloads of its host, and uploads of other hosts.

    Other hosts select a partner independently; the estimate is their mean number, rounded up.
    """
    largest = max(dataset.size_bytes for dataset in layout.datasets.values())
    chosen = dict.fromkeys((machine.host for machine in layout.machines), 0.0)
    for own in layout.machines:
        weights = compute_partner_weights(own, layout.machines, peers.choice, peers.include_own_site)
        for host, weight in weights.items():
            chosen[host] += weight / sum(weights.values())
    disk = {machine.storage: largest * (1 + math.ceil(chosen[machine.host])) for machine in layout.machines}
    for dataset in layout.datasets.values():
        disk[dataset.storage] += dataset.files * dataset.size_bytes
    return disk


def _format_value(size_bytes: int) -> str:
    return format_bytes_exact(size_bytes).replace(" ", "")
