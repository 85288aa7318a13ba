"""Data of a run and of its study that claims are checked against."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from venturi.analysis.claims.conditions import StudyConditions
from venturi.analysis.result import PointResult
from venturi.analysis.result_lab import LinkUse, StorageRate
from venturi.analysis.section import ReportSection
from venturi.study import PublishedTable

__all__ = ["ClaimContext", "Verdict"]

Verdict = Literal["agrees", "disagrees", "cannot tell"]


@dataclass(frozen=True, slots=True)
class ClaimContext:
    """Data for the checks of claims, in addition to the curves.

    Attributes
    ----------
    link_bytes_per_s
        Rate of the slowest link between the hosts; None if no link has a rate.
    scale, rates_scale
        Scales of the sizes and of the link rates. Published limits are multiplied by them before the comparison.
    sections, tables
        Report sections of the run, and published tables of its study.
    """

    points: Mapping[int, PointResult]
    storages: Sequence[StorageRate] = ()
    links: Sequence[LinkUse] = ()
    link_bytes_per_s: float | None = None
    scale: float = 1.0
    rates_scale: float = 1.0
    sections: Sequence[ReportSection] = ()
    tables: Sequence[PublishedTable] = ()
    conditions: StudyConditions = field(default_factory=StudyConditions)
