"""Where the bytes of a sweep come from and go to: calls, data sets, hosts, and the disk that they need."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from venturi.mover import Mover, resolve_options
from venturi.mover.base import MAX_WHOLE
from venturi.plan import Call, Dataset
from venturi.plan.header import OptionValue
from venturi.plan.steps import FactorValue
from venturi.scenario.words import Problem, path_text
from venturi.units import format_bytes, format_bytes_exact
from venturi.workload.design import Design, Point, scale_clashes, scaled_bytes
from venturi.workload.streams import draw_bits

if TYPE_CHECKING:
    from venturi.scenario import Scenario
    from venturi.workload.sweep import Sweep

__all__ = ["MAX_DATASET_FILES", "Cell", "Layout", "Role", "lay_out"]

MAX_DATASET_FILES = 10**6
"""Files of one data set: what six digits can number."""


@dataclass(frozen=True, slots=True)
class Role:
    """One mover in a slot of a trial. ``reader``: which of the readers of the slot it is, ``None`` if it reads none."""

    call: str
    mover: str
    reader: int | None
    writes: bool


@dataclass(frozen=True, slots=True)
class Cell:
    """One point of the sweep, resolved: all that its trials share."""

    host: str
    files: int
    size_bytes: int
    cache: str
    roles: tuple[Role, ...]
    source: str | None
    dataset: str | None
    destination: str | None
    factors: Mapping[str, FactorValue]

    @property
    def files_read(self) -> int:
        """Number of files of the data set that one trial reads."""
        return self.files * sum(role.reader is not None for role in self.roles)

    @property
    def written_bytes(self) -> int:
        """Bytes that one trial leaves at its destination."""
        return self.files * self.size_bytes * sum(role.writes for role in self.roles)


@dataclass(frozen=True, slots=True)
class Layout:
    """The cells of a sweep by number of point, and what they refer to."""

    cells: tuple[Cell, ...]
    calls: Mapping[str, Call]
    datasets: Mapping[str, Dataset]


def lay_out(scenario: Scenario, sweep: Sweep, design: Design, problems: list[Problem]) -> Layout:
    """Resolve the points of a sweep; what cannot be is appended to ``problems``."""
    sizes = {point.size_bytes: scaled_bytes(point.size_bytes, scenario.scale) for point in design.points}
    clash = scale_clashes(sizes)
    if clash:
        problems.append(("scale", clash))
    names = _CallNames(design, sweep.timeout)
    cells = tuple(_cell(scenario, sweep, design, point, names, problems) for point in design.points)
    moved = sweep.repeat * sum(cell.files * len(cell.roles) * cell.size_bytes for cell in cells)
    if moved > MAX_WHOLE:
        problems.append(
            ("workload.factors.size", f"expected at most 8 EiB moved in all, found {format_bytes(moved)}")
        )
    return Layout(cells, names.calls, _datasets(scenario, sweep, cells, problems))


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


def _cell(
    scenario: Scenario, sweep: Sweep, design: Design, point: Point, names: _CallNames, problems: list[Problem]
) -> Cell:
    size = scaled_bytes(point.size_bytes, scenario.scale)
    roles, readers = [], 0
    for mover in point.movers:
        roles.append(Role(names.name(mover, point), mover.name, readers if mover.reads else None,
                          mover.writes and point.destination != "null"))  # fmt: skip
        readers += mover.reads
    source = point.source if readers else None
    destination = point.destination if any(mover.writes for mover in point.movers) else None
    _check_ends(scenario, sweep, point, source, destination, problems)
    storages = scenario.testbed.storage
    acting = source or destination
    factors = {design.keys[name]: value for name, value in point.varied.items()}
    return Cell(
        host=storages[acting].host if acting in storages else next(iter(scenario.testbed.host), ""),
        files=point.files,
        size_bytes=size,
        cache=point.cache,
        roles=tuple(roles),
        source=source,
        dataset=f"{source}-{_size_word(size)}" if source else None,
        destination=destination,
        factors={**factors, "size_bytes": size},
    )


def _check_ends(
    scenario: Scenario,
    sweep: Sweep,
    point: Point,
    source: str | None,
    destination: str | None,
    problems: list[Problem],
) -> None:
    where = "workload.factors.destination" if "destination" in sweep.factors else "workload.destination"
    storages = scenario.testbed.storage
    found = None
    for mover in point.movers:
        if destination == "null" and mover.writes and not mover.null_destination:
            found = f'expected a storage ({mover.name} might replace /dev/null itself), found "null"'
    if source in storages and destination in storages:
        here, there = storages[source].host, storages[destination].host
        if here != there:
            found = f"expected a storage on {here}, where {source} is (a trial stays within one host), found {destination} on {there}"
    if found and (where, found) not in problems:
        problems.append((where, found))


def _datasets(
    scenario: Scenario, sweep: Sweep, cells: tuple[Cell, ...], problems: list[Problem]
) -> dict[str, Dataset]:
    largest: dict[str, int] = {}
    used: dict[str, int] = {}
    sample: dict[str, Cell] = {}
    for cell in cells:
        if cell.dataset:
            largest[cell.dataset] = max(largest.get(cell.dataset, 0), cell.files_read)
            used[cell.dataset] = used.get(cell.dataset, 0) + cell.files_read * sweep.repeat
            sample[cell.dataset] = cell
    found = {}
    for name, cell in sample.items():
        place = cell.source or ""
        files = largest[name]
        volume = _volume_bytes(scenario, sweep, place, problems)
        if volume and cell.size_bytes:
            # Ranges of up to m files go round in a set of F, and none is split: between two readings of a file lie at
            # least F - 3 m + 2 others (m - 1 passed over at the end, up to m - 1 read along with it each time).
            files = -(-volume // cell.size_bytes) + 3 * files - 2
        files = min(files, used[name])
        if files > MAX_DATASET_FILES:
            where = "workload.data_at_least" if volume else "workload.factors.files"
            what = f"{files} files of {format_bytes(cell.size_bytes)}"
            problems.append((where, f"expected at most {MAX_DATASET_FILES} files a data set, found {what}"))
        seed = draw_bits(scenario.seed, "dataset", _size_word(cell.size_bytes), bits=53)
        path = f"sets/seed{scenario.seed}/{_size_word(cell.size_bytes)}"
        found[name] = Dataset(place, path, files, cell.size_bytes, seed)
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
