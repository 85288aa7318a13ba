"""Rows of a table for a claim: selection of rows, and groups of rows that are checked separately."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real

from venturi.analysis.section import Scalar, Table
from venturi.study import PublishedTable

__all__ = ["Rows", "Scales", "of_published", "of_section", "published_columns"]

SAME = 1e-6
"""Relative difference up to which two numbers count as one value of a column, because scaled sizes are rounded."""


@dataclass(frozen=True, slots=True)
class Scales:
    """Factors from published sizes and rates to the sizes and rates of the rows."""

    sizes: float = 1.0
    rates: float = 1.0

    def of(self, column: str) -> float:
        """Return the factor for a column, by the unit at the end of its name."""
        if column.endswith(("_bytes_per_s", "_bit_per_s")):
            return self.rates
        return self.sizes if column.endswith(("_bytes", "_bit")) else 1.0


@dataclass(frozen=True, slots=True)
class Rows:
    """Some rows of a table, in its order.

    Attributes
    ----------
    table
        Name of the table, for messages.
    columns, rows
        Names of the columns, and cells by column.
    scales
        Scales of the numbers that a claim states.
    """

    table: str
    columns: tuple[str, ...]
    rows: tuple[Mapping[str, Scalar], ...]
    scales: Scales

    def missing(self, expected: Sequence[str]) -> list[str]:
        """Return the expected columns that the table does not have."""
        return [name for name in expected if name not in self.columns]

    def where(self, conditions: Mapping[str, object]) -> Rows:
        """Return the rows whose cells equal the given values, or one value of a list."""
        kept = tuple(
            row for row in self.rows if all(self._is(row, k, expected) for k, expected in conditions.items())
        )
        return Rows(self.table, self.columns, kept, self.scales)

    def by(self, names: Sequence[str]) -> dict[tuple[Scalar, ...], Rows]:
        """Return the rows in groups of equal cells in these columns. Without columns, all rows are one group."""
        groups: dict[tuple[Scalar, ...], list[Mapping[str, Scalar]]] = {}
        for row in self.rows:
            groups.setdefault(tuple(row[name] for name in names), []).append(row)
        return {key: Rows(self.table, self.columns, tuple(own), self.scales) for key, own in groups.items()}

    def numbers(self, column: str) -> list[float]:
        """Return the numbers of a column, without missing values."""
        return [number for row in self.rows if (number := _number(row[column])) is not None]

    def pairs(self, x: str, y: str) -> list[tuple[Scalar, float]]:
        """Return the cells of one column with the mean of another over rows with equal cells.

        The pairs are in ascending order if all cells are numbers.
        """
        means = [
            (key[0], statistics.fmean(values)) for key, own in self.by([x]).items() if (values := own.numbers(y))
        ]
        storages = [_number(value) for value, _ in means]
        if None in storages:
            return means
        return [pair for _, pair in sorted(zip(storages, means, strict=True), key=lambda both: both[0] or 0.0)]

    def matched(self, other: Rows, names: Sequence[str]) -> tuple[Rows, Rows]:
        """Return the rows of both tables whose cells in these columns also occur in the other table."""
        shared = set(self.by(names)) & set(other.by(names))
        return self._among(names, shared), other._among(names, shared)

    def _among(self, names: Sequence[str], keys: set[tuple[Scalar, ...]]) -> Rows:
        kept = tuple(row for row in self.rows if tuple(row[name] for name in names) in keys)
        return Rows(self.table, self.columns, kept, self.scales)

    def measured(self, names: Sequence[str]) -> Rows:
        """Return the rows with a number in each of these columns."""
        kept = tuple(row for row in self.rows if all(_number(row[name]) is not None for name in names))
        return Rows(self.table, self.columns, kept, self.scales)

    def _is(self, row: Mapping[str, Scalar], column: str, expected: object) -> bool:
        cell = row[column]
        choices = expected if isinstance(expected, list | tuple) else (expected,)
        return any(self.same(column, cell, choice) for choice in choices)

    def same(self, column: str, cell: Scalar, expected: object) -> bool:
        """Return whether a cell equals a value of a claim. A size may also equal that value times the scale of the run."""
        found, published = _number(cell), _number(expected)
        if found is None or published is None:
            return cell == expected
        return any(
            math.isclose(found, value, rel_tol=SAME) for value in (published, published * self.scales.of(column))
        )


def _number(value: object) -> float | None:
    if (
        isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value)
    ):  # also matches numpy numbers
        return None
    return float(value)


def of_section(table: Table, scales: Scales, *, published: bool = False) -> Rows:
    """Return the rows of a section table: the columns of the run or, with ``published``, the published ones.

    A published column gets the name of the corresponding column of the run, which is its name without the word
    ``published``: ``rate_published_bit_per_s`` becomes ``rate_bit_per_s``.
    """
    names = [_plain(column.name) if published and column.published else column.name for column in table.columns]
    value = published_columns(table)
    kept = [
        index
        for index, column in enumerate(table.columns)
        if column.published == published or (published and names[index] not in value)
    ]
    rows = tuple({names[index]: row[index] for index in kept} for row in table.rows)
    return Rows(table.name, tuple(names[index] for index in kept), rows, scales)


def published_columns(table: Table) -> set[str]:
    """Return the published columns of a section table, by the names of the corresponding columns of the run."""
    return {_plain(column.name) for column in table.columns if column.published}


def _plain(name: str) -> str:
    return "_".join(part for part in name.split("_") if part != "published")


def of_published(table: PublishedTable) -> Rows:
    """Return the rows of a published table."""
    return Rows(table.id, table.columns, table.rows, Scales())
