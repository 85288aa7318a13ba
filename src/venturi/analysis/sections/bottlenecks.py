"""Bottlenecks of simulated transfers by design point, to answer a what-if question.

Each point is compared with the first point of the same files. If a scenario lists the present case first, all its
points are compared with it. Runs of backends that record no bottlenecks (hosts, the lab) have no such section.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from venturi.analysis.format import format_factor_name, format_factors
from venturi.analysis.result import About, FactorValue
from venturi.analysis.section import Column, ReportSection, Scalar, Table
from venturi.run import Run
from venturi.units import BITS_PER_BYTE, format_bit_rate, format_duration

__all__ = ["bottlenecks_section"]

MAX_POINTS = 300
"""Maximum number of points with one row each. A run with more points has a single row for all."""
SHOWN = 3
"""Bottlenecks shown for each point, the largest first."""
ALIKE = 0.01
"""Relative change of a rate that is not reported."""
_FILES = ("set", "size_bytes", "application", "jobs")
"""Factors that identify the files. Points that differ in one of these are not compared."""
MAX_SHOWN = 3
"""Kinds of files in the sentence: those with the largest differences."""


@dataclass(frozen=True, slots=True)
class _BottleneckRow:
    """Design point with its factors, mean rate and time over the repetitions, and bottlenecks.

    Each bottleneck has its fraction of the transfer time.
    """

    factors: Mapping[str, FactorValue]
    rate_bit_per_s: float | None
    time_s: float
    bottlenecks: tuple[tuple[str, float], ...]


def bottlenecks_section(run: Run, about: About) -> ReportSection | None:
    """Return the section about the bottlenecks of a run, or ``None`` if the run recorded none."""
    if not run.query("SELECT 1 AS one FROM transfers WHERE bottleneck IS NOT NULL AND duration_s > 0 LIMIT 1")[
        "one"
    ].size:
        return None
    rows = _rows(run)
    varied = tuple(name for name in run.factors if len({row.factors.get(name) for row in rows}) > 1)
    return ReportSection("bottlenecks", "Bottlenecks", _sentence(rows, varied), (_table(rows, varied),))


def _rows(run: Run) -> list[_BottleneckRow]:
    points = int(run.query("SELECT count(DISTINCT point) AS n FROM transfers")["n"][0])
    # GROUP BY would take a plain number as the position of a column.
    key = "coalesce(point, -1)" if points <= MAX_POINTS else "0 * coalesce(point, 0) - 1"
    names = run.factors if points <= MAX_POINTS else ()
    # Transfers that prepare the points belong to no point.
    within = "point IS NOT NULL" if points else "true"
    chosen = "".join(f', any_value("factor_{name}") AS "factor_{name}"' for name in names)
    rounds = run.query(
        f"""WITH rounds AS (
                SELECT {key} AS key, repetition, sum(coalesce(received_bytes, nullif(tool_bytes, 0), requested_bytes)) AS bytes, max(end_s) - min(start_s) AS time_s {chosen}
                FROM transfers WHERE outcome = 'ok' AND {within} GROUP BY {key}, coalesce(point, -1), repetition)
            SELECT key, avg(bytes / time_s) FILTER (bytes > 0) AS rate, avg(time_s) AS time_s {chosen}
            FROM rounds WHERE time_s > 0 GROUP BY key ORDER BY key"""
    )
    bottlenecks = _bottlenecks(run, key, within)
    return [
        _BottleneckRow(
            factors={name: _to_scalar(rounds[f"factor_{name}"][index]) for name in names},
            rate_bit_per_s=None
            if (rate := _to_scalar(rounds["rate"][index])) is None
            else float(rate) * BITS_PER_BYTE,
            time_s=float(rounds["time_s"][index]),
            bottlenecks=bottlenecks.get(int(point), ()),
        )
        for index, point in enumerate(rounds["key"])
    ]


def _bottlenecks(run: Run, key: str, within: str) -> dict[int, tuple[tuple[str, float], ...]]:
    """Return the bottlenecks of each point with their fractions of its transfer time, for the transfers that match ``within``."""
    found = run.query(
        f"""WITH told AS (
                SELECT {key} AS key, duration_s, bottleneck, unnest(json_keys(bottleneck)) AS name
                FROM transfers WHERE bottleneck IS NOT NULL AND duration_s > 0 AND {within}),
            summed AS (
                SELECT key, name, sum(duration_s * CAST(json_extract(bottleneck, '$."' || name || '"') AS DOUBLE)) AS time_s
                FROM told GROUP BY key, name)
            SELECT key, name, time_s / sum(time_s) OVER (PARTITION BY key) AS share
            FROM summed ORDER BY key, time_s DESC, name"""
    )
    fractions_by_point: dict[int, list[tuple[str, float]]] = {}
    for point, name, fraction in zip(found["key"], found["name"], found["share"], strict=True):
        fractions_by_point.setdefault(int(point), []).append((str(name), float(fraction)))
    return {point: tuple(own[:SHOWN]) for point, own in fractions_by_point.items()}


def _firsts(rows: Sequence[_BottleneckRow]) -> dict[tuple[FactorValue, ...], list[_BottleneckRow]]:
    """Return the rows grouped by files, in their order."""
    groups: dict[tuple[FactorValue, ...], list[_BottleneckRow]] = {}
    for row in rows:
        groups.setdefault(tuple(row.factors.get(name) for name in _FILES), []).append(row)
    return groups


def _table(rows: Sequence[_BottleneckRow], varied: Sequence[str]) -> Table:
    columns = (
        *(Column(name, format_factor_name(name)) for name in varied),
        Column("rate_bit_per_s", "rate"),
        Column("to_first_ratio", "ratio to the first row of these files"),
        Column("time_s", "time"),
        *(
            column
            for index in range(1, SHOWN + 1)
            for column in (
                Column(f"bottleneck_{index}", f"bottleneck {index}"),
                Column(f"bottleneck_{index}_ratio", "fraction"),
            )
        ),
    )
    firsts = {id(row): own[0] for own in _firsts(rows).values() for row in own}
    cells: list[tuple[Scalar, ...]] = []
    for row in rows:
        bottlenecks = [part for bottleneck in row.bottlenecks for part in bottleneck]
        cells.append((
            *(row.factors[name] for name in varied), row.rate_bit_per_s, _ratio(row, firsts[id(row)]), row.time_s,
            *bottlenecks, *([None] * (2 * SHOWN - len(bottlenecks))),
        ))  # fmt: skip
    note = (
        "Time: from the first start to the last end of a repetition. Rate: bytes of all its transfers, divided by this time. Fraction: part of the transfer time. "
        "For the names of bottlenecks, see docs/reference/sim.md."
    )
    return Table("bottlenecks", "Bottlenecks of the transfers", columns, tuple(cells), note)


def _sentence(rows: Sequence[_BottleneckRow], varied: Sequence[str]) -> str:
    """Return, for each kind of files, the first case and the fastest and slowest of the others, with their bottlenecks."""
    groups = sorted(_firsts(rows).values(), key=_spread, reverse=True)
    more = f" {len(groups) - MAX_SHOWN} more kinds of files are in the table." if len(groups) > MAX_SHOWN else ""
    return " ".join(_format_bottlenecks(own, varied) for own in groups[:MAX_SHOWN]) + more


def _spread(rows: Sequence[_BottleneckRow]) -> float:
    """Return the ratio of the highest rate to the lowest."""
    rates = [row.rate_bit_per_s for row in rows if row.rate_bit_per_s]
    return max(rates) / min(rates) if rates else 1.0


def _format_bottlenecks(rows: Sequence[_BottleneckRow], varied: Sequence[str]) -> str:
    first, others = rows[0], [row for row in rows[1:] if (ratio := _ratio(row, rows[0])) and abs(ratio - 1) > ALIKE]
    if not others:
        alike = (
            ""
            if len(rows) == 1
            else f". All other cases ({len(rows) - 1}) differ from it by at most {100 * ALIKE:.0f} %"
        )
        return f"{_format_case(first, varied)}{alike}."
    by_rate = sorted(others, key=lambda row: row.rate_bit_per_s or 0.0, reverse=True)
    chosen = by_rate if len(by_rate) == 1 else [by_rate[0], by_rate[-1]]
    fractions_by_point = [f"{_format_case(row, varied)}, {_ratio(row, first):.3g} × the first" for row in chosen]
    return "; ".join([_format_case(first, varied), *fractions_by_point]) + "."


def _format_case(row: _BottleneckRow, varied: Sequence[str]) -> str:
    name = format_factors(row.factors, varied) or "all transfers"
    rate = format_duration(row.time_s) if row.rate_bit_per_s is None else format_bit_rate(row.rate_bit_per_s)
    bottleneck = (
        f" ({row.bottlenecks[0][0]} {100 * row.bottlenecks[0][1]:.3g} % of the time)" if row.bottlenecks else ""
    )
    return f"{name}: {rate}{bottleneck}"


def _ratio(row: _BottleneckRow, first: _BottleneckRow) -> float | None:
    if row.rate_bit_per_s is None or not first.rate_bit_per_s:
        return None
    return row.rate_bit_per_s / first.rate_bit_per_s


def _to_scalar(value: Any) -> Any:  # noqa: ANN401 - a cell of any column
    scalar = value.item() if hasattr(value, "item") else value
    return None if scalar != scalar else scalar
