r"""Requested and reached rates of open-loop workloads: ``inject`` and ``replay``.

A *flow* has one source, one destination and one name. Its requested bytes until time t are

- ``inject``: :math:`R(t) = \frac{r}{8} \int f`, with the rate r of the pair and the shape f of the flow.
- ``replay``: the recorded bytes. Each transfer has its recorded duration, or without it, its size times the
  10th percentile of (duration / size) of its flow in the run.

:math:`D(t)` are the delivered bytes of successful transfers. The *backlog* is :math:`R - D`. It contains the transfers in
flight, so it is above zero even if a load is feasible. Two rules keep transfers in flight out of the ratio D/R:

- ``inject``: the compared period starts when the first transfers can be complete: one fill time after the start, the
  10th percentile of the durations, at most a quarter of the period. It ends with the request.
- A flow falls short if it misses more than :data:`SHORT` of its bytes, and more than its largest file.

The averages are over minutes within the compared period. A load shorter than two minutes has one interval.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import ValidationError

from venturi.analysis.byte_times import fit_to_links, spread_evenly
from venturi.analysis.result import About
from venturi.analysis.run_columns import DELIVERED_BYTES
from venturi.analysis.values import FloatArray, IntArray
from venturi.run import Run
from venturi.run.route_links import forward_links
from venturi.stats.quantiles import student_reach
from venturi.units import BITS_PER_BYTE, parse_duration
from venturi.workload.inject import Flow

__all__ = ["MINUTE_S", "SHORT", "LoadFlow", "RatioInterval", "RequestedLoad", "format_flow", "requested_load"]

MINUTE_S = 60.0
SHORT = 0.03
"""Missing fraction of the requested bytes above which a flow falls short: the accuracy that data challenges require."""
FILL_QUANTILE = 0.1
"""Quantile of durations and of durations per byte that estimates a transfer without a backlog."""
MAX_FILL = 0.25
"""Maximum fraction of the period that counts as fill time."""
MAX_INTERVALS = 1440
"""Maximum number of intervals: the minutes of a day. Longer runs have intervals of several minutes."""
MAX_WORK = 400_000_000
"""Maximum number of transfers times intervals."""
MAX_CELLS = 5_000_000
"""Maximum number of flows times intervals."""
SHORT_RUN_INTERVALS = 20
"""Intervals of the figures of a load shorter than two minutes."""
PARTS = 6
"""Parts of a minute that bound the compared period of a flow."""
MIN_PARTS = 4
"""Minimum number of parts of a compared period that starts and ends at parts. Shorter periods have exact ends."""
MIN_MINUTES = 5
"""Minimum number of minutes for a confidence interval."""
MAX_ROUTES = 5000
"""Maximum number of flows whose routes are looked up."""


@dataclass(frozen=True, slots=True)
class RatioInterval:
    """Ratio with its Student's t interval from the ratios of minutes, as fractions."""

    low: float
    high: float


