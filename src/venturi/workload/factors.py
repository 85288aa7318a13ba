"""Reader of the tables of a sweep: factors, options, filters and groups."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from venturi.errors import UnitError
from venturi.messages import Problem, QuotedValue, one_of, path_text, quote_value, suggestion
from venturi.mover.base import Option, parse_size
from venturi.plan.header import OptionValue
from venturi.scenario.expression import Expression, ExpressionError, parse_expression
from venturi.scenario.tools import resolve_movers

if TYPE_CHECKING:
    from venturi.scenario import Scenario
    from venturi.workload.sweep import Sweep

__all__ = ["FIXED", "MAX_FILES", "MAX_FILES_PER_CALL", "MAX_POINTS", "Factor", "Reader"]

MAX_POINTS = 100_000
"""Maximum number of design points of a sweep."""

MAX_FILES = 10_000
"""Maximum number of concurrent transfers in a trial, limited by the processes of a host."""

MAX_FILES_PER_CALL = 100_000
"""Maximum number of files of a call, limited by the lists of tools."""

FIXED = (
    "mover", "source", "destination", "cache", "client", "source_service", "destination_service", "direction",
    "files_per_call",
)  # fmt: skip
_CACHE = ("as_is", "cold", "warm")
_DIRECTIONS = ("one way", "two ways")


@dataclass(frozen=True, slots=True)
class Factor:
    """Factor: its name in records, its values in base units, and its values in the scenario."""

    key: str
    values: tuple[OptionValue, ...]
    written: tuple[object, ...]


class Reader:
    """Reads the tables of a sweep and collects errors with their locations.

    ``fixed_names`` are the factors that can also be fixed values of the workload.
    """

    fixed_names: tuple[str, ...] = FIXED

    def __init__(self, scenario: Scenario, sweep: Sweep, problems: list[Problem]) -> None:
        self.scenario, self.sweep, self.problems = scenario, sweep, problems
        self.tools = resolve_movers(scenario)[0]
        self.storages = tuple(scenario.testbed.storage)
        named = self._named_movers()
        self.used = {name: self.tools[name] for name in named if name in self.tools}
        # The options of an unknown mover are unknown; the error about the mover is enough.
        self.knows_all_movers = bool(named) and all(name in self.tools for name in named)

    def factors(self) -> dict[str, Factor]:
        """Return the valid factors, with one value for ``files`` if it is no factor."""
        found = {}
        for name, written in self.sweep.factors.items():
            where = path_text(("workload", "factors", name))
            meaning = self._meaning(name)
            if meaning is None:
                if self.knows_all_movers:
                    self.problems.append((where, one_of("the factors", self._possible(), name)))
                continue
            if not isinstance(written, (list, tuple)):
                self.problems.append(
                    (
                        where,
                        f"expected a list such as [{quote_value(written)}], found {quote_value(written)}; write brackets",
                    )
                )
                continue
            if not written:
                self.problems.append(
                    (where, "expected one or more values, found an empty list; add a value or remove the factor")
                )
                continue
            key, parse = meaning
            values = [self._parse(parse, value, f"{where}[{i}]") for i, value in enumerate(written)]
            found[name] = Factor(key, tuple(values), tuple(written))
        return self._completed(found)

    def _completed(self, found: dict[str, Factor]) -> dict[str, Factor]:
        """Return the factors, with the factors that every point needs."""
        if "size" not in self.sweep.factors:
            self.problems.append(
                (
                    "workload.factors.size",
                    'expected a list of sizes such as ["100 MB"], found nothing; add the factor size',
                )
            )
        if "files" not in self.sweep.factors:
            found = {"files": Factor("files", (1,), (1,)), **found}
        return found

    def fixed(self) -> dict[str, str | int | None]:
        """Return the fixed values of :data:`FIXED` that are no factors."""
        found: dict[str, str | int | None] = {}
        for name in self.fixed_names:
            value: str | int | None = getattr(self.sweep, name)
            if name in self.sweep.factors:
                continue
            if name in self.sweep.model_fields_set and value is not None:
                meaning = self._meaning(name)
                assert meaning is not None
                self._parse(meaning[1], value, f"workload.{name}")
            found[name] = value
        self._require_endpoints()
        return found

    def options(self) -> dict[str, OptionValue]:
        """Return the fixed options, by name, in base units."""
        found = {}
        for name, written in self.sweep.options.items():
            where = path_text(("workload", "options", name))
            options = self._options_named(name)
            if not options and self.knows_all_movers:
                self.problems.append((where, one_of(self._describe_used_options(), self._known_options(), name)))
            elif options and name not in self.sweep.factors:
                found[name] = self._parse(_parse_all(options), written, where)
        return found

    def names(self, factors: Mapping[str, Factor]) -> None:
        """Check the names of factors in other tables."""
        for index, name in enumerate(self.scenario.analyse.against):
            if name not in self.sweep.factors and name not in ("files", "size"):
                where = f"analyse.against[{index}]"
                self.problems.append((where, one_of("the factors", dict.fromkeys(("files", "size", *factors)), name)))

    def filters(self) -> list[tuple[str, Expression]]:
        """Return the parsed filters with their locations."""
        found = []
        known = tuple(dict.fromkeys(("files", *self.sweep.factors)))
        for index, text in enumerate(self.sweep.sweep.filter):
            where = f"workload.sweep.filter[{index}]"
            try:
                expression = parse_expression(text)
            except ExpressionError as error:
                self.problems.append((where, str(error)))
                continue
            unknown = [name for name in expression.names if name not in known]
            for name in unknown:
                self.problems.append((where, one_of("the factors", known, name)))
            if not unknown:
                found.append((where, expression))
        return found

    def groups(self, factors: Mapping[str, Factor]) -> list[tuple[str, ...]]:
        """Return and check the groups of factors that vary together, in the order of the factors."""
        groups: list[tuple[str, ...]] = []
        for index, names in enumerate(self.sweep.sweep.zip):
            where = f"workload.sweep.zip[{index}]"
            unknown = [name for name in names if name not in self.sweep.factors]
            for name in unknown:
                self.problems.append((where, one_of("the factors", self.sweep.factors, name)))
            twice = [name for name in dict.fromkeys(names) if names.count(name) > 1 or any(name in g for g in groups)]
            for name in twice:
                self.problems.append(
                    (where, f"expected each factor in one group, found {name} again; remove the repetition")
                )
            if len(names) < 2:
                self.problems.append(
                    (where, f"expected two or more factors, found {len(names)}; add a factor or remove the group")
                )
            lengths = {name: len(factors[name].values) for name in names if name in factors}
            if len(set(lengths.values())) > 1:
                found = ", ".join(f"{name} with {length}" for name, length in lengths.items())
                self.problems.append((where, f"expected lists of equal length, found {found}; add or remove values"))
            elif len(names) > 1 and not unknown and not twice:
                groups.append(names)
        zipped = {name for group in groups for name in group}
        groups += [(name,) for name in factors if name not in zipped]
        order = list(factors)
        groups.sort(key=lambda group: min((order.index(name) for name in group if name in order), default=0))
        for group in groups:
            self._check_distinct(group, factors)
        total = math.prod(len(factors[group[0]].values) for group in groups if group[0] in factors)
        if total > MAX_POINTS:
            self.problems.append(
                ("workload.factors", f"expected at most {MAX_POINTS} combinations, found {total}; remove values")
            )
        return groups

    def _meaning(self, name: str) -> tuple[str, Callable[[object], OptionValue]] | None:
        """Return the name of a factor in records, and the parser of its values."""
        plain = self._plain_meanings()
        if name in plain:
            return plain[name]
        options = self._options_named(name)
        return (options[0].key, _parse_all(options)) if options else None

    def _plain_meanings(self) -> dict[str, tuple[str, Callable[[object], OptionValue]]]:
        """Return the factors that are no mover options: name in records, and parser of the values."""
        return {
            "files": ("files", _parse_files),
            "size": ("size_bytes", parse_size),
            "mover": ("mover", self._parse_mover),
            "source": ("source", lambda value: self._parse_storage(value, self._sources())),
            "destination": ("destination", lambda value: self._parse_storage(value, (*self.storages, "null"))),
            "cache": ("cache", _parse_cache),
            "client": ("client", lambda value: _parse_name(value, "the hosts", self.scenario.testbed.host)),
            "source_service": ("source_service", self._parse_service),
            "destination_service": ("destination_service", self._parse_service),
            "direction": ("direction", _parse_direction),
            "files_per_call": ("files_per_call", _parse_files_per_call),
        }

    def _parse(self, parse: Callable[[object], OptionValue], value: object, where: str) -> OptionValue:
        try:
            return parse(value if isinstance(value, (str, int, float)) else QuotedValue(value))
        except UnitError as error:
            text = str(error).replace("found True", "found true").replace("found False", "found false")
            self.problems.append((where, text))
            return None

    def _parse_mover(self, value: object) -> str:
        if not isinstance(value, str):
            raise UnitError(one_of("the movers", self.tools, value))
        names = value.split("+")
        for name in names:
            if name not in self.tools:
                raise UnitError(one_of("the movers", self.tools, name))
        if len(set(names)) < len(names):
            raise UnitError(
                f"expected different movers, found {quote_value(value)}; use files for concurrent calls of one mover"
            )
        return value

    def _parse_storage(self, value: object, known: tuple[str, ...]) -> str:
        return _parse_name(value, "the storages", known)

    def _sources(self) -> tuple[str, ...]:
        """Return the storages, and ``zero`` if a mover has an option to limit the bytes."""
        endpoints = any(
            option.name == "length" and option.kind == "boolean" and mover.reads
            for mover in self.used.values()
            for option in mover.options
        )
        return (*self.storages, "zero") if endpoints else self.storages

    def _parse_service(self, value: object) -> str:
        return _parse_name(value, "the services", self.scenario.testbed.service)

    def _named_movers(self) -> list[str]:
        written = self.sweep.factors.get("mover", [self.sweep.mover])
        values = written if isinstance(written, (list, tuple)) else []
        return [part for value in values if isinstance(value, str) for part in value.split("+")]

    def _options_named(self, name: str) -> list[Option]:
        return [option for mover in self.used.values() for option in mover.options if option.name == name]

    def _known_options(self) -> list[str]:
        return list(dict.fromkeys(option.name for mover in self.used.values() for option in mover.options))

    def _describe_used_options(self) -> str:
        return f"the options of {' and '.join(self.used)}"

    def _possible(self) -> list[str]:
        return [*self._plain_meanings(), *self._known_options()]

    def _require_endpoints(self) -> None:
        if self.sweep.mover is None and "mover" not in self.sweep.factors:
            self.problems.append(
                (
                    "workload.mover",
                    f"expected one of the movers {', '.join(self.tools)}, found nothing; add workload.mover",
                )
            )
        for name, needs in (("source", "reads"), ("destination", "writes")):
            needing = [tool for tool, mover in self.used.items() if getattr(mover, needs)]
            if needing and getattr(self.sweep, name) is None and name not in self.sweep.factors:
                verb = "reads from" if name == "source" else "writes to"
                what = f"the name of a storage ({needing[0]} {verb} it)"
                self.problems.append((f"workload.{name}", f"expected {what}, found nothing; add workload.{name}"))
        fixed_cold = self.sweep.cache == "cold" and "cache" not in self.sweep.factors
        if self.used and fixed_cold and not any(mover.reads for mover in self.used.values()):
            self.problems.append(
                (
                    "workload.cache",
                    f'expected "as_is" ({" and ".join(self.used)} reads no dataset), found "cold"; remove cache',
                )
            )

    def _check_distinct(self, group: tuple[str, ...], factors: Mapping[str, Factor]) -> None:
        """Reject a repeated value: two points would be equal."""
        if any(name not in factors or None in factors[name].values for name in group):
            return
        seen: dict[tuple[OptionValue, ...], int] = {}
        for index, values in enumerate(zip(*(factors[name].values for name in group), strict=False)):
            key = tuple((type(value).__name__, value) for value in values)
            first = seen.setdefault(key, index)  # type: ignore[arg-type]
            if first == index:
                continue
            where = f"{path_text(('workload', 'factors', group[0]))}[{index}]"
            written = " with ".join(quote_value(factors[name].written[index]) for name in group)
            self.problems.append(
                (where, f"expected distinct values, found {written} a second time (first at [{first}]); remove one")
            )


def _parse_all(options: list[Option]) -> Callable[[object], OptionValue]:
    def parse(value: object) -> OptionValue:
        first, *_ = [option.parse(value) for option in options]
        return first

    return parse


def _parse_files(value: object) -> int:
    if type(value) is not int or not 1 <= value <= MAX_FILES:
        raise UnitError(
            f"expected a whole number from 1 to {MAX_FILES}, found {quote_value(value)}; change the number"
        )
    return value


def _parse_name(value: object, what: str, known: Iterable[str]) -> str:
    if not isinstance(value, str) or value not in known:
        raise UnitError(one_of(what, known, value))
    return value


def _parse_files_per_call(value: object) -> int:
    if type(value) is not int or not 1 <= value <= MAX_FILES_PER_CALL:
        raise UnitError(
            f"expected a whole number from 1 to {MAX_FILES_PER_CALL}, found {quote_value(value)}; change the number"
        )
    return value


def _parse_direction(value: object) -> str:
    if value not in _DIRECTIONS:
        raise UnitError(f'expected "one way" or "two ways", found {quote_value(value)}; use one of them')
    return str(value)


def _parse_cache(value: object) -> str:
    if value not in _CACHE:
        hint = suggestion(value, _CACHE) if isinstance(value, str) else ""
        raise UnitError(f'expected "as_is", "cold" or "warm", found {quote_value(value)}{hint}')
    return str(value)
