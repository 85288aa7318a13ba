"""Network activity during the window: bytes of links, busiest link, and interfaces that are worse than others of their host."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from venturi.analysis.link_rates import LinkRates, link_rates
from venturi.analysis.result import FloatArray
from venturi.run import Run
from venturi.units import BITS_PER_BYTE

__all__ = ["LinkCounters", "NetworkUse", "SlowInterface", "network_of"]


@dataclass(frozen=True, slots=True)
class SlowInterface:
    """Interface that is worse than the others of its host, with its link rate in the window (headers included).

    ``others_bit_per_s`` is the mean of the host's other interfaces.
    """

    name: str
    rate_bit_per_s: float
    others_bit_per_s: float


class LinkCounters:
    """Byte counters of links, with all headers. The rate of a link is taken as constant between two samples.

    ``counters`` maps each link to the times of its samples in s (ascending) and to the bytes carried until then, both
    of shape (N,).
    """

    def __init__(self, counters: Mapping[str, tuple[FloatArray, FloatArray]]) -> None:
        self._counters = counters

    @property
    def links(self) -> tuple[str, ...]:
        """Sampled links."""
        return tuple(self._counters)

    def moved_bytes(self, link: str, low_s: float, high_s: float) -> float | None:
        """Return the bytes that a link carried from ``low_s`` to ``high_s``.

        ``None`` if fewer than two samples lie in this interval or if a counter was reset.
        """
        times, values = self._counters.get(link, (np.empty(0), np.empty(0)))
        within = (times >= low_s) & (times <= high_s)
        if within.sum() < 2 or high_s <= low_s:
            return None
        low, high = np.interp([low_s, high_s], times, values)
        seen = values[within]
        return float(high - low) if low <= seen[0] and (np.diff(seen) >= 0).all() and seen[-1] <= high else None

    def sum_bytes(self, links: Iterable[str], low_s: float, high_s: float) -> float | None:
        """Return the bytes that the links carried together; ``None`` if one of them is unknown or there are no links."""
        found = [self.moved_bytes(link, low_s, high_s) for link in links]
        known = [size for size in found if size is not None]
        return sum(known) if known and len(known) == len(found) else None


@dataclass(frozen=True, slots=True)
class NetworkUse:
    """Links and interfaces of the plan, with link counters and link rates; all empty without an emulated network."""

    counters: LinkCounters
    links: Mapping[str, Mapping[str, Any]]
    interfaces: Mapping[str, Mapping[str, Any]]
    rates: LinkRates

    def into(self, host: str) -> list[str]:
        """Return the links that end at a host."""
        return [name for name, link in self.links.items() if self.interfaces.get(link["to"], {}).get("host") == host]

    def rates_bit_per_s(self, intervals: list[tuple[float, float]]) -> dict[str, float]:
        """Return the mean rate of each link in these intervals (start and end in s)."""
        found = {}
        for link in self.counters.links:
            moved = [(self.counters.moved_bytes(link, low_s, high_s), high_s - low_s) for low_s, high_s in intervals]
            rates = [size * BITS_PER_BYTE / time_s for size, time_s in moved if size is not None]
            if rates:
                found[link] = float(np.mean(rates))
        return found

    def busiest(
        self, rates: Mapping[str, float], windows: Sequence[tuple[float, float]], without: Collection[str] = ()
    ) -> tuple[str | None, float | None]:
        """Return the link with the highest use, and its use.

        The use of a link is its mean rate in the windows over its configured rate at these times. Links of the
        interfaces in ``without`` are excluded.
        """
        known = {
            name: [rate for window in windows if (rate := self.rates.mean(name, *window)) is not None]
            for name, link in self.links.items()
            if link["from"] not in without and link["to"] not in without
        }
        limits = {name: float(np.mean(found)) for name, found in known.items() if found}
        fractions = {link: rate / float(limit) for link, rate in rates.items() if (limit := limits.get(link))}
        if not fractions:
            return None, None
        best = max(fractions, key=lambda link: (fractions[link], link))
        return best, fractions[best]

    def worse(self, rates: Mapping[str, float]) -> Iterator[SlowInterface]:
        """Yield the interfaces that are worse than others of their host, with their rate in the busier direction of the host."""
        for host in dict.fromkeys(str(interface["host"]) for interface in self.interfaces.values()):
            own = [name for name, interface in self.interfaces.items() if interface["host"] == host]
            yield from self._worse_of(own, rates)

    def _worse_of(self, own: list[str], rates: Mapping[str, float]) -> Iterator[SlowInterface]:
        ends = ("to", "from")
        links = {
            name: {end: link for link, about in self.links.items() for end in ends if about[end] == name}
            for name in own
        }
        if any(len(sides) < len(ends) for sides in links.values()):
            return
        health = {name: _health(self.links[sides["to"]]) for name, sides in links.items()}
        good = [name for name in own if health[name] == max(health.values())]
        # The direction of the data at this host. The other direction carries acknowledgements.
        side = max(ends, key=lambda end: sum(rates.get(sides[end], 0.0) for sides in links.values()))
        others = [rates[links[name][side]] for name in good if links[name][side] in rates]
        for name in own:
            if name not in good and links[name][side] in rates and others:
                yield SlowInterface(name, rates[links[name][side]], float(np.mean(others)))


def network_of(run: Run) -> NetworkUse:
    """Return the network of a run."""
    network = run.header.get("network") or {}
    return NetworkUse(
        _link_counters(run), network.get("links") or {}, network.get("interfaces") or {}, link_rates(run)
    )


def _health(link: Mapping[str, Any]) -> tuple[float, float]:
    """Return a key that orders links from worse to better: less loss first, then a higher rate."""
    rate, loss = link.get("rate_bit_per_s"), link.get("loss")
    lost = float(loss.get("probability") or 1.0) if loss else 0.0  # loss in bursts has no single probability
    return -lost, float("inf") if rate is None else float(rate)


def _link_counters(run: Run) -> LinkCounters:
    """Return the counters of all links of a run."""
    rows = run.query(
        "SELECT counter[6:-7] AS link, time_s, value FROM samples WHERE counter LIKE 'link.%.bytes' ORDER BY 1, 2"
    )
    names = rows["link"].astype(str)
    links, first = np.unique(names, return_index=True)
    times = np.split(np.asarray(rows["time_s"], dtype=np.float64), first[1:])
    values = np.split(np.asarray(rows["value"], dtype=np.float64), first[1:])
    return LinkCounters({str(link): (times[i], values[i]) for i, link in enumerate(links)})
