"""The trials of a sweep as actor lines, made one after the other, and the header that goes before them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from venturi.plan import (
    ActorLine,
    DropCaches,
    Parallel,
    Pause,
    Plan,
    Prepare,
    Signal,
    Step,
    Totals,
    Transfer,
    Trial,
    Wait,
)
from venturi.plan.steps import CacheBefore
from venturi.testbed.services.table import SERVICES
from venturi.workload.header import plan_header
from venturi.workload.layout import Cell, Layout, Role
from venturi.workload.streams import shuffled

if TYPE_CHECKING:
    from venturi.scenario import Scenario
    from venturi.testbed.plan import ResolvedTestbed
    from venturi.workload.sweep import Sweep

__all__ = ["sweep_plan"]

ACTOR = "sweep"
TURN = "sweep.turn"
"""Counter by which actors on several hosts take turns: trials must not overlap."""
REST_S = 0.5
"""Before a trial whose servers take one client at a time: after each they listen anew, and are busy until its last bytes have come, or not there
(of 72 calls of iperf3 one after the other, to hosts 7 to 44 ms away, 5 met such a server)."""


def sweep_plan(scenario: Scenario, sweep: Sweep, layout: Layout, parts: ResolvedTestbed) -> Plan:
    """Return the plan of a sweep that is laid out."""
    header = plan_header(
        scenario,
        parts,
        datasets=layout.datasets,
        calls=layout.calls,
        totals=_totals(sweep, layout),
    )
    resting = frozenset(
        name
        for name, service in parts.services.items()
        if getattr(SERVICES[service.kind], "one_client_a_port", False)
    )
    return Plan(header, _SweepLines(scenario.seed, sweep.repeat, sweep.order == "random", layout, resting))


@dataclass(frozen=True)
class _SweepLines:
    """The lines of a sweep, the same ones each time they are gone through."""

    seed: int
    repeat: int
    random: bool
    layout: Layout
    resting: frozenset[str]

    def __iter__(self) -> Iterator[ActorLine]:
        cells = self.layout.cells
        hosts = {cell.host for cell in cells}
        positions = dict.fromkeys(self.layout.datasets, 0)
        number = 0
        for block in range(self.repeat):
            order = shuffled(len(cells), self.seed, "order", block) if self.random else range(len(cells))
            for index in order:
                cell = cells[index]
                first = {name: self._first_file(name, read, positions) for name, read in cell.reads}
                # A block holds every point once, so the block of a trial is also its repetition.
                trial = self._trial(f"t{number:07d}", index, block, first)
                steps: tuple[Step, ...] = (trial,)
                if len(hosts) > 1:
                    steps = (Wait(TURN, number), trial, Signal(TURN, 1)) if number else (trial, Signal(TURN, 1))
                yield ActorLine(ACTOR if len(hosts) == 1 else f"{ACTOR}-{cell.host}", cell.host, steps)
                number += 1

    def _first_file(self, dataset: str, read: int, positions: dict[str, int]) -> int:
        """Return the first file of the trial's range, and move on, so that successive trials read different files."""
        first = positions[dataset]
        if first + read > self.layout.datasets[dataset].files:
            first = 0
        positions[dataset] = first + read
        return first

    def _trial(self, trial: str, point: int, block: int, first: Mapping[str, int]) -> Trial:
        cell = self.layout.cells[point]
        warm: CacheBefore = "warm" if cell.cache == "warm" else "as_is"
        steps: list[Step] = [Prepare(name, first[name], read, warm) for name, read in cell.reads]
        if cell.cache == "cold":
            steps += [DropCaches(name, first[name], read) for name, read in cell.reads]
        if any(via.partition("/")[0] in self.resting for role in cell.roles for via in _doors(role)):
            steps.append(Pause(REST_S))
        steps.append(Parallel(tuple((transfer,) for transfer in _transfers(trial, cell, first, self.layout))))
        return Trial(trial, point, block, block, cell.factors, tuple(steps))


def _doors(role: Role) -> list[str]:
    return [via for via in (role.source_via, role.destination_via) if via is not None]


def _transfers(trial: str, cell: Cell, first: Mapping[str, int], layout: Layout) -> Iterator[Transfer]:
    files, size = cell.files_per_call, cell.call_bytes
    ends = [_ends(trial, role, cell, first, layout) for role in cell.roles]
    for slot in range(cell.files):
        for role, (source, index, target) in zip(cell.roles, ends, strict=True):
            yield Transfer(
                role.call,
                slot,
                f"{source}{index + slot * files:06d}" if source else "zero:",
                f"{target}{slot:06d}{role.suffix}" if target else "null:",
                files,
                size,
                False,
                role.labels,
                role.source_via,
                role.destination_via,
            )


def _ends(trial: str, role: Role, cell: Cell, first: Mapping[str, int], layout: Layout) -> tuple[str, int, str]:
    """Return what the endpoints of a role begin with (nothing for a device), and its first file of the data set."""
    source, index = "", 0
    if role.dataset is not None:
        dataset = layout.datasets[role.dataset]
        source = f"{dataset.place}:{dataset.path}/"
        index = first[role.dataset] + role.reader * cell.files * cell.files_per_call
    # One folder for all trials: a folder for each would stay behind, empty, a hundred thousand times.
    return source, index, "" if role.destination is None else f"{role.destination}:out/{trial}-"


def _totals(sweep: Sweep, layout: Layout) -> Totals:
    transfers = sum(cell.files * len(cell.roles) for cell in layout.cells)
    moved = sum(cell.moved_bytes for cell in layout.cells)
    disk: dict[str, int] = {}
    for dataset in layout.datasets.values():
        disk[dataset.place] = disk.get(dataset.place, 0) + dataset.bytes
    written: dict[str, int] = {}
    for cell in layout.cells:
        for place, size in cell.written_bytes().items():
            if size:
                written[place] = max(written.get(place, 0), size)
    for place, size in written.items():
        disk[place] = disk.get(place, 0) + size
    return Totals(len(layout.cells) * sweep.repeat, transfers * sweep.repeat, moved * sweep.repeat, disk)
