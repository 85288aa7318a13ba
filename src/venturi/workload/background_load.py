"""Background load of a workload ``peers``: traffic on the access links and CPU work on the hosts.

Source: report 004, section 2: other users shared the hosts and links. One actor of each site alternates between sending
and receiving at a fraction of the bandwidth. One actor of each host uses a fraction of a core. Every turn is a trial.

Each direction of a site has its own slot, and its own port on servers with one client per port. Such a server (iperf3)
is briefly unavailable after each client; here it has one turn to listen again.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from venturi.messages import Problem, one_of
from venturi.mover import Mover, resolve_options
from venturi.plan import ActorLine, Call, Compute, Pause, Step, TransferStep, Trial
from venturi.plan.steps import FactorValue
from venturi.scenario.tools import resolve_movers
from venturi.units import BITS_PER_BYTE
from venturi.workload.endpoints import EndpointError, EndpointRequest, EndpointResolver
from venturi.workload.numbering import PointNumbering
from venturi.workload.sites import SiteHost

if TYPE_CHECKING:
    from venturi.scenario import Scenario
    from venturi.testbed.plan import ResolvedTestbed
    from venturi.workload.peers import Background, Peers

__all__ = ["BackgroundLoad", "resolve_background"]

_DIRECTIONS = ("background in", "background out")
_SLACK_S = 60.0
"""Additional timeout of a tool after its turn, because a full link slows it down."""


@dataclass(frozen=True)
class BackgroundLoad:
    """Background load of one site or host: a sequence of turns until the end of the run."""

    actor: str
    machine: SiteHost
    until_s: float
    trials: int
    turns: tuple[tuple[tuple[Step, ...], Mapping[str, FactorValue]], ...]
    calls: Mapping[str, Call]

    def lines(self, first: int, points: PointNumbering) -> Iterator[ActorLine]:
        """Yield an actor line for each turn; ``first`` is the number of the first trial."""
        for number in range(self.trials):
            steps, factors = self.turns[number % len(self.turns)]
            point, repetition = points.of(*factors.values())
            done = Trial(f"t{first + number:07d}", point, repetition, number, factors, steps, self.until_s)
            yield ActorLine(self.actor, self.machine.host, (done,))


def resolve_background(
    scenario: Scenario, peers: Peers, machines: Sequence[SiteHost], parts: ResolvedTestbed, problems: list[Problem]
) -> tuple[BackgroundLoad, ...]:
    """Return the background loads, and append errors to ``problems``."""
    background = peers.background
    if background is None or peers.duration is None:
        return ()
    found: list[BackgroundLoad] = []
    if background.share:
        mover = _mover(scenario, background, problems)
        first = {machine.site: machine for machine in reversed(machines)}
        for slot, machine in enumerate(first[site] for site in dict.fromkeys(m.site for m in machines)):
            background_load = mover and _traffic(
                scenario, peers.duration, background, mover, machine, slot, parts, problems
            )
            if background_load:
                found.append(background_load)
        _check_ports(scenario, background, len(first), parts, problems)
    if background.cores:
        turns = math.ceil(peers.duration / background.round)
        busy_s = background.cores * background.round
        steps = (Compute(busy_s), Pause(max(0.0, background.round - busy_s)))
        for machine in machines:
            about: dict[str, FactorValue] = {"direction": "work", "site": machine.site}
            found.append(
                BackgroundLoad(f"work-{machine.host}", machine, peers.duration, turns, ((steps, about),), {})
            )
    return tuple(found)


def _mover(scenario: Scenario, background: Background, problems: list[Problem]) -> Mover | None:
    candidates = {
        name: mover
        for name, mover in resolve_movers(scenario)[0].items()
        if not mover.reads and not mover.writes and any(option.name == "rate" for option in mover.options)
    }
    if background.mover not in candidates:
        problems.append(
            (
                "workload.background.mover",
                one_of("the memory-to-memory movers with the option rate", candidates, background.mover),
            )
        )
        return None
    if background.service not in scenario.testbed.service:
        problems.append(
            ("workload.background.service", one_of("the services", scenario.testbed.service, background.service))
        )
        return None
    return candidates[background.mover]


def _check_ports(
    scenario: Scenario, background: Background, sites: int, parts: ResolvedTestbed, problems: list[Problem]
) -> None:
    ports = EndpointResolver(scenario, (), parts).single_ports(background.service or "")
    needed = len(_DIRECTIONS) * sites
    if ports is not None and ports < needed:
        where = f"testbed.service.{background.service}.ports"
        problems.append(
            (where, f"expected {needed} ports, one for each direction of each site, found {ports}; increase ports")
        )


def _traffic(
    scenario: Scenario, duration_s: float, background: Background, mover: Mover, machine: SiteHost, slot: int,
    parts: ResolvedTestbed, problems: list[Problem],
) -> BackgroundLoad | None:  # fmt: skip
    rate = round(background.share * machine.weight_bit_per_s * scenario.scale / BITS_PER_BYTE)
    size = max(1, round(rate * background.round))
    name = f"{mover.name}-{machine.site}"
    call = mover.call(resolve_options(mover, {"rate": max(1, rate)}))
    call = dataclasses.replace(call, timeout_s=2 * background.round + _SLACK_S)
    resolver = EndpointResolver(scenario, (), parts)
    turns: list[tuple[tuple[Step, ...], Mapping[str, FactorValue]]] = []
    for turn, direction in enumerate(_DIRECTIONS):
        receives = direction == "background in"
        request = EndpointRequest(
            None,
            None,
            machine.host,
            background.service if receives else None,
            None if receives else background.service,
        )
        try:
            endpoints = resolver.resolve(mover, request)
        except EndpointError as error:
            problems.append(("workload.background.service", str(error)))
            return None
        moved = TransferStep(
            name, len(_DIRECTIONS) * slot + turn, "zero:", "null:", 1, size, False, {"machine": machine.host}, endpoints.source_via, endpoints.destination_via
        )  # fmt: skip
        turns.append(((moved,), {"files": 1, "size_bytes": size, "direction": direction, "site": machine.site}))
    trials = math.ceil(duration_s / background.round) + 1
    return BackgroundLoad(f"background-{machine.site}", machine, duration_s, trials, tuple(turns), {name: call})
