"""The transfers of ``replay`` as actor lines: columns in, a line at a time out."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from venturi.plan import ActorLine, At, Dataset, Plan, Portion, Prepare, Signal, Totals, Trial, Wait
from venturi.plan.header import BUILT_IN_PLACES
from venturi.plan.steps import FactorValue
from venturi.scenario.words import Problem, one_of, path_text
from venturi.units import BITS_PER_BYTE
from venturi.workload.design import MAX_TRIALS
from venturi.workload.header import plan_header
from venturi.workload.layout import MAX_DATASET_FILES
from venturi.workload.numbering import Points
from venturi.workload.sites import Exchange, Machine
from venturi.workload.streams import draw_bits
from venturi.workload.trace import Trace, TraceError, read_trace

if TYPE_CHECKING:
    from venturi.scenario import Scenario
    from venturi.testbed.plan import ResolvedTestbed
    from venturi.workload.replay import Replay

__all__ = ["READY", "Layout", "caller_of", "ends_of", "lay_out", "replay_plan"]

READY = "replay.ready"
"""Counter of the hosts whose files are there."""

MAX_SIZES = 100_000
"""Files that are made, of all places: they stand in the header."""


@dataclass(frozen=True)
class Layout:
    """A trace on a testbed: times and sizes as they are to be, and the end that each name stands for."""

    trace: Trace
    ends: tuple[Machine, ...]
    time_s: npt.NDArray[np.float64]
    size_bytes: npt.NDArray[np.int64]
    files: npt.NDArray[np.int64]
    """Number of the source's file that has the size."""
    datasets: Mapping[int, tuple[str, Dataset]]
    """By number of the name."""
    exchange: Exchange


def lay_out(scenario: Scenario, replay: Replay, parts: ResolvedTestbed, problems: list[Problem]) -> Layout | None:
    """Return the trace on this testbed, or ``None`` with what is wrong appended to ``problems``."""
    before = len(problems)
    exchange = Exchange(scenario, replay.mover, replay.options, replay.timeout, parts, problems)
    try:
        trace = read_trace(replay.path, replay.window.begin, replay.window.end, MAX_TRIALS)
    except TraceError as error:
        problems.append(("workload.trace", str(error)))
        return None
    found = ends_of(scenario, replay.map, trace.names, problems)
    if found is None:
        return None
    ends = tuple(found[name] for name in trace.names)
    _check_ways(replay, trace, ends, exchange)
    origin_s = trace.start_s[0] if replay.window.begin is None else replay.window.begin
    time_s = np.round(replay.lead + (trace.start_s - origin_s) / replay.speed, 6)
    size_bytes = _sizes(trace.size_bytes, replay.size_factor * scenario.scale, replay.digits)
    files, datasets = _datasets(scenario, trace, ends, size_bytes, problems)
    if len(problems) > before:
        return None
    return Layout(trace, ends, time_s, size_bytes, files, datasets, exchange)


def ends_of(
    scenario: Scenario, meant: Mapping[str, str], names: Collection[str], problems: list[Problem]
) -> dict[str, Machine] | None:
    """Return the end that each of the names of a trace stands for, or ``None`` with what is wrong appended to ``problems``.

    ``meant`` says it of some; others are storages, hosts or sites of the same name.
    """
    known: dict[str, list[Machine]] = {}
    for place, storage in scenario.testbed.storage.items():
        site = scenario.testbed.host[storage.host].site
        end = Machine(storage.host, site or storage.host, place, 0.0)
        for name in dict.fromkeys((place, storage.host, site)):
            known.setdefault(name or "", []).append(end)
    # A storage goes before a host or a site of the same name.
    known |= {place: [end for end in known[place] if end.place == place] for place in scenario.testbed.storage}
    before = len(problems)
    problems += [
        (path_text(("workload", "map", name)), one_of("the names in the trace", names, name))
        for name in meant
        if name not in names
    ]
    found = {name: _end(name, meant.get(name, name), known, name in meant, problems) for name in names}
    return None if len(problems) > before else found


