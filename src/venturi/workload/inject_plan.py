"""Plan of the workload ``inject``: one trial for each transfer, or for each pair of storages."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from venturi.errors import ScenarioError
from venturi.plan import ActorLine, At, Parallel, Plan, Prepare, Signal, Step, Totals, TransferStep, Trial, Wait
from venturi.plan.steps import FactorValue
from venturi.units import BITS_PER_BYTE
from venturi.workload.arrivals import GAPS, RateShape, arrival_times, open_loop
from venturi.workload.design import MAX_TRIALS
from venturi.workload.header import plan_header
from venturi.workload.inject_layout import FlowPair, InjectLayout
from venturi.workload.numbering import PointNumbering

if TYPE_CHECKING:
    from venturi.scenario import Scenario
    from venturi.testbed.plan import ResolvedTestbed
    from venturi.workload.inject import Inject

__all__ = ["READY", "inject_plan"]

READY = "inject.ready"
"""Counter of hosts with complete datasets."""


def inject_plan(scenario: Scenario, inject: Inject, layout: InjectLayout, parts: ResolvedTestbed) -> Plan:
    """Return the plan of a resolved workload.

    Raises
    ------
    ScenarioError
        If the random arrivals exceed the maximum number of trials.
    """
    lines = _InjectActorLines(scenario, inject, layout)
    return Plan(
        plan_header(
            scenario,
            parts,
            datasets=dict(layout.datasets.values()),
            calls=layout.exchange.calls,
            totals=lines.totals(),
            draws=GAPS if layout.form == "arrivals" and inject.arrivals == "poisson" else None,
        ),
        lines,
    )


@dataclass(frozen=True)
class _InjectActorLines:
    """Actor lines; each iteration yields the same lines."""

    scenario: Scenario
    inject: Inject
    layout: InjectLayout

    def __iter__(self) -> Iterator[ActorLine]:
        yield from self._files()
        yield from self._each() if self.layout.form == "each" else self._pairs()

    def totals(self) -> Totals:
        """Return the totals of the plan."""
        disk = self._disk_bytes()
        if self.layout.form == "arrivals":
            return Totals(sum(1 for _ in self._by_pair()), None, None, disk)
        transfers = moved = 0
        for _, stream in self._arrivals():
            transfers += 1
            moved += self._scaled(stream)
        if transfers > MAX_TRIALS:
            found = f'{transfers}; use form = "arrivals"'
            raise ScenarioError([("workload.form", f"expected at most {MAX_TRIALS} transfers, found {found}")])
        return Totals(transfers, transfers, moved, disk)

    def _files(self) -> Iterator[ActorLine]:
        """Yield the actor lines that create the files of each host."""
        host_by_storage = {stream.source.storage: stream.source.host for stream in self.layout.streams}
        steps_by_host: dict[str, list[Step]] = {}
        for (storage, _), (name, _) in self.layout.datasets.items():
            steps_by_host.setdefault(host_by_storage[storage], []).append(Prepare(name, 0, 1, "as_is"))
        for host, steps in steps_by_host.items():
            yield ActorLine(f"files-{host}", host, (*steps, Signal(READY, 1)))

    def _each(self) -> Iterator[ActorLine]:
        """Yield a line for each transfer, in the order of time. Each is a separate actor, because transfers do not wait."""
        points, ready = PointNumbering(), Wait(READY, self._sources())
        for number, (time_s, stream) in enumerate(self._arrivals()):
            name = f"t{number:07d}"
            point, repetition = points.of(*stream.names)
            moved = self._transfer(stream, f"out/{name}")
            factors: dict[str, FactorValue] = {"files": 1, "size_bytes": self._scaled(stream), **_factors(stream)}
            trial = Trial(name, point, repetition, repetition, factors, (moved,))
            yield ActorLine(f"{stream.flow}-{number}", stream.client.host, (ready, At(time_s), trial))

    def _pairs(self) -> Iterator[ActorLine]:
        """Yield a line for each pair of storages of a flow, with an open loop for each size."""
        inject = self.inject
        ready = Wait(READY, self._sources())
        for number, streams in enumerate(self._by_pair()):
            loops = [
                open_loop(
                    self._shape(stream.flow), stream.per_s, inject.arrivals,
                    (self._transfer(stream, f"out/pair{number}-{index}"),), self.scenario.seed, *stream.names,
                )
                for index, stream in enumerate(streams)
            ]  # fmt: skip
            steps: tuple[Step, ...] = (loops[0],) if len(loops) == 1 else (Parallel(tuple((it,) for it in loops)),)
            stream = streams[0]
            trial = Trial(f"t{number:07d}", number, 0, 0, _factors(stream), steps)
            yield ActorLine(f"{stream.flow}-{number}", stream.client.host, (ready, trial))

    def _arrivals(self) -> Iterator[tuple[float, FlowPair]]:
        """Yield the transfers in the order of time, then of the pairs."""
        return heapq.merge(*(self._stream_arrivals(stream) for stream in self.layout.streams), key=lambda one: one[0])

    def _stream_arrivals(self, stream: FlowPair) -> Iterator[tuple[float, FlowPair]]:
        times = arrival_times(
            self._shape(stream.flow), stream.per_s, self.inject.arrivals, self.scenario.seed, *stream.names
        )
        # Round to microseconds, the accuracy of agents.
        return ((round(time_s, 6), stream) for time_s in times)

    def _shape(self, flow: str) -> RateShape:
        shape = self.inject.flow[flow].shape
        return RateShape(tuple((time_s + self.inject.lead, factor) for time_s, factor in shape.points))

    def _transfer(self, stream: FlowPair, path: str) -> TransferStep:
        _, dataset = self.layout.datasets[stream.source.storage, stream.size_bytes]
        return self.layout.exchange.transfer(
            stream.client,
            dataset.endpoint(0),
            f"{stream.destination.storage}:{path}",
            dataset.size_bytes,
            {},
            stream.call,
        )

    def _scaled(self, stream: FlowPair) -> int:
        return self.layout.datasets[stream.source.storage, stream.size_bytes][1].size_bytes

    def _by_pair(self) -> Iterator[list[FlowPair]]:
        for _, streams in itertools.groupby(
            self.layout.streams, lambda it: (it.flow, it.source.storage, it.destination.storage)
        ):
            yield list(streams)

    def _sources(self) -> int:
        return len({stream.source.host for stream in self.layout.streams})

    def _disk_bytes(self) -> dict[str, int]:
        """Return the bytes of each storage: its datasets and the files in flight to it.

        For each pair: one file, and the files that start during a transfer at half the rate of the slowest link. A flow above
        the link rate would accumulate more files; this estimate does not include them.
        """
        disk = {dataset.storage: 0 for _, dataset in self.layout.datasets.values()}
        for _, dataset in self.layout.datasets.values():
            disk[dataset.storage] += dataset.bytes
        for stream in self.layout.streams:
            size = self._scaled(stream)
            rate = self.layout.exchange.fastest_bit_per_s(stream.source, stream.destination)
            in_flight = 1 + math.ceil(2 * stream.per_s * size * BITS_PER_BYTE / rate)
            disk[stream.destination.storage] = disk.get(stream.destination.storage, 0) + size * in_flight
        return disk


def _factors(stream: FlowPair) -> dict[str, FactorValue]:
    return {
        "flow": stream.flow, "source": stream.source.site, "destination": stream.destination.site,
        "requested_bit_per_s": stream.bit_per_s,
    }  # fmt: skip
