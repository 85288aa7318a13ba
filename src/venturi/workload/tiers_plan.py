"""Production, replication and analysis as actor lines, and the header that goes before them.

What waits for what is said with counters: ``tiers.ready`` (the small files are there), ``tiers.produced``,
``tiers.MODEL.arrived`` and ``tiers.MODEL.arrived.SITE`` (files), ``tiers.MODEL.tried`` and ``tiers.MODEL.over`` (actors). A file that
fails has not arrived; when all have been tried, whoever waits for more of them goes on, as no more will come.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from venturi.plan import ActorLine, Compute, Pause, Plan, Prepare, Signal, Step, Totals, Trial, Wait
from venturi.plan.steps import FactorValue
from venturi.workload.header import plan_header
from venturi.workload.numbering import Points
from venturi.workload.sites import Machine
from venturi.workload.tiers_layout import Layout

if TYPE_CHECKING:
    from venturi.scenario import Scenario
    from venturi.testbed.plan import ResolvedTestbed
    from venturi.workload.tiers import Tiers

__all__ = ["tiers_plan"]

READY = "tiers.ready"
PRODUCED = "tiers.produced"


def tiers_plan(scenario: Scenario, tiers: Tiers, layout: Layout, parts: ResolvedTestbed) -> Plan:
    """Return the plan of a workload that is laid out."""
    lines = _Lines(scenario, tiers, layout)
    header = plan_header(
        scenario,
        parts,
        datasets=layout.datasets,
        calls=layout.exchange.calls,
        totals=_totals(tiers, layout),
    )
    return Plan(header, lines)


@dataclass(frozen=True)
class _Numbers:
    """Numbers trials in the order of the lines, and points as they first come."""

    points: Points
    trials: Iterator[int]

    def trial(
        self, factors: dict[str, FactorValue], key: tuple[object, ...], steps: tuple[Step, ...],
        counts: Mapping[str, int] | None = None,
    ) -> Trial:  # fmt: skip
        point, repetition = self.points.of(*key)
        name = f"t{next(self.trials):07d}"
        return Trial(name, point, repetition, repetition, factors, steps, counts=counts or {})


class _Lines:
    """The lines of the plan, the same ones each time they are gone through."""

    def __init__(self, scenario: Scenario, tiers: Tiers, layout: Layout) -> None:
        self._seed, self._tiers, self._layout = scenario.seed, tiers, layout

    def __iter__(self) -> Iterator[ActorLine]:
        numbers = _Numbers(Points(), iter(range(10**9)))
        for machine in self._layout.machines:
            yield from self._production(machine, numbers)
        # All actors of a model are counted before the next one begins.
        actors = self._tiers.parallel * len(self._layout.senders) + self._tiers.jobs.parallel * len(
            self._layout.submitters
        )
        for model in self._tiers.models:
            yield self._no_more(model)
            for sender in self._layout.senders:
                for lane in range(self._tiers.parallel):
                    yield from self._replication(model, sender, lane, actors, numbers)
            for submitter in self._layout.submitters:
                for lane in range(self._tiers.jobs.parallel):
                    yield from self._analysis(model, submitter, lane, actors, numbers)

    def _production(self, machine: Machine, numbers: _Numbers) -> Iterator[ActorLine]:
        """Yield what a machine makes: its small files first, then its events in batches."""
        small = [f"{what}-{machine.host}" for what in ("input", "result")]
        first: list[Step] = [Prepare(name, 0, 1, "as_is") for name in small if name in self._layout.datasets]
        yield ActorLine(machine.host, machine.host, (*first, Signal(READY, 1)))
        events, made = self._layout.events[machine.host], self._tiers.production
        for begin in range(0, events, made.batch):
            count = min(made.batch, events - begin)
            prepare = Prepare(f"events-{machine.host}", begin, count, "as_is")
            steps: tuple[Step, ...] = (prepare,)
            if made.compute:
                steps = (Compute(count * made.compute), prepare)
            factors: dict[str, FactorValue] = {"phase": "production", "site": machine.site, "events": count}
            trial = numbers.trial(factors, ("production", machine.site, count), steps)
            yield ActorLine(machine.host, machine.host, (trial,))
        if events:
            yield ActorLine(machine.host, machine.host, (Signal(PRODUCED, 1),))

    def _replication(
        self, model: str, own: Machine, lane: int, actors: int, numbers: _Numbers
    ) -> Iterator[ActorLine]:
        actor = f"{own.host}-send{lane}"
        yield ActorLine(actor, own.host, self._beginning(model, actors))
        dataset = self._layout.datasets[f"events-{own.host}"]
        able = self._layout.receivers[model, own.host]
        upper = list(able)
        for index in range(lane, self._layout.events[own.host], self._tiers.parallel):
            to = (
                upper[index % len(upper)]
                if model == "multi-tier"
                else able.draw(self._seed, "tiers", model, own.host, index)
            )
            labels = _labels(own, to, "replica")
            factors: dict[str, FactorValue] = {
                "files": 1, "size_bytes": dataset.size_bytes, "model": model, "phase": "replication", "site": own.site,
            }  # fmt: skip
            target = f"{to.place}:out/{model}-{own.host}-{index:06d}"
            transfer = self._layout.exchange.transfer(
                own, dataset.endpoint(index), target, dataset.size_bytes, labels
            )
            arrived = {f"tiers.{model}.arrived": 1, f"tiers.{model}.arrived.{own.site}": 1}
            trial = numbers.trial(factors, (model, "replication", own.site), (transfer,), arrived)
            yield ActorLine(actor, own.host, (trial,))
        yield ActorLine(actor, own.host, (Signal(f"tiers.{model}.tried", 1), Signal(f"tiers.{model}.over", 1)))

    def _no_more(self, model: str) -> ActorLine:
        """Return who lets jobs begin when all files have been tried, however many of them have failed."""
        host = self._layout.senders[0].host
        tried = Wait(f"tiers.{model}.tried", self._tiers.parallel * len(self._layout.senders))
        anyway = (Signal(wait.counter, wait.until) for wait in self._threshold(model))
        return ActorLine(f"{host}-{model}-tried", host, (tried, *anyway))

    def _analysis(self, model: str, own: Machine, lane: int, actors: int, numbers: _Numbers) -> Iterator[ActorLine]:
        actor, jobs = f"{own.host}-jobs{lane}", self._tiers.jobs
        yield ActorLine(actor, own.host, (*self._beginning(model, actors), *self._threshold(model)))
        for index in range(lane, jobs.count, jobs.parallel):
            to = self._layout.centres[model, own.host].draw(self._seed, "tiers", model, own.host, "job", index)
            yield ActorLine(actor, own.host, (self._job(model, own, to, index, numbers),))
        yield ActorLine(actor, own.host, (Signal(f"tiers.{model}.over", 1),))

    def _job(self, model: str, own: Machine, to: Machine, index: int, numbers: _Numbers) -> Trial:
        sent, fetched = self._layout.datasets[f"input-{own.host}"], self._layout.datasets[f"result-{to.host}"]
        tier = self._layout.tiers[to.site]
        wait_s = self._tiers.jobs.wait_tier1 if tier == 1 else self._tiers.jobs.wait_tier2
        name = f"out/{model}-{own.host}-job{index:06d}"
        exchange = self._layout.exchange
        steps: tuple[Step, ...] = (
            exchange.transfer(own, sent.endpoint(0), f"{to.place}:{name}-input", sent.size_bytes, _labels(own, to, "upload")),
            Pause(wait_s),
            exchange.transfer(own, fetched.endpoint(0), f"{own.place}:{name}-result", fetched.size_bytes, _labels(own, to, "download")),
        )  # fmt: skip
        factors: dict[str, FactorValue] = {
            "files": 1,
            "model": model,
            "phase": "analysis",
            "site": own.site,
            "centre_tier": tier,
        }
        return numbers.trial(factors, (model, "analysis", own.site, tier), steps)

    def _beginning(self, model: str, actors: int) -> tuple[Step, ...]:
        """Return what an actor waits for before a model begins."""
        at = self._tiers.models.index(model)
        if at:
            return (Wait(f"tiers.{self._tiers.models[at - 1]}.over", actors),)
        producers = sum(1 for events in self._layout.events.values() if events)
        return Wait(READY, len(self._layout.machines)), Wait(PRODUCED, producers)

    def _threshold(self, model: str) -> tuple[Wait, ...]:
        if self._tiers.threshold_of == "all":
            return (Wait(f"tiers.{model}.arrived", self._enough(self._layout.to_send())),)
        sites = dict.fromkeys(own.site for own in self._layout.senders)
        return tuple(
            Wait(f"tiers.{model}.arrived.{site}", self._enough(self._layout.to_send(site))) for site in sites
        )

    def _enough(self, files: int) -> int:
        # 0.8 × 1000 is 800, whatever the binary fraction makes of it.
        return math.ceil(round(self._tiers.threshold * files, 6))


def _labels(own: Machine, to: Machine, what: str) -> dict[str, FactorValue]:
    return {"machine": own.host, "partner": to.host, "partner_site": to.site, "part": what}


def _totals(tiers: Tiers, layout: Layout) -> Totals:
    batches = sum(math.ceil(events / tiers.production.batch) for events in layout.events.values())
    models, jobs = len(tiers.models), tiers.jobs.count * len(layout.submitters)
    size = {name.partition("-")[0]: dataset.size_bytes for name, dataset in layout.datasets.items()}
    sent = layout.to_send()
    moved = models * (sent * size["events"] + jobs * (size["input"] + size["result"]))
    # Nothing is kept that arrives, so of each file that is on its way one more is there: files at the receivers, results at the submitters.
    disk = {own.place: 0 for own in layout.machines}
    for dataset in layout.datasets.values():
        disk[dataset.place] += dataset.files * dataset.size_bytes
    for machine in layout.machines:
        senders = max(
            sum(1 for (at, _), able in layout.receivers.items() if at == model and machine in able)
            for model in tiers.models
        )
        lanes = tiers.parallel * senders
        disk[machine.place] += lanes * size["events"] + tiers.jobs.parallel * (size["result"] + size["input"])
    return Totals(batches + models * (sent + jobs), models * (sent + 2 * jobs), moved, disk)
