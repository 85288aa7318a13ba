"""Design points of a sweep: product, zip and filter of the factors."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from venturi.messages import Problem, path_text, quote_value
from venturi.mover import Mover
from venturi.plan.header import OptionValue
from venturi.scenario.expression import Expression, ExpressionError, Quantity, Value
from venturi.testbed.network import scaled_bytes
from venturi.units import format_bytes_exact
from venturi.workload.factors import FIXED, Factor, Reader

if TYPE_CHECKING:
    from venturi.scenario import Scenario
    from venturi.workload.sweep import Sweep

__all__ = ["MAX_TRIALS", "Design", "DesignPoint", "combinations", "design", "scaled_bytes"]

MAX_TRIALS = 10**7
"""Maximum number of trials in a plan: seven digits."""


@dataclass(frozen=True, slots=True)
class DesignPoint:
    """One combination of values, in base units (sizes not yet scaled)."""

    files: int
    size_bytes: int
    movers: tuple[Mover, ...]
    cache: str
    source: str | None
    destination: str | None
    client: str | None
    source_service: str | None
    destination_service: str | None
    bidirectional: bool
    files_per_call: int
    options: Mapping[str, OptionValue]
    varied: Mapping[str, OptionValue]
    """Factors of this point by their names in the scenario."""


@dataclass(frozen=True, slots=True)
class Design:
    """Numbered points of a sweep, and the name of each factor in records."""

    points: tuple[DesignPoint, ...]
    keys: Mapping[str, str]


def design(scenario: Scenario, sweep: Sweep, problems: list[Problem]) -> Design | None:
    """Return the points of a sweep, or ``None`` after errors, which are appended to ``problems``."""
    reader = Reader(scenario, sweep, problems)
    factors = reader.factors()
    fixed = reader.fixed()
    options = reader.options()
    reader.names(factors)
    rules = reader.filters()
    groups = reader.groups(factors)
    if problems:
        return None
    points = []
    for values in combinations(factors, groups, rules, problems):
        points.append(_point(values, fixed, options, reader.tools))
        if problems:
            return None
    if problems:
        return None
    if not points:
        problems.append(
            (
                "workload.sweep.filter",
                "expected at least one point that passes all filters, found none; change a filter",
            )
        )
    elif len(points) * sweep.repeat > MAX_TRIALS:
        found = f"{len(points)} points × {sweep.repeat} repetitions = {len(points) * sweep.repeat}"
        problems.append(
            (
                "workload.repeat",
                f"expected at most {MAX_TRIALS} trials in total, found {found}; reduce repeat or the factors",
            )
        )
    else:
        _check_points(points, problems)
    if problems:
        return None
    return Design(tuple(points), {name: factor.key for name, factor in factors.items()})


def combinations(
    factors: Mapping[str, Factor],
    groups: list[tuple[str, ...]],
    rules: list[tuple[str, Expression]],
    problems: list[Problem],
) -> Iterator[dict[str, OptionValue]]:
    """Yield the combinations that pass all filters; the last factor changes first."""
    for indices in itertools.product(*(range(len(factors[group[0]].values)) for group in groups)):
        values = {
            name: factors[name].values[index] for group, index in zip(groups, indices, strict=True) for name in group
        }
        operands = {name: _operand(value, factors[name].key) for name, value in values.items()}
        try:
            if all(rule.holds(operands) for _, rule in rules):
                yield values
        except ExpressionError:
            _report_rule_errors(rules, operands, problems)
            return


def _report_rule_errors(
    rules: list[tuple[str, Expression]], operands: Mapping[str, Value], problems: list[Problem]
) -> None:
    for where, rule in rules:
        try:
            rule.holds(operands)
        except ExpressionError as error:
            problems.append((where, str(error)))


def _operand(value: OptionValue, key: str) -> Value:
    if isinstance(value, (str, bool)):
        return value
    assert value is not None
    if key.endswith("_bytes_per_s"):
        return Quantity(value, byte_power=1, second_power=-1)
    return Quantity(value, byte_power=int(key.endswith("_bytes")), second_power=int(key.endswith("_s")))


def _point(
    values: Mapping[str, OptionValue],
    fixed: Mapping[str, str | int | None],
    options: Mapping[str, OptionValue],
    tools: Mapping[str, Mover],
) -> DesignPoint:
    every: dict[str, OptionValue] = {**fixed, **values}
    reserved = ("files", "size", *FIXED)
    varied_options = {name: value for name, value in values.items() if name not in reserved}
    return DesignPoint(
        files=int(every["files"] or 0),
        size_bytes=int(every["size"] or 0),
        movers=tuple(tools[name] for name in str(every["mover"]).split("+")),
        cache=str(every["cache"]),
        source=_text(every["source"]),
        destination=_text(every["destination"]),
        client=_text(every["client"]),
        source_service=_text(every["source_service"]),
        destination_service=_text(every["destination_service"]),
        bidirectional=every["direction"] == "two ways",
        files_per_call=int(every["files_per_call"] or 1),
        options={**options, **varied_options},
        varied=dict(values),
    )


def _check_points(points: list[DesignPoint], problems: list[Problem]) -> None:
    """Reject two equivalent points: a factor that the mover of the point does not use."""
    seen: dict[object, DesignPoint] = {}
    for point in points:
        names = {option.name for mover in point.movers for option in mover.options}
        reads = any(mover.reads for mover in point.movers)
        effect = {
            name: (type(value).__name__, value)
            for name, value in point.varied.items()
            if name in ("files", "size", "mover", "direction", "files_per_call")
            or (
                name in ("client", "source_service", "destination_service") and any(m.protocols for m in point.movers)
            )
            or (name == "destination" and any(mover.writes for mover in point.movers))
            or (name in ("source", "cache") and reads)
            or name in names
        }
        twin = seen.setdefault(tuple(sorted(effect.items())), point)
        if twin is not point:
            name = next(name for name in point.varied if point.varied[name] != twin.varied[name])
            mover = "+".join(mover.name for mover in point.movers)
            where = path_text(("workload", "factors", name))
            problems.append(
                (where, f"expected a factor that every mover uses, found {mover} with equal calls for "
                 f"{quote_value(twin.varied[name])} and {quote_value(point.varied[name])}; exclude one with workload.sweep.filter")
            )  # fmt: skip
            return


def _text(value: OptionValue) -> str | None:
    return value if isinstance(value, str) else None


def scale_clashes(sizes: Mapping[int, int]) -> str | None:
    """Return a message about two sizes that are equal at this scale, or ``None``."""
    seen: dict[int, int] = {}
    for size, scaled in sizes.items():
        if seen.setdefault(scaled, size) != size:
            both = f"{format_bytes_exact(seen[scaled])} and {format_bytes_exact(size)}"
            return f"expected a scale with distinct sizes, found {both} both scaled to {scaled} B; use a larger scale"
    return None
