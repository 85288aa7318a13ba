"""Plan of the workload ``tiers``: header, production, replication and analysis.

Counters synchronise the actors: ``tiers.ready`` (small files exist), ``tiers.produced``, ``tiers.MODEL.arrived`` and
``tiers.MODEL.arrived.SITE`` (files), ``tiers.MODEL.tried`` and ``tiers.MODEL.over`` (actors). A failed file does not
count as arrived. After all transfers, the waiting actors continue, because no more files will arrive.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from venturi.plan import ActorLine, Compute, Pause, Plan, Prepare, Signal, Step, Totals, Trial, Wait
from venturi.plan.steps import FactorValue
from venturi.workload.header import plan_header
from venturi.workload.numbering import PointNumbering
from venturi.workload.sites import SiteHost
from venturi.workload.tiers_layout import TiersLayout

if TYPE_CHECKING:
    from venturi.scenario import Scenario
    from venturi.testbed.plan import ResolvedTestbed
    from venturi.workload.tiers import Tiers

__all__ = ["tiers_plan"]

READY = "tiers.ready"
PRODUCED = "tiers.produced"


def tiers_plan(scenario: Scenario, tiers: Tiers, layout: TiersLayout, parts: ResolvedTestbed) -> Plan:
    """Return the plan of a resolved workload."""
    lines = _TiersActorLines(scenario, tiers, layout)
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
    """Numbers trials in the order of the lines, and points in the order of their first use."""

    points: PointNumbering
    trials: Iterator[int]

    def trial(
        self, factors: dict[str, FactorValue], key: tuple[object, ...], steps: tuple[Step, ...],
        counts: Mapping[str, int] | None = None,
    ) -> Trial:  # fmt: skip
        point, repetition = self.points.of(*key)
        name = f"t{next(self.trials):07d}"
        return Trial(name, point, repetition, repetition, factors, steps, counts=counts or {})


class _TiersActorLines:
    """Actor lines; each iteration yields the same lines."""

    def __init__(self, scenario: Scenario, tiers: Tiers, layout: TiersLayout) -> None:
        self._seed, self._tiers, self._layout = scenario.seed, tiers, layout

    def __iter__(self) -> Iterator[ActorLine]:
        numbers = _Numbers(PointNumbering(), iter(range(10**9)))
        for machine in self._layout.machines:
            yield from self._production(machine, numbers)
        # A model starts after all actors of the previous model.
        actors = self._tiers.parallel * len(self._layout.senders) + self._tiers.jobs.parallel * len(
            self._layout.submitters
        )
        for model in self._tiers.models:
            yield self._release_jobs(model)
            for sender in self._layout.senders:
                for lane in range(self._tiers.parallel):
                    yield from self._replication(model, sender, lane, actors, numbers)
            for submitter in self._layout.submitters:
                for lane in range(self._tiers.jobs.parallel):
                    yield from self._analysis(model, submitter, lane, actors, numbers)

    def _production(self, machine: SiteHost, numbers: _Numbers) -> Iterator[ActorLine]:
        """Yield the production of a host: its small files, then its events in batches."""
        small = [f"{what}-{machine.host}" for what in ("input", "result")]
        first: list[Step] = [Prepare(name, 0, 1, "as_is") for name in small if name in self._layout.datasets]
        yield ActorLine(machine.host, machine.host, (*first, Signal(READY, 1)))
        events, made = self._layout.events[machine.host], self._tiers.production
        for first_event in range(0, events, made.batch):
            count = min(made.batch, events - first_event)
            prepare = Prepare(f"events-{machine.host}", first_event, count, "as_is")
            steps: tuple[Step, ...] = (prepare,)
            if made.compute:
                steps = (Compute(count * made.compute), prepare)
            factors: dict[str, FactorValue] = {"phase": "production", "site": machine.site, "events": count}
            trial = numbers.trial(factors, ("production", machine.site, count), steps)
            yield ActorLine(machine.host, machine.host, (trial,))
        if events:
            yield ActorLine(machine.host, machine.host, (Signal(PRODUCED, 1),))

    def _replication(
        self, model: str, own: SiteHost, lane: int, actors: int, numbers: _Numbers
    ) -> Iterator[ActorLine]:
        actor = f"{own.host}-send{lane}"
        yield ActorLine(actor, own.host, self._start_steps(model, actors))
        dataset = self._layout.datasets[f"events-{own.host}"]
        candidates = self._layout.receivers[model, own.host]
        upper = list(candidates)
        for index in range(lane, self._layout.events[own.host], self._tiers.parallel):
            to = (
                upper[index % len(upper)]
                if model == "multi-tier"
                else candidates.draw(self._seed, "tiers", model, own.host, index)
            )
            labels = _labels(own, to, "replica")
            factors: dict[str, FactorValue] = {
                "files": 1, "size_bytes": dataset.size_bytes, "model": model, "phase": "replication", "site": own.site,
            }  # fmt: skip
            target = f"{to.storage}:out/{model}-{own.host}-{index:06d}"
            transfer = self._layout.exchange.transfer(
                own, dataset.endpoint(index), target, dataset.size_bytes, labels
            )
            arrived = {f"tiers.{model}.arrived": 1, f"tiers.{model}.arrived.{own.site}": 1}
            trial = numbers.trial(factors, (model, "replication", own.site), (transfer,), arrived)
            yield ActorLine(actor, own.host, (trial,))
        yield ActorLine(actor, own.host, (Signal(f"tiers.{model}.tried", 1), Signal(f"tiers.{model}.over", 1)))

    def _release_jobs(self, model: str) -> ActorLine:
        """Return the line that releases the jobs after all transfers, even if files have failed."""
        host = self._layout.senders[0].host
        tried = Wait(f"tiers.{model}.tried", self._tiers.parallel * len(self._layout.senders))
        anyway = (Signal(wait.counter, wait.until) for wait in self._threshold(model))
        return ActorLine(f"{host}-{model}-tried", host, (tried, *anyway))

    def _analysis(self, model: str, own: SiteHost, lane: int, actors: int, numbers: _Numbers) -> Iterator[ActorLine]:
        actor, jobs = f"{own.host}-jobs{lane}", self._tiers.jobs
        yield ActorLine(actor, own.host, (*self._start_steps(model, actors), *self._threshold(model)))
        for index in range(lane, jobs.count, jobs.parallel):
            to = self._layout.centres[model, own.host].draw(self._seed, "tiers", model, own.host, "job", index)
            yield ActorLine(actor, own.host, (self._job(model, own, to, index, numbers),))
        yield ActorLine(actor, own.host, (Signal(f"tiers.{model}.over", 1),))

    def _job(self, model: str, own: SiteHost, to: SiteHost, index: int, numbers: _Numbers) -> Trial:
        sent, fetched = self._layout.datasets[f"input-{own.host}"], self._layout.datasets[f"result-{to.host}"]
        tier = self._layout.tiers[to.site]
        wait_s = self._tiers.jobs.wait_tier1 if tier == 1 else self._tiers.jobs.wait_tier2
        name = f"out/{model}-{own.host}-job{index:06d}"
        exchange = self._layout.exchange
        steps: tuple[Step, ...] = (
            exchange.transfer(own, sent.endpoint(0), f"{to.storage}:{name}-input", sent.size_bytes, _labels(own, to, "upload")),
            Pause(wait_s),
            exchange.transfer(own, fetched.endpoint(0), f"{own.storage}:{name}-result", fetched.size_bytes, _labels(own, to, "download")),
        )  # fmt: skip
        factors: dict[str, FactorValue] = {
            "files": 1,
            "model": model,
            "phase": "analysis",
            "site": own.site,
            "centre_tier": tier,
        }
        return numbers.trial(factors, (model, "analysis", own.site, tier), steps)

    def _start_steps(self, model: str, actors: int) -> tuple[Step, ...]:
        """Return the waits of an actor before a model starts."""
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
        # Round: 0.8 is inexact in binary, but 0.8 × 1000 is 800.
        return math.ceil(round(self._tiers.threshold * files, 6))


def _labels(own: SiteHost, to: SiteHost, what: str) -> dict[str, FactorValue]:
    return {"machine": own.host, "partner": to.host, "partner_site": to.site, "part": what}


def _totals(tiers: Tiers, layout: TiersLayout) -> Totals:
    batches = sum(math.ceil(events / tiers.production.batch) for events in layout.events.values())
    models, jobs = len(tiers.models), tiers.jobs.count * len(layout.submitters)
    size = {name.partition("-")[0]: dataset.size_bytes for name, dataset in layout.datasets.items()}
    sent = layout.to_send()
    moved = models * (sent * size["events"] + jobs * (size["input"] + size["result"]))
    # Received files are deleted, so each file in flight counts once: events at receivers, results at submitters.
    disk = {own.storage: 0 for own in layout.machines}
    for dataset in layout.datasets.values():
        disk[dataset.storage] += dataset.files * dataset.size_bytes
    for machine in layout.machines:
        senders = max(
            sum(1 for (at, _), candidates in layout.receivers.items() if at == model and machine in candidates)
            for model in tiers.models
        )
        lanes = tiers.parallel * senders
        disk[machine.storage] += lanes * size["events"] + tiers.jobs.parallel * (size["result"] + size["input"])
    return Totals(batches + models * (sent + jobs), models * (sent + 2 * jobs), moved, disk)
