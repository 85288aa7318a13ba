"""The trials of a sweep as actor lines, made one after the other, and the header that goes before them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from venturi.plan import (
    ActorLine,
    DropCaches,
    Header,
    Host,
    Measure,
    Parallel,
    Place,
    Plan,
    Prepare,
    Signal,
    Step,
    Totals,
    Transfer,
    Trial,
    Wait,
)
from venturi.workload.layout import Cell, Layout
from venturi.workload.streams import shuffled

if TYPE_CHECKING:
    from venturi.scenario import Scenario
    from venturi.workload.sweep import Sweep

__all__ = ["sweep_plan"]

ACTOR = "sweep"
TURN = "sweep.turn"
"""Counter by which actors on several hosts take turns: trials must not overlap."""


def sweep_plan(scenario: Scenario, sweep: Sweep, layout: Layout) -> Plan:
    """Return the plan of a sweep that is laid out."""
    storages = scenario.testbed.storage
    header = Header(
        name=scenario.name,
        seed=scenario.seed,
        scale=scenario.scale,
        scenario=scenario.document(),
        hosts={name: Host(host.ssh, host.memory) for name, host in scenario.testbed.host.items()},
        places={name: Place(storage.host, storage.path) for name, storage in storages.items()},
        datasets=layout.datasets,
        calls=layout.calls,
        measure=Measure(scenario.measure.interval, scenario.measure.counters),
        totals=_totals(sweep, layout),
    )
    return Plan(header, _SweepLines(scenario.seed, sweep.repeat, sweep.order == "random", layout))


@dataclass(frozen=True)
class _SweepLines:
    """The lines of a sweep, the same ones each time they are gone through."""

    seed: int
    repeat: int
    random: bool
    layout: Layout

    def __iter__(self) -> Iterator[ActorLine]:
        cells = self.layout.cells
        hosts = {cell.host for cell in cells}
        positions = dict.fromkeys(self.layout.datasets, 0)
        number = 0
        for block in range(self.repeat):
            order = shuffled(len(cells), self.seed, "order", block) if self.random else range(len(cells))
            for index in order:
                cell = cells[index]
                first = self._first_file(cell, positions)
                # A block holds every point once, so the block of a trial is also its repetition.
                trial = _trial(f"t{number:07d}", index, block, cell, first, self.layout)
                steps: tuple[Step, ...] = (trial,)
                if len(hosts) > 1:
                    steps = (Wait(TURN, number), trial, Signal(TURN, 1)) if number else (trial, Signal(TURN, 1))
                yield ActorLine(ACTOR if len(hosts) == 1 else f"{ACTOR}-{cell.host}", cell.host, steps)
                number += 1

    def _first_file(self, cell: Cell, positions: dict[str, int]) -> int:
        """Return the first file of the trial's range, and move on, so that successive trials read different files."""
        if cell.dataset is None:
            return 0
        first = positions[cell.dataset]
        if first + cell.files_read > self.layout.datasets[cell.dataset].files:
            first = 0
        positions[cell.dataset] = first + cell.files_read
        return first


def _trial(trial: str, point: int, block: int, cell: Cell, first: int, layout: Layout) -> Trial:
    steps: list[Step] = []
    if cell.dataset is not None:
        steps.append(Prepare(cell.dataset, first, cell.files_read, "warm" if cell.cache == "warm" else "as_is"))
        if cell.cache == "cold":
            steps.append(DropCaches(cell.dataset, first, cell.files_read))
    steps.append(Parallel(tuple((transfer,) for transfer in _transfers(trial, cell, first, layout))))
    return Trial(trial, point, block, block, cell.factors, tuple(steps))


def _transfers(trial: str, cell: Cell, first: int, layout: Layout) -> Iterator[Transfer]:
    dataset = layout.datasets[cell.dataset] if cell.dataset is not None else None
    # One folder for all trials: a folder for each would stay behind, empty, a hundred thousand times.
    below = f"{cell.destination}:out/{trial}-"
    together = len(cell.roles) > 1
    for slot in range(cell.files):
        for role in cell.roles:
            source = "zero:"
            if dataset is not None and role.reader is not None:
                source = dataset.endpoint(first + role.reader * cell.files + slot)
            # Two movers in one slot must not write to one file.
            target = f"{below}{slot:06d}-{role.mover}" if together else f"{below}{slot:06d}"
            yield Transfer(role.call, slot, source, target if role.writes else "null:", 1, cell.size_bytes)


def _totals(sweep: Sweep, layout: Layout) -> Totals:
    transfers = sum(cell.files * len(cell.roles) for cell in layout.cells)
    moved = sum(cell.files * len(cell.roles) * cell.size_bytes for cell in layout.cells)
    disk: dict[str, int] = {}
    for dataset in layout.datasets.values():
        disk[dataset.place] = disk.get(dataset.place, 0) + dataset.files * dataset.size_bytes
    written: dict[str, int] = {}
    for cell in layout.cells:
        if cell.destination is not None and cell.written_bytes:
            written[cell.destination] = max(written.get(cell.destination, 0), cell.written_bytes)
    for place, size in written.items():
        disk[place] = disk.get(place, 0) + size
    return Totals(len(layout.cells) * sweep.repeat, transfers * sweep.repeat, moved * sweep.repeat, disk)
