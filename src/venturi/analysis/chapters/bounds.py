"""What kept simulated transfers from being faster, point by point: the answer of a what-if.

Each point stands beside the first one of the same files, which is the case as it is where a scenario lists that first: how much faster it
is, and what then takes most of the time of its transfers. A run whose backend notes no bounds (hosts, the lab) has no such chapter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from venturi.analysis.chapter import Chapter, Column, Scalar, Table
from venturi.analysis.result import About, FactorValue
from venturi.analysis.words import bit_rate, describe, factor_name
from venturi.run import Run
from venturi.units import BITS_PER_BYTE, format_duration

__all__ = ["bounds_chapter"]

MOST_POINTS = 300
"""Points up to which each has a row; a run with more has one row of all."""
SHOWN = 3
"""Bounds of a point that are shown, the greatest first."""
ALIKE = 0.01
"""Change of a rate that is not worth a word."""
_FILES = ("set", "size_bytes", "application", "jobs")
"""Factors that say what is to be done: points that differ in one of these are not compared."""
MOST_SAID = 3
"""Kinds of files that the sentence speaks of: those with the greatest differences."""


@dataclass(frozen=True, slots=True)
class _Row:
    """A point: its factors, its mean rate and time over the repetitions, and its bounds with their shares of transfer time."""

    factors: Mapping[str, FactorValue]
    rate_bit_per_s: float | None
    time_s: float
    bounds: tuple[tuple[str, float], ...]


def bounds_chapter(run: Run, about: About) -> Chapter | None:
    """Return what bound the transfers of a run, ``None`` of a run in which nobody noted it."""
    if not run.query("SELECT 1 AS one FROM transfers WHERE bound IS NOT NULL AND duration_s > 0 LIMIT 1")["one"].size:
        return None
    rows = _rows(run)
    varied = tuple(name for name in run.factors if len({row.factors.get(name) for row in rows}) > 1)
    return Chapter("bounds", "What bound it", _sentence(rows, varied), (_table(rows, varied),))


def _rows(run: Run) -> list[_Row]:
    points = int(run.query("SELECT count(DISTINCT point) AS n FROM transfers")["n"][0])
    # A number alone would be the place of a column to GROUP BY.
    key = "coalesce(point, -1)" if points <= MOST_POINTS else "0 * coalesce(point, 0) - 1"
    names = run.factors if points <= MOST_POINTS else ()
    # What is moved to make a point possible is none.
    within = "point IS NOT NULL" if points else "true"
    chosen = "".join(f', any_value("factor_{name}") AS "factor_{name}"' for name in names)
    rounds = run.query(
        f"""WITH rounds AS (
                SELECT {key} AS key, repetition, sum(coalesce(received_bytes, nullif(tool_bytes, 0), asked_bytes)) AS bytes, max(end_s) - min(start_s) AS time_s {chosen}
                FROM transfers WHERE outcome = 'ok' AND {within} GROUP BY {key}, coalesce(point, -1), repetition)
            SELECT key, avg(bytes / time_s) FILTER (bytes > 0) AS rate, avg(time_s) AS time_s {chosen}
            FROM rounds WHERE time_s > 0 GROUP BY key ORDER BY key"""
    )
    bounds = _bounds(run, key, within)
    return [
        _Row(
            factors={name: _plain(rounds[f"factor_{name}"][place]) for name in names},
            rate_bit_per_s=None if (rate := _plain(rounds["rate"][place])) is None else float(rate) * BITS_PER_BYTE,
            time_s=float(rounds["time_s"][place]),
            bounds=bounds.get(int(point), ()),
        )
        for place, point in enumerate(rounds["key"])
    ]


def _bounds(run: Run, key: str, within: str) -> dict[int, tuple[tuple[str, float], ...]]:
    """Return the bounds of each point, by their share of the time of its transfers; ``within`` are the transfers that count."""
    found = run.query(
        f"""WITH told AS (
                SELECT {key} AS key, duration_s, bound, unnest(json_keys(bound)) AS name
                FROM transfers WHERE bound IS NOT NULL AND duration_s > 0 AND {within}),
            summed AS (
                SELECT key, name, sum(duration_s * CAST(json_extract(bound, '$."' || name || '"') AS DOUBLE)) AS time_s
                FROM told GROUP BY key, name)
            SELECT key, name, time_s / sum(time_s) OVER (PARTITION BY key) AS share
            FROM summed ORDER BY key, time_s DESC, name"""
    )
    told: dict[int, list[tuple[str, float]]] = {}
    for point, name, share in zip(found["key"], found["name"], found["share"], strict=True):
        told.setdefault(int(point), []).append((str(name), float(share)))
    return {point: tuple(own[:SHOWN]) for point, own in told.items()}


def _firsts(rows: Sequence[_Row]) -> dict[tuple[FactorValue, ...], list[_Row]]:
    """Return the rows in groups of the same files, in their order."""
    groups: dict[tuple[FactorValue, ...], list[_Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row.factors.get(name) for name in _FILES), []).append(row)
    return groups


def _table(rows: Sequence[_Row], varied: Sequence[str]) -> Table:
    columns = (
        *(Column(name, factor_name(name)) for name in varied),
        Column("rate_bit_per_s", "rate"),
        Column("to_first_ratio", "to the first of these files"),
        Column("time_s", "time"),
        *(
            column
            for place in range(1, SHOWN + 1)
            for column in (Column(f"bound_{place}", f"bound {place}"), Column(f"bound_{place}_ratio", "share"))
        ),
    )
    firsts = {id(row): own[0] for own in _firsts(rows).values() for row in own}
    cells: list[tuple[Scalar, ...]] = []
    for row in rows:
        bounds = [part for bound in row.bounds for part in bound]
        cells.append((
            *(row.factors[name] for name in varied), row.rate_bit_per_s, _ratio(row, firsts[id(row)]), row.time_s,
            *bounds, *([None] * (2 * SHOWN - len(bounds))),
        ))  # fmt: skip
    note = (
        "Rate: bytes of all transfers of a repetition, from the first begin to the last end; time: that. Share: of the time of its transfers. "
        "What the names of bounds mean is told in docs/reference/sim.md."
    )
    return Table("bounds", "What bound the transfers", columns, tuple(cells), note)


def _sentence(rows: Sequence[_Row], varied: Sequence[str]) -> str:
    """Return for each kind of files the first case, then the fastest and the slowest of the others, each with what bound it."""
    groups = sorted(_firsts(rows).values(), key=_spread, reverse=True)
    more = f" {len(groups) - MOST_SAID} more kinds of files are in the table." if len(groups) > MOST_SAID else ""
    return " ".join(_said(own, varied) for own in groups[:MOST_SAID]) + more


def _spread(rows: Sequence[_Row]) -> float:
    """Return how far the fastest of some rows is from the slowest."""
    rates = [row.rate_bit_per_s for row in rows if row.rate_bit_per_s]
    return max(rates) / min(rates) if rates else 1.0


def _said(rows: Sequence[_Row], varied: Sequence[str]) -> str:
    first, others = rows[0], [row for row in rows[1:] if (ratio := _ratio(row, rows[0])) and abs(ratio - 1) > ALIKE]
    if not others:
        alike = (
            "" if len(rows) == 1 else f"; none of the other {len(rows) - 1} cases is more than {ALIKE:.0%} from it"
        )
        return f"{_words(first, varied)}{alike}."
    by_rate = sorted(others, key=lambda row: row.rate_bit_per_s or 0.0, reverse=True)
    chosen = by_rate if len(by_rate) == 1 else [by_rate[0], by_rate[-1]]
    told = [f"{_words(row, varied)}, {_ratio(row, first):.3g} × the first" for row in chosen]
    return "; ".join([_words(first, varied), *told]) + "."


def _words(row: _Row, varied: Sequence[str]) -> str:
    name = describe(row.factors, varied) or "all transfers"
    rate = format_duration(row.time_s) if row.rate_bit_per_s is None else bit_rate(row.rate_bit_per_s)
    bound = f" ({row.bounds[0][0]} {100 * row.bounds[0][1]:.3g} % of the time)" if row.bounds else ""
    return f"{name}: {rate}{bound}"


def _ratio(row: _Row, first: _Row) -> float | None:
    if row.rate_bit_per_s is None or not first.rate_bit_per_s:
        return None
    return row.rate_bit_per_s / first.rate_bit_per_s


def _plain(value: Any) -> Any:  # noqa: ANN401 - a cell of any column
    plain = value.item() if hasattr(value, "item") else value
    return None if plain != plain else plain
