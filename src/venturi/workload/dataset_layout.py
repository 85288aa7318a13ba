"""What the points of the workload ``dataset`` do: which calls, of which files, from which end to which, on which host."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from venturi.mover import Mover, resolve_options
from venturi.mover.base import MAX_WHOLE, OptionError
from venturi.plan import Call, Dataset, Portion
from venturi.plan.header import OptionValue
from venturi.plan.steps import FactorValue
from venturi.scenario.words import Problem
from venturi.units import format_bytes, format_bytes_exact
from venturi.workload.dataset_design import Point, Points, sets_of
from venturi.workload.ends import Asked, Ends, EndsError, Router
from venturi.workload.factors import MAX_FILES, MAX_FILES_PER_CALL
from venturi.workload.filesets import portions
from venturi.workload.layout import MAX_DATASET_FILES
from venturi.workload.pairs import Seat, paired, seats
from venturi.workload.streams import draw_bits

if TYPE_CHECKING:
    from venturi.scenario import Scenario
    from venturi.testbed.plan import ResolvedTestbed
    from venturi.workload.dataset import Datasets

__all__ = ["Cell", "Layout", "Worker", "lay_out_sets"]


@dataclass(frozen=True, slots=True)
class Worker:
    """One caller of a mover in a trial: it moves the set once, by one call or several in turn.

    Attributes
    ----------
    slot
        Its number, from 0, over all hosts of the point.
    dataset, first, files
        What it reads.
    destination
        The place that it writes to, ``None`` for a sink.
    source_via, destination_via
        ``service/door`` of each end, ``None`` for a file of the host.
    pair
        ``SOURCE>DESTINATION``, the names of the services or storages.
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
class Cell:
    """One point, resolved; ``hosts`` has the workers of each client's host."""

    call: str
    files_per_call: int
    cache: str
    hosts: Mapping[str, tuple[Worker, ...]]
    factors: Mapping[str, FactorValue]


@dataclass(frozen=True, slots=True)
class Layout:
    """The cells by number of point, and what they refer to."""

    cells: tuple[Cell, ...]
    calls: Mapping[str, Call]
    datasets: Mapping[str, Dataset]


def lay_out_sets(
    scenario: Scenario, workload: Datasets, points: Points, parts: ResolvedTestbed, problems: list[Problem]
) -> Layout | None:
    """Resolve the points; ``None`` with what cannot be appended to ``problems``."""
    maker = _Cells(scenario, workload, points, parts, problems)
    cells = [maker.cell(point) for point in points.points]
    if problems:
        return None
    layout = Layout(tuple(cell for cell in cells if cell is not None), maker.calls, maker.datasets)
    moved = workload.repeat * sum(
        layout.datasets[worker.dataset].bytes_of(worker.first, worker.files)
        for cell in layout.cells
        for workers in cell.hosts.values()
        for worker in workers
    )
    if moved > MAX_WHOLE:
        problems.append(("workload.repeat", f"expected at most 8 EiB moved in all, found {format_bytes(moved)}"))
    return layout


