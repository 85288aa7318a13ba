"""The trials of the workload ``dataset`` as actor lines, and the header that goes before them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from venturi.plan import (
    ActorLine,
    Dataset,
    DropCaches,
    Parallel,
    Plan,
    Prepare,
    Signal,
    Step,
    Totals,
    Transfer,
    Trial,
    Wait,
)
from venturi.workload.dataset_layout import Cell, Layout, Worker
from venturi.workload.header import plan_header
from venturi.workload.streams import shuffled

if TYPE_CHECKING:
    from venturi.scenario import Scenario
    from venturi.testbed.plan import ResolvedTestbed
    from venturi.workload.dataset import Datasets

__all__ = ["dataset_plan"]

ACTOR = "dataset"
TURN = "dataset.turn"
"""Trials that are done: points must not overlap."""
READY = "dataset.ready"
"""Trials whose files are there: those of a point begin to move them together."""


def dataset_plan(scenario: Scenario, workload: Datasets, layout: Layout, parts: ResolvedTestbed) -> Plan:
    """Return the plan of file sets that are laid out."""
    header = plan_header(
        scenario,
        parts,
        datasets=layout.datasets,
        calls=layout.calls,
        totals=_totals(workload.repeat, layout),
    )
    return Plan(header, _Lines(scenario.seed, workload.repeat, workload.order == "random", layout))


@dataclass(frozen=True)
class _Lines:
    """The lines of the plan, the same ones each time they are gone through."""

    seed: int
    repeat: int
    random: bool
    layout: Layout

    def __iter__(self) -> Iterator[ActorLine]:
        cells = self.layout.cells
        alone = len({host for cell in cells for host in cell.hosts}) == 1
        number = 0
        for block in range(self.repeat):
            order = shuffled(len(cells), self.seed, "order", block) if self.random else range(len(cells))
            for point in order:
                cell = cells[point]
                before, together = number, number + len(cell.hosts)
                for host, workers in cell.hosts.items():
                    meet = () if alone else (Signal(READY, 1), Wait(READY, together))
                    trial = _trial(f"t{number:07d}", point, block, cell, workers, meet, self.layout.datasets)
                    number += 1
                    if alone:
                        yield ActorLine(ACTOR, host, (trial,))
                        continue
                    turn = (Wait(TURN, before),) if before else ()
                    yield ActorLine(f"{ACTOR}-{host}", host, (*turn, trial, Signal(TURN, 1)))


def _trial(
    name: str,
    point: int,
    block: int,
    cell: Cell,
    workers: tuple[Worker, ...],
    meet: tuple[Step, ...],
    datasets: Mapping[str, Dataset],
) -> Trial:
    needed: dict[str, int] = {}
    for worker in workers:
        needed[worker.dataset] = max(needed.get(worker.dataset, 0), worker.first + worker.files)
    steps: list[Step] = [
        Prepare(dataset, 0, files, "warm" if cell.cache == "warm" else "as_is") for dataset, files in needed.items()
    ]
    if cell.cache == "cold":
        steps += [DropCaches(dataset, 0, files) for dataset, files in needed.items()]
    calls = tuple(tuple(_calls(name, cell, worker, datasets[worker.dataset])) for worker in workers)
    # A block holds every point once, so the block of a trial is also its repetition.
    return Trial(name, point, block, block, cell.factors, (*steps, *meet, Parallel(calls)))


def _calls(trial: str, cell: Cell, worker: Worker, dataset: Dataset) -> Iterator[Transfer]:
    end = worker.first + worker.files
    for first in range(worker.first, end, cell.files_per_call):
        files = min(cell.files_per_call, end - first)
        turn = "" if cell.files_per_call >= worker.files else f"-{(first - worker.first) // cell.files_per_call}"
        yield Transfer(
            cell.call,
            worker.slot,
            dataset.endpoint(first),
            f"{worker.destination}:out/{trial}-{worker.slot:06d}{turn}" if worker.destination else "null:",
            files,
            dataset.bytes_of(first, files),
            False,
            {"pair": worker.pair},
            worker.source_via,
            worker.destination_via,
        )


def _totals(repeat: int, layout: Layout) -> Totals:
    trials = transfers = moved = 0
    disk: dict[str, int] = {}
    for dataset in layout.datasets.values():
        disk[dataset.place] = disk.get(dataset.place, 0) + dataset.bytes
    largest: dict[str, int] = {}
    for cell in layout.cells:
        written: dict[str, int] = {}
        trials += len(cell.hosts)
        for worker in (worker for workers in cell.hosts.values() for worker in workers):
            size = layout.datasets[worker.dataset].bytes_of(worker.first, worker.files)
            transfers += -(-worker.files // cell.files_per_call)
            moved += size
            if worker.destination:
                written[worker.destination] = written.get(worker.destination, 0) + size
        for place, size in written.items():
            largest[place] = max(largest.get(place, 0), size)
    for place, size in largest.items():
        disk[place] = disk.get(place, 0) + size
    return Totals(trials * repeat, transfers * repeat, moved * repeat, disk)
