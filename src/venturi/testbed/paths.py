"""Paths through the network of a plan's header: their links, round-trip times and narrowest places.

Everything is read off the header, the way its routes say: what the lab will do, not what would be best.

Examples
--------
>>> from venturi.plan import Interface, Link, Network
>>> from venturi.testbed.paths import Paths
>>> ends = {f"{host}.eth0": Interface(host, "eth0", f"10.77.0.{i}") for i, host in enumerate("ab", 1)}
>>> links = {"a>b": Link("a.eth0", "b.eth0", 1e9, 0.005, 10**6), "b>a": Link("b.eth0", "a.eth0", 1e8, 0.005, 10**6)}
>>> paths = Paths(Network(ends, links), {})
>>> paths.links("a", "b"), paths.rtt_s("a", "b"), paths.bottleneck_bit_per_s("b", "a")
(('a>b',), 0.01, 100000000.0)
"""

from __future__ import annotations

from collections.abc import Mapping

from venturi.errors import PlanError
from venturi.plan.header import Header, LabHost
from venturi.plan.network import ANY_DESTINATION, Network
from venturi.testbed.routing import PICOSECONDS

__all__ = ["Paths", "bottleneck_bit_per_s", "path_links", "path_rtt_s"]


def path_links(header: Header, origin: str, to: str) -> tuple[str, ...] | None:
    """Return the links from one host or interface to another in their order: none within a host, ``None``: no way."""
    return _paths(header).links(origin, to)


def path_rtt_s(header: Header, origin: str, to: str) -> float | None:
    """Return the time that a short packet and its answer take on the way: delays alone, no queues."""
    return _paths(header).rtt_s(origin, to)


def bottleneck_bit_per_s(header: Header, origin: str, to: str) -> float | None:
    """Return the rate of the slowest link from one host or interface to another; ``None``: there is none, or no way."""
    return _paths(header).bottleneck_bit_per_s(origin, to)


def _paths(header: Header) -> Paths:
    if header.network is None:
        raise PlanError("expected a plan with a network of its own, found one for hosts that exist")
    return Paths(header.network, {name: host.lab for name, host in header.hosts.items() if host.lab is not None})


class Paths:
    """The paths of one network; what is looked up again is not walked again.

    Parameters
    ----------
    hosts
        How each host routes. A host that is not there uses its first interface for everything.
    """

    def __init__(self, network: Network, hosts: Mapping[str, LabHost]) -> None:
        self._network, self._hosts = network, hosts
        self._out = {link.origin: name for name, link in network.links.items() if link.origin in network.interfaces}
        self._delays_ps = {name: round(link.delay_s * PICOSECONDS) for name, link in network.links.items()}
        self._first: dict[str, str] = {}
        for name, interface in network.interfaces.items():
            self._first.setdefault(interface.host, name)
        self._walked: dict[tuple[str, str], tuple[tuple[str, ...], str] | None] = {}

    def links(self, origin: str, to: str) -> tuple[str, ...] | None:
        """Return the links from one host or interface to another; empty within a host, ``None`` if there is no way."""
        legs = self._legs(origin, to)
        return None if legs is None else tuple(link for leg in legs for link in leg[2])

    def rtt_s(self, origin: str, to: str) -> float | None:
        """Return the sum of the delays there and back, in seconds; ``None`` if there is no way there and back."""
        legs = self._legs(origin, to)
        if legs is None:
            return None
        total_ps = 0
        for start, end, links in legs:
            # The answer goes to the address that the packet came with: a gateway's, beyond a gateway.
            back = self.links(self._network.interfaces[end].host, start)
            if back is None:
                return None
            total_ps += sum(self._delays_ps[link] for link in (*links, *back))
        return total_ps / PICOSECONDS

    def bottleneck_bit_per_s(self, origin: str, to: str) -> float | None:
        """Return the rate of the slowest link on the way, ``None`` within a host or if there is no way."""
        return min((self._network.links[link].rate_bit_per_s for link in self.links(origin, to) or ()), default=None)

    def _legs(self, origin: str, to: str) -> list[tuple[str, str, tuple[str, ...]]] | None:
        """Return the path as pieces from interface to interface; beyond each but the last a gateway passes packets on."""
        interfaces = self._network.interfaces
        target = to if to in interfaces else self._first.get(to)
        host = interfaces[origin].host if origin in interfaces else origin
        if (interfaces[target].host if target else to) == host:
            return []
        start = origin if origin in interfaces else self._exit(host, target)
        legs: list[tuple[str, str, tuple[str, ...]]] = []
        seen: set[str] = set()
        while start is not None and target is not None and start not in seen:
            seen.add(start)
            walked = self._walk(start, target)
            if walked is None:
                return None
            links, end = walked
            legs.append((start, end, links))
            host = interfaces[end].host
            if host == interfaces[target].host:
                return legs
            if host not in self._hosts or not self._hosts[host].nat:
                return None
            start = self._exit(host, target)
        return None

    def _exit(self, host: str, target: str | None) -> str | None:
        """Return the interface by which a host sends packets for ``target``."""
        lab = self._hosts.get(host)
        if lab is None or target is None:
            return self._first.get(host)
        device = lab.routes.get(self._network.interfaces[target].address, lab.default_device)
        return f"{host}.{device}" if device else None

    def _walk(self, start: str, target: str) -> tuple[tuple[str, ...], str] | None:
        """Return the links from an interface to the next one that a packet for ``target`` arrives at, and that."""
        key = (start, target)
        if key not in self._walked:
            self._walked[key] = self._walk_anew(start, target)
        return self._walked[key]

    def _walk_anew(self, start: str, target: str) -> tuple[tuple[str, ...], str] | None:
        name: str | None = self._out.get(start)
        found: list[str] = []
        while name is not None and len(found) <= len(self._network.routers):
            found.append(name)
            node = self._network.links[name].to
            if node in self._network.interfaces:
                return tuple(found), node
            routes = self._network.routes.get(node, {})
            name = routes.get(target, routes.get(ANY_DESTINATION))
        return None
