"""Plan of the workload ``replay``: one actor line for each transfer of the trace."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from venturi.messages import Problem, one_of, path_text
from venturi.plan import ActorLine, At, Dataset, Plan, Prepare, Signal, SizeGroup, Totals, Trial, Wait
from venturi.plan.header import BUILT_IN_STORAGES
from venturi.plan.steps import FactorValue
from venturi.units import BITS_PER_BYTE
from venturi.workload.design import MAX_TRIALS
from venturi.workload.header import plan_header
from venturi.workload.layout import MAX_DATASET_FILES
from venturi.workload.numbering import PointNumbering
from venturi.workload.sites import Exchange, SiteHost
from venturi.workload.streams import draw_bits
from venturi.workload.trace import Trace, TraceError, read_trace

if TYPE_CHECKING:
    from venturi.scenario import Scenario
    from venturi.testbed.plan import ResolvedTestbed
    from venturi.workload.replay import Replay

__all__ = ["READY", "ReplayLayout", "replay_plan", "resolve_trace", "resolve_trace_endpoints", "select_client"]

READY = "replay.ready"
"""Counter of hosts with complete datasets."""

MOST_NAMED = 40
"""Maximum number of unknown names in an error."""

MAX_SIZES = 100_000
"""Maximum number of files of all storages, which the header contains."""


@dataclass(frozen=True)
class ReplayLayout:
    """Trace on a testbed: times, sizes and the endpoint of each name."""

    trace: Trace
    endpoints: tuple[SiteHost, ...]
    time_s: npt.NDArray[np.float64]
    size_bytes: npt.NDArray[np.int64]
    files: npt.NDArray[np.int64]
    """Number of the source file with the size."""
    datasets: Mapping[int, tuple[str, Dataset]]
    """Datasets by number of the name."""
    exchange: Exchange


def resolve_trace(
    scenario: Scenario, replay: Replay, parts: ResolvedTestbed, problems: list[Problem]
) -> ReplayLayout | None:
    """Return the trace on this testbed, or ``None`` after errors, which are appended to ``problems``."""
    before = len(problems)
    exchange = Exchange(scenario, replay.mover, replay.options, replay.timeout, parts, problems)
    try:
        trace = read_trace(
            replay.path,
            replay.window.start,
            replay.window.end,
            MAX_TRIALS,
            log_format=replay.format,
            endpoints=replay.endpoints,
        )
    except TraceError as error:
        problems.append(("workload.trace", str(error)))
        return None
    found = resolve_trace_endpoints(scenario, replay.map, trace.names, problems, counts=trace.counts())
    if found is None:
        return None
    endpoints = tuple(found[name] for name in trace.names)
    _check_routes(replay, trace, endpoints, exchange)
    origin_s = trace.start_s[0] if replay.window.start is None else replay.window.start
    time_s = np.round(replay.lead + (trace.start_s - origin_s) / replay.speed, 6)
    size_bytes = _sizes(trace.size_bytes, replay.size_factor * scenario.scale, replay.digits)
    files, datasets = _datasets(scenario, trace, endpoints, size_bytes, problems)
    if len(problems) > before:
        return None
    return ReplayLayout(trace, endpoints, time_s, size_bytes, files, datasets, exchange)


def resolve_trace_endpoints(
    scenario: Scenario,
    mapping: Mapping[str, str],
    names: Collection[str],
    problems: list[Problem],
    *,
    counts: Mapping[str, int] | None = None,
) -> dict[str, SiteHost] | None:
    """Return the endpoint of each name of a trace, or ``None`` after errors, which are appended to ``problems``.

    ``mapping`` defines some names; the others are storages, hosts or sites of the same name. With ``counts``, the number of
    transfers of each name, several unknown names are one error.
    """
    known: dict[str, list[SiteHost]] = {}
    for name, storage in scenario.testbed.storage.items():
        site = scenario.testbed.host[storage.host].site
        end = SiteHost(storage.host, site or storage.host, name, 0.0)
        for alias in dict.fromkeys((name, storage.host, site)):
            known.setdefault(alias or "", []).append(end)
    # A storage has priority over a host or a site of the same name.
    known |= {name: [end for end in known[name] if end.storage == name] for name in scenario.testbed.storage}
    before = len(problems)
    problems += [
        (path_text(("workload", "map", name)), one_of("the names in the trace", names, name))
        for name in mapping
        if name not in names
    ]
    unknown = [name for name in names if name not in mapping and name not in known and name not in BUILT_IN_STORAGES]
    if counts is not None and len(unknown) > 1:
        problems.append(("workload.map", _unknown(unknown, counts, known)))
        return None
    found = {name: _end(name, mapping.get(name, name), known, name in mapping, problems) for name in names}
    return None if len(problems) > before else found


def _unknown(names: Collection[str], counts: Mapping[str, int], known: Collection[str]) -> str:
    """Return one error for all unknown names, with the most frequent ones first."""
    ordered = sorted(names, key=lambda name: (-counts[name], name))
    listed = ", ".join(f"{name} ({counts[name]:,})" for name in ordered[:MOST_NAMED])
    more = f" and {len(ordered) - MOST_NAMED} more" if len(ordered) > MOST_NAMED else ""
    return (
        f"expected names of the storages, hosts and sites: {', '.join(known)}, found {len(ordered)} other names in the"
        f" trace (number of transfers): {listed}{more}; add their storages to workload.map"
    )


def _end(
    name: str, target: str, known: Mapping[str, list[SiteHost]], mapped: bool, problems: list[Problem]
) -> SiteHost:
    if target in BUILT_IN_STORAGES:
        return SiteHost("", target, target, 0.0)
    endpoints = known.get(target, [])
    if len(endpoints) != 1:
        where = path_text(("workload", "map", name)) if mapped else "workload.map"
        what = one_of("the storages, hosts and sites", known, target)
        if endpoints:
            what = f"expected one storage of {target}, found {', '.join(end.storage for end in endpoints)}"
        problems.append(
            (where, what if mapped else f"{what.partition('; ')[0]} in the trace; add its storage to workload.map")
        )
        return SiteHost("", "", "null", 0.0)
    return endpoints[0]


def _check_routes(replay: Replay, trace: Trace, endpoints: tuple[SiteHost, ...], exchange: Exchange) -> None:
    """Collect the errors of the routes of each pair."""
    for source, destination in np.unique(np.stack((trace.source, trace.destination)), axis=1).T:
        one, other = endpoints[source], endpoints[destination]
        exchange.transfer(select_client(replay.client, one, other), f"{one.storage}:x", f"{other.storage}:x", 0, {})


def select_client(client: str, source: SiteHost, destination: SiteHost) -> SiteHost:
    """Return the endpoint whose host runs the mover; a device has no host."""
    first, second = (source, destination) if client == "source" else (destination, source)
    return first if first.host else second


def _sizes(written: npt.NDArray[np.int64], factor: float, digits: int | None) -> npt.NDArray[np.int64]:
    exact = written.astype(np.float64) * factor
    if digits is not None:
        # Round to a power of ten, which is exact in this range.
        step = 10.0 ** np.maximum(0, np.floor(np.log10(np.maximum(exact, 1))) + 1 - digits)
        exact = np.round(exact / step) * step
    return np.maximum(1, np.rint(exact)).astype(np.int64)


def _datasets(
    scenario: Scenario, trace: Trace, endpoints: tuple[SiteHost, ...], size_bytes: npt.NDArray[np.int64],
    problems: list[Problem],
) -> tuple[npt.NDArray[np.int64], dict[int, tuple[str, Dataset]]]:  # fmt: skip
    """Return the file number of each transfer, and the dataset of each source: one file per size, in ascending order."""
    files = np.zeros(len(trace), dtype=np.int64)
    found: dict[int, tuple[str, Dataset]] = {}
    numbers_by_storage: dict[str, list[int]] = {}
    for number in np.unique(trace.source):
        if endpoints[number].host:
            numbers_by_storage.setdefault(endpoints[number].storage, []).append(int(number))
    for storage, numbers in numbers_by_storage.items():
        at_storage = np.isin(trace.source, numbers)
        sizes, files[at_storage] = np.unique(size_bytes[at_storage], return_inverse=True)
        word = hashlib.sha256(sizes.tobytes()).hexdigest()[:12]
        seed = draw_bits(scenario.seed, "dataset", word, bits=53)
        mix = tuple(SizeGroup(1, int(size)) for size in sizes)
        dataset = Dataset(
            storage, f"sets/seed{scenario.seed}/{word}", len(mix), int(sizes[-1]), seed, mix if len(mix) > 1 else ()
        )
        found |= dict.fromkeys(numbers, (f"{storage}-replay", dataset))
    made = sum(dataset.files for dataset in dict(found.values()).values())
    if made > MAX_SIZES or any(dataset.files > MAX_DATASET_FILES for _, dataset in found.values()):
        problems.append(
            ("workload.digits", f"expected at most {MAX_SIZES} files of different sizes, found {made}; set digits = 2 to round sizes")
        )  # fmt: skip
    return files, found


def replay_plan(scenario: Scenario, replay: Replay, layout: ReplayLayout, parts: ResolvedTestbed) -> Plan:
    """Return the plan of a resolved trace."""
    count = len(layout.trace)
    return Plan(
        plan_header(
            scenario,
            parts,
            datasets=dict(layout.datasets.values()),
            calls=layout.exchange.calls,
            totals=Totals(count, count, int(layout.size_bytes.sum()), _disk_bytes(layout)),
        ),
        _ReplayActorLines(replay, layout),
        () if layout.trace.log is None else (f"{replay.path.name}: {layout.trace.log.text()}",),
    )


@dataclass(frozen=True)
class _ReplayActorLines:
    """Actor lines; each iteration yields the same lines."""

    replay: Replay
    layout: ReplayLayout

    def __iter__(self) -> Iterator[ActorLine]:
        layout, trace = self.layout, self.layout.trace
        hosts: dict[str, dict[str, Dataset]] = {}
        for number, (name, dataset) in layout.datasets.items():
            hosts.setdefault(layout.endpoints[number].host, {})[name] = dataset
        for host, sets in hosts.items():
            made = (Prepare(name, 0, dataset.files, "as_is") for name, dataset in sets.items())
            yield ActorLine(f"files-{host}", host, (*made, Signal(READY, 1)))
        ready, points = Wait(READY, len(hosts)), PointNumbering()
        for number in range(len(trace)):
            source, destination = int(trace.source[number]), int(trace.destination[number])
            trial = self._trial(number, source, destination, points)
            client = select_client(self.replay.client, layout.endpoints[source], layout.endpoints[destination])
            at = At(float(layout.time_s[number]))
            yield ActorLine(f"r{number}", client.host, (ready, at, trial))

    def _trial(self, number: int, source: int, destination: int, points: PointNumbering) -> Trial:
        layout, trace = self.layout, self.layout.trace
        one, other = layout.endpoints[source], layout.endpoints[destination]
        name = f"t{number:07d}"
        labels: dict[str, FactorValue] = {"row": int(trace.row[number])}
        traced_s = float(trace.duration_s[number])
        if traced_s == traced_s:  # not NaN
            labels["traced_s"] = traced_s
        moved = layout.exchange.transfer(
            select_client(self.replay.client, one, other),
            layout.datasets[source][1].endpoint(int(layout.files[number])) if one.host else f"{one.storage}:",
            f"{other.storage}:out/{name}" if other.host else f"{other.storage}:",
            int(layout.size_bytes[number]),
            labels,
        )
        point, repetition = points.of(one.storage, other.storage)
        factors: dict[str, FactorValue] = {"files": 1, "source": one.storage, "destination": other.storage}
        return Trial(name, point, repetition, repetition, factors, (moved,))


def _disk_bytes(layout: ReplayLayout) -> dict[str, int]:
    """Return the bytes of each storage: its datasets and the concurrent transfers to it.

    The assumed duration of a transfer is twice its time on the slowest link of its route.
    """
    trace = layout.trace
    disk: dict[str, int] = {}
    for dataset in dict(layout.datasets.values()).values():
        disk[dataset.storage] = disk.get(dataset.storage, 0) + dataset.bytes
    pairs, which = np.unique(np.stack((trace.source, trace.destination)), axis=1, return_inverse=True)
    rates = np.array(
        [layout.exchange.fastest_bit_per_s(layout.endpoints[one], layout.endpoints[other]) for one, other in pairs.T]
    )
    ends_s = layout.time_s + 2 * BITS_PER_BYTE * layout.size_bytes / rates[which.reshape(-1)]
    for number in np.unique(trace.destination):
        end = layout.endpoints[number]
        if end.host:
            at_storage = trace.destination == number
            peak = _peak(layout.time_s[at_storage], ends_s[at_storage], layout.size_bytes[at_storage])
            disk[end.storage] = disk.get(end.storage, 0) + peak
    return disk


def _peak(start_s: npt.NDArray[np.float64], end_s: npt.NDArray[np.float64], size: npt.NDArray[np.int64]) -> int:
    """Return the maximum number of bytes in flight."""
    times = np.concatenate((start_s, end_s))
    # At equal times, starts are before ends.
    order = np.lexsort((np.repeat([0, 1], len(size)), times))
    return int(np.cumsum(np.concatenate((size, -size))[order]).max())