@dataclass(frozen=True, eq=False)
class LoadFlow:
    """Requested and reached bytes between a source and a destination.

    Attributes
    ----------
    flow
        Name in the scenario. Empty for a replay.
    source, destination
        Sites of an injected flow. Storages of a replay.
    source_storage, destination_storage
        Storages at its ends. A site can have several.
    points
        Design points of its transfers. Each size is a point.
    start_s, end_s
        Period of the request. Times have the clock of the run.
    whole_bytes
        Requested bytes from ``start_s`` to ``end_s``.
    low_s, high_s
        Compared period. It is within the period of the request.
    requested_bytes, reached_bytes
        Bytes in the compared period. The first ones follow from the rate.
    scheduled_bytes
        Bytes of the transfers with their scheduled start in the compared period.
    minutes
        Reached ÷ requested bytes. One value for each full interval in the compared period.
    transfers, failed
        Numbers of transfers. All are counted, and the failed ones.
    late_s, max_late_s
        Mean and largest lateness. This is the time from the scheduled to the actual start.
    backlog_bytes
        Backlog at the end of the compared period. It is negative by up to a file, because files arrive whole.
    largest_bytes
        Size of its largest file.
    """

    flow: str
    source: str
    destination: str
    source_storage: str
    destination_storage: str
    points: tuple[int, ...]
    start_s: float
    end_s: float
    whole_bytes: float
    low_s: float
    high_s: float
    requested_bytes: float
    scheduled_bytes: float
    reached_bytes: float
    minutes: tuple[float, ...]
    transfers: int
    failed: int
    late_s: float
    max_late_s: float
    backlog_bytes: float
    largest_bytes: float

    @property
    def period_s(self) -> float:
        """Length of the compared period."""
        return self.high_s - self.low_s

    @property
    def ratio(self) -> float | None:
        """Reached ÷ requested bytes of the compared period; None without requested bytes."""
        return self.reached_bytes / self.requested_bytes if self.requested_bytes > 0 else None

    @property
    def requested_bit_per_s(self) -> float:
        """Mean requested rate in the compared period."""
        return self.requested_bytes * BITS_PER_BYTE / self.period_s

    @property
    def reached_bit_per_s(self) -> float:
        """Mean reached rate in the compared period."""
        return self.reached_bytes * BITS_PER_BYTE / self.period_s

    @property
    def falls_short(self) -> bool:
        """True if more than 3 % of the requested bytes and more than the largest file are missing."""
        missing = self.requested_bytes - self.reached_bytes
        return missing > SHORT * self.requested_bytes and missing > self.largest_bytes

    @property
    def is_underscheduled(self) -> bool:
        """True if the schedule, not the transfers, explains the shortfall."""
        return self.falls_short and self.reached_bytes >= (1 - SHORT) * self.scheduled_bytes

    @property
    def interval(self) -> RatioInterval | None:
        """Interval of the ratio; None with fewer than five minutes."""
        return ratio_interval(self.minutes)


@dataclass(frozen=True, eq=False)
class RequestedLoad:
    """Requested load of a run, and the reached rates.

    Attributes
    ----------
    kind
        Workload. It is ``inject`` or ``replay``.
    edges_s
        Edges of the intervals. Shape (n + 1,).
    in_minutes
        True for intervals of one or more minutes. False if the load is shorter than two minutes.
    requested, reached
        Bytes of each flow until each edge. Shape (flows, n + 1).
    late_s, max_late_s
        Mean and largest lateness of the transfers scheduled in each interval. NaN without transfers. Shape (n,).
    routes
        Links of each flow. Empty if unknown.
    times
        Source of the times of the bytes.
    """

    kind: str
    flows: tuple[LoadFlow, ...]
    edges_s: FloatArray
    in_minutes: bool
    requested: FloatArray
    reached: FloatArray
    late_s: FloatArray
    max_late_s: FloatArray
    routes: tuple[tuple[str, ...], ...]
    times: str

    @property
    def start_s(self) -> float:
        """Start of the first request."""
        return min(flow.start_s for flow in self.flows)

    @property
    def end_s(self) -> float:
        """End of the last request."""
        return max(flow.end_s for flow in self.flows)

    @property
    def requested_bit_per_s(self) -> float:
        """Mean requested rate of all flows over the whole period."""
        return math.fsum(flow.whole_bytes for flow in self.flows) * BITS_PER_BYTE / (self.end_s - self.start_s)

    @property
    def ratio(self) -> float:
        """Reached ÷ requested bytes of all flows, in their compared periods."""
        requested = math.fsum(flow.requested_bytes for flow in self.flows)
        return math.fsum(flow.reached_bytes for flow in self.flows) / requested if requested else 0.0

    @property
    def minutes(self) -> tuple[float, ...]:
        """Reached ÷ requested bytes of all flows in each full interval of the period that all flows share."""
        low, high = max(flow.low_s for flow in self.flows), min(flow.high_s for flow in self.flows)
        sums = self.requested.sum(axis=0), self.reached.sum(axis=0)
        return full_intervals(self.edges_s, *sums, low, high) if self.in_minutes else ()

    @property
    def short(self) -> tuple[LoadFlow, ...]:
        """Flows that fall short, most missing bytes first."""
        found = (flow for flow in self.flows if flow.falls_short)
        return tuple(sorted(found, key=lambda flow: flow.reached_bytes - flow.requested_bytes))


