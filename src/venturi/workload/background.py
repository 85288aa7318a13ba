"""What else goes on where machines exchange files: steady traffic on the access links, and work on the machines.

Source: report 004, section 2: neither the machines nor the links were the experiment's own. Each site has an actor that sends
and receives by turns at a share of the site's bandwidth, each machine one that keeps a part of a core busy. Every turn
is a trial. Each direction of a site has a slot of its own, and so, where a server takes one client a port, a port: after each client such a server
listens anew and is not there for a moment (iperf3), and here it has a turn's time for that.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from venturi.mover import Mover, resolve_options
from venturi.plan import ActorLine, Call, Compute, Pause, Step, Transfer, Trial
from venturi.plan.steps import FactorValue
from venturi.scenario.tools import movers_of
from venturi.scenario.words import Problem, one_of
from venturi.units import BITS_PER_BYTE
from venturi.workload.ends import Asked, EndsError, Router
from venturi.workload.numbering import Points
from venturi.workload.sites import Machine

if TYPE_CHECKING:
    from venturi.scenario import Scenario
    from venturi.testbed.plan import ResolvedTestbed
    from venturi.workload.peers import Background, Peers

__all__ = ["Load", "loads"]

_DIRECTIONS = ("background in", "background out")
_SLACK_S = 60.0
"""How much longer than its turn a tool may take before it is ended: a full link slows it down."""


@dataclass(frozen=True)
class Load:
    """What goes on at one site or machine: its turns, one after the other until the time is over."""

    actor: str
    machine: Machine
    until_s: float
    trials: int
    turns: tuple[tuple[tuple[Step, ...], Mapping[str, FactorValue]], ...]
    calls: Mapping[str, Call]

    def lines(self, first: int, points: Points) -> Iterator[ActorLine]:
        """Yield a line for each turn; their trials are numbered from ``first``."""
        for number in range(self.trials):
            steps, factors = self.turns[number % len(self.turns)]
            point, repetition = points.of(*factors.values())
            done = Trial(f"t{first + number:07d}", point, repetition, number, factors, steps, self.until_s)
            yield ActorLine(self.actor, self.machine.host, (done,))


def loads(
    scenario: Scenario, peers: Peers, machines: Sequence[Machine], parts: ResolvedTestbed, problems: list[Problem]
) -> tuple[Load, ...]:
    """Return what goes on beside the transfers; what is wrong is appended to ``problems``."""
    told = peers.background
    if told is None or peers.duration is None:
        return ()
    found: list[Load] = []
    if told.share:
        mover = _mover(scenario, told, problems)
        first = {machine.site: machine for machine in reversed(machines)}
        for slot, machine in enumerate(first[site] for site in dict.fromkeys(m.site for m in machines)):
            load = mover and _traffic(scenario, peers.duration, told, mover, machine, slot, parts, problems)
            if load:
                found.append(load)
        _check_ports(scenario, told, len(first), parts, problems)
    if told.cores:
        turns = math.ceil(peers.duration / told.round)
        busy_s = told.cores * told.round
        steps = (Compute(busy_s), Pause(max(0.0, told.round - busy_s)))
        for machine in machines:
            about: dict[str, FactorValue] = {"direction": "work", "site": machine.site}
            found.append(Load(f"work-{machine.host}", machine, peers.duration, turns, ((steps, about),), {}))
    return tuple(found)


def _mover(scenario: Scenario, told: Background, problems: list[Problem]) -> Mover | None:
    able = {
        name: mover
        for name, mover in movers_of(scenario)[0].items()
        if not mover.reads and not mover.writes and any(option.name == "rate" for option in mover.options)
    }
    if told.mover not in able:
        problems.append(
            ("workload.background.mover", one_of("the movers from memory with the option rate", able, told.mover))
        )
        return None
    if told.service not in scenario.testbed.service:
        problems.append(
            ("workload.background.service", one_of("the services", scenario.testbed.service, told.service))
        )
        return None
    return able[told.mover]


def _check_ports(
    scenario: Scenario, told: Background, sites: int, parts: ResolvedTestbed, problems: list[Problem]
) -> None:
    ports = Router(scenario, (), parts).single_ports(told.service or "")
    wanted = len(_DIRECTIONS) * sites
    if ports is not None and ports < wanted:
        where = f"testbed.service.{told.service}.ports"
        problems.append(
            (where, f"expected {wanted}, one for each direction of the background of each site, found {ports}")
        )


def _traffic(
    scenario: Scenario, duration_s: float, told: Background, mover: Mover, machine: Machine, slot: int,
    parts: ResolvedTestbed, problems: list[Problem],
) -> Load | None:  # fmt: skip
    rate = round(told.share * machine.weight_bit_per_s * scenario.scale / BITS_PER_BYTE)
    size = max(1, round(rate * told.round))
    name = f"{mover.name}-{machine.site}"
    call = mover.call(resolve_options(mover, {"rate": max(1, rate)}))
    call = dataclasses.replace(call, timeout_s=2 * told.round + _SLACK_S)
    router = Router(scenario, (), parts)
    turns: list[tuple[tuple[Step, ...], Mapping[str, FactorValue]]] = []
    for turn, direction in enumerate(_DIRECTIONS):
        receives = direction == "background in"
        asked = Asked(
            None, None, machine.host, told.service if receives else None, None if receives else told.service
        )
        try:
            ends = router.ends(mover, asked)
        except EndsError as error:
            problems.append(("workload.background.service", str(error)))
            return None
        moved = Transfer(
            name, len(_DIRECTIONS) * slot + turn, "zero:", "null:", 1, size, False, {"machine": machine.host}, ends.source_via, ends.destination_via
        )  # fmt: skip
        turns.append(((moved,), {"files": 1, "size_bytes": size, "direction": direction, "site": machine.site}))
    trials = math.ceil(duration_s / told.round) + 1
    return Load(f"background-{machine.site}", machine, duration_s, trials, tuple(turns), {name: call})
