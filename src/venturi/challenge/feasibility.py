r"""Feasibility of a challenge: required rate of each resource, and expected rate of each row.

Rates change at the start and end of rows and at changes of links. For each interval of time between changes:

- *Required*: :math:`R_r = \sum_i a_{ir} d_i`, the sum of the demands on a resource, with headers. If no resource has
  :math:`R_r > c_r`, all rows reach their rates.
- *Expected*: the weighted max-min fair rates (:mod:`venturi.challenge.allocation`). The default weights are the
  demands. In an open loop, unfinished transfers accumulate in proportion to the requests. So rows with equal file sizes
  on one full link get equal fractions of their requests (processor sharing in overload). On random tables with several
  full links, the simulated rates of sites differ by at most 0.5 % if file sizes and round trips are equal. With sizes of
  1 to 4 MB and links of 1 to 50 ms, the median difference is 1.2 %, the 90th percentile 14 % and the largest 39 %. The
  interval of a row does not include this difference.

*Uncertainty*. The capacity of a link is its rate, times an efficiency from 0.95
(:data:`venturi.advice.ceilings.TCP_USE`) to 1: ``advise`` predicts with the low end, the simulator with the high end.
``uncertainty`` adds ±u to each capacity. The expected rate has the rates as declared. Its 90 % interval is from
:data:`DRAWS` draws of all capacities, each uniform and independent, and contains the expected rate. The verdict
``feasible`` needs the low end on each resource:

.. math:: R_r \le c_r \, (1 - u) \, (0.95 \text{ for links})
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from venturi.advice.ceilings import TCP_USE
from venturi.challenge.allocation import NO_LIMIT, FlowAllocation, allocate
from venturi.challenge.flows import ChallengeFlows, ChallengeResource, resolve_challenge
from venturi.challenge.result import (
    ChallengeOptions,
    ChallengeVerdict,
    Feasibility,
    ResourceUse,
    RowResult,
    SiteUse,
)
from venturi.challenge.table import ChallengeTable
from venturi.challenge.testbed import ChallengeTestbed
from venturi.errors import ScenarioError

__all__ = ["DRAWS", "LEVEL", "MAX_INTERVALS", "check_feasibility"]

DRAWS = 100
"""Draws of the capacities."""

LEVEL = 0.9
"""Level of the intervals of expected rates."""

MAX_INTERVALS = 2000
"""Maximum number of intervals of time. Each one needs an allocation for each draw."""

_EPSILON = 1e-9
"""Relative excess of a required rate that counts as equal to the capacity."""

Floats = npt.NDArray[np.float64]


def check_feasibility(
    table: ChallengeTable,
    testbed: ChallengeTestbed,
    options: ChallengeOptions | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> Feasibility:
    """Return whether a testbed carries the rates of a table, and the resources that limit it.

    Parameters
    ----------
    on_progress
        Called with the number of finished intervals of time and their total number.

    Raises
    ------
    ScenarioError
        For a table that does not fit the testbed, and for more than :data:`MAX_INTERVALS` intervals of time.
    """
    options = options or ChallengeOptions()
    flows = resolve_challenge(table, testbed)
    sums = _Sums(flows, options)
    periods = list(_periods(flows, table))
    for number, period in enumerate(periods):
        sums.add(period)
        if on_progress is not None:
            on_progress(number + 1, len(periods))
    uses, low, nominal = sums.uses()
    verdict: ChallengeVerdict = "not feasible" if nominal else "without margin" if low else "feasible"
    ordered = sorted(uses, key=lambda use: (-_order(use), use.resource.name))
    rows = tuple(sums.rows())
    sites = tuple(_sites(flows, rows, sums.peaks(), {use.resource: use for use in uses}))
    return Feasibility(verdict, rows, tuple(ordered), sites, len(periods), options, table.source, testbed.source)


def _order(use: ResourceUse) -> float:
    return math.inf if use.ratio is None else use.ratio


@dataclass(frozen=True, slots=True)
class _Period:
    """Interval of time with constant demands and capacities. ``active`` are numbers of flows."""

    start_s: float
    end_s: float
    active: npt.NDArray[np.int64]
    capacity: Floats

    @property
    def weight_s(self) -> float:
        """Weight of the period in means. A challenge without an end has one period."""
        return self.end_s - self.start_s if math.isfinite(self.end_s) else 1.0


def _periods(flows: ChallengeFlows, table: ChallengeTable) -> Iterator[_Period]:
    """Yield the intervals of time with active flows."""
    starts = np.array([flows.rows[row].start_s for row in flows.row])
    ends = np.array([flows.rows[row].end_s for row in flows.row])
    times = sorted({*starts, *ends, *(time for time, _, _ in flows.changes)})
    if len(times) - 1 > MAX_INTERVALS:
        found = f"{len(times) - 1}; round the times of the table"
        raise ScenarioError(
            [("", f"expected at most {MAX_INTERVALS} intervals of time, found {found}")], table.source
        )
    capacity = np.array([resource.capacity_bit_per_s for resource in flows.resources])
    changes = list(flows.changes)
    for start_s, end_s in itertools.pairwise(times):
        while changes and changes[0][0] <= start_s:
            _, number, changed = changes.pop(0)
            capacity = capacity.copy()
            capacity[number] = changed
        active = np.flatnonzero((starts < end_s) & (ends > start_s))
        if active.size:
            yield _Period(float(start_s), float(end_s), active, capacity)


class _Sums:
    """Sums over the intervals of time."""

    def __init__(self, flows: ChallengeFlows, options: ChallengeOptions) -> None:
        self._flows = flows
        demand = flows.demand_bit_per_s
        parts = np.bincount(flows.row, minlength=len(flows.rows))
        self._weight = demand if options.weights == "requested" else 1.0 / parts[flows.row]
        resources, rows = len(flows.resources), len(flows.rows)
        is_link = np.array([resource.kind == "link" for resource in flows.resources], dtype=bool)
        self._low = np.where(is_link, TCP_USE, 1.0) * (1 - options.uncertainty)
        generator = np.random.default_rng(options.seed)
        shape = (DRAWS, resources)
        efficiency = np.where(is_link, generator.uniform(TCP_USE, 1.0, shape), 1.0)
        self._factors = efficiency * generator.uniform(1 - options.uncertainty, 1 + options.uncertainty, shape)
        self._time_s, self._bits = np.zeros(rows), np.zeros(rows)
        self._drawn_bits = np.zeros((DRAWS, rows))
        self._worst, self._worst_start_s = np.ones(rows), np.zeros(rows)
        self._lost: list[dict[int, float]] = [defaultdict(float) for _ in range(rows)]
        self._ratio = np.full(resources, -1.0)
        self._required, self._capacity = np.zeros(resources), np.zeros(resources)
        self._start_s, self._end_s = np.zeros(resources), np.zeros(resources)
        self._overload_s, self._needed = np.zeros(resources), np.zeros(resources)
        self._is_over, self._is_over_low = np.zeros(resources, dtype=bool), np.zeros(resources, dtype=bool)
        self._sites = {
            name: number for number, name in enumerate(dict.fromkeys(it.site for pair in flows.pairs for it in pair))
        }
        self._ends = [
            np.array([self._sites[pair[side].site] for pair in flows.pairs], dtype=np.int64) for side in (0, 1)
        ]
        self._peaks = np.zeros((2, len(self._sites)))

    def add(self, period: _Period) -> None:
        """Add an interval of time."""
        flows, active = self._flows, period.active
        demand = np.zeros(len(flows.row))
        demand[active] = flows.demand_bit_per_s[active]
        required = flows.usage.T @ demand
        self._add_resources(period, required)
        self._add_sites(demand)
        rows = _sums_of(flows.row, demand, len(flows.rows))
        self._time_s += np.where(rows > 0, period.weight_s, 0.0)
        low = period.capacity * self._low
        critical = np.flatnonzero(required > low * (1 + _EPSILON))
        self._bits += rows * period.weight_s
        self._drawn_bits += rows * period.weight_s
        if not critical.size:
            return
        # Only flows over resources that can be full can miss their rates, and only these resources can limit them.
        usage = flows.usage[:, critical]
        touched = np.flatnonzero((np.diff(usage.indptr) > 0) & (demand > 0))
        part = _Part(usage[touched], demand[touched], self._weight[touched], flows.row[touched], len(flows.rows))
        found = part.allocate(period.capacity[critical])
        self._add_rows(period, part, found, critical, rows)
        for number in range(DRAWS):
            drawn = part.allocate(period.capacity[critical] * self._factors[number, critical])
            self._drawn_bits[number] += part.missed(drawn) * -period.weight_s

    def rows(self) -> Iterator[RowResult]:
        """Yield the results of the rows."""
        time_s = np.maximum(self._time_s, 1e-300)
        expected = self._bits / time_s
        drawn = self._drawn_bits / time_s
        low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
        for number, row in enumerate(self._flows.rows):
            lost = self._lost[number]
            limit = self._flows.resources[max(lost, key=lambda key: (lost[key], -key))] if lost else None
            mean = float(expected[number]) if lost else row.rate_bit_per_s
            yield RowResult(
                row, mean, min(mean, float(low[number])), max(mean, float(high[number])), float(self._worst[number]),
                float(self._worst_start_s[number]), limit,
            )  # fmt: skip

    def uses(self) -> tuple[list[ResourceUse], bool, bool]:
        """Return the use of each resource, and whether any exceeds its low end, and its declared capacity."""
        limited = np.zeros(len(self._flows.resources), dtype=int)
        for lost in self._lost:
            for number in lost:
                limited[number] += 1
        uses = [
            ResourceUse(
                resource, float(self._required[number]), float(self._capacity[number]), float(self._start_s[number]),
                float(self._end_s[number]), float(self._overload_s[number]), int(limited[number]),
                _round_up(self._needed[number] / self._low[number]) if self._is_over_low[number] else None,
            )
            for number, resource in enumerate(self._flows.resources)
        ]  # fmt: skip
        return uses, bool(self._is_over_low.any()), bool(self._is_over.any())

    def peaks(self) -> dict[str, tuple[float, float]]:
        """Return for each site the largest required rates, sent and received, in bit/s."""
        return {
            site: (float(self._peaks[0, number]), float(self._peaks[1, number]))
            for site, number in self._sites.items()
        }

    def _add_resources(self, period: _Period, required: Floats) -> None:
        ratio = np.divide(required, period.capacity, out=np.full(len(required), np.inf), where=period.capacity > 0)
        ratio[required == 0] = 0.0
        larger = ratio > self._ratio
        for kept, new in (
            (self._ratio, ratio), (self._required, required), (self._capacity, period.capacity),
            (self._start_s, period.start_s), (self._end_s, period.end_s),
        ):  # fmt: skip
            kept[larger] = new[larger] if isinstance(new, np.ndarray) else new
        over = required > period.capacity * (1 + _EPSILON)
        over_low = required > period.capacity * self._low * (1 + _EPSILON)
        self._overload_s[over] += period.end_s - period.start_s
        self._needed[over_low] = np.maximum(self._needed[over_low], required[over_low])
        self._is_over |= over
        self._is_over_low |= over_low

    def _add_sites(self, demand: Floats) -> None:
        for side, ends in enumerate(self._ends):
            now = _sums_of(ends, demand, len(self._sites))
            self._peaks[side] = np.maximum(self._peaks[side], now)

    def _add_rows(
        self, period: _Period, part: _Part, found: FlowAllocation, critical: npt.NDArray[np.int64], rows: Floats
    ) -> None:
        missed = part.missed(found)
        self._bits -= missed * period.weight_s
        ratio = 1 - np.divide(missed, rows, out=np.zeros(len(rows)), where=rows > 0)
        worse = ratio < self._worst
        self._worst[worse], self._worst_start_s[worse] = ratio[worse], period.start_s
        for flow in np.flatnonzero(found.limit != NO_LIMIT):
            lost = (part.demand[flow] - found.rate[flow]) * period.weight_s
            self._lost[part.row[flow]][int(critical[found.limit[flow]])] += float(lost)


def _sums_of(group: npt.NDArray[np.int64], values: Floats, groups: int) -> Floats:
    """Return the sum of the values of each group."""
    return np.bincount(group, weights=values, minlength=groups).astype(np.float64)


def _round_up(value: float) -> float:
    """Return a value rounded up to three significant digits, as it is printed."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 2)
    return math.ceil(value / unit - _EPSILON) * unit


