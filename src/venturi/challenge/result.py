"""Result of a feasibility check: verdict, rows, resources and sites."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from venturi.challenge.flows import ChallengeResource
from venturi.challenge.table import ChallengeRow

__all__ = ["ChallengeOptions", "ChallengeVerdict", "Feasibility", "ResourceUse", "RowResult", "SiteUse", "WeightRule"]

ChallengeVerdict: TypeAlias = Literal["feasible", "without margin", "not feasible"]
"""``without margin``: all rows reach their rate, but not at the low end of the capacities."""

WeightRule: TypeAlias = Literal["requested", "equal"]
"""Weights of rows on a full resource: their requested rates, or equal weights."""


@dataclass(frozen=True, slots=True)
class ChallengeOptions:
    """Options of a feasibility check.

    Attributes
    ----------
    uncertainty
        Relative uncertainty of each capacity: it is uniform in ±``uncertainty``.
    weights
        Rule for the weights of rows.
    seed
        Seed of the drawn capacities.
    """

    uncertainty: float = 0.0
    weights: WeightRule = "requested"
    seed: int = 1


@dataclass(frozen=True, slots=True)
class RowResult:
    """Expected rate of a row, as the mean of its period.

    Attributes
    ----------
    expected_bit_per_s, low_bit_per_s, high_bit_per_s
        Expected rate, and the 90 % interval from uncertain capacities.
    worst_ratio
        Smallest fraction of the rate that the row reaches in an interval of time.
    worst_start_s
        Start of that interval; 0 if the row reaches its rate.
    limit
        Resource that costs the row the most data; ``None`` if the row reaches its rate.
    """

    row: ChallengeRow
    expected_bit_per_s: float
    low_bit_per_s: float
    high_bit_per_s: float
    worst_ratio: float
    worst_start_s: float
    limit: ChallengeResource | None

    @property
    def reached_ratio(self) -> float:
        """Expected rate divided by the required rate."""
        return self.expected_bit_per_s / self.row.rate_bit_per_s

    @property
    def misses(self) -> bool:
        """True if the row is below its rate in an interval of time."""
        return self.limit is not None


@dataclass(frozen=True, slots=True)
class ResourceUse:
    """Use of a resource in the interval of time with its largest ratio of required rate to capacity.

    Attributes
    ----------
    required_bit_per_s, capacity_bit_per_s
        Required rate with headers, and capacity in that interval.
    start_s, end_s
        The interval; ``end_s`` is infinite for a challenge without an end.
    overload_s
        Time with a required rate above the capacity; infinite for a challenge without an end.
    rows
        Number of rows that this resource limits.
    needed_bit_per_s
        Capacity that carries all required rates with margin; ``None`` if the present one does.
    """

    resource: ChallengeResource
    required_bit_per_s: float
    capacity_bit_per_s: float
    start_s: float
    end_s: float
    overload_s: float
    rows: int
    needed_bit_per_s: float | None

    @property
    def ratio(self) -> float | None:
        """Required rate divided by the capacity; ``None`` for a link that is down."""
        return self.required_bit_per_s / self.capacity_bit_per_s if self.capacity_bit_per_s else None


@dataclass(frozen=True, slots=True)
class SiteUse:
    """Rates of a site at their largest, and the resource with the largest use on its routes.

    ``rows`` counts the rows from or to the site, ``missing`` the ones below their rate.
    """

    site: str
    sent_bit_per_s: float
    received_bit_per_s: float
    rows: int
    missing: int
    use: ResourceUse | None


@dataclass(frozen=True)
class Feasibility:
    """Result for a whole table. ``resources`` are sorted by use, largest first; ``sites`` and ``rows`` as in the table.

    ``intervals`` counts the intervals of time between changes.
    """

    verdict: ChallengeVerdict
    rows: tuple[RowResult, ...]
    resources: tuple[ResourceUse, ...]
    sites: tuple[SiteUse, ...]
    intervals: int
    options: ChallengeOptions
    table: str
    testbed: str

    @property
    def missing(self) -> tuple[RowResult, ...]:
        """Rows that miss their rate, largest shortfall first."""
        found = (row for row in self.rows if row.misses)
        return tuple(sorted(found, key=lambda one: one.expected_bit_per_s - one.row.rate_bit_per_s))

    @property
    def limiting(self) -> tuple[ResourceUse, ...]:
        """Resources that do not carry all required rates with margin."""
        return tuple(use for use in self.resources if use.needed_bit_per_s is not None)
