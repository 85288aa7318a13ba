"""Plan of the workload ``jobs``: an actor on each worker and on each host that creates files.

Each worker runs its jobs of a batch as a separate trial; these trials share point and repetition. A batch starts after
the end of all trials of the previous batch and, with cold caches, after their drop.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from venturi.plan import (
    Acquire,
    ActorLine,
    Compute,
    DropCaches,
    Parallel,
    Plan,
    Prepare,
    Release,
    Signal,
    Step,
    Totals,
    TransferStep,
    Trial,
    Wait,
)
from venturi.workload.header import plan_header
from venturi.workload.jobs_layout import GeneratedFiles, Job, JobBatch, JobsLayout
from venturi.workload.streams import shuffled

if TYPE_CHECKING:
    from venturi.scenario import Scenario
    from venturi.testbed.plan import ResolvedTestbed
    from venturi.workload.jobs import JobsWorkload

__all__ = ["COLD", "DATA", "ENDED", "SLOTS", "TOGETHER", "jobs_plan"]

DATA, ENDED, COLD, TOGETHER = "jobs.data", "jobs.ended", "jobs.cold", "jobs.together"
"""Counters: hosts with complete datasets, finished trials, dropped caches, and trials that are ready to start."""
SLOTS = "slots"
"""Pool of slots of each worker."""


def jobs_plan(scenario: Scenario, jobs: JobsWorkload, layout: JobsLayout, parts: ResolvedTestbed) -> Plan:
    """Return the plan of resolved batches."""
    header = plan_header(
        scenario,
        parts,
        datasets=layout.datasets,
        calls=layout.calls,
        pools={SLOTS: jobs.slots},
        totals=_totals(jobs, layout),
    )
    return Plan(header, _JobsActorLines(scenario.seed, jobs, layout))


@dataclass(frozen=True)
class _JobsActorLines:
    """Actor lines; each iteration yields the same lines."""

    seed: int
    jobs: JobsWorkload
    layout: JobsLayout

    def __iter__(self) -> Iterator[ActorLine]:
        file_hosts = tuple(dict.fromkeys(generated.host for generated in self.layout.generated))
        for host in file_hosts:
            own = [generated for generated in self.layout.generated if generated.host == host]
            yield ActorLine(_files_actor(host), host, (*self._create_files(own), Signal(DATA, 1)))
        number = ended = cold = together = 0
        for point, repetition in self._order():
            batch = self.layout.batches[point]
            before: tuple[Step, ...] = (Wait(DATA, len(file_hosts)),) if file_hosts else ()
            before += (Wait(ENDED, ended),) if ended else ()
            for host, dataset in batch.drops.items():
                if host in batch.hosts:
                    continue
                cold += 1
                yield ActorLine(
                    _files_actor(host), host, (*before, DropCaches(dataset, 0, batch.jobs), Signal(COLD, 1))
                )
            before += (Wait(COLD, cold),) if cold else ()
            together += len(batch.hosts)
            for host, own_jobs in batch.hosts.items():
                body = self._body(batch, host, own_jobs, together)
                trial = Trial(f"t{number:07d}", point, repetition, repetition, batch.factors, body)
                yield ActorLine(f"jobs-{host}", host, (*before, trial, Signal(ENDED, 1)))
                number += 1
            ended += len(batch.hosts)

    def _order(self) -> Iterator[tuple[int, int]]:
        points = len(self.layout.batches)
        for repetition in range(self.jobs.repeat):
            shuffle = self.jobs.order == "random"
            order: Sequence[int] = shuffled(points, self.seed, "order", repetition) if shuffle else range(points)
            for point in order:
                yield point, repetition

    def _create_files(self, generated: Sequence[GeneratedFiles]) -> Iterator[Step]:
        for one in generated:
            dataset = self.layout.datasets[one.dataset]
            if one.call is None:
                yield Prepare(one.dataset, 0, dataset.files, "as_is")
                continue
            total = dataset.files * dataset.size_bytes
            # A call for one file receives the file, a call for several files their directory.
            target = f"{dataset.storage}:{dataset.path}" + ("/000000" if dataset.files == 1 else "")
            yield TransferStep(one.call, 0, "zero:", target, dataset.files, total, True)

    def _body(self, batch: JobBatch, host: str, own: Sequence[Job], together: int) -> tuple[Step, ...]:
        children = tuple(self._job(batch, job, queued=len(own) > self.jobs.slots) for job in own)
        steps: tuple[Step, ...] = ()
        if host in batch.drops:
            steps = (DropCaches(batch.drops[host], 0, batch.jobs),)
        return (*steps, Signal(TOGETHER, 1), Wait(TOGETHER, together), Parallel(children))

    def _job(self, batch: JobBatch, job: Job, *, queued: bool) -> tuple[Step, ...]:
        transfer = TransferStep(
            batch.call, job.number, job.source or "zero:", "null:", 1, batch.size_bytes,
            source_via=job.source_via, destination_via=job.destination_via,
        )  # fmt: skip
        steps: tuple[Step, ...] = (transfer,)
        if batch.compute_core_s:
            steps += (Compute(batch.compute_core_s),)
        # Without a queue, the first steps are transfers; the agent forks them in advance and releases them together.
        return (Acquire(SLOTS, 1), *steps, Release(SLOTS, 1)) if queued else steps


def _files_actor(host: str) -> str:
    return f"files-{host}"


def _totals(jobs: JobsWorkload, layout: JobsLayout) -> Totals:
    disk: dict[str, int] = {}
    for generated in layout.generated:
        dataset = layout.datasets[generated.dataset]
        disk[dataset.storage] = disk.get(dataset.storage, 0) + dataset.files * dataset.size_bytes
    transfers = sum(batch.jobs for batch in layout.batches)
    moved = sum(batch.jobs * batch.size_bytes for batch in layout.batches)
    trials = sum(len(batch.hosts) for batch in layout.batches)
    return Totals(trials * jobs.repeat, transfers * jobs.repeat, moved * jobs.repeat, disk)
