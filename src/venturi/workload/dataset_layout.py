"""Resolution of the workload ``dataset``: calls, files, endpoints and hosts of each point."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from venturi.messages import Problem
from venturi.mover import Mover, resolve_options
from venturi.mover.base import MAX_WHOLE, OptionError
from venturi.plan import Call, Dataset, SizeGroup
from venturi.plan.header import OptionValue
from venturi.plan.steps import FactorValue
from venturi.units import format_bytes, format_bytes_exact
from venturi.workload.dataset_design import DatasetPoint, DatasetPoints, list_file_sets
from venturi.workload.endpoint_pairs import EndpointSlot, list_slots, pair_slots
from venturi.workload.endpoints import EndpointError, EndpointRequest, EndpointResolver, TransferEndpoints
from venturi.workload.factors import MAX_FILES, MAX_FILES_PER_CALL
from venturi.workload.filesets import size_groups
from venturi.workload.layout import MAX_DATASET_FILES
from venturi.workload.streams import draw_bits

if TYPE_CHECKING:
    from venturi.scenario import Scenario
    from venturi.testbed.plan import ResolvedTestbed
    from venturi.workload.dataset import Datasets

__all__ = ["DatasetLayout", "DatasetResolvedPoint", "DatasetWorker", "resolve_dataset_points"]


@dataclass(frozen=True, slots=True)
class DatasetWorker:
    """Worker of a trial: it moves the dataset once, by one call or several calls in sequence.

    Attributes
    ----------
    slot
        Number of the worker, from 0, over all hosts of the point.
    dataset, first, files
        Files to read.
    destination
        Destination storage, ``None`` for ``null``.
    source_via, destination_via
        ``service/port`` of each endpoint, ``None`` for a file of the host.
    pair
        ``SOURCE>DESTINATION``, names of services or storages.
    """

    slot: int
    dataset: str
    first: int
    files: int
    destination: str | None
    source_via: str | None
    destination_via: str | None
    pair: str


@dataclass(frozen=True, slots=True)
class DatasetResolvedPoint:
    """Resolved point; ``hosts`` contains the workers of each client host."""

    call: str
    files_per_call: int
    cache: str
    hosts: Mapping[str, tuple[DatasetWorker, ...]]
    factors: Mapping[str, FactorValue]


@dataclass(frozen=True, slots=True)
class DatasetLayout:
    """Resolved points by number, with their calls and datasets."""

    resolved_points: tuple[DatasetResolvedPoint, ...]
    calls: Mapping[str, Call]
    datasets: Mapping[str, Dataset]


def resolve_dataset_points(
    scenario: Scenario, workload: Datasets, points: DatasetPoints, parts: ResolvedTestbed, problems: list[Problem]
) -> DatasetLayout | None:
    """Return the resolved points, or ``None`` after errors, which are appended to ``problems``."""
    resolver = _DatasetPointResolver(scenario, workload, points, parts, problems)
    resolved_points = [resolver.resolve(point) for point in points.points]
    if problems:
        return None
    layout = DatasetLayout(
        tuple(resolved for resolved in resolved_points if resolved is not None), resolver.calls, resolver.datasets
    )
    moved = workload.repeat * sum(
        layout.datasets[worker.dataset].range_bytes(worker.first, worker.files)
        for resolved in layout.resolved_points
        for workers in resolved.hosts.values()
        for worker in workers
    )
    if moved > MAX_WHOLE:
        problems.append(
            (
                "workload.repeat",
                f"expected at most 8 EiB in total, found {format_bytes(moved)}; reduce repeat or the sizes",
            )
        )
    return layout


class _DatasetPointResolver:
    """Resolves the points, with their calls and datasets."""

    def __init__(
        self,
        scenario: Scenario,
        workload: Datasets,
        points: DatasetPoints,
        parts: ResolvedTestbed,
        problems: list[Problem],
    ) -> None:
        self._scenario, self._workload, self._parts, self._problems = scenario, workload, parts, problems
        self._points = points
        self._resolver = EndpointResolver(scenario, workload.factors, parts)
        self._mixes: dict[str, tuple[SizeGroup, ...]] = {}
        self.calls: dict[str, Call] = {}
        self.datasets: dict[str, Dataset] = {}

    def resolve(self, point: DatasetPoint) -> DatasetResolvedPoint | None:
        """Return the resolved point, or ``None`` after errors, which are appended to the problems."""
        noted = len(self._problems)
        mix = self._mix(point.set)
        pairs = self._pairs(point)
        call = self._call(point)
        if len(self._problems) > noted or not mix:
            return None
        files = sum(group.files for group in mix)
        per_call = self._files_per_call(point, files)
        hosts: dict[str, list[DatasetWorker]] = {}
        readers: dict[str, int] = {}
        for slot in range(len(pairs) * point.calls):
            source, destination, endpoints = pairs[slot // point.calls]
            name = self._dataset(point, source, mix)
            reader = readers.get(name, 0)
            readers[name] = reader + 1
            own = self._workload.files == "own"
            worker = DatasetWorker(
                slot=slot,
                dataset=name,
                first=reader * files if own else 0,
                files=files,
                destination=None if destination.storage in (None, "null") else destination.storage,
                source_via=endpoints.source_via,
                destination_via=endpoints.destination_via,
                pair=f"{source.name}>{destination.name}",
            )
            hosts.setdefault(endpoints.client, []).append(worker)
        self._grow(readers, files)
        keys = self._points.keys
        return DatasetResolvedPoint(
            call=call,
            files_per_call=per_call,
            cache=point.cache,
            hosts={host: tuple(workers) for host, workers in hosts.items()},
            factors={keys[name]: value for name, value in point.varied.items()},
        )

    def _mix(self, name: str) -> tuple[SizeGroup, ...]:
        if name not in self._mixes:
            files, scenario = list_file_sets(self._workload)[name], self._scenario
            self._mixes[name] = size_groups(name, files, self._workload.volume, scenario.scale, self._problems)
        return self._mixes[name]

    def _pairs(self, point: DatasetPoint) -> list[tuple[EndpointSlot, EndpointSlot, TransferEndpoints]]:
        services, storages = self._parts.services, self._scenario.testbed.storage
        sides = []
        try:
            for role, storage, service in (
                ("source", point.source if point.mover.reads else None, point.source_service),
                ("destination", point.destination if point.mover.writes else None, point.destination_service),
            ):
                sides.append(list_slots(role, storage, service, services, storages))
            pairs = pair_slots(sides[0], sides[1], point.pairs)
            found = [(source, sink, self._resolve_endpoints(point, source, sink)) for source, sink in pairs]
        except EndpointError as error:
            self._add_problem(self._resolver.to_problem(error))
            return []
        if len(found) * point.calls > MAX_FILES:
            what = f"{len(found)} pairs × {point.calls} calls"
            self._add_key_problem(
                "calls", f"expected at most {MAX_FILES} concurrent calls, found {what}; reduce calls or pairs"
            )
        return found

    def _resolve_endpoints(
        self, point: DatasetPoint, source: EndpointSlot, destination: EndpointSlot
    ) -> TransferEndpoints:
        mover = point.mover
        if not (mover.reads and source.storage not in (None, "zero")):
            raise EndpointError(
                "source",
                f"expected a storage with files for {mover.name}, found {source.storage or 'nothing'}; name a storage",
            )
        request = EndpointRequest(
            source.storage, destination.storage, point.client, source.service, destination.service
        )
        endpoints = self._resolver.resolve(mover, request)
        if conflict := self._resolver.option_conflict(mover, point.options, endpoints):
            self._add_problem(conflict)
        if destination.storage == "null" and not mover.null_destination and not endpoints.destination_via:
            raise EndpointError(
                "destination",
                f'expected a storage ({mover.name} could replace the device /dev/null), found "null"; name a storage',
            )
        return endpoints

    def _call(self, point: DatasetPoint) -> str:
        """Return the name of the call, which contains the options that differ within the plan."""
        mover, options = point.mover, resolve_options(point.mover, point.options)
        varied = {
            key
            for other in self._points.points
            if other.mover.name == mover.name
            for key, value in resolve_options(other.mover, other.options).items()
            if value != options[key]
        }
        sink = mover.writes and point.destination == "null"
        mixed = any((other.destination == "null") != sink for other in self._points.points)
        words = [f"{key}={_format_value(options[key])}" for key in options if key in varied]
        name = ",".join([mover.name, *words, *(["null"] if sink and mixed else [])])
        if name not in self.calls:
            try:
                call = dataclasses.replace(mover.call(options), timeout_s=self._workload.timeout)
            except OptionError as error:
                self._add_problem(("workload.options", str(error)))
                return name
            self.calls[name] = dataclasses.replace(call, expect="nothing") if sink else call
        return name

    def _files_per_call(self, point: DatasetPoint, files: int) -> int:
        mover = point.mover
        many = point.files_per_call or (min(files, MAX_FILES_PER_CALL) if _takes_many(mover, point) else 1)
        if many > 1 and not mover.lists:
            self._add_key_problem(
                "files_per_call",
                f"expected 1 ({mover.name} accepts one file per call), found {many}; remove files_per_call",
            )
        if many > 1 and point.destination == "null" and not getattr(mover, "null_lists", True):
            self._add_key_problem(
                "destination",
                f'expected a storage ({mover.name} copies a list to a directory only), found "null"; name a storage',
            )
        return min(many, files)

    def _dataset(self, point: DatasetPoint, source: EndpointSlot, mix: tuple[SizeGroup, ...]) -> str:
        name = f"{source.storage}-{point.set}"
        if name not in self.datasets:
            seed = self._scenario.seed
            largest = max(group.size_bytes for group in mix)
            files = sum(group.files for group in mix)
            word = f"{point.set}-{files}-{format_bytes_exact(largest).replace(' ', '')}"
            same = len(mix) == 1
            self.datasets[name] = Dataset(
                str(source.storage),
                f"sets/seed{seed}/{word}",
                files,
                largest,
                draw_bits(seed, "dataset", point.set, bits=53),
                () if same else mix,
            )
        return name

    def _grow(self, readers: Mapping[str, int], files: int) -> None:
        """Enlarge the datasets for workers with separate files."""
        for name, count in readers.items():
            dataset = self.datasets[name]
            needed = files * (count if self._workload.files == "own" else 1)
            if needed > MAX_DATASET_FILES:
                self._add_key_problem(
                    "sets",
                    f"expected at most {MAX_DATASET_FILES} files in a dataset, found {needed}; use fewer files or larger sizes",
                )
            self.datasets[name] = dataclasses.replace(dataset, files=max(dataset.files, needed))

    def _add_key_problem(self, key: str, problem: str) -> None:
        self._add_problem(self._resolver.to_problem(EndpointError(key, problem)))

    def _add_problem(self, problem: Problem) -> None:
        if problem not in self._problems:
            self._problems.append(problem)


def _takes_many(mover: Mover, point: DatasetPoint) -> bool:
    return mover.lists and (point.destination != "null" or getattr(mover, "null_lists", True))


def _format_value(value: OptionValue) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else "default" if value is None else str(value)
