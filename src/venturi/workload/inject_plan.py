"""The transfers of ``inject`` as actor lines: one for each, or one for each pair of storages in a flow."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from venturi.errors import ScenarioError
from venturi.plan import ActorLine, At, Parallel, Plan, Prepare, Signal, Step, Totals, Transfer, Trial, Wait
from venturi.plan.steps import FactorValue
from venturi.units import BITS_PER_BYTE
from venturi.workload.arrivals import GAPS, Shape, arrival_times, open_loop
from venturi.workload.design import MAX_TRIALS
from venturi.workload.header import plan_header
from venturi.workload.inject_layout import Layout, Stream
from venturi.workload.numbering import Points

if TYPE_CHECKING:
    from venturi.scenario import Scenario
    from venturi.testbed.plan import ResolvedTestbed
    from venturi.workload.inject import Inject

__all__ = ["READY", "inject_plan"]

READY = "inject.ready"
"""Counter of the hosts whose files are there."""


def inject_plan(scenario: Scenario, inject: Inject, layout: Layout, parts: ResolvedTestbed) -> Plan:
    """Return the plan of a workload that is laid out.

    Raises
    ------
    ScenarioError
        If its draws come to more trials than there are numbers for.
    """
    lines = _Lines(scenario, inject, layout)
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
class _Lines:
    """The lines of the plan, the same ones each time they are gone through."""

    scenario: Scenario
    inject: Inject
    layout: Layout

    def __iter__(self) -> Iterator[ActorLine]:
        yield from self._files()
        yield from self._each() if self.layout.form == "each" else self._pairs()

    def totals(self) -> Totals:
        """Return what the plan adds up to."""
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
        """Yield who makes the files of each host."""
        host_of = {stream.source.place: stream.source.host for stream in self.layout.streams}
        of: dict[str, list[Step]] = {}
        for (place, _), (name, _) in self.layout.datasets.items():
            of.setdefault(host_of[place], []).append(Prepare(name, 0, 1, "as_is"))
        for host, steps in of.items():
            yield ActorLine(f"files-{host}", host, (*steps, Signal(READY, 1)))

    def _each(self) -> Iterator[ActorLine]:
        """Yield a line for each transfer, in the order of time: none of them waits for another, so each is an actor of its own."""
        points, ready = Points(), Wait(READY, self._sources())
        for number, (time_s, stream) in enumerate(self._arrivals()):
            name = f"t{number:07d}"
            point, repetition = points.of(*stream.names)
            moved = self._transfer(stream, f"out/{name}")
            factors: dict[str, FactorValue] = {"files": 1, "size_bytes": self._scaled(stream), **_factors(stream)}
            trial = Trial(name, point, repetition, repetition, factors, (moved,))
            yield ActorLine(f"{stream.flow}-{number}", stream.client.host, (ready, At(time_s), trial))

    def _pairs(self) -> Iterator[ActorLine]:
        """Yield a line for each pair of storages in a flow, with an open loop for each size."""
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

    def _arrivals(self) -> Iterator[tuple[float, Stream]]:
        """Yield the transfers in the order of time; of one moment, in that of the streams."""
        return heapq.merge(*(self._arrivals_of(stream) for stream in self.layout.streams), key=lambda one: one[0])

    def _arrivals_of(self, stream: Stream) -> Iterator[tuple[float, Stream]]:
        times = arrival_times(
            self._shape(stream.flow), stream.per_s, self.inject.arrivals, self.scenario.seed, *stream.names
        )
        # To the microsecond: no agent is more exact, and the line is shorter.
        return ((round(time_s, 6), stream) for time_s in times)

    def _shape(self, flow: str) -> Shape:
        shape = self.inject.flow[flow].shape
        return Shape(tuple((time_s + self.inject.lead, factor) for time_s, factor in shape.points))

    def _transfer(self, stream: Stream, path: str) -> Transfer:
        _, dataset = self.layout.datasets[stream.source.place, stream.size_bytes]
        return self.layout.exchange.transfer(
            stream.client,
            dataset.endpoint(0),
            f"{stream.destination.place}:{path}",
            dataset.size_bytes,
            {},
            stream.call,
        )

    def _scaled(self, stream: Stream) -> int:
        return self.layout.datasets[stream.source.place, stream.size_bytes][1].size_bytes

    def _by_pair(self) -> Iterator[list[Stream]]:
        for _, streams in itertools.groupby(
            self.layout.streams, lambda it: (it.flow, it.source.place, it.destination.place)
        ):
            yield list(streams)

    def _sources(self) -> int:
        return len({stream.source.host for stream in self.layout.streams})

    def _disk_bytes(self) -> dict[str, int]:
        """Return what each place needs: its files, and what may be on its way to it.

        That is one file of each stream, and as many more as begin while one is on its way at half the rate of its narrowest link.
        Where more is asked for than a link carries, more piles up; it is not what the disk is asked for.
        """
        disk = {dataset.place: 0 for _, dataset in self.layout.datasets.values()}
        for _, dataset in self.layout.datasets.values():
            disk[dataset.place] += dataset.bytes
        for stream in self.layout.streams:
            size = self._scaled(stream)
            rate = self.layout.exchange.fastest_bit_per_s(stream.source, stream.destination)
            here = 1 + math.ceil(2 * stream.per_s * size * BITS_PER_BYTE / rate)
            disk[stream.destination.place] = disk.get(stream.destination.place, 0) + size * here
        return disk


def _factors(stream: Stream) -> dict[str, FactorValue]:
    return {
        "flow": stream.flow, "source": stream.source.site, "destination": stream.destination.site,
        "asked_bit_per_s": stream.bit_per_s,
    }  # fmt: skip
