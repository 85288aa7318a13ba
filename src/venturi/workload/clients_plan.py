"""The trials of ``clients`` as actor lines: one a client host, which begin together."""

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
    Transfer,
    Trial,
    Wait,
)
from venturi.workload.clients_layout import OBJECT, Cell, Fetcher, Layout
from venturi.workload.header import plan_header
from venturi.workload.streams import shuffled

if TYPE_CHECKING:
    from venturi.scenario import Scenario
    from venturi.testbed.plan import ResolvedTestbed
    from venturi.workload.clients import Clients

__all__ = ["READY", "TURN", "clients_plan"]

READY = "clients.ready"
"""Counter by which all wait for the object to be there."""
TURN = "clients.turn"
"""Counter of trials that are over: the hosts of a point begin when those of the one before have ended."""


def clients_plan(scenario: Scenario, clients: Clients, layout: Layout, parts: ResolvedTestbed) -> Plan:
    """Return the plan of a workload that is laid out."""
    header = plan_header(
        scenario,
        parts,
        services=layout.services,
        datasets={OBJECT: layout.dataset},
        calls=layout.calls,
        totals=_totals(clients, layout),
    )
    return Plan(header, _Lines(scenario.seed, clients, layout))


@dataclass(frozen=True)
class _Lines:
    """The lines, the same ones each time they are gone through."""

    seed: int
    clients: Clients
    layout: Layout

    def __iter__(self) -> Iterator[ActorLine]:
        hosts = dict.fromkeys(host for cell in self.layout.cells for host in cell.fetchers)
        for index, host in enumerate(hosts):
            prepare: tuple[Step, ...] = (Prepare(OBJECT, 0, 1, "warm"), Signal(READY, 1))
            yield ActorLine(_actor(host), host, (Wait(READY, 1),) if index else prepare)
        number = over = 0
        for block in range(self.clients.repeat):
            count = len(self.layout.cells)
            random = self.clients.order == "random"
            for point in shuffled(count, self.seed, "order", block) if random else range(count):
                cell = self.layout.cells[point]
                for host, fetchers in cell.fetchers.items():
                    trial = Trial(
                        f"t{number:07d}", point, block, block, {**cell.factors, "size_bytes": self.layout.dataset.size_bytes},
                        (Parallel(tuple(self._children(cell, fetchers))),),
                    )  # fmt: skip
                    yield ActorLine(_actor(host), host, (Wait(TURN, over), trial, Signal(TURN, 1)))
                    number += 1
                over += len(cell.fetchers)

    def _children(self, cell: Cell, fetchers: tuple[Fetcher, ...]) -> Iterator[tuple[Step, ...]]:
        slot = 0
        for fetcher in fetchers:
            if cell.alone:
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
        """Return what one process for all clients of a fetcher moves; 0 where that is for the run to tell."""
        return fetcher.count * (self.clients.fetches or 0) * self.layout.dataset.size_bytes

    def _transfer(self, fetcher: Fetcher, slot: int, size_bytes: int) -> Transfer:
        return Transfer(
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


def _totals(clients: Clients, layout: Layout) -> Totals:
    transfers = moved = 0
    for cell in layout.cells:
        for fetcher in (fetcher for fetchers in cell.fetchers.values() for fetcher in fetchers):
            fetches = fetcher.count * (clients.fetches or 0)
            transfers += 1 if cell.alone else fetches
            moved += fetches * layout.dataset.size_bytes
    trials = sum(len(cell.fetchers) for cell in layout.cells) * clients.repeat
    disk = {layout.dataset.place: layout.dataset.size_bytes}
    if clients.duration is not None:
        return Totals(trials, None, None, disk)
    return Totals(trials, transfers * clients.repeat, moved * clients.repeat, disk)
