"""The batches as actor lines: an actor on each worker, one on each host that makes files, and the order between them.

Each worker carries out its part of a batch as a trial of its own; these trials have point and repetition in common. A batch is begun when all
parts of the one before have ended and, where caches are to be cold, when they have been dropped.
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
    Transfer,
    Trial,
    Wait,
)
from venturi.workload.header import plan_header
from venturi.workload.jobs_layout import Batch, Job, Layout, Made
from venturi.workload.streams import shuffled

if TYPE_CHECKING:
    from venturi.scenario import Scenario
    from venturi.testbed.plan import ResolvedTestbed
    from venturi.workload.jobs import Jobs

__all__ = ["COLD", "DATA", "ENDED", "SLOTS", "TOGETHER", "jobs_plan"]

DATA, ENDED, COLD, TOGETHER = "jobs.data", "jobs.ended", "jobs.cold", "jobs.together"
"""Counters: hosts that have made their files; parts of batches that have ended; caches that were dropped before a batch; parts that
are ready to begin."""
SLOTS = "slots"
"""The pool of each worker."""


def jobs_plan(scenario: Scenario, jobs: Jobs, layout: Layout, parts: ResolvedTestbed) -> Plan:
    """Return the plan of batches that are laid out."""
    header = plan_header(
        scenario,
        parts,
        datasets=layout.datasets,
        calls=layout.calls,
        pools={SLOTS: jobs.slots},
        totals=_totals(jobs, layout),
    )
    return Plan(header, _Lines(scenario.seed, jobs, layout))


@dataclass(frozen=True)
class _Lines:
    """The lines of the batches, the same ones each time they are gone through."""

    seed: int
    jobs: Jobs
    layout: Layout

    def __iter__(self) -> Iterator[ActorLine]:
        makers = tuple(dict.fromkeys(made.host for made in self.layout.made))
        for host in makers:
            own = [made for made in self.layout.made if made.host == host]
            yield ActorLine(_maker(host), host, (*self._made(own), Signal(DATA, 1)))
        number = ended = cold = together = 0
        for point, repetition in self._order():
            batch = self.layout.batches[point]
            before: tuple[Step, ...] = (Wait(DATA, len(makers)),) if makers else ()
            before += (Wait(ENDED, ended),) if ended else ()
            for host, dataset in batch.drops.items():
                if host in batch.hosts:
                    continue
                cold += 1
                yield ActorLine(_maker(host), host, (*before, DropCaches(dataset, 0, batch.jobs), Signal(COLD, 1)))
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

    def _made(self, made: Sequence[Made]) -> Iterator[Step]:
        for one in made:
            dataset = self.layout.datasets[one.dataset]
            if one.call is None:
                yield Prepare(one.dataset, 0, dataset.files, "as_is")
                continue
            total = dataset.files * dataset.size_bytes
            # A call for one file is told the file, one for many their folder.
            target = f"{dataset.place}:{dataset.path}" + ("/000000" if dataset.files == 1 else "")
            yield Transfer(one.call, 0, "zero:", target, dataset.files, total, True)

    def _body(self, batch: Batch, host: str, own: Sequence[Job], together: int) -> tuple[Step, ...]:
        children = tuple(self._job(batch, job, queued=len(own) > self.jobs.slots) for job in own)
        steps: tuple[Step, ...] = ()
        if host in batch.drops:
            steps = (DropCaches(batch.drops[host], 0, batch.jobs),)
        return (*steps, Signal(TOGETHER, 1), Wait(TOGETHER, together), Parallel(children))

    def _job(self, batch: Batch, job: Job, *, queued: bool) -> tuple[Step, ...]:
        transfer = Transfer(
            batch.call, job.number, job.source or "zero:", "null:", 1, batch.size_bytes,
            source_via=job.source_via, destination_via=job.destination_via,
        )  # fmt: skip
        steps: tuple[Step, ...] = (transfer,)
        if batch.compute_core_s:
            steps += (Compute(batch.compute_core_s),)
        # Without a queue the first steps are transfers, which are forked beforehand and let go together.
        return (Acquire(SLOTS, 1), *steps, Release(SLOTS, 1)) if queued else steps


def _maker(host: str) -> str:
    return f"files-{host}"


def _totals(jobs: Jobs, layout: Layout) -> Totals:
    disk: dict[str, int] = {}
    for made in layout.made:
        dataset = layout.datasets[made.dataset]
        disk[dataset.place] = disk.get(dataset.place, 0) + dataset.files * dataset.size_bytes
    transfers = sum(batch.jobs for batch in layout.batches)
    moved = sum(batch.jobs * batch.size_bytes for batch in layout.batches)
    trials = sum(len(batch.hosts) for batch in layout.batches)
    return Totals(trials * jobs.repeat, transfers * jobs.repeat, moved * jobs.repeat, disk)