def _end(name: str, meant: str, known: Mapping[str, list[Machine]], mapped: bool, problems: list[Problem]) -> Machine:
    if meant in BUILT_IN_PLACES:
        return Machine("", meant, meant, 0.0)
    ends = known.get(meant, [])
    if len(ends) != 1:
        where = path_text(("workload", "map", name)) if mapped else "workload.map"
        what = one_of("the storages, hosts and sites", known, meant)
        if ends:
            what = f"expected one storage of {meant}, found {', '.join(end.place for end in ends)}"
        problems.append((where, what if mapped else f"{what} in the trace; say which storage it stands for"))
        return Machine("", "", "null", 0.0)
    return ends[0]


def _check_ways(replay: Replay, trace: Trace, ends: tuple[Machine, ...], exchange: Exchange) -> None:
    """Note what is wrong with the ways of each pair; the exchange does so when it is asked for a transfer."""
    for source, destination in np.unique(np.stack((trace.source, trace.destination)), axis=1).T:
        one, other = ends[source], ends[destination]
        exchange.transfer(caller_of(replay.client, one, other), f"{one.place}:x", f"{other.place}:x", 0, {})


def caller_of(client: str, source: Machine, destination: Machine) -> Machine:
    """Return the end that calls the mover, the one that ``client`` names; a device has no host."""
    first, second = (source, destination) if client == "source" else (destination, source)
    return first if first.host else second


def _sizes(written: npt.NDArray[np.int64], factor: float, digits: int | None) -> npt.NDArray[np.int64]:
    exact = written.astype(np.float64) * factor
    if digits is not None:
        # Zeros behind the first digits: a power of ten is exact as far as it is needed.
        step = 10.0 ** np.maximum(0, np.floor(np.log10(np.maximum(exact, 1))) + 1 - digits)
        exact = np.round(exact / step) * step
    return np.maximum(1, np.rint(exact)).astype(np.int64)


def _datasets(
    scenario: Scenario, trace: Trace, ends: tuple[Machine, ...], size_bytes: npt.NDArray[np.int64],
    problems: list[Problem],
) -> tuple[npt.NDArray[np.int64], dict[int, tuple[str, Dataset]]]:  # fmt: skip
    """Return the number of each transfer's file, and a data set a source: a file of each size, the smallest first."""
    files = np.zeros(len(trace), dtype=np.int64)
    found: dict[int, tuple[str, Dataset]] = {}
    of_place: dict[str, list[int]] = {}
    for number in np.unique(trace.source):
        if ends[number].host:
            of_place.setdefault(ends[number].place, []).append(int(number))
    for place, numbers in of_place.items():
        here = np.isin(trace.source, numbers)
        sizes, files[here] = np.unique(size_bytes[here], return_inverse=True)
        word = hashlib.sha256(sizes.tobytes()).hexdigest()[:12]
        seed = draw_bits(scenario.seed, "dataset", word, bits=53)
        mix = tuple(Portion(1, int(size)) for size in sizes)
        dataset = Dataset(
            place, f"sets/seed{scenario.seed}/{word}", len(mix), int(sizes[-1]), seed, mix if len(mix) > 1 else ()
        )
        found |= dict.fromkeys(numbers, (f"{place}-replay", dataset))
    made = sum(dataset.files for dataset in dict(found.values()).values())
    if made > MAX_SIZES or any(dataset.files > MAX_DATASET_FILES for _, dataset in found.values()):
        problems.append(
            ("workload.digits", f"expected at most {MAX_SIZES} files of different sizes to be made, found {made}; round sizes with digits = 2")
        )  # fmt: skip
    return files, found


