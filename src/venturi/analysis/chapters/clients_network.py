"""What the network did while clients were at work: bytes of links, the busiest one, interfaces that are worse than others of their host."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from venturi.analysis.result import FloatArray
from venturi.run import Run
from venturi.units import BITS_PER_BYTE

__all__ = ["InterfaceShare", "Network", "Wire", "network_of"]


@dataclass(frozen=True, slots=True)
class InterfaceShare:
    """An interface that is worse than the others of its host, and what it carried of the fetches in the stretch, heads too.

    ``others_bit_per_s``: the mean of the host's other interfaces.
    """

    name: str
    rate_bit_per_s: float
    others_bit_per_s: float


class Wire:
    """The counters of links, in bytes with all heads; between two samples a link is taken to be even.

    ``counters``: of each link the times of its samples in s, rising, and what it had carried, both of shape (N,).
    """

    def __init__(self, counters: Mapping[str, tuple[FloatArray, FloatArray]]) -> None:
        self._counters = counters

    @property
    def links(self) -> tuple[str, ...]:
        """The links that were sampled."""
        return tuple(self._counters)

    def moved_bytes(self, link: str, low_s: float, high_s: float) -> float | None:
        """Return what a link carried from ``low_s`` to ``high_s``.

        ``None`` where nobody looked: no samples within, or counters that began anew meanwhile.
        """
        times, values = self._counters.get(link, (np.empty(0), np.empty(0)))
        within = (times >= low_s) & (times <= high_s)
        if within.sum() < 2 or high_s <= low_s:
            return None
        low, high = np.interp([low_s, high_s], times, values)
        seen = values[within]
        return float(high - low) if low <= seen[0] and (np.diff(seen) >= 0).all() and seen[-1] <= high else None

    def sum_bytes(self, links: Iterable[str], low_s: float, high_s: float) -> float | None:
        """Return what links carried together, ``None`` if that of one of them is not known, or there is none."""
        found = [self.moved_bytes(link, low_s, high_s) for link in links]
        known = [size for size in found if size is not None]
        return sum(known) if known and len(known) == len(found) else None


@dataclass(frozen=True, slots=True)
class Network:
    """The links and interfaces of the plan, and what links counted; nothing of either where there is no emulated network."""

    wire: Wire
    links: Mapping[str, Mapping[str, Any]]
    interfaces: Mapping[str, Mapping[str, Any]]

    def into(self, host: str) -> list[str]:
        """Return the links that end at a host."""
        return [name for name, link in self.links.items() if self.interfaces.get(link["to"], {}).get("host") == host]

    def rates_bit_per_s(self, stretches: list[tuple[float, float]]) -> dict[str, float]:
        """Return the mean rate of each link in these stretches (from, to, in s)."""
        found = {}
        for link in self.wire.links:
            moved = [(self.wire.moved_bytes(link, low_s, high_s), high_s - low_s) for low_s, high_s in stretches]
            rates = [size * BITS_PER_BYTE / time_s for size, time_s in moved if size is not None]
            if rates:
                found[link] = float(np.mean(rates))
        return found

    def busiest(self, rates: Mapping[str, float], without: Collection[str] = ()) -> tuple[str | None, float | None]:
        """Return the link that carried most of what it can, and that share; links of some interfaces left out."""
        limits = {
            name: link.get("rate_bit_per_s")
            for name, link in self.links.items()
            if link["from"] not in without and link["to"] not in without
        }
        shares = {link: rate / float(limit) for link, rate in rates.items() if (limit := limits.get(link))}
        if not shares:
            return None, None
        best = max(shares, key=lambda link: (shares[link], link))
        return best, shares[best]

    def worse(self, rates: Mapping[str, float]) -> Iterator[InterfaceShare]:
        """Yield the interfaces that are worse than others of their host, with what came in or went out there, whichever is more."""
        for host in dict.fromkeys(str(interface["host"]) for interface in self.interfaces.values()):
            own = [name for name, interface in self.interfaces.items() if interface["host"] == host]
            yield from self._worse_of(own, rates)

    def _worse_of(self, own: list[str], rates: Mapping[str, float]) -> Iterator[InterfaceShare]:
        ends = ("to", "from")
        links = {
            name: {end: link for link, about in self.links.items() for end in ends if about[end] == name}
            for name in own
        }
        if any(len(ways) < len(ends) for ways in links.values()):
            return
        health = {name: _health(self.links[ways["to"]]) for name, ways in links.items()}
        good = [name for name in own if health[name] == max(health.values())]
        # The way that data go at this host: acknowledgements take the other.
        way = max(ends, key=lambda end: sum(rates.get(ways[end], 0.0) for ways in links.values()))
        others = [rates[links[name][way]] for name in good if links[name][way] in rates]
        for name in own:
            if name not in good and links[name][way] in rates and others:
                yield InterfaceShare(name, rates[links[name][way]], float(np.mean(others)))


def network_of(run: Run) -> Network:
    """Return the network of a run."""
    network = run.header.get("network") or {}
    return Network(_wire_of(run), network.get("links") or {}, network.get("interfaces") or {})


def _health(link: Mapping[str, Any]) -> tuple[float, float]:
    """Return what makes one link better than another: less loss, then more rate."""
    rate, loss = link.get("rate_bit_per_s"), link.get("loss")
    lost = float(loss.get("probability") or 1.0) if loss else 0.0  # of loss in bursts there is no single number
    return -lost, float("inf") if rate is None else float(rate)


def _wire_of(run: Run) -> Wire:
    """Return the counters of all links of a run."""
    rows = run.query(
        "SELECT counter[6:-7] AS link, time_s, value FROM samples WHERE counter LIKE 'link.%.bytes' ORDER BY 1, 2"
    )
    names = rows["link"].astype(str)
    links, first = np.unique(names, return_index=True)
    times = np.split(np.asarray(rows["time_s"], dtype=np.float64), first[1:])
    values = np.split(np.asarray(rows["value"], dtype=np.float64), first[1:])
    return Wire({str(link): (times[i], values[i]) for i, link in enumerate(links)})