@dataclass(frozen=True, slots=True)
class _Part:
    """Flows over resources that can be full."""

    usage: csr_array
    demand: Floats
    weight: Floats
    row: npt.NDArray[np.int64]
    rows: int

    def allocate(self, capacity: Floats) -> FlowAllocation:
        return allocate(self.demand, self.weight, self.usage, capacity)

    def missed(self, found: FlowAllocation) -> Floats:
        """Return the missed rate of each row, in bit/s."""
        return _sums_of(self.row, self.demand - found.rate, self.rows)


def _sites(
    flows: ChallengeFlows,
    rows: tuple[RowResult, ...],
    peaks: dict[str, tuple[float, float]],
    uses: dict[ChallengeResource, ResourceUse],
) -> Iterator[SiteUse]:
    """Yield the sites, in the order of the flows."""
    missing = {number for number, row in enumerate(rows) if row.misses}
    of_site: dict[str, tuple[set[int], set[int]]] = {}
    for number, pair in enumerate(flows.pairs):
        used = flows.usage.indices[flows.usage.indptr[number] : flows.usage.indptr[number + 1]]
        for storage in pair:
            own, resources = of_site.setdefault(storage.site, (set(), set()))
            own.add(int(flows.row[number]))
            resources.update(used.tolist())
    for site, (own, resources) in of_site.items():
        worst = max((uses[flows.resources[one]] for one in resources), key=_order, default=None)
        yield SiteUse(site, *peaks[site], len(own), len(own & missing), worst)
