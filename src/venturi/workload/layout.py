"""Where the bytes of a sweep come from and go to: calls, data sets, hosts, and the disk that they need."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from venturi.mover import Mover, resolve_options
from venturi.mover.base import MAX_WHOLE, OptionError
from venturi.plan import Call, Dataset
from venturi.plan.header import OptionValue
from venturi.plan.steps import FactorValue
from venturi.scenario.words import Problem, path_text
from venturi.units import format_bytes, format_bytes_exact
from venturi.workload.design import Design, Point, scale_clashes, scaled_bytes
from venturi.workload.ends import Asked, Ends, EndsError, Router
from venturi.workload.streams import draw_bits

if TYPE_CHECKING:
    from venturi.scenario import Scenario
    from venturi.testbed.plan import ResolvedTestbed
    from venturi.workload.sweep import Sweep

__all__ = ["MAX_DATASET_FILES", "Cell", "Layout", "Role", "lay_out"]

MAX_DATASET_FILES = 10**6
"""Files of one data set: what six digits can number."""

_NO_LABELS: Mapping[str, FactorValue] = MappingProxyType({})
_WAYS: Mapping[bool, Mapping[str, FactorValue]] = {False: {"way": "there"}, True: {"way": "back"}}
"""Labels of transfers where there are two ways."""


@dataclass(frozen=True, slots=True)
class Role:
    """One mover in a slot of a trial, in one direction.

    Attributes
    ----------
    dataset, reader
        What it reads, and which of the readers of that data set in the slot it is; ``None`` if it reads none.
    destination
        The place that it writes to, ``None`` for a sink.
    source_via, destination_via
        ``service/door`` of each end, ``None`` for a file of the host.
    suffix
        What tells its destination from those of the other roles of its slot.
    """

    call: str
    dataset: str | None
    reader: int
    destination: str | None
    source_via: str | None
    destination_via: str | None
    suffix: str
    labels: Mapping[str, FactorValue]


@dataclass(frozen=True, slots=True)
class Cell:
    """One point of the sweep, resolved: all that its trials share.

    ``reads`` are the data sets and the number of files of each that one trial reads.
    """

    host: str
    files: int
    files_per_call: int
    size_bytes: int
    cache: str
    roles: tuple[Role, ...]
    reads: tuple[tuple[str, int], ...]
    factors: Mapping[str, FactorValue]

    @property
    def call_bytes(self) -> int:
        """Bytes that one call moves."""
        return self.files_per_call * self.size_bytes

    @property
    def moved_bytes(self) -> int:
        """Bytes that one trial moves."""
        return self.files * len(self.roles) * self.call_bytes

    def written_bytes(self) -> dict[str, int]:
        """Return the bytes that one trial leaves at each place."""
        found: dict[str, int] = {}
        for role in self.roles:
            if role.destination is not None:
                found[role.destination] = found.get(role.destination, 0) + self.files * self.call_bytes
        return found


@dataclass(frozen=True, slots=True)
class Layout:
    """The cells of a sweep by number of point, and what they refer to."""

    cells: tuple[Cell, ...]
    calls: Mapping[str, Call]
    datasets: Mapping[str, Dataset]


def lay_out(
    scenario: Scenario, sweep: Sweep, design: Design, parts: ResolvedTestbed, problems: list[Problem]
) -> Layout:
    """Resolve the points of a sweep; what cannot be is appended to ``problems``."""
    sizes = {point.size_bytes: scaled_bytes(point.size_bytes, scenario.scale) for point in design.points}
    clash = scale_clashes(sizes)
    if clash:
        problems.append(("scale", clash))
    maker = _Cells(scenario, sweep, design, parts, problems)
    cells = tuple(maker.cell(point) for point in design.points)
    moved = sweep.repeat * sum(cell.moved_bytes for cell in cells)
    if moved > MAX_WHOLE:
        problems.append(
            ("workload.factors.size", f"expected at most 8 EiB moved in all, found {format_bytes(moved)}")
        )
    return Layout(cells, maker.calls, _datasets(scenario, sweep, cells, maker.places, problems))


class _CallNames:
    """One call for each mover and set of options; its name tells the options that differ within the plan."""

    def __init__(self, design: Design, timeout_s: float) -> None:
        self.calls: dict[str, Call] = {}
        self._timeout_s = timeout_s
        self._varied: dict[str, dict[str, set[OptionValue]]] = {}
        self._sinks: dict[str, set[bool]] = {}
        for point in design.points:
            for mover in point.movers:
                values = self._varied.setdefault(mover.name, {})
                for key, value in resolve_options(mover, point.options).items():
                    values.setdefault(key, set()).add(value)
                self._sinks.setdefault(mover.name, set()).add(point.destination == "null")

    def name(self, mover: Mover, point: Point) -> str:
        """Return the name of the call of ``mover`` at this point, made if it is not there yet."""
        options = resolve_options(mover, point.options)
        varied = self._varied[mover.name]
        parts = [f"{key}={_word(value)}" for key, value in options.items() if len(varied[key]) > 1]
        sink = mover.writes and point.destination == "null"
        if sink and len(self._sinks[mover.name]) > 1:
            parts.append("null")
        name = ",".join([mover.name, *parts])
        if name not in self.calls:
            call = dataclasses.replace(mover.call(options), timeout_s=self._timeout_s)
            self.calls[name] = dataclasses.replace(call, expect="nothing") if sink else call
        return name


class _Cells:
    """Makes the cell of each point."""

    def __init__(
        self, scenario: Scenario, sweep: Sweep, design: Design, parts: ResolvedTestbed, problems: list[Problem]
    ) -> None:
        self._scenario, self._sweep, self._keys = scenario, sweep, design.keys
        self._problems = problems
        self._names = _CallNames(design, sweep.timeout)
        self._router = Router(scenario, sweep.factors, parts)
        self.places: dict[str, str] = {}
        """The place of each data set."""

    @property
    def calls(self) -> Mapping[str, Call]:
        """The calls of all cells so far."""
        return self._names.calls

    def cell(self, point: Point) -> Cell:
        """Return the cell of a point; what is wrong with it is noted once."""
        size = scaled_bytes(point.size_bytes, self._scenario.scale)
        roles: list[Role] = []
        readers: dict[str, int] = {}
        client = point.client
        for back in (False, True) if point.two_ways else (False,):
            for mover in point.movers:
                ends = self._ends(mover, point, client, back)
                client = client or (ends.client if ends else None)
                roles.append(self._role(mover, point, size, ends, back, readers))
        factors = {self._keys[name]: value for name, value in point.varied.items()}
        return Cell(
            host=client or "",
            files=point.files,
            files_per_call=point.files_per_call,
            size_bytes=size,
            cache=point.cache,
            roles=tuple(roles),
            reads=tuple((name, point.files * point.files_per_call * count) for name, count in readers.items()),
            factors={**factors, "size_bytes": size},
        )

    def _ends(self, mover: Mover, point: Point, client: str | None, back: bool) -> Ends | None:
        asked = Asked(
            source=point.source if mover.reads else None,
            destination=point.destination if mover.writes else None,
            client=client,
            source_service=point.source_service,
            destination_service=point.destination_service,
        )
        self._check_point(mover, point)
        try:
            ends = self._router.ends(mover, asked.back if back else asked)
        except EndsError as error:
            self._note(self._router.problem(error))
            return None
        self._check_ports(mover, point, ends)
        if refused := self._router.refusal(mover, point.options, ends):
            self._note(refused)
        if point.destination == "null" and mover.writes and not mover.null_destination and not ends.destination_via:
            self._blame(
                "destination", f'expected a storage ({mover.name} might replace /dev/null itself), found "null"'
            )
        return ends

    def _check_ports(self, mover: Mover, point: Point, ends: Ends) -> None:
        """Refuse more clients at the same time than a server takes that has one a port."""
        for via in (ends.source_via, ends.destination_via):
            name = via.partition("/")[0] if via else ""
            ports = self._router.single_ports(name)
            if ports is not None and point.files > ports:
                self._blame("files", f"expected {ports} at most ({name} serves one {mover.name} a port), found {point.files}; "
                            f"testbed.service.{name}.ports says how many it has")  # fmt: skip

    def _check_point(self, mover: Mover, point: Point) -> None:
        if point.files_per_call > 1 and not mover.lists:
            self._blame(
                "files_per_call", f"expected 1 ({mover.name} takes one file a call), found {point.files_per_call}"
            )
        if point.files_per_call > 1 and point.destination == "null" and not getattr(mover, "null_lists", True):
            self._blame(
                "destination", f'expected a storage ({mover.name} takes a list into a folder only), found "null"'
            )
        if point.two_ways and not (
            mover.reads and mover.writes and point.destination != "null" and point.source != "zero"
        ):
            self._blame("direction", f'expected "one way" (two ways need a mover that copies from storage to storage, and '
                        f'{mover.name} at this point does not), found "two ways"')  # fmt: skip
        if not (mover.reads or mover.writes or point.size_bytes) and point.options.get("time") is None:
            self._blame("size", f"expected 1 B or more ({mover.name} takes none for no limit, or moves a block all the same), found 0 B; "
                        "leave it out, or set the option time")  # fmt: skip
        if mover.reads and point.source == "zero" and not point.options.get("length"):
            self._blame("source", f"expected a storage, or the option length = true ({mover.name} would read zeros without "
                        'end), found "zero"')  # fmt: skip

    def _role(
        self, mover: Mover, point: Point, size: int, ends: Ends | None, back: bool, readers: dict[str, int]
    ) -> Role:
        source, destination = (point.destination, point.source) if back else (point.source, point.destination)
        dataset, reader = None, 0
        if mover.reads and source is not None and source != "zero":
            dataset = f"{source}-{_size_word(size)}"
            self.places[dataset] = source
            reader = readers.get(dataset, 0)
            readers[dataset] = reader + 1
        suffix = (f"-{mover.name}" if len(point.movers) > 1 else "") + ("-back" if back else "")
        try:
            call = self._names.name(mover, point)
        except OptionError as error:
            call = mover.name
            self._note(("workload.options", str(error)))
        return Role(
            call=call,
            dataset=dataset,
            reader=reader,
            destination=destination if mover.writes and destination != "null" else None,
            source_via=ends.source_via if ends else None,
            destination_via=ends.destination_via if ends else None,
            suffix=suffix,
            labels=_WAYS[back] if point.two_ways else _NO_LABELS,
        )

    def _blame(self, key: str, problem: str) -> None:
        self._note(self._router.problem(EndsError(key, problem)))

    def _note(self, problem: Problem) -> None:
        if problem not in self._problems:
            self._problems.append(problem)


def _datasets(
    scenario: Scenario, sweep: Sweep, cells: tuple[Cell, ...], places: Mapping[str, str], problems: list[Problem]
) -> dict[str, Dataset]:
    largest: dict[str, int] = {}
    used: dict[str, int] = {}
    sizes: dict[str, int] = {}
    for cell in cells:
        for name, read in cell.reads:
            largest[name] = max(largest.get(name, 0), read)
            used[name] = used.get(name, 0) + read * sweep.repeat
            sizes[name] = cell.size_bytes
    found = {}
    for name, size in sizes.items():
        place = places[name]
        files = largest[name]
        volume = _volume_bytes(scenario, sweep, place, problems)
        if volume and size:
            # Ranges of up to m files go round in a set of F, and none is split: between two readings of a file lie at
            # least F - 3 m + 2 others (m - 1 passed over at the end, up to m - 1 read along with it each time).
            files = -(-volume // size) + 3 * files - 2
        files = min(files, used[name])
        if files > MAX_DATASET_FILES:
            where = "workload.data_at_least" if volume else "workload.factors.files"
            what = f"{files} files of {format_bytes(size)}"
            problems.append((where, f"expected at most {MAX_DATASET_FILES} files a data set, found {what}"))
        seed = draw_bits(scenario.seed, "dataset", _size_word(size), bits=53)
        found[name] = Dataset(place, f"sets/seed{scenario.seed}/{_size_word(size)}", files, size, seed)
    return found


def _volume_bytes(scenario: Scenario, sweep: Sweep, place: str, problems: list[Problem]) -> int:
    volume = sweep.data_at_least
    if volume is None:
        return 0
    if volume.size_bytes is not None:
        return scaled_bytes(volume.size_bytes, scenario.scale)
    host = scenario.testbed.storage[place].host
    machine = scenario.testbed.host.get(host)
    if machine is None or machine.memory is None:
        where = path_text(("testbed", "host", host, "memory"))
        problem = (where, 'expected its memory, such as "16 GiB" (workload.data_at_least asks for it), found nothing')
        if machine is not None and problem not in problems:
            problems.append(problem)
        return 0
    # The memory is that of a real machine: it does not shrink with the scale.
    return round(machine.memory * (volume.memories or 0))


def _size_word(size_bytes: int) -> str:
    return format_bytes_exact(size_bytes).replace(" ", "")


def _word(value: OptionValue) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else "default" if value is None else str(value)
