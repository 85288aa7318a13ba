"""Rows of a table as a claim sees them: those that it speaks of, in groups that are judged one by one."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real

from venturi.analysis.chapter import Scalar, Table
from venturi.study import PublishedTable

__all__ = ["Rows", "Scales", "of_chapter", "of_published", "published_columns"]

SAME = 1e-6
"""Relative difference up to which two numbers are one value of a column: rounding of a scaled size."""


@dataclass(frozen=True, slots=True)
class Scales:
    """By what published sizes and rates are multiplied to be those of the rows."""

    sizes: float = 1.0
    rates: float = 1.0

    def of(self, column: str) -> float:
        """Return the factor for a column, by the unit that its name ends in."""
        if column.endswith(("_bytes_per_s", "_bit_per_s")):
            return self.rates
        return self.sizes if column.endswith(("_bytes", "_bit")) else 1.0


@dataclass(frozen=True, slots=True)
class Rows:
    """Some rows of a table, in its order.

    Attributes
    ----------
    table
        Its name, for messages.
    columns, rows
        Names of columns, and cells by column.
    scales
        Of numbers that a claim states.
    """

    table: str
    columns: tuple[str, ...]
    rows: tuple[Mapping[str, Scalar], ...]
    scales: Scales

    def missing(self, wanted: Sequence[str]) -> list[str]:
        """Return those of the columns that are not there."""
        return [name for name in wanted if name not in self.columns]

    def where(self, conditions: Mapping[str, object]) -> Rows:
        """Return the rows whose cells are the values asked for, or one of a list of them."""
        kept = tuple(row for row in self.rows if all(self._is(row, k, wanted) for k, wanted in conditions.items()))
        return Rows(self.table, self.columns, kept, self.scales)

    def by(self, names: Sequence[str]) -> dict[tuple[Scalar, ...], Rows]:
        """Return the rows in groups of equal cells in these columns; all in one group without any."""
        groups: dict[tuple[Scalar, ...], list[Mapping[str, Scalar]]] = {}
        for row in self.rows:
            groups.setdefault(tuple(row[name] for name in names), []).append(row)
        return {key: Rows(self.table, self.columns, tuple(own), self.scales) for key, own in groups.items()}

    def numbers(self, column: str) -> list[float]:
        """Return the numbers of a column, what was not measured left out."""
        return [number for row in self.rows if (number := _number(row[column])) is not None]

    def pairs(self, x: str, y: str) -> list[tuple[Scalar, float]]:
        """Return the cells of one column with the mean of another over the rows that share them, ascending if they are numbers."""
        means = [
            (key[0], statistics.fmean(values)) for key, own in self.by([x]).items() if (values := own.numbers(y))
        ]
        places = [_number(value) for value, _ in means]
        if None in places:
            return means
        return [pair for _, pair in sorted(zip(places, means, strict=True), key=lambda both: both[0] or 0.0)]

    def matched(self, other: Rows, names: Sequence[str]) -> tuple[Rows, Rows]:
        """Return the rows of both whose cells in these columns the other has too."""
        shared = set(self.by(names)) & set(other.by(names))
        return self._among(names, shared), other._among(names, shared)

    def _among(self, names: Sequence[str], keys: set[tuple[Scalar, ...]]) -> Rows:
        kept = tuple(row for row in self.rows if tuple(row[name] for name in names) in keys)
        return Rows(self.table, self.columns, kept, self.scales)

    def measured(self, names: Sequence[str]) -> Rows:
        """Return the rows that have a number in each of these columns."""
        kept = tuple(row for row in self.rows if all(_number(row[name]) is not None for name in names))
        return Rows(self.table, self.columns, kept, self.scales)

    def _is(self, row: Mapping[str, Scalar], column: str, wanted: object) -> bool:
        cell = row[column]
        choices = wanted if isinstance(wanted, list | tuple) else (wanted,)
        return any(self.same(column, cell, choice) for choice in choices)

    def same(self, column: str, cell: Scalar, wanted: object) -> bool:
        """Return whether a cell is a value that a claim names; a size is also that size times the scale of the run."""
        found, told = _number(cell), _number(wanted)
        if found is None or told is None:
            return cell == wanted
        return any(math.isclose(found, value, rel_tol=SAME) for value in (told, told * self.scales.of(column)))


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):  # of numpy too
        return None
    return float(value)


def of_chapter(table: Table, scales: Scales, *, published: bool = False) -> Rows:
    """Return the rows of a chapter's table: our columns, or, with ``published``, the published ones.

    A published column goes by the name of ours beside it: that without the word ``published`` (``rate_published_bit_per_s``
    is the published ``rate_bit_per_s``).
    """
    names = [_plain(column.name) if published and column.published else column.name for column in table.columns]
    told = published_columns(table)
    kept = [
        place
        for place, column in enumerate(table.columns)
        if column.published == published or (published and names[place] not in told)
    ]
    rows = tuple({names[place]: row[place] for place in kept} for row in table.rows)
    return Rows(table.name, tuple(names[place] for place in kept), rows, scales)


def published_columns(table: Table) -> set[str]:
    """Return the published columns of a chapter's table, by the names of ours beside them."""
    return {_plain(column.name) for column in table.columns if column.published}


def _plain(name: str) -> str:
    return "_".join(part for part in name.split("_") if part != "published")


def of_published(table: PublishedTable) -> Rows:
    """Return the rows of a published table."""
    return Rows(table.id, table.columns, table.rows, Scales())
