"""What the members of an ensemble say together: each figure over the seeds of one set of parameters."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from venturi.simulation.member import Member
from venturi.stats import Interval, bca_interval, mean_interval

__all__ = ["Group", "Summarised", "summarise"]

FEW_MEMBERS = 10
"""Below, the bootstrap of a median has too few values to draw from, and its interval is not told."""


@dataclass(frozen=True, slots=True)
class Summarised:
    """A figure over the members of a group.

    Attributes
    ----------
    n
        Members that have it.
    median, low, high
        Median of the members, and the smallest and the largest.
    median_interval, mean
        Where the median and the mean of all seeds lie, at a level of confidence; None of fewer than ten, or two, members.
    """

    n: int
    median: float
    low: float
    high: float
    median_interval: Interval | None
    mean: Interval | None


@dataclass(frozen=True, slots=True)
class Group:
    """Members that differ by their seeds alone.

    Attributes
    ----------
    parameters
        What they have in common.
    members, failed
        How many there are, and how many of them could not be simulated.
    figures
        Name → what it is; a figure that no member has is absent.
    """

    parameters: Mapping[str, Any]
    members: int
    failed: int
    figures: Mapping[str, Summarised]


def summarise(members: Iterable[Member], *, level: float = 0.95) -> tuple[Group, ...]:
    """Return each figure over the seeds of each set of parameters, in the order in which these come.

    The same members give the same numbers, in whatever order they were simulated.

    Parameters
    ----------
    members
        Of an ensemble.
    level
        Confidence of the intervals.
    """
    groups: dict[str, list[Member]] = {}
    for member in members:
        groups.setdefault(json.dumps(dict(member.parameters), sort_keys=True), []).append(member)
    return tuple(_group(key, group, level) for key, group in groups.items())


def _group(key: str, members: list[Member], level: float) -> Group:
    good = [member for member in members if not member.error]
    names = dict.fromkeys(name for member in good for name in member.figures)
    figures = {}
    for name in names:
        values = np.array([member.figures[name] for member in good if name in member.figures])
        values = values[np.isfinite(values)]
        if len(values):
            word = hashlib.sha256(f"{key} {name}".encode()).digest()
            figures[name] = _summarised(values, level, np.random.default_rng(int.from_bytes(word[:8], "little")))
    return Group(members[0].parameters, len(members), len(members) - len(good), figures)


def _summarised(values: np.ndarray[Any, np.dtype[np.float64]], level: float, rng: np.random.Generator) -> Summarised:
    n = len(values)
    return Summarised(
        n=n,
        median=float(np.median(values)),
        low=float(values.min()),
        high=float(values.max()),
        median_interval=bca_interval(values, np.median, rng=rng, level=level) if n >= FEW_MEMBERS else None,
        mean=mean_interval(values, rng=rng, level=level) if n >= 2 else None,
    )