class _Cells:
    """Makes the cell of each point, and what it needs."""

    def __init__(
        self, scenario: Scenario, workload: Datasets, points: Points, parts: ResolvedTestbed, problems: list[Problem]
    ) -> None:
        self._scenario, self._workload, self._parts, self._problems = scenario, workload, parts, problems
        self._points = points
        self._router = Router(scenario, workload.factors, parts)
        self._mixes: dict[str, tuple[Portion, ...]] = {}
        self.calls: dict[str, Call] = {}
        self.datasets: dict[str, Dataset] = {}

    def cell(self, point: Point) -> Cell | None:
        """Return the cell of a point; ``None`` if something is wrong with it, which is noted."""
        noted = len(self._problems)
        mix = self._mix(point.set)
        pairs = self._pairs(point)
        call = self._call(point)
        if len(self._problems) > noted or not mix:
            return None
        files = sum(portion.files for portion in mix)
        per_call = self._files_per_call(point, files)
        hosts: dict[str, list[Worker]] = {}
        readers: dict[str, int] = {}
        for slot in range(len(pairs) * point.calls):
            source, destination, ends = pairs[slot // point.calls]
            name = self._dataset(point, source, mix)
            reader = readers.get(name, 0)
            readers[name] = reader + 1
            own = self._workload.files == "own"
            worker = Worker(
                slot=slot,
                dataset=name,
                first=reader * files if own else 0,
                files=files,
                destination=None if destination.storage in (None, "null") else destination.storage,
                source_via=ends.source_via,
                destination_via=ends.destination_via,
                pair=f"{source.name}>{destination.name}",
            )
            hosts.setdefault(ends.client, []).append(worker)
        self._grow(readers, files)
        keys = self._points.keys
        return Cell(
            call=call,
            files_per_call=per_call,
            cache=point.cache,
            hosts={host: tuple(workers) for host, workers in hosts.items()},
            factors={keys[name]: value for name, value in point.varied.items()},
        )

    def _mix(self, name: str) -> tuple[Portion, ...]:
        if name not in self._mixes:
            files, scenario = sets_of(self._workload)[name], self._scenario
            self._mixes[name] = portions(name, files, self._workload.volume, scenario.scale, self._problems)
        return self._mixes[name]

    def _pairs(self, point: Point) -> list[tuple[Seat, Seat, Ends]]:
        services, storages = self._parts.services, self._scenario.testbed.storage
        sides = []
        try:
            for role, storage, service in (
                ("source", point.source if point.mover.reads else None, point.source_service),
                ("destination", point.destination if point.mover.writes else None, point.destination_service),
            ):
                sides.append(seats(role, storage, service, services, storages))
            pairs = paired(sides[0], sides[1], point.pairs)
            found = [(source, sink, self._ends(point, source, sink)) for source, sink in pairs]
        except EndsError as error:
            self._note(self._router.problem(error))
            return []
        if len(found) * point.calls > MAX_FILES:
            what = f"{len(found)} pairs × {point.calls} calls"
            self._blame("calls", f"expected at most {MAX_FILES} calls at the same time, found {what}")
        return found

    def _ends(self, point: Point, source: Seat, destination: Seat) -> Ends:
        mover = point.mover
        if not (mover.reads and source.storage not in (None, "zero")):
            raise EndsError(
                "source", f"expected a storage whose files {mover.name} reads, found {source.storage or 'nothing'}"
            )
        asked = Asked(source.storage, destination.storage, point.client, source.service, destination.service)
        ends = self._router.ends(mover, asked)
        if refused := self._router.refusal(mover, point.options, ends):
            self._note(refused)
        if destination.storage == "null" and not mover.null_destination and not ends.destination_via:
            raise EndsError(
                "destination", f'expected a storage ({mover.name} might replace /dev/null itself), found "null"'
            )
        return ends

    def _call(self, point: Point) -> str:
        """Return the name of the call of a point, which tells the options that differ within the plan."""
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
        words = [f"{key}={_word(options[key])}" for key in options if key in varied]
        name = ",".join([mover.name, *words, *(["null"] if sink and mixed else [])])
        if name not in self.calls:
            try:
                call = dataclasses.replace(mover.call(options), timeout_s=self._workload.timeout)
            except OptionError as error:
                self._note(("workload.options", str(error)))
                return name
            self.calls[name] = dataclasses.replace(call, expect="nothing") if sink else call
        return name

    def _files_per_call(self, point: Point, files: int) -> int:
        mover = point.mover
        many = point.files_per_call or (min(files, MAX_FILES_PER_CALL) if _takes_many(mover, point) else 1)
        if many > 1 and not mover.lists:
            self._blame("files_per_call", f"expected 1 ({mover.name} takes one file a call), found {many}")
        if many > 1 and point.destination == "null" and not getattr(mover, "null_lists", True):
            self._blame(
                "destination", f'expected a storage ({mover.name} takes a list into a folder only), found "null"'
            )
        return min(many, files)

    def _dataset(self, point: Point, source: Seat, mix: tuple[Portion, ...]) -> str:
        name = f"{source.storage}-{point.set}"
        if name not in self.datasets:
            seed = self._scenario.seed
            largest = max(portion.size_bytes for portion in mix)
            files = sum(portion.files for portion in mix)
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
        """Make the data sets large enough for readers with files of their own."""
        for name, count in readers.items():
            dataset = self.datasets[name]
            needed = files * (count if self._workload.files == "own" else 1)
            if needed > MAX_DATASET_FILES:
                self._blame("sets", f"expected at most {MAX_DATASET_FILES} files a data set, found {needed}")
            self.datasets[name] = dataclasses.replace(dataset, files=max(dataset.files, needed))

    def _blame(self, key: str, problem: str) -> None:
        self._note(self._router.problem(EndsError(key, problem)))

    def _note(self, problem: Problem) -> None:
        if problem not in self._problems:
            self._problems.append(problem)


def _takes_many(mover: Mover, point: Point) -> bool:
    return mover.lists and (point.destination != "null" or getattr(mover, "null_lists", True))


def _word(value: OptionValue) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else "default" if value is None else str(value)
