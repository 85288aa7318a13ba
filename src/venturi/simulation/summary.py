"""Summary of an ensemble: statistics of each figure over the seeds of one set of parameters."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from venturi.simulation.member import Member
from venturi.stats import Interval, bca_interval, mean_interval

__all__ = ["SeedGroup", "Summarised", "summarise"]

FEW_MEMBERS = 10
"""Least number of members for an interval of the median; fewer are too few for a bootstrap."""


@dataclass(frozen=True, slots=True)
class Summarised:
    """Statistics of a figure over the members of a group.

    Attributes
    ----------
    n
        Number of members with a finite value.
    median, low, high
        Median, minimum and maximum.
    median_interval, mean
        Confidence intervals of the median and of the mean of all seeds; None for fewer than 10 and 3 members.
    """

    n: int
    median: float
    low: float
    high: float
    median_interval: Interval | None
    mean: Interval | None


@dataclass(frozen=True, slots=True)
class SeedGroup:
    """Members that differ only in their seeds.

    Attributes
    ----------
    parameters
        Their common parameters.
    members, failed
        Number of members, and number of failed members.
    figures
        Name → statistics; a figure without a value in any member is absent.
    """

    parameters: Mapping[str, Any]
    members: int
    failed: int
    figures: Mapping[str, Summarised]


def summarise(members: Iterable[Member], *, level: float = 0.95) -> tuple[SeedGroup, ...]:
    """Return statistics of each figure over the seeds of each set of parameters, in order of first occurrence.

    The numbers do not depend on the order of the simulations.

    Parameters
    ----------
    members
        Members of an ensemble.
    level
        Confidence level of the intervals.
    """
    groups: dict[str, list[Member]] = {}
    for member in members:
        groups.setdefault(json.dumps(dict(member.parameters), sort_keys=True), []).append(member)
    return tuple(_group(key, group, level) for key, group in groups.items())


def _group(key: str, members: list[Member], level: float) -> SeedGroup:
    good = [member for member in members if not member.error]
    names = dict.fromkeys(name for member in good for name in member.figures)
    figures = {}
    for name in names:
        values = np.array([member.figures[name] for member in good if name in member.figures])
        values = values[np.isfinite(values)]
        if len(values):
            word = hashlib.sha256(f"{key} {name}".encode()).digest()
            figures[name] = _summarised(values, level, np.random.default_rng(int.from_bytes(word[:8], "little")))
    return SeedGroup(members[0].parameters, len(members), len(members) - len(good), figures)


def _summarised(values: np.ndarray[Any, np.dtype[np.float64]], level: float, rng: np.random.Generator) -> Summarised:
    n = len(values)
    return Summarised(
        n=n,
        median=float(np.median(values)),
        low=float(values.min()),
        high=float(values.max()),
        median_interval=bca_interval(values, np.median, rng=rng, level=level) if n >= FEW_MEMBERS else None,
        mean=mean_interval(values, level=level) if n >= 3 else None,
    )