def replay_plan(scenario: Scenario, replay: Replay, layout: Layout, parts: ResolvedTestbed) -> Plan:
    """Return the plan of a trace that is laid out."""
    count = len(layout.trace)
    return Plan(
        plan_header(
            scenario,
            parts,
            datasets=dict(layout.datasets.values()),
            calls=layout.exchange.calls,
            totals=Totals(count, count, int(layout.size_bytes.sum()), _disk_bytes(layout)),
        ),
        _Lines(replay, layout),
    )


@dataclass(frozen=True)
class _Lines:
    """The lines of the plan, the same ones each time they are gone through."""

    replay: Replay
    layout: Layout

    def __iter__(self) -> Iterator[ActorLine]:
        layout, trace = self.layout, self.layout.trace
        hosts: dict[str, dict[str, Dataset]] = {}
        for number, (name, dataset) in layout.datasets.items():
            hosts.setdefault(layout.ends[number].host, {})[name] = dataset
        for host, sets in hosts.items():
            made = (Prepare(name, 0, dataset.files, "as_is") for name, dataset in sets.items())
            yield ActorLine(f"files-{host}", host, (*made, Signal(READY, 1)))
        ready, points = Wait(READY, len(hosts)), Points()
        for number in range(len(trace)):
            source, destination = int(trace.source[number]), int(trace.destination[number])
            trial = self._trial(number, source, destination, points)
            client = caller_of(self.replay.client, layout.ends[source], layout.ends[destination])
            at = At(float(layout.time_s[number]))
            yield ActorLine(f"r{number}", client.host, (ready, at, trial))

    def _trial(self, number: int, source: int, destination: int, points: Points) -> Trial:
        layout, trace = self.layout, self.layout.trace
        one, other = layout.ends[source], layout.ends[destination]
        name = f"t{number:07d}"
        labels: dict[str, FactorValue] = {"row": int(trace.row[number])}
        traced_s = float(trace.duration_s[number])
        if traced_s == traced_s:  # not NaN
            labels["traced_s"] = traced_s
        moved = layout.exchange.transfer(
            caller_of(self.replay.client, one, other),
            layout.datasets[source][1].endpoint(int(layout.files[number])) if one.host else f"{one.place}:",
            f"{other.place}:out/{name}" if other.host else f"{other.place}:",
            int(layout.size_bytes[number]),
            labels,
        )
        point, repetition = points.of(one.place, other.place)
        factors: dict[str, FactorValue] = {"files": 1, "source": one.place, "destination": other.place}
        return Trial(name, point, repetition, repetition, factors, (moved,))


def _disk_bytes(layout: Layout) -> dict[str, int]:
    """Return what each place needs: its files, and what may be on its way to it at the same time.

    A transfer is taken to last twice as long as the narrowest link of its way needs for it.
    """
    trace = layout.trace
    disk: dict[str, int] = {}
    for dataset in dict(layout.datasets.values()).values():
        disk[dataset.place] = disk.get(dataset.place, 0) + dataset.bytes
    pairs, which = np.unique(np.stack((trace.source, trace.destination)), axis=1, return_inverse=True)
    rates = np.array(
        [layout.exchange.fastest_bit_per_s(layout.ends[one], layout.ends[other]) for one, other in pairs.T]
    )
    ends_s = layout.time_s + 2 * BITS_PER_BYTE * layout.size_bytes / rates[which.reshape(-1)]
    for number in np.unique(trace.destination):
        end = layout.ends[number]
        if end.host:
            here = trace.destination == number
            peak = _peak(layout.time_s[here], ends_s[here], layout.size_bytes[here])
            disk[end.place] = disk.get(end.place, 0) + peak
    return disk


def _peak(begin_s: npt.NDArray[np.float64], end_s: npt.NDArray[np.float64], size: npt.NDArray[np.int64]) -> int:
    """Return the most bytes that are on their way at one time."""
    times = np.concatenate((begin_s, end_s))
    # Of one moment, what begins comes first.
    order = np.lexsort((np.repeat([0, 1], len(size)), times))
    return int(np.cumsum(np.concatenate((size, -size))[order]).max())
