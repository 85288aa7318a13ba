"""Plan of the workload ``dataset``: header and trials."""

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
    TransferStep,
    Trial,
    Wait,
)
from venturi.workload.dataset_layout import DatasetLayout, DatasetResolvedPoint, DatasetWorker
from venturi.workload.header import plan_header
from venturi.workload.streams import shuffled

if TYPE_CHECKING:
    from venturi.scenario import Scenario
    from venturi.testbed.plan import ResolvedTestbed
    from venturi.workload.dataset import Datasets

__all__ = ["dataset_plan"]

ACTOR = "dataset"
TURN = "dataset.turn"
"""Counter of finished trials: points must not overlap."""
READY = "dataset.ready"
"""Counter of trials with complete datasets: the trials of a point start their transfers together."""


def dataset_plan(scenario: Scenario, workload: Datasets, layout: DatasetLayout, parts: ResolvedTestbed) -> Plan:
    """Return the plan of resolved datasets."""
    header = plan_header(
        scenario,
        parts,
        datasets=layout.datasets,
        calls=layout.calls,
        totals=_totals(workload.repeat, layout),
    )
    return Plan(header, _DatasetActorLines(scenario.seed, workload.repeat, workload.order == "random", layout))


@dataclass(frozen=True)
class _DatasetActorLines:
    """Actor lines; each iteration yields the same lines."""

    seed: int
    repeat: int
    random: bool
    layout: DatasetLayout

    def __iter__(self) -> Iterator[ActorLine]:
        resolved_points = self.layout.resolved_points
        single_host = len({host for resolved in resolved_points for host in resolved.hosts}) == 1
        number = 0
        for block in range(self.repeat):
            order = (
                shuffled(len(resolved_points), self.seed, "order", block)
                if self.random
                else range(len(resolved_points))
            )
            for point in order:
                resolved = resolved_points[point]
                before, together = number, number + len(resolved.hosts)
                for host, workers in resolved.hosts.items():
                    meet = () if single_host else (Signal(READY, 1), Wait(READY, together))
                    trial = _trial(f"t{number:07d}", point, block, resolved, workers, meet, self.layout.datasets)
                    number += 1
                    if single_host:
                        yield ActorLine(ACTOR, host, (trial,))
                        continue
                    turn = (Wait(TURN, before),) if before else ()
                    yield ActorLine(f"{ACTOR}-{host}", host, (*turn, trial, Signal(TURN, 1)))


def _trial(
    name: str,
    point: int,
    block: int,
    resolved: DatasetResolvedPoint,
    workers: tuple[DatasetWorker, ...],
    meet: tuple[Step, ...],
    datasets: Mapping[str, Dataset],
) -> Trial:
    needed: dict[str, int] = {}
    for worker in workers:
        needed[worker.dataset] = max(needed.get(worker.dataset, 0), worker.first + worker.files)
    steps: list[Step] = [
        Prepare(dataset, 0, files, "warm" if resolved.cache == "warm" else "as_is")
        for dataset, files in needed.items()
    ]
    if resolved.cache == "cold":
        steps += [DropCaches(dataset, 0, files) for dataset, files in needed.items()]
    calls = tuple(tuple(_calls(name, resolved, worker, datasets[worker.dataset])) for worker in workers)
    # A block contains every point once, so the block number is the repetition.
    return Trial(name, point, block, block, resolved.factors, (*steps, *meet, Parallel(calls)))


def _calls(
    trial: str, resolved: DatasetResolvedPoint, worker: DatasetWorker, dataset: Dataset
) -> Iterator[TransferStep]:
    end = worker.first + worker.files
    for first in range(worker.first, end, resolved.files_per_call):
        files = min(resolved.files_per_call, end - first)
        turn = (
            "" if resolved.files_per_call >= worker.files else f"-{(first - worker.first) // resolved.files_per_call}"
        )
        yield TransferStep(
            resolved.call,
            worker.slot,
            dataset.endpoint(first),
            f"{worker.destination}:out/{trial}-{worker.slot:06d}{turn}" if worker.destination else "null:",
            files,
            dataset.range_bytes(first, files),
            False,
            {"pair": worker.pair},
            worker.source_via,
            worker.destination_via,
        )


def _totals(repeat: int, layout: DatasetLayout) -> Totals:
    trials = transfers = moved = 0
    disk: dict[str, int] = {}
    for dataset in layout.datasets.values():
        disk[dataset.storage] = disk.get(dataset.storage, 0) + dataset.bytes
    largest: dict[str, int] = {}
    for resolved in layout.resolved_points:
        written: dict[str, int] = {}
        trials += len(resolved.hosts)
        for worker in (worker for workers in resolved.hosts.values() for worker in workers):
            size = layout.datasets[worker.dataset].range_bytes(worker.first, worker.files)
            transfers += -(-worker.files // resolved.files_per_call)
            moved += size
            if worker.destination:
                written[worker.destination] = written.get(worker.destination, 0) + size
        for storage, size in written.items():
            largest[storage] = max(largest.get(storage, 0), size)
    for storage, size in largest.items():
        disk[storage] = disk.get(storage, 0) + size
    return Totals(trials * repeat, transfers * repeat, moved * repeat, disk)
