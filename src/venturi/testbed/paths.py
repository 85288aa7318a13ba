"""Paths through the network of a plan's header: links, round-trip times and bottlenecks.

All values follow the routes in the header, which the lab uses, even if better routes exist.

Examples
--------
>>> from venturi.plan.network import Interface, Network, PlanLink
>>> from venturi.testbed.paths import NetworkPaths
>>> ends = {f"{host}.eth0": Interface(host, "eth0", f"10.77.0.{i}") for i, host in enumerate("ab", 1)}
>>> forward, back = PlanLink("a.eth0", "b.eth0", 1e9, 0.005, 10**6), PlanLink("b.eth0", "a.eth0", 1e8, 0.005, 10**6)
>>> paths = NetworkPaths(Network(ends, {"a>b": forward, "b>a": back}), {})
>>> paths.links("a", "b"), paths.rtt_s("a", "b"), paths.bottleneck_bit_per_s("b", "a")
(('a>b',), 0.01, 100000000.0)
"""

from __future__ import annotations

from collections.abc import Mapping

from venturi.errors import PlanError
from venturi.plan.header import Header, LabHost
from venturi.plan.network import ANY_DESTINATION, Network
from venturi.testbed.routing import PICOSECONDS

__all__ = ["NetworkPaths", "bottleneck_bit_per_s", "endpoint_host", "path_links", "path_rtt_s"]


def path_links(header: Header, origin: str, to: str) -> tuple[str, ...] | None:
    """Return the links from one host or interface to another, in order; empty within a host, ``None`` without a route."""
    return _paths(header).links(origin, to)


def path_rtt_s(header: Header, origin: str, to: str) -> float | None:
    """Return the sum of the delays in both directions, without queueing; ``None`` without a route."""
    return _paths(header).rtt_s(origin, to)


def bottleneck_bit_per_s(header: Header, origin: str, to: str) -> float | None:
    """Return the rate of the slowest link from one host or interface to another; ``None`` without links or a route."""
    return _paths(header).bottleneck_bit_per_s(origin, to)


def endpoint_host(header: Header, via: str | None, host: str) -> str:
    """Return the host of a service port. Without one, or for an existing server, return the host of the mover."""
    return host if via is None else header.services[via.partition("/")[0]].host or host


def _paths(header: Header) -> NetworkPaths:
    if header.network is None:
        raise PlanError("expected a plan with a network, found a plan for existing hosts")
    return NetworkPaths(
        header.network, {name: host.lab for name, host in header.hosts.items() if host.lab is not None}
    )


class NetworkPaths:
    """Paths of one network, each computed once.

    Parameters
    ----------
    hosts
        Routing settings by host. A missing host uses its first interface for all destinations.
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
        """Return the links from one host or interface to another; empty within a host, ``None`` without a route."""
        legs = self._legs(origin, to)
        return None if legs is None else tuple(link for leg in legs for link in leg[2])

    def rtt_s(self, origin: str, to: str) -> float | None:
        """Return the sum of the delays in both directions, in seconds; ``None`` if a route is missing."""
        legs = self._legs(origin, to)
        if legs is None:
            return None
        total_ps = 0
        for start, end, links in legs:
            # The reply goes to the source address of the packet: beyond a gateway, the address of the gateway.
            back = self.links(self._network.interfaces[end].host, start)
            if back is None:
                return None
            total_ps += sum(self._delays_ps[link] for link in (*links, *back))
        return total_ps / PICOSECONDS

    def bottleneck_bit_per_s(self, origin: str, to: str) -> float | None:
        """Return the rate of the slowest link of a path; ``None`` within a host or without a route."""
        return min((self._network.links[link].rate_bit_per_s for link in self.links(origin, to) or ()), default=None)

    def _legs(self, origin: str, to: str) -> list[tuple[str, str, tuple[str, ...]]] | None:
        """Return the path as segments between interfaces. A gateway forwards the packets at the end of all but the last."""
        interfaces = self._network.interfaces
        target = to if to in interfaces else self._first.get(to)
        host = interfaces[origin].host if origin in interfaces else origin
        if (interfaces[target].host if target else to) == host:
            return []
        start = origin if origin in interfaces else self._exit(host, target)
        legs: list[tuple[str, str, tuple[str, ...]]] = []
        visited: set[str] = set()
        while start is not None and target is not None and start not in visited:
            visited.add(start)
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
        """Return the interface that a host uses for packets to ``target``."""
        lab = self._hosts.get(host)
        if lab is None or target is None:
            return self._first.get(host)
        device = lab.routes.get(self._network.interfaces[target].address, lab.default_device)
        return f"{host}.{device}" if device else None

    def _walk(self, start: str, target: str) -> tuple[tuple[str, ...], str] | None:
        """Return the links of a packet for ``target`` from an interface to the next interface, and that interface."""
        key = (start, target)
        if key not in self._walked:
            self._walked[key] = self._find_route(start, target)
        return self._walked[key]

    def _find_route(self, start: str, target: str) -> tuple[tuple[str, ...], str] | None:
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
