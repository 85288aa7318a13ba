"""Traffic of the access link of each site, in and out, against time: the router statistics of a network operator.

The source is the counters of the links, as a router counts. Without them, as on existing hosts, the counters of the
network interfaces of the site's hosts are used. They also count traffic between these hosts. Without any counters, the
result is empty.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from venturi.analysis.link_rates import rate_changes
from venturi.analysis.series import MAX_GAP
from venturi.analysis.values import FloatArray
from venturi.run import Run
from venturi.units import BITS_PER_BYTE, parse_rate_bit_per_s

__all__ = ["Traffic", "TrafficSite", "sites_of", "traffic_of"]

HIGH_QUANTILE = 0.9
"""Quantile of the sampling intervals that estimates the load of a busy link."""


@dataclass(frozen=True)
class TrafficSite:
    """Site of a workload: its hosts, its weight, and its access link in both directions.

    Attributes
    ----------
    weight_bit_per_s
        Bandwidth as the weight in the choice of sites, at full scale.
    out_link, in_link
        Names in the run's counters. ``None`` without a network.
    changes
        Times of rate changes of the access link, each with the new rates out and in. The first time is 0.
    """

    name: str
    machines: tuple[str, ...]
    weight_bit_per_s: float
    out_link: str | None
    in_link: str | None
    changes: tuple[tuple[float, float, float], ...]

    def capacity_bit_per_s(self, time_s: float) -> tuple[float, float] | None:
        """Return the rates of the access link out and in at a time, ``None`` without a network."""
        past = [rates for at, *rates in self.changes if at <= time_s]
        return (past[-1][0], past[-1][1]) if past else None


@dataclass(frozen=True)
class Traffic:
    """Bits in each sampling interval, in one direction.

    ``start_s``, ``end_s`` and ``bits`` have the same length.
    """

    start_s: FloatArray
    end_s: FloatArray
    bits: FloatArray

    def rate_bit_per_s(self, low_s: float, high_s: float) -> float | None:
        """Return the mean rate over the intervals with their middle in a window."""
        own = self._within(low_s, high_s)
        span = float((self.end_s - self.start_s)[own].sum())
        return float(self.bits[own].sum()) / span if span > 0 else None

    def high_bit_per_s(self, low_s: float, high_s: float) -> float | None:
        """Return the rate of the busy link: a high quantile of the intervals of a window."""
        own = self._within(low_s, high_s)
        return (
            float(np.quantile((self.bits / (self.end_s - self.start_s))[own], HIGH_QUANTILE)) if own.any() else None
        )

    def bits_within(self, low_s: float, high_s: float) -> float:
        """Return the bits of the intervals with their middle in a window."""
        return float(self.bits[self._within(low_s, high_s)].sum())

    def binned(self, first_s: float, last_s: float, bins: int) -> tuple[tuple[float, ...], tuple[float | None, ...]]:
        """Return the middles of equal bins and the mean rate in each, ``None`` for bins without samples."""
        edges = np.linspace(first_s, last_s, bins + 1)
        storage = np.clip(
            np.searchsorted(edges, (self.start_s + self.end_s) / 2, side="right") - 1, 0, bins - 1
        ).astype(np.int64)
        bits = np.bincount(storage, self.bits, bins)
        span = np.bincount(storage, self.end_s - self.start_s, bins)
        middles = (edges[:-1] + edges[1:]) / 2
        rates = tuple(float(b / s) if s > 0 else None for b, s in zip(bits, span, strict=True))
        return tuple(float(middle) for middle in middles), rates

    def _within(self, low_s: float, high_s: float) -> Any:  # noqa: ANN401 - a mask
        middle = (self.start_s + self.end_s) / 2
        return (middle >= low_s) & (middle < high_s)


def sites_of(scenario: Mapping[str, Any], run: Run) -> tuple[TrafficSite, ...]:
    """Return the sites that the workload of a scenario names, in its order.

    Parameters
    ----------
    scenario
        As resolved, in a plan.
    run
        Its plan has the links. Its events have the times of changes. Without events the plan has these times too.
    """
    header, changes = run.header, rate_changes(run)
    testbed, written = scenario.get("testbed") or {}, (scenario.get("workload") or {}).get("site") or {}
    network = header.get("network") or {}
    storages = {storage.get("host") for storage in (testbed.get("storage") or {}).values()}
    found = []
    for name, about in written.items():
        machines = tuple(
            host
            for host, options in (testbed.get("host") or {}).items()
            if options.get("site") == name and host in storages
        )
        link = (testbed.get("link") or {}).get(about.get("link") or "") or {}
        out, back = _directed(about.get("link"), link.get("between") or (), network.get("links") or {})
        rates = link.get("rate") or ()
        largest = [parse_rate_bit_per_s(text) for text in ([rates] if isinstance(rates, str) else rates)]
        weight = parse_rate_bit_per_s(about["bandwidth"]) if about.get("bandwidth") else max(largest, default=0.0)
        found.append(TrafficSite(name, machines, weight, out, back, _rates(out, back, network, changes)))
    return tuple(found)


def _directed(link: str | None, between: Sequence[str], links: Mapping[str, Any]) -> tuple[str | None, str | None]:
    if len(between) != 2:
        return None, None
    found = []
    for origin, to in (tuple(between), tuple(reversed(between))):
        # A second link between the same two nodes has its own name at the end.
        names = [name for name in (f"{origin}>{to}@{link}", f"{origin}>{to}") if name in links]
        found.append(names[0] if names else None)
    return found[0], found[1]


def _rates(
    out: str | None, back: str | None, network: Mapping[str, Any], changes: Sequence[tuple[float, str, float]]
) -> tuple[tuple[float, float, float], ...]:
    if out is None or back is None:
        return ()
    now = {name: float(network["links"][name]["rate_bit_per_s"]) for name in (out, back)}
    found = [(0.0, now[out], now[back])]
    for at, link, rate in changes:
        if link in now:
            now[link] = rate
            found = [*(found[:-1] if found[-1][0] == at else found), (at, now[out], now[back])]
    return tuple(found)


def traffic_of(run: Run, sites: Sequence[TrafficSite]) -> dict[str, tuple[Traffic, Traffic]]:
    """Return site → outgoing and incoming traffic. Sites without counters are left out."""
    rows = run.query(
        _LINKS, {"names": [f"link.{name}.bytes" for s in sites for name in (s.out_link, s.in_link) if name]}
    )
    found = {}
    for site in sites:
        both = [_traffic(rows, rows["name"] == f"link.{name}.bytes") for name in (site.out_link, site.in_link)]
        if all(len(traffic.bits) for traffic in both):
            found[site.name] = both[0], both[1]
    return found or _from_cards(run, sites)


def _from_cards(run: Run, sites: Sequence[TrafficSite]) -> dict[str, tuple[Traffic, Traffic]]:
    hosts = [host for site in sites for host in site.machines]
    rows = run.query(_CARDS, {"hosts": hosts})
    found = {}
    for site in sites:
        here = np.isin(rows["host"].astype(str), site.machines)
        both = [_together(rows, here & (rows["name"] == name)) for name in ("tx", "rx")]
        if all(len(traffic.bits) for traffic in both):
            found[site.name] = both[0], both[1]
    return found


def _traffic(rows: Mapping[str, Any], own: Any) -> Traffic:  # noqa: ANN401 - a mask
    start, end, grown = (np.asarray(rows[key][own], dtype=np.float64) for key in ("start_s", "end_s", "grown"))
    return Traffic(start, end, BITS_PER_BYTE * grown)


def _together(rows: Mapping[str, Any], own: Any) -> Traffic:  # noqa: ANN401 - a mask
    """Return the sum of several network interfaces with different sampling times, over common intervals.

    The bytes of an interface are assumed to be uniform within its interval. Intervals without samples are left out.
    """
    every = _traffic(rows, own)
    if not len(every.bits):
        return every
    width = float(np.median(every.end_s - every.start_s))
    first, last = float(every.start_s.min()), float(every.end_s.max())
    edges = np.linspace(first, last, max(2, round((last - first) / width) + 1))
    bits = np.zeros(len(edges) - 1)
    covered = np.zeros(len(edges) - 1, dtype=bool)
    middle = (edges[:-1] + edges[1:]) / 2
    cards = np.array([f"{host} {card}" for host, card in zip(rows["host"][own], rows["counter"][own], strict=True)])
    for card in dict.fromkeys(cards.tolist()):
        start, end, grown = (values[cards == card] for values in (every.start_s, every.end_s, every.bits))
        times = np.column_stack((start, end)).ravel()
        passed = np.cumsum(np.column_stack((np.zeros(len(grown)), grown)).ravel())
        bits += np.diff(np.interp(edges, times, passed))
        at = np.searchsorted(start, middle, side="right") - 1
        covered |= (at >= 0) & (middle < end[np.maximum(at, 0)])
    return Traffic(edges[:-1][covered], edges[1:][covered], bits[covered])


_STEPS = f"""steps AS (
        SELECT *, time_s AS end_s, lag(time_s) OVER w AS start_s, value - lag(value) OVER w AS grown FROM counted
        WINDOW w AS (PARTITION BY host, name, counter ORDER BY time_s))
    SELECT host, name, counter, start_s, end_s, grown FROM steps
    WHERE grown >= 0 AND end_s > start_s
          AND end_s - start_s < {MAX_GAP} * (SELECT median(end_s - start_s) FROM steps WHERE end_s > start_s)
    ORDER BY end_s"""
# A decreasing counter belongs to a new network, and a gap is between two sessions. Neither gives a rate.
_LINKS = f"""WITH counted AS (
        SELECT host, counter AS name, counter, time_s, value FROM samples WHERE list_contains($names::VARCHAR[], counter)),
    {_STEPS}"""
_CARDS = f"""WITH counted AS (
        SELECT host, CASE WHEN suffix(counter, '.tx_bytes') THEN 'tx' ELSE 'rx' END AS name, counter, time_s, value FROM samples
        WHERE list_contains($hosts::VARCHAR[], host) AND counter LIKE 'nic.%' AND counter NOT LIKE 'nic.lo.%'
              AND (suffix(counter, '.tx_bytes') OR suffix(counter, '.rx_bytes'))),
    {_STEPS}"""
