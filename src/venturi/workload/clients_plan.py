"""Plan of the workload ``clients``: one trial for each client host; the trials of a point start together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from venturi.plan import (
    ActorLine,
    Parallel,
    Pause,
    Plan,
    Prepare,
    Repeat,
    Signal,
    Step,
    Totals,
    TransferStep,
    Trial,
    Wait,
)
from venturi.workload.clients_layout import OBJECT, ClientsLayout, ClientsPoint, Fetcher
from venturi.workload.header import plan_header
from venturi.workload.streams import shuffled

if TYPE_CHECKING:
    from venturi.scenario import Scenario
    from venturi.testbed.plan import ResolvedTestbed
    from venturi.workload.clients import Clients

__all__ = ["READY", "TURN", "clients_plan"]

READY = "clients.ready"
"""Counter for the existence of the object."""
TURN = "clients.turn"
"""Counter of finished trials: a point starts after the end of the previous point."""


def clients_plan(scenario: Scenario, clients: Clients, layout: ClientsLayout, parts: ResolvedTestbed) -> Plan:
    """Return the plan of a resolved workload."""
    header = plan_header(
        scenario,
        parts,
        services=layout.services,
        datasets={OBJECT: layout.dataset},
        calls=layout.calls,
        totals=_totals(clients, layout),
    )
    return Plan(header, _ClientsActorLines(scenario.seed, clients, layout))


@dataclass(frozen=True)
class _ClientsActorLines:
    """Actor lines; each iteration yields the same lines."""

    seed: int
    clients: Clients
    layout: ClientsLayout

    def __iter__(self) -> Iterator[ActorLine]:
        hosts = dict.fromkeys(host for resolved in self.layout.resolved_points for host in resolved.fetchers)
        for index, host in enumerate(hosts):
            prepare: tuple[Step, ...] = (Prepare(OBJECT, 0, 1, "warm"), Signal(READY, 1))
            yield ActorLine(_actor(host), host, (Wait(READY, 1),) if index else prepare)
        number = finished = 0
        for block in range(self.clients.repeat):
            count = len(self.layout.resolved_points)
            random = self.clients.order == "random"
            for point in shuffled(count, self.seed, "order", block) if random else range(count):
                resolved = self.layout.resolved_points[point]
                for host, fetchers in resolved.fetchers.items():
                    trial = Trial(
                        f"t{number:07d}", point, block, block, {**resolved.factors, "size_bytes": self.layout.dataset.size_bytes},
                        (Parallel(tuple(self._children(resolved, fetchers))),),
                    )  # fmt: skip
                    yield ActorLine(_actor(host), host, (Wait(TURN, finished), trial, Signal(TURN, 1)))
                    number += 1
                finished += len(resolved.fetchers)

    def _children(self, resolved: ClientsPoint, fetchers: tuple[Fetcher, ...]) -> Iterator[tuple[Step, ...]]:
        slot = 0
        for fetcher in fetchers:
            if resolved.one_process:
                yield (self._transfer(fetcher, slot, self._call_bytes(fetcher)),)
                slot += 1
                continue
            for _ in range(fetcher.count):
                steps: tuple[Step, ...] = (self._transfer(fetcher, slot, self.layout.dataset.size_bytes),)
                if self.clients.think:
                    steps = (*steps, Pause(self.clients.think))
                yield (Repeat(steps, count=self.clients.fetches, for_s=self.clients.duration),)
                slot += 1

    def _call_bytes(self, fetcher: Fetcher) -> int:
        """Return the bytes of one process with all clients of a fetcher, or 0 if they depend on the run."""
        return fetcher.count * (self.clients.fetches or 0) * self.layout.dataset.size_bytes

    def _transfer(self, fetcher: Fetcher, slot: int, size_bytes: int) -> TransferStep:
        return TransferStep(
            fetcher.call,
            slot,
            self.layout.dataset.endpoint(0),
            "null:",
            1,
            size_bytes,
            False,
            fetcher.labels,
            fetcher.source_via,
        )


def _actor(host: str) -> str:
    return f"clients-{host}"


def _totals(clients: Clients, layout: ClientsLayout) -> Totals:
    transfers = moved = 0
    for resolved in layout.resolved_points:
        for fetcher in (fetcher for fetchers in resolved.fetchers.values() for fetcher in fetchers):
            fetches = fetcher.count * (clients.fetches or 0)
            transfers += 1 if resolved.one_process else fetches
            moved += fetches * layout.dataset.size_bytes
    trials = sum(len(resolved.fetchers) for resolved in layout.resolved_points) * clients.repeat
    disk = {layout.dataset.storage: layout.dataset.size_bytes}
    if clients.duration is not None:
        return Totals(trials, None, None, disk)
    return Totals(trials, transfers * clients.repeat, moved * clients.repeat, disk)
