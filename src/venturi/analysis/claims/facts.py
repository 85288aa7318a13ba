"""What claims may be held against."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from venturi.analysis.chapter import Chapter
from venturi.analysis.result import Point
from venturi.analysis.result_lab import LinkUse, StorageRate
from venturi.study import PublishedTable

__all__ = ["Facts", "Verdict"]

Verdict = Literal["agrees", "disagrees", "cannot tell"]


@dataclass(frozen=True, slots=True)
class Facts:
    """What claims may speak of besides curves.

    Attributes
    ----------
    link_bytes_per_s
        The slowest link between the hosts, None if none has a rate.
    scale, rates_scale
        Of the sizes, and of the rates of links: published limits are multiplied by them before ours are held against them.
    chapters, tables
        What the chapters of the run say, and the published tables of its study.
    """

    points: Mapping[int, Point]
    storages: Sequence[StorageRate] = ()
    links: Sequence[LinkUse] = ()
    link_bytes_per_s: float | None = None
    scale: float = 1.0
    rates_scale: float = 1.0
    chapters: Sequence[Chapter] = ()
    tables: Sequence[PublishedTable] = ()
