"""Design points of a run with the same bottleneck, described by the factor that separates them from the others."""

from __future__ import annotations

from collections.abc import Sequence

from venturi.advice.verdict import CAUSES, Cause, PointGroup, Verdict
from venturi.units import format_bit_rate, format_bytes, format_duration, format_rate

__all__ = ["group_points"]

_GENERAL: frozenset[Cause] = frozenset({"start-up", "file-latency", "authentication", "client"})
"""Causes whose resources have different names for each mover."""


def group_points(points: Sequence[tuple[float, Verdict]]) -> tuple[PointGroup, ...]:
    """Return the groups of points with the same bottleneck, largest fraction of the time first.

    A group without a bottleneck is last.

    Parameters
    ----------
    points
        Time of the transfers and verdict of each design point.
    """
    total_s = sum(weight for weight, _ in points)
    by_limit: dict[tuple[Cause | None, str], list[tuple[float, Verdict]]] = {}
    for weight, one in points:
        resource = CAUSES[one.cause] if one.cause in _GENERAL else one.resource
        by_limit.setdefault((one.cause, resource), []).append((weight, one))
    found = []
    for (cause, resource), own in by_limit.items():
        others = [one for limit, listed in by_limit.items() if limit != (cause, resource) for _, one in listed]
        where = _describe([one for _, one in own], others)
        found.append(
            PointGroup(cause, resource, tuple(one.point for _, one in own if one.point is not None), where,
                       sum(weight for weight, _ in own) / total_s)
        )  # fmt: skip
    return tuple(sorted(found, key=lambda group: (group.cause is None, -group.fraction)))


def _describe(own: Sequence[Verdict], others: Sequence[Verdict]) -> str:
    """Return the factor values of these points if no other point has them, otherwise the number of points."""
    for name in own[0].factors:
        mine, theirs = ({str(one.factors.get(name)): one.factors.get(name) for one in side} for side in (own, others))
        if theirs and not mine.keys() & theirs.keys():
            return _values(name, list(mine.values()), list(theirs.values()))
    return f"{len(own)} of {len(own) + len(others)} points"


def _values(name: str, mine: list[object], theirs: list[object]) -> str:
    label = {"size_bytes": "size", "files": "parallel files"}.get(name, name)
    for suffix in ("_bytes_per_s", "_bit_per_s", "_bytes", "_s"):
        label = label.removesuffix(suffix)
    label = label.replace("_", " ")
    numbers, limits = _numbers(mine), _numbers(theirs)
    if len(mine) > 1 and numbers and limits:
        low, high = min(numbers), max(numbers)
        if high < min(limits):
            return f"{label} up to {_value(name, high)}"
        if low > max(limits):
            return f"{label} from {_value(name, low)}"
        if not any(low < limit < high for limit in limits):
            return f"{label} {_value(name, low)} to {_value(name, high)}"
    return f"{label} {', '.join(_value(name, value) for value in mine)}"


def _numbers(values: Sequence[object]) -> list[float]:
    """Return the values as numbers, or an empty list if a value is not a number."""
    found = [float(value) for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    return found if len(found) == len(values) else []


def _value(name: str, value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, int | float):
        return "none" if value is None else str(value)
    if name.endswith("_bytes"):
        return format_bytes(value)
    if name.endswith("_per_s"):
        return format_rate(value) if name.endswith("_bytes_per_s") else format_bit_rate(value)
    return format_duration(float(value)) if name.endswith("_s") else f"{value:g}"
