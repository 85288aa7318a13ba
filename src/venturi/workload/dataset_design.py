"""The points of the workload ``dataset``: which set, by which mover with which options, between which ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from venturi.errors import UnitError
from venturi.mover import Mover
from venturi.plan.header import OptionValue
from venturi.plan.words import shown
from venturi.scenario.words import Problem, one_of, path_text
from venturi.workload.design import MAX_TRIALS, combinations
from venturi.workload.factors import MAX_FILES, MAX_FILES_PER_CALL, Factor, Reader
from venturi.workload.filesets import CATEGORIES, FileSet
from venturi.workload.pairs import NO_SERVICE, named

if TYPE_CHECKING:
    from venturi.scenario import Scenario
    from venturi.workload.dataset import Datasets
    from venturi.workload.sweep import Sweep

__all__ = ["Point", "Points", "dataset_points", "sets_of"]

_FIXED = (
    "set", "mover", "source", "destination", "source_service", "destination_service", "pairs", "calls", "files_per_call",
    "client", "cache",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Point:
    """One combination of values, in base units."""

    set: str
    mover: Mover
    source: str | None
    destination: str | None
    source_service: str | None
    destination_service: str | None
    pairs: str
    calls: int
    files_per_call: int | None
    client: str | None
    cache: str
    options: Mapping[str, OptionValue]
    varied: Mapping[str, OptionValue]
    """The factors of this point by the name of the scenario."""


@dataclass(frozen=True, slots=True)
class Points:
    """The points in the order in which they are numbered, and the record name of each factor."""

    points: tuple[Point, ...]
    keys: Mapping[str, str]


def sets_of(workload: Datasets) -> dict[str, FileSet]:
    """Return the sets that can be named: the categories, and those of the scenario."""
    return {**CATEGORIES, **workload.sets}


def dataset_points(scenario: Scenario, workload: Datasets, problems: list[Problem]) -> Points | None:
    """Return the points, or ``None`` with all that is wrong appended to ``problems``."""
    reader = _SetReader(scenario, workload, problems)
    factors = reader.factors()
    fixed = reader.fixed()
    options = reader.options()
    rules = reader.filters()
    groups = reader.groups(factors)
    if problems:
        return None
    points = [
        _point(values, fixed, options, reader.tools) for values in combinations(factors, groups, rules, problems)
    ]
    if problems:
        return None
    if not points:
        problems.append(("workload.sweep.filter", "expected filters that leave a point, found none that passes all"))
    elif len(points) * workload.repeat > MAX_TRIALS:
        found = f"{len(points)} points × {workload.repeat} repetitions = {len(points) * workload.repeat}"
        problems.append(("workload.repeat", f"expected at most {MAX_TRIALS} trials in all, found {found}"))
    else:
        _check_twins(points, problems)
    return None if problems else Points(tuple(points), {name: factor.key for name, factor in factors.items()})


class _SetReader(Reader):
    """Reads the factors of file sets in place of those of a sweep."""

    fixed_names = _FIXED

    def __init__(self, scenario: Scenario, workload: Datasets, problems: list[Problem]) -> None:
        # What a reader looks at, both kinds of workload have under the same names.
        super().__init__(scenario, cast("Sweep", workload), problems)
        self._workload, self._sets = workload, sets_of(workload)

    def _completed(self, found: dict[str, Factor]) -> dict[str, Factor]:
        if self._workload.set is None and "set" not in self._workload.factors:
            self.problems.append(("workload.set", f"expected one of the sets {', '.join(self._sets)}, found nothing"))
        return found

    def _require_endpoints(self) -> None:
        """Ask for a mover; an end is a storage, or a service that says which it is."""
        written, factors = self._workload, self._workload.factors
        if written.mover is None and "mover" not in factors:
            known = ", ".join(self.tools)
            self.problems.append(("workload.mover", f"expected one of the movers {known}, found nothing"))
        for name in ("source", "destination"):
            service = f"{name}_service"
            if all(getattr(written, key) is None and key not in factors for key in (name, service)):
                expected = "expected the name of a storage, or of a service in"
                self.problems.append((f"workload.{name}", f"{expected} {service}, found nothing"))

    def _plain_meanings(self) -> dict[str, tuple[str, Callable[[object], OptionValue]]]:
        usual = super()._plain_meanings()
        storages = (*self.storages, "zero"), (*self.storages, "null")
        return {
            "set": ("set", self._parse_set),
            "mover": usual["mover"],
            "source": ("source", lambda value: _parse_names(value, storages[0], "the storages")),
            "destination": ("destination", lambda value: _parse_names(value, storages[1], "the storages")),
            "source_service": ("source_service", self._parse_services),
            "destination_service": ("destination_service", self._parse_services),
            "pairs": ("pairs", _parse_pairs),
            "calls": ("calls", lambda value: _parse_count(value, MAX_FILES)),
            "files_per_call": ("files_per_call", lambda value: _parse_count(value, MAX_FILES_PER_CALL)),
            "client": usual["client"],
            "cache": usual["cache"],
        }

    def _parse_set(self, value: object) -> str:
        if not isinstance(value, str) or value not in self._sets:
            raise UnitError(one_of("the sets", self._sets, value))
        return value

    def _parse_services(self, value: object) -> str:
        return _parse_names(value, (*self.scenario.testbed.service, NO_SERVICE), "the services")

    def _parse_mover(self, value: object) -> str:
        if isinstance(value, str) and "+" in value:
            raise UnitError(f"expected one mover, found {shown(value)}")
        return super()._parse_mover(value)


def _parse_names(value: object, known: tuple[str, ...], what: str) -> str:
    if not isinstance(value, str):
        raise UnitError(one_of(what, known, value))
    try:
        named(value, known, what)
    except ValueError as error:
        raise UnitError(str(error)) from None
    return value


def _parse_pairs(value: object) -> str:
    if value not in ("all", "one to one"):
        raise UnitError(f'expected "all" or "one to one", found {shown(value)}')
    return str(value)


def _parse_count(value: object, most: int) -> int:
    if type(value) is not int or not 1 <= value <= most:
        raise UnitError(f"expected a whole number from 1 to {most}, found {shown(value)}")
    return value


def _point(
    values: Mapping[str, OptionValue],
    fixed: Mapping[str, str | int | None],
    options: Mapping[str, OptionValue],
    tools: Mapping[str, Mover],
) -> Point:
    every: dict[str, OptionValue] = {**fixed, **values}
    text = {name: None if every[name] is None else str(every[name]) for name in _FIXED}
    count = every["files_per_call"]
    return Point(
        set=text["set"] or "",
        mover=tools[text["mover"] or ""],
        source=text["source"],
        destination=text["destination"],
        source_service=text["source_service"],
        destination_service=text["destination_service"],
        pairs=text["pairs"] or "all",
        calls=int(every["calls"] or 1),
        files_per_call=None if count is None else int(count),
        client=text["client"],
        cache=text["cache"] or "as_is",
        options={**options, **{name: value for name, value in values.items() if name not in _FIXED}},
        varied=dict(values),
    )


def _check_twins(points: list[Point], problems: list[Problem]) -> None:
    """Refuse two points that would do the same: an option varied that the mover of the point does not have."""
    seen: dict[object, Point] = {}
    for point in points:
        names = {option.name for option in point.mover.options}
        effect = {
            name: (type(value).__name__, value)
            for name, value in point.varied.items()
            if name in _FIXED or name in names
        }
        twin = seen.setdefault(tuple(sorted(effect.items())), point)
        if twin is not point:
            name = next(name for name in point.varied if point.varied[name] != twin.varied[name])
            found = f"{shown(twin.varied[name])} and {shown(point.varied[name])}"
            problems.append(
                (path_text(("workload", "factors", name)),
                 f"expected a factor that matters to every mover, found that {point.mover.name} does the same for {found}; "
                 "leave one out with workload.sweep.filter")
            )  # fmt: skip
            return
