"""Design points of the workload ``dataset``: dataset, mover, options and endpoints."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from venturi.errors import UnitError
from venturi.messages import Problem, one_of, path_text, quote_value
from venturi.mover import Mover
from venturi.plan.header import OptionValue
from venturi.workload.design import MAX_TRIALS, combinations
from venturi.workload.endpoint_pairs import NO_SERVICE, expand_names
from venturi.workload.factors import MAX_FILES, MAX_FILES_PER_CALL, Factor, Reader
from venturi.workload.filesets import CATEGORIES, FileSet

if TYPE_CHECKING:
    from venturi.scenario import Scenario
    from venturi.workload.dataset import Datasets
    from venturi.workload.sweep import Sweep

__all__ = ["DatasetPoint", "DatasetPoints", "dataset_points", "list_file_sets"]

_FIXED = (
    "set", "mover", "source", "destination", "source_service", "destination_service", "pairs", "calls", "files_per_call",
    "client", "cache",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class DatasetPoint:
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
    """Factors of this point by their names in the scenario."""


@dataclass(frozen=True, slots=True)
class DatasetPoints:
    """Numbered points, and the name of each factor in records."""

    points: tuple[DatasetPoint, ...]
    keys: Mapping[str, str]


def list_file_sets(workload: Datasets) -> dict[str, FileSet]:
    """Return the datasets by name: the categories and the datasets of the scenario."""
    return {**CATEGORIES, **workload.sets}


def dataset_points(scenario: Scenario, workload: Datasets, problems: list[Problem]) -> DatasetPoints | None:
    """Return the points, or ``None`` after errors, which are appended to ``problems``."""
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
        problems.append(
            (
                "workload.sweep.filter",
                "expected at least one point that passes all filters, found none; change a filter",
            )
        )
    elif len(points) * workload.repeat > MAX_TRIALS:
        found = f"{len(points)} points × {workload.repeat} repetitions = {len(points) * workload.repeat}"
        problems.append(
            (
                "workload.repeat",
                f"expected at most {MAX_TRIALS} trials in total, found {found}; reduce repeat or the factors",
            )
        )
    else:
        _check_twins(points, problems)
    return None if problems else DatasetPoints(tuple(points), {name: factor.key for name, factor in factors.items()})


class _SetReader(Reader):
    """Reader of the factors of datasets."""

    fixed_names = _FIXED

    def __init__(self, scenario: Scenario, workload: Datasets, problems: list[Problem]) -> None:
        # Both kinds of workload have the attributes that the reader uses.
        super().__init__(scenario, cast("Sweep", workload), problems)
        self._workload, self._sets = workload, list_file_sets(workload)

    def _completed(self, found: dict[str, Factor]) -> dict[str, Factor]:
        if self._workload.set is None and "set" not in self._workload.factors:
            self.problems.append(
                ("workload.set", f"expected one of the sets {', '.join(self._sets)}, found nothing; add workload.set")
            )
        return found

    def _require_endpoints(self) -> None:
        """Check that the mover and both endpoints are set; an endpoint is a storage or a service."""
        written, factors = self._workload, self._workload.factors
        if written.mover is None and "mover" not in factors:
            known = ", ".join(self.tools)
            self.problems.append(
                ("workload.mover", f"expected one of the movers {known}, found nothing; add workload.mover")
            )
        for name in ("source", "destination"):
            service = f"{name}_service"
            if all(getattr(written, key) is None and key not in factors for key in (name, service)):
                expected = "expected the name of a storage, or of a service in"
                self.problems.append((f"workload.{name}", f"{expected} {service}, found nothing; add one of them"))

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
            raise UnitError(f"expected one mover, found {quote_value(value)}; list movers as a factor")
        return super()._parse_mover(value)


def _parse_names(value: object, known: tuple[str, ...], what: str) -> str:
    if not isinstance(value, str):
        raise UnitError(one_of(what, known, value))
    try:
        expand_names(value, known, what)
    except ValueError as error:
        raise UnitError(str(error)) from None
    return value


def _parse_pairs(value: object) -> str:
    if value not in ("all", "one to one"):
        raise UnitError(f'expected "all" or "one to one", found {quote_value(value)}; use one of them')
    return str(value)


def _parse_count(value: object, maximum: int) -> int:
    if type(value) is not int or not 1 <= value <= maximum:
        raise UnitError(f"expected a whole number from 1 to {maximum}, found {quote_value(value)}; change the number")
    return value


def _point(
    values: Mapping[str, OptionValue],
    fixed: Mapping[str, str | int | None],
    options: Mapping[str, OptionValue],
    tools: Mapping[str, Mover],
) -> DatasetPoint:
    every: dict[str, OptionValue] = {**fixed, **values}
    text = {name: None if every[name] is None else str(every[name]) for name in _FIXED}
    count = every["files_per_call"]
    return DatasetPoint(
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


def _check_twins(points: list[DatasetPoint], problems: list[Problem]) -> None:
    """Reject two equivalent points: a factor that the mover of the point does not use."""
    seen: dict[object, DatasetPoint] = {}
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
            found = f"{quote_value(twin.varied[name])} and {quote_value(point.varied[name])}"
            problems.append(
                (path_text(("workload", "factors", name)),
                 f"expected a factor that every mover uses, found {point.mover.name} with equal calls for {found}; "
                 "exclude one with workload.sweep.filter")
            )  # fmt: skip
            return
