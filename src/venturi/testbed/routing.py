"""Routes at routers and hosts, chosen by least delay, then fewest hops, then name.

A *region* is a set of routers that are connected without a host in between, with the interfaces at these routers. A link
without a router is a region with two interfaces. Routers forward packets. Hosts forward only as gateways: hosts with
``nat`` forward packets out of the region of one interface into another region, with their own source address.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from venturi.testbed.topology import DirectedLink, Port, Topology

__all__ = ["PICOSECONDS", "Gateway", "Regions", "RouteFinder", "regions"]

PICOSECONDS = 10**12
"""Resolution of delays. Integer sums do not depend on the order of addition."""

Cost: TypeAlias = tuple[int, int]
"""Delay in ps, and number of hops."""


@dataclass(frozen=True, slots=True)
class Gateway:
    """Interface of a host with ``nat``, and the regions that its region reaches through it."""

    port: Port
    leads_to: frozenset[int]


@dataclass(frozen=True, slots=True)
class Regions:
    """Region of each interface and router, by number, and the gateways out of each region."""

    of: Mapping[str, int]
    gateways: Mapping[int, tuple[Gateway, ...]]

    def reachable(self, region: int) -> frozenset[int]:
        """Return the regions that packets from a region can reach, including the region itself."""
        found = {region}
        queue = [region]
        while queue:
            for gateway in self.gateways.get(queue.pop(), ()):
                queue += gateway.leads_to - found
                found |= gateway.leads_to
        return frozenset(found)


@dataclass(frozen=True, slots=True)
class _Route:
    cost: Cost
    link: str


def regions(topology: Topology, nat: Mapping[str, Iterable[str]]) -> Regions:
    """Return the regions of a network; ``nat``: host → devices through which the host masquerades packets."""
    of: dict[str, int] = {}
    neighbours: dict[str, list[str]] = {}
    for link in topology.directed_links.values():
        neighbours.setdefault(link.origin.node, []).append(link.to.node)
    for node in (*topology.ports, *topology.routers):
        if node in of:
            continue
        number = len(set(of.values()))
        queue = [node]
        of[node] = number
        while queue:
            for other in neighbours.get(queue.pop(), ()):
                if other not in of:
                    of[other] = number
                    queue.append(other)
    gateways: dict[int, list[Gateway]] = {}
    for host, devices in nat.items():
        outside = frozenset(of[f"{host}.{device}"] for device in devices)
        for port in topology.host_ports(host):
            if outside and of[port.name] not in outside:
                gateways.setdefault(of[port.name], []).append(Gateway(port, outside))
    return Regions(of, {region: tuple(found) for region, found in gateways.items()})


class RouteFinder:
    """Best routes of a network, each computed once.

    Parameters
    ----------
    delays_ps
        One-way delay of each directed link.
    """

    def __init__(self, topology: Topology, delays_ps: Mapping[str, int], parts: Regions) -> None:
        self._topology, self._delays_ps, self._parts = topology, delays_ps, parts
        self._into: dict[str, list[DirectedLink]] = {}
        self._out: dict[str, DirectedLink] = {}
        for link in topology.directed_links.values():
            if link.origin.node in topology.ports:
                self._out[link.origin.node] = link
            else:
                self._into.setdefault(link.to.node, []).append(link)
        self._to: dict[tuple[str, ...], dict[str, _Route]] = {}

    def router_routes(self) -> dict[str, dict[str, str]]:
        """Return for each router the next link to each reachable interface, including those beyond gateways."""
        routes: dict[str, dict[str, str]] = {router: {} for router in self._topology.routers}
        for port in self._topology.ports:
            for router, route in self._routes_to((port,)).items():
                routes[router][port] = route.link
            for region in self._parts.gateways:
                if region != self._parts.of[port]:
                    for router, route in self._routes_to(self._region_exits(region, port)).items():
                        routes[router][port] = route.link
        return routes

    def host_routes(self) -> dict[str, dict[str, str]]:
        """Return for each host the device to each reachable interface of other hosts.

        Devices in the region of the destination precede devices that reach it through a gateway. Then the least delay, the
        fewest hops and the first device decide.
        """
        devices = {port.host: self._topology.host_ports(port.host) for port in self._topology.ports.values()}
        routes: dict[str, dict[str, str]] = {host: {} for host in devices}
        for name, port in self._topology.ports.items():
            for host, own in devices.items():
                if host == port.host:
                    continue
                costs = [(cost, index) for index, at in enumerate(own) if (cost := self._cost(at, name)) is not None]
                if costs:
                    routes[host][name] = own[min(costs)[1]].device
        return routes

    def _cost(self, at: Port, end: str) -> tuple[bool, Cost] | None:
        """Return whether a gateway is necessary, and the cost, from an interface to another; ``None`` without a route."""
        region = self._parts.of[at.name]
        outside = region != self._parts.of[end]
        endpoints = self._region_exits(region, end)
        # A host does not forward packets to itself.
        if not endpoints or (outside and any(self._topology.ports[gateway].host == at.host for gateway in endpoints)):
            return None
        link = self._out[at.name]
        delay = self._delays_ps[link.name]
        if link.to.node in endpoints:
            return outside, (delay, 1)
        # A link that ends at another host leads nowhere.
        route = self._routes_to(endpoints).get(link.to.node)
        return None if route is None else (outside, (delay + route.cost[0], 1 + route.cost[1]))

    def _region_exits(self, region: int, end: str) -> tuple[str, ...]:
        """Return the destinations within a region for packets to ``end``: ``end``, or gateways that lead to it."""
        target = self._parts.of[end]
        if target == region:
            return (end,)
        return tuple(
            gateway.port.name
            for gateway in self._parts.gateways.get(region, ())
            if any(target in self._parts.reachable(other) for other in gateway.leads_to)
        )

    def _routes_to(self, endpoints: tuple[str, ...]) -> dict[str, _Route]:
        """Return the best route from each router of a region to the nearest of these interfaces.

        This is Dijkstra's algorithm, backwards from the interfaces. Each next hop has less delay, or equal delay and fewer hops
        left, so routes have no loops.
        """
        if endpoints in self._to:
            return self._to[endpoints]
        best: dict[str, _Route] = {}
        finished: set[str] = set()
        heap: list[tuple[Cost, str]] = [((0, 0), end) for end in endpoints]
        while heap:
            (delay, hops), node = heapq.heappop(heap)
            if node in finished:
                continue
            finished.add(node)
            for link in self._into.get(node, ()):
                router = link.origin.node
                route = _Route((delay + self._delays_ps[link.name], hops + 1), link.name)
                current = best.get(router)
                if router not in finished and (
                    current is None or (route.cost, route.link) < (current.cost, current.link)
                ):
                    best[router] = route
                    heapq.heappush(heap, (route.cost, router))
        self._to[endpoints] = best
        return best