def format_flow(flow: LoadFlow) -> str:
    """Return source and destination of a flow as text."""
    return f"{flow.source} → {flow.destination}"


def ratio_interval(minutes: Sequence[float], level: float = 0.95) -> RatioInterval | None:
    """Return the Student's t interval of the mean of ratios, or None for fewer than five.

    Minutes of a growing backlog are not independent, so the interval describes their scatter.
    """
    n = len(minutes)
    if n < MIN_MINUTES:
        return None
    mean, reach = float(np.mean(minutes)), student_reach(level, n - 1) * float(np.std(minutes, ddof=1)) / math.sqrt(n)
    return RatioInterval(mean - reach, mean + reach)


def full_intervals(
    edges_s: FloatArray, requested: FloatArray, reached: FloatArray, low_s: float, high_s: float
) -> tuple[float, ...]:
    """Return reached ÷ requested bytes of each interval within a period, without intervals that have no request."""
    inside = (edges_s[:-1] >= low_s - 1e-9) & (edges_s[1:] <= high_s + 1e-9)
    requests, arrivals = np.diff(requested)[inside], np.diff(reached)[inside]
    return tuple((arrivals[requests > 0] / requests[requests > 0]).tolist())


def requested_load(run: Run, about: About) -> RequestedLoad | None:
    """Return the requested load of a run, or None for another workload or without records of transfers."""
    workload = about.scenario.get("workload") or {}
    kind = str(workload.get("kind"))
    if kind not in ("inject", "replay"):
        return None
    records = _load_records(run)
    if records is None:
        return None
    shapes = _shapes(workload, records)
    request = _Request(records, shapes, _replay_ends(workload, records))
    end_s = float(request.end_s.max())
    last_s = float(np.max(records.end_s, initial=end_s))
    if run.state != "complete":
        # The later part of the request was not executed.
        end_s = last_s = min(end_s, float(records.end_s.max()))
    start_s = float(request.start_s.min())
    if not end_s > start_s:
        return None
    most = min(MAX_WORK // max(len(records.flow), 1), MAX_CELLS // len(records.names))
    width_s, in_minutes = _width_s(end_s - start_s, last_s - start_s, most)
    count = math.ceil((last_s - start_s) / width_s - 1e-9)
    parts = PARTS if in_minutes and count * PARTS <= most else 1
    fine_s = np.asarray(start_s + width_s / parts * np.arange(count * parts + 1), dtype=np.float64)
    edges_s = fine_s[::parts]
    ok = records.ok
    even = spread_evenly(
        records.flow[ok], records.start_s[ok], records.end_s[ok], records.bytes[ok], fine_s, len(records.names)
    )
    routes = _routes(run, records)
    found = fit_to_links(run, even, fine_s, routes)
    requested, reached = request.until(edges_s), found.total[:, ::parts]
    flows = tuple(
        _flow(
            number,
            records,
            request,
            edges_s,
            requested[number],
            fine_s,
            even[number],
            found.total[number],
            end_s,
            in_minutes,
        )
        for number in range(len(records.names))
    )
    late = _lateness(records, edges_s)
    return RequestedLoad(kind, flows, edges_s, in_minutes, requested, reached, *late, routes, found.times)


@dataclass(frozen=True)
class _Records:
    """Transfers with the number of their flow, in the order of flows, and the ends of each flow."""

    names: tuple[tuple[str, str, str, str, str], ...]
    """Flow, source, destination, source storage, destination storage."""
    bit_per_s: FloatArray
    """Requested rate of each flow; NaN if it has none."""
    points: tuple[tuple[int, ...], ...]
    flow: IntArray
    bytes: FloatArray
    requested_bytes: FloatArray
    intended_s: FloatArray
    start_s: FloatArray
    end_s: FloatArray
    traced_s: FloatArray
    ok: npt.NDArray[np.bool_]

    def of(self, flow: int) -> slice:
        """Return the rows of a flow: rows are in the order of flows."""
        first, last = np.searchsorted(self.flow, (flow, flow + 1))
        return slice(int(first), int(last))

    def delivered(self, flow: int, times_s: FloatArray) -> FloatArray:
        """Return the evenly spread bytes of one flow until each time."""
        own = self.of(flow)
        ok = self.ok[own]
        zero = np.zeros(int(ok.sum()), dtype=np.int64)
        found = spread_evenly(zero, self.start_s[own][ok], self.end_s[own][ok], self.bytes[own][ok], times_s, 1)
        return np.asarray(found[0], dtype=np.float64)


_ENDS = ("flow", "source", "destination")


def _load_records(run: Run) -> _Records | None:
    factors = set(run.factors)
    if not {"source", "destination"} <= factors:
        return None
    flow = "factor_flow::VARCHAR" if "flow" in factors else "''"
    rate = "factor_requested_bit_per_s" if "requested_bit_per_s" in factors else "NULL"
    key = f"""coalesce({flow}, '') AS flow, factor_source::VARCHAR AS source, factor_destination::VARCHAR AS destination,
              split_part(source, ':', 1) AS source_storage, split_part(destination, ':', 1) AS destination_storage"""
    chosen = "point IS NOT NULL AND start_s IS NOT NULL AND end_s IS NOT NULL AND factor_source IS NOT NULL"
    groups = run.query(
        f"""SELECT * EXCLUDE (point, rate), any_value(rate) AS rate, list(DISTINCT point ORDER BY point) AS points
            FROM (SELECT {key}, point, {rate}::DOUBLE AS rate FROM transfers WHERE {chosen})
            GROUP BY ALL ORDER BY flow, source, destination, source_storage, destination_storage"""
    )
    if not len(groups["flow"]):
        return None
    rows = run.query(
        f"""SELECT dense_rank() OVER (ORDER BY flow, source, destination, source_storage, destination_storage)::BIGINT - 1 AS flow,
                   bytes, requested_bytes, intended_s, start_s, end_s, traced_s, ok
            FROM (SELECT {key}, {DELIVERED_BYTES}::DOUBLE AS bytes, coalesce(requested_bytes, 0)::DOUBLE AS requested_bytes,
                         coalesce(intended_s, start_s) AS intended_s, start_s, end_s, outcome = 'ok' AS ok,
                         TRY_CAST(labels->>'traced_s' AS DOUBLE) AS traced_s
                  FROM transfers WHERE {chosen})
            ORDER BY flow, intended_s"""
    )
    names = tuple(
        (str(a), str(b), str(c), str(d), str(e))
        for a, b, c, d, e in zip(*(groups[name] for name in (*_ENDS, "source_storage", "destination_storage")), strict=True)
    )  # fmt: skip
    traced = np.asarray(rows["traced_s"], dtype=object)
    return _Records(
        names, np.asarray(groups["rate"], dtype=np.float64), tuple(tuple(map(int, own)) for own in groups["points"]),
        rows["flow"].astype(np.int64), np.nan_to_num(rows["bytes"].astype(np.float64)), rows["requested_bytes"].astype(np.float64),
        rows["intended_s"].astype(np.float64), rows["start_s"].astype(np.float64), rows["end_s"].astype(np.float64),
        np.array([np.nan if value is None else value for value in traced], dtype=np.float64), rows["ok"].astype(bool),
    )  # fmt: skip


def _shapes(workload: Mapping[str, Any], records: _Records) -> list[tuple[tuple[float, float], ...] | None]:
    """Return time and factor of the rate of each flow, or None for a flow without a rate in the scenario."""
    lead_s = parse_duration(str(workload.get("lead") or "0 s"))
    known: dict[str, tuple[tuple[float, float], ...] | None] = {}
    for name, written in (workload.get("flow") or {}).items():
        try:
            points = Flow.model_validate(written).shape.points
        except ValidationError:  # A scenario of another version.
            known[name] = None
        else:
            known[name] = tuple((time_s + lead_s, factor) for time_s, factor in points)
    return [
        known.get(name) if math.isfinite(rate) else None
        for (name, *_), rate in zip(records.names, records.bit_per_s.tolist(), strict=True)
    ]


def _replay_ends(workload: Mapping[str, Any], records: _Records) -> FloatArray:
    """Return the end of each transfer without a backlog: by the trace, or by the fastest transfers of its flow."""
    took_s, size = records.end_s - records.start_s, np.maximum(records.requested_bytes, 1.0)
    pace = np.zeros(len(records.names))
    for number in range(len(records.names)):
        own = records.of(number)
        ok = records.ok[own]
        pace[number] = np.quantile((took_s / size)[own][ok], FILL_QUANTILE) if ok.any() else 0.0
    traced_s = records.traced_s / float(workload.get("speed") or 1.0)
    return np.asarray(
        records.intended_s + np.where(np.isfinite(traced_s), traced_s, size * pace[records.flow]), dtype=np.float64
    )


class _Request:
    """Requested bytes of each flow against time."""

    def __init__(
        self, records: _Records, shapes: Sequence[tuple[tuple[float, float], ...] | None], ends_s: FloatArray
    ) -> None:
        self._records, self._shapes, self._ends_s = records, shapes, ends_s
        count = len(records.names)
        self.start_s, self.end_s = np.zeros(count), np.zeros(count)
        for number, shape in enumerate(shapes):
            own = records.of(number)
            self.start_s[number] = records.intended_s[own].min() if shape is None else shape[0][0]
            self.end_s[number] = ends_s[own].max() if shape is None else shape[-1][0]

    def has_rate(self, flow: int) -> bool:
        """Return whether the scenario has a rate for a flow."""
        return self._shapes[flow] is not None

    def until(self, edges_s: FloatArray) -> FloatArray:
        """Return the requested bytes of each flow until each time, shape (flows, times)."""
        records = self._records
        free = np.array([shape is None for shape in self._shapes], dtype=bool)
        own = free[records.flow]
        found = spread_evenly(
            records.flow[own], records.intended_s[own], self._ends_s[own], records.requested_bytes[own], edges_s, len(free)
        )  # fmt: skip
        for number, shape in enumerate(self._shapes):
            if shape is not None:
                found[number] = records.bit_per_s[number] / BITS_PER_BYTE * integral(shape, edges_s)
        return found

    def one(self, flow: int, times_s: FloatArray) -> FloatArray:
        """Return the requested bytes of one flow until each time."""
        shape, records = self._shapes[flow], self._records
        if shape is not None:
            return np.asarray(records.bit_per_s[flow] / BITS_PER_BYTE * integral(shape, times_s), dtype=np.float64)
        own = records.of(flow)
        zero = np.zeros(own.stop - own.start, dtype=np.int64)
        until = spread_evenly(
            zero, records.intended_s[own], self._ends_s[own], records.requested_bytes[own], times_s, 1
        )
        return np.asarray(until[0], dtype=np.float64)


def integral(points: Sequence[tuple[float, float]], times_s: FloatArray) -> FloatArray:
    """Return the integral of a piecewise linear function until each time; it is 0 outside of its points.

    Examples
    --------
    >>> integral(((0, 0), (10, 1), (30, 1)), np.array([5.0, 10.0, 20.0, 99.0])).tolist()
    [1.25, 5.0, 15.0, 25.0]
    """
    total = np.zeros(len(times_s))
    for (start, low), (end, high) in itertools.pairwise(points):
        if end > start:
            inside = np.clip(times_s, start, end) - start
            total += low * inside + (high - low) / (end - start) * inside**2 / 2
    return np.asarray(total, dtype=np.float64)


def _width_s(request_s: float, whole_s: float, most: int) -> tuple[float, bool]:
    """Return the width of at most ``most`` intervals, and whether they are minutes."""
    most = max(1, min(MAX_INTERVALS, most))
    if request_s < 2 * MINUTE_S:
        return max(request_s / SHORT_RUN_INTERVALS, whole_s / most), False
    return MINUTE_S * max(1, math.ceil(whole_s / MINUTE_S / most)), True


def _flow(
    number: int, records: _Records, request: _Request, edges_s: FloatArray, requested: FloatArray, fine_s: FloatArray,
    even: FloatArray, reached: FloatArray, last_s: float, in_minutes: bool,
) -> LoadFlow:  # fmt: skip
    own = records.of(number)
    start_s, end_s = float(request.start_s[number]), min(float(request.end_s[number]), last_s)
    low_s, high_s = _period(number, records, request, start_s, max(end_s, start_s + 1e-6), fine_s)
    ends = np.array([low_s, high_s])
    whole = request.one(number, np.array([start_s, end_s]))
    request_bytes, found = (
        request.one(number, ends),
        _between(ends, records.delivered(number, ends), fine_s, even, reached),
    )
    inside = (records.intended_s[own] >= low_s) & (records.intended_s[own] < high_s)
    late_s = (records.start_s - records.intended_s)[own]
    parts = (len(fine_s) - 1) // (len(edges_s) - 1)
    return LoadFlow(
        *records.names[number], records.points[number], start_s, end_s, float(whole[1] - whole[0]), low_s, high_s, float(request_bytes[1] - request_bytes[0]),
        float(records.requested_bytes[own][inside].sum()), float(found[1] - found[0]),
        full_intervals(edges_s, requested, reached[::parts], low_s, high_s) if in_minutes else (),
        len(late_s), int((~records.ok[own]).sum()), float(late_s.mean()), float(late_s.max()),
        float(request_bytes[1] - found[1]), float(records.requested_bytes[own].max()),
    )  # fmt: skip


def _between(
    times_s: FloatArray, exact: FloatArray, fine_s: FloatArray, even: FloatArray, reached: FloatArray
) -> FloatArray:
    """Return the delivered bytes of a flow until times within intervals.

    Within an interval, bytes have the order in time of the even spread.

    Parameters
    ----------
    exact
        Evenly spread bytes until these times.
    even, reached
        Evenly spread and fitted bytes until each edge ``fine_s``.
    """
    k = np.clip(np.searchsorted(fine_s, times_s, side="right") - 1, 0, len(fine_s) - 2)
    grown = even[k + 1] - even[k]
    part = np.divide(exact - even[k], grown, out=(times_s - fine_s[k]) / (fine_s[k + 1] - fine_s[k]), where=grown > 0)
    return np.asarray(reached[k] + part * (reached[k + 1] - reached[k]), dtype=np.float64)


def _period(
    number: int, records: _Records, request: _Request, start_s: float, end_s: float, fine_s: FloatArray
) -> tuple[float, float]:
    """Return the compared period of a flow, between edges of the fine intervals if it has several of them."""
    own = records.of(number)
    took_s = (records.end_s - records.start_s)[own][records.ok[own]]
    low_s = start_s
    if request.has_rate(number) and len(took_s):
        low_s += min(float(np.quantile(took_s, FILL_QUANTILE)), MAX_FILL * (end_s - start_s))
    if not request.has_rate(number):
        return low_s, end_s
    inside = fine_s[(fine_s >= low_s - 1e-9) & (fine_s <= end_s + 1e-9)]
    return (float(inside[0]), float(inside[-1])) if len(inside) > MIN_PARTS else (low_s, end_s)


def _lateness(records: _Records, edges_s: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the mean and the largest lateness of the transfers scheduled in each interval."""
    count = len(edges_s) - 1
    interval = np.clip(np.searchsorted(edges_s, records.intended_s, side="right") - 1, 0, count - 1)
    late_s = records.start_s - records.intended_s
    number = np.bincount(interval, minlength=count)
    mean = np.divide(np.bincount(interval, weights=late_s, minlength=count), number, out=np.full(count, np.nan), where=number > 0)  # fmt: skip
    most = np.full(count, -np.inf)
    np.maximum.at(most, interval, late_s)
    return mean, np.where(number > 0, most, np.nan)


def _routes(run: Run, records: _Records) -> tuple[tuple[str, ...], ...]:
    network, storages = run.header.get("network"), run.header.get("storages") or {}
    if not network or not network.get("links") or len(records.names) > MAX_ROUTES:
        return ((),) * len(records.names)
    known: dict[tuple[str, str], tuple[str, ...]] = {}
    found = []
    for *_, source, destination in records.names:
        ends = tuple(str((storages.get(name) or {}).get("host") or "") for name in (source, destination))
        key = (ends[0], ends[1])
        if key not in known:
            known[key] = forward_links(network, *key) if all(key) and key[0] != key[1] else ()
        found.append(known[key])
    return tuple(found)
