"""Rows of a result in the HTML page and on the terminal. CSV and JSON have all rows."""

from __future__ import annotations

from dataclasses import dataclass, fields

from venturi.analysis import Analysis
from venturi.analysis.result_lab import StorageRate

__all__ = ["StorageRow", "storage_rows", "value_name"]

_VALUES = {
    "write_bytes_per_s": "write",
    "read_bytes_per_s": "read",
    "together_bytes_per_s": "together",
    "throughput_bytes_per_s": "per file",
}


@dataclass(frozen=True, slots=True)
class StorageRow(StorageRate):
    """Rate of a storage. If ``is_sum``, this row is the sum of the rows of both directions."""

    is_sum: bool = False


def storage_rows(analysis: Analysis) -> list[StorageRow]:
    """Return the rates of storages.

    A single storage and direction has no rows, because its rates equal the trial rates.
    """
    rates = analysis.storage_rates
    pairs = {(rate.storage, rate.read_requested, rate.write_requested, rate.direction) for rate in rates}
    if len(pairs) < 2 and not analysis.published_tables:
        return []
    split_points = {rate.point for rate in rates if rate.direction != "all"}
    return [
        StorageRow(**{f.name: getattr(rate, f.name) for f in fields(StorageRate)}, is_sum=rate.point in split_points)
        for rate in rates
    ]


def value_name(column: str) -> str:
    """Return the short heading of a value column of a published table.

    Examples
    --------
    >>> value_name("write_bytes_per_s")
    'write'
    """
    return _VALUES.get(column, column)
