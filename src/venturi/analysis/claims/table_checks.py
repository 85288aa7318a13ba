"""Checks of claims against the rows of a table. Each check decides about one group of rows.

A check returns None if the rows cannot decide (nothing measured, one point of a curve). Bounds that a claim states are
published figures. For rows of a run, they are scaled as the run was; see :class:`venturi.analysis.claims.rows.Scales`.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from venturi.analysis.claims.rows import SAME, Rows
from venturi.analysis.quantity import format_quantity
from venturi.analysis.section import Scalar

__all__ = ["TABLE_CHECKS", "CheckResult", "TableCheck", "columns_of", "missing_keys", "values_of"]

DEFAULT_WITHIN = {"flat": 0.10, "saturates_at": 0.05, "sum": 0.01, "equals": 0.005}
"""Relative tolerance of a check if a claim has no ``within``. Other checks have none."""
MAX_TIES_SHOWN = 4
AGGREGATES: Mapping[str, Callable[[Sequence[float]], float]] = {
    "mean": statistics.fmean, "max": max, "min": min, "sum": sum, "std": statistics.stdev, "population_std": statistics.pstdev,
}  # fmt: skip


_NEEDED: Mapping[str, tuple[str, ...]] = {
    "increasing": ("of", "against"), "decreasing": ("of", "against"), "flat": ("of",), "ratio": ("of", "over|numerator"),
    "at_most": ("of", "limit"), "at_least": ("of", "limit"), "peak_at": ("of", "against", "values"),
    "saturates_at": ("of", "against"), "sum": ("of", "equals|equals_column"), "equals": ("of", "equals|equals_column"),
}  # fmt: skip
"""Keys that a check needs; ``|`` separates alternatives."""


class CheckResult(NamedTuple):
    """Verdict for one group of rows, with the deciding figure. ``size`` is the value of a ratio or change.

    ``holds`` is None if the figure decides nothing, for example equal values for a claim about the highest one.
    """

    holds: bool | None
    figure: str
    size: float | None = None


TableCheck = Callable[[Rows, Mapping[str, Any]], CheckResult | None]
Claim = Mapping[str, Any]


def columns_of(claim: Claim) -> list[str]:
    """Return the columns that a claim needs."""
    of = claim.get("of", ())
    single = [claim[key] for key in ("against", "over", "equals_column") if key in claim]
    tables = [claim.get(key) for key in ("where", "numerator", "denominator", "equals")]
    in_tables = [column for table in tables if isinstance(table, Mapping) for column in table]
    several = [*([of] if isinstance(of, str) else of), *claim.get("by", ()), *claim.get("match", ())]
    return list(dict.fromkeys([*several, *single, *in_tables]))


def values_of(claim: Claim) -> list[str]:
    """Return the columns whose values a claim checks. The other columns only select rows."""
    of = claim.get("of", ())
    return [
        *([of] if isinstance(of, str) else of),
        *(claim[key] for key in ("over", "equals_column") if key in claim),
    ]


def missing_keys(claim: Claim) -> list[str]:
    """Return the keys that the check of a claim needs but the claim lacks, or that have an invalid value."""
    missing = [key for key in _NEEDED[str(claim["check"])] if not any(one in claim for one in key.split("|"))]
    if "numerator" in claim and "denominator" not in claim:
        missing.append("denominator")
    if str(claim.get("aggregate", "mean")) not in AGGREGATES:
        missing.append(f"aggregate (one of {', '.join(AGGREGATES)})")
    return missing


def _within(claim: Claim, otherwise: float = 0.0) -> float:
    return float(claim.get("within", DEFAULT_WITHIN.get(str(claim["check"]), otherwise)))


def _monotone(sign: int) -> TableCheck:
    """Return a check that values rise (+1) or fall (−1) from end to end, with no opposite step larger than ``within``."""

    def check(rows: Rows, claim: Claim) -> CheckResult | None:
        points = rows.pairs(str(claim["against"]), str(claim["of"]))
        if len(points) < 2:
            return None
        y = [value for _, value in points]
        slack = _within(claim)
        wrong = [(a, b) for a, b in pairwise(points) if sign * (b[1] - a[1]) < -max(slack, SAME) * abs(a[1])]
        holds = not wrong and sign * (y[-1] - y[0]) > SAME * abs(y[0])
        first, last = wrong[0] if wrong else (points[0], points[-1])
        figure = f"{_shown(claim, first)}, {_shown(claim, last)}"
        return CheckResult(holds, figure, y[-1] / y[0] if y[0] else None)

    return check


def _shown(claim: Claim, point: tuple[Scalar, float]) -> str:
    x, y = point
    return f"{format_quantity(str(claim['of']), y)} at {format_quantity(str(claim['against']), x)}"


def _flat(rows: Rows, claim: Claim) -> CheckResult | None:
    y = rows.numbers(str(claim["of"]))
    mean = statistics.fmean(y) if y else 0.0
    if len(y) < 2 or not mean:
        return None
    spread = (max(y) - min(y)) / mean
    return CheckResult(spread <= _within(claim), f"{100 * spread:.3g} % from lowest to highest")


def _ratio(rows: Rows, claim: Claim) -> CheckResult | None:
    """Check numerator over denominator or, with ``over``, one column over another in the same rows."""
    of = str(claim["of"])
    if "over" in claim:
        both = rows.measured([of, str(claim["over"])])
        over, under = both.numbers(of), both.numbers(str(claim["over"]))
    else:
        known = rows.measured([of])
        sides = known.where(claim["numerator"]), known.where(claim["denominator"])
        over, under = (side.numbers(of) for side in sides[0].matched(sides[1], claim.get("match", ())))
    if not over or not under or not (below := _aggregate(under, claim)):
        return None
    ratio = _aggregate(over, claim) / below
    slack = _within(claim)
    low, high = claim.get("low", float("-inf")), claim.get("high", float("inf"))
    return CheckResult(low * (1 - slack) <= ratio <= high * (1 + slack), f"ratio {ratio:.4g}", ratio)


def _aggregate(values: Sequence[float], claim: Claim) -> float:
    return float(AGGREGATES[str(claim.get("aggregate", "mean"))](values))


def _bound(sign: int) -> TableCheck:
    """Return a check that values are at most (+1) or at least (−1) ``limit``.

    Each value is checked, or with ``aggregate`` the aggregate of all values.
    """

    def check(rows: Rows, claim: Claim) -> CheckResult | None:
        of = str(claim["of"])
        values = rows.numbers(of)
        if not values:
            return None
        limit = float(claim["limit"]) * rows.scales.of(of)
        value = _aggregate(values, claim) if "aggregate" in claim else (max(values) if sign > 0 else min(values))
        return CheckResult(sign * value <= sign * limit + _within(claim) * abs(limit), format_quantity(of, value))

    return check


def _peak_at(rows: Rows, claim: Claim) -> CheckResult | None:
    points = rows.pairs(str(claim["against"]), str(claim["of"]))
    if len(points) < 2:
        return None
    against = str(claim["against"])
    highest = max(value for _, value in points)
    peaks = [x for x, value in points if math.isclose(value, highest, rel_tol=SAME)]
    named = [any(rows.same(against, x, expected) for expected in claim["values"]) for x in peaks]
    shown = [format_quantity(against, x) for x in peaks]
    if all(named) or not any(named):
        return CheckResult(all(named), f"highest at {shown[0]}")
    more = f" and {len(peaks) - MAX_TIES_SHOWN} more" if len(peaks) > MAX_TIES_SHOWN else ""
    return CheckResult(None, f"undecided tie: equal maxima at {', '.join(shown[:MAX_TIES_SHOWN])}{more}")


def _saturates_at(rows: Rows, claim: Claim) -> CheckResult | None:
    """Check that the first point within ``within`` of the highest lies from ``low`` to ``high``."""
    against = str(claim["against"])
    points = rows.pairs(against, str(claim["of"]))
    if len(points) < 2:
        return None
    enough = (1 - _within(claim)) * max(value for _, value in points)
    at = next(x for x, value in points if value >= enough)
    if not isinstance(at, int | float):
        return None
    low, high = (
        float(claim.get(key, end)) * rows.scales.of(against) for key, end in (("low", 0), ("high", float("inf")))
    )
    return CheckResult(low <= at <= high, f"from {format_quantity(against, at)} on")


def _sum(rows: Rows, claim: Claim) -> CheckResult | None:
    """Check that parts add up: the columns of a row (``of`` is a list) or the rows of a column.

    ``equals`` can select one of these rows as the total.
    """
    of = claim["of"]
    if not isinstance(of, str):
        return _row_sums(rows, claim, [str(name) for name in of])
    expected, parts = _expected_value(rows, claim, of)
    values = parts.numbers(of)
    if expected is None or not values:
        return None
    return _close(sum(values), expected, claim, rows, of)


def _row_sums(rows: Rows, claim: Claim, of: Sequence[str]) -> CheckResult | None:
    found = []
    for row in rows.rows:
        one = Rows(rows.table, rows.columns, (row,), rows.scales)
        values = [value for name in of for value in one.numbers(name)]
        printed = float(claim.get("equals", 0.0)) * rows.scales.of(of[0])
        expected = one.numbers(str(claim["equals_column"])) if "equals_column" in claim else [printed]
        if len(values) == len(of) and expected:
            found.append(_close(sum(values), expected[0], claim, rows, of[0]))
    return next((outcome for outcome in found if not outcome.holds), found[0] if found else None)


def _equals(rows: Rows, claim: Claim) -> CheckResult | None:
    """Check a figure of the text: the ``aggregate`` of the rows (default: mean), or each cell against ``equals_column``."""
    of = str(claim["of"])
    if "equals_column" in claim:
        return _row_sums(rows, claim, [of])
    expected, parts = _expected_value(rows, claim, of)
    values = parts.numbers(of)
    if expected is None or not values:
        return None
    return _close(_aggregate(values, claim), expected, claim, rows, of)


def _expected_value(rows: Rows, claim: Claim, of: str) -> tuple[float | None, Rows]:
    """Return the expected value, and the rows of the computed one: all rows except the one that ``equals`` selects."""
    if "equals_column" in claim:
        values = set(rows.numbers(str(claim["equals_column"])))
        return (values.pop() if len(values) == 1 else None), rows
    equals = claim["equals"]
    if not isinstance(equals, Mapping):
        return float(equals) * rows.scales.of(of), rows
    total = rows.where(equals)
    values = set(total.numbers(of))
    parts = Rows(rows.table, rows.columns, tuple(row for row in rows.rows if row not in total.rows), rows.scales)
    return (values.pop() if len(values) == 1 else None), parts


def _close(found: float, expected: float, claim: Claim, rows: Rows, of: str) -> CheckResult:
    tolerance = float(claim.get("tolerance", 0.0)) * rows.scales.of(of)
    slack = tolerance if "tolerance" in claim else _within(claim) * abs(expected)
    ratio = found / expected if expected else None
    figure = f"{format_quantity(of, found)} against {format_quantity(of, expected)}"
    figure += "" if ratio is None else f", ratio {ratio:.4g}"
    return CheckResult(abs(found - expected) <= slack + 1e-12 * abs(expected), figure, ratio)


TABLE_CHECKS: Mapping[str, TableCheck] = {
    "increasing": _monotone(+1),
    "decreasing": _monotone(-1),
    "flat": _flat,
    "ratio": _ratio,
    "at_most": _bound(+1),
    "at_least": _bound(-1),
    "peak_at": _peak_at,
    "saturates_at": _saturates_at,
    "sum": _sum,
    "equals": _equals,
}
"""Checks that a claim with a table may name."""
