"""Which rows of a result a person is shown, the same in the page and on the terminal. CSV and JSON have all."""

from __future__ import annotations

from dataclasses import dataclass, fields

from venturi.analysis import Analysis
from venturi.analysis.result_lab import StorageRate

__all__ = ["ShownRate", "storage_rows", "value_name"]

_VALUES = {
    "write_bytes_per_s": "write",
    "read_bytes_per_s": "read",
    "together_bytes_per_s": "together",
    "throughput_bytes_per_s": "per file",
}


@dataclass(frozen=True, slots=True)
class ShownRate(StorageRate):
    """A rate of a storage; ``both``: there are rows of each direction besides, and this one is their sum."""

    both: bool = False


def storage_rows(analysis: Analysis) -> list[ShownRate]:
    """Return the rates of storages; none where they say no more than the rates of whole trials: one storage, one way."""
    rates = analysis.storage_rates
    pairs = {(rate.storage, rate.read_asked, rate.write_asked, rate.direction) for rate in rates}
    if len(pairs) < 2 and not analysis.published_tables:
        return []
    two_ways = {rate.point for rate in rates if rate.direction != "all"}
    return [
        ShownRate(**{f.name: getattr(rate, f.name) for f in fields(StorageRate)}, both=rate.point in two_ways)
        for rate in rates
    ]


def value_name(column: str) -> str:
    """Return a value column of a published table in a word.

    Examples
    --------
    >>> value_name("write_bytes_per_s")
    'write'
    """
    return _VALUES.get(column, column)
