"""Which way packets go: routes at routers and at hosts, by least delay, then fewest hops, then name.

A *region* is a set of routers that are connected without a host in between, with the interfaces at them (or the two interfaces
of a link without a router). Routers forward, hosts do not, but for gateways: hosts with ``nat`` pass packets out of
the region of one of their interfaces into that of another, under their own address.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from venturi.testbed.wiring import Port, Wire, Wiring

__all__ = ["PICOSECONDS", "Gateway", "Regions", "Ways", "regions"]

PICOSECONDS = 10**12
"""Delays are added as whole numbers, so that sums do not depend on the order of adding."""

Cost: TypeAlias = tuple[int, int]
"""Delay in ps, and hops."""


@dataclass(frozen=True, slots=True)
class Gateway:
    """An interface of a host with ``nat``, and the regions that its region reaches through it."""

    port: Port
    leads_to: frozenset[int]


@dataclass(frozen=True, slots=True)
class Regions:
    """The region of each interface and router, by number, and the gateways out of each."""

    of: Mapping[str, int]
    gateways: Mapping[int, tuple[Gateway, ...]]

    def reachable(self, region: int) -> frozenset[int]:
        """Return the regions that a packet from this one can get to, itself included."""
        found = {region}
        queue = [region]
        while queue:
            for gateway in self.gateways.get(queue.pop(), ()):
                queue += gateway.leads_to - found
                found |= gateway.leads_to
        return frozenset(found)


@dataclass(frozen=True, slots=True)
class _Way:
    cost: Cost
    wire: str


def regions(wiring: Wiring, nat: Mapping[str, Iterable[str]]) -> Regions:
    """Return the regions of a network; ``nat``: host → devices out of which it hides others."""
    of: dict[str, int] = {}
    neighbours: dict[str, list[str]] = {}
    for wire in wiring.wires.values():
        neighbours.setdefault(wire.origin.node, []).append(wire.to.node)
    for node in (*wiring.ports, *wiring.routers):
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
        for port in wiring.ports_of(host):
            if outside and of[port.name] not in outside:
                gateways.setdefault(of[port.name], []).append(Gateway(port, outside))
    return Regions(of, {region: tuple(found) for region, found in gateways.items()})


class Ways:
    """The best ways of a network, each worked out once.

    Parameters
    ----------
    delays_ps
        Of each wire, one way.
    """

    def __init__(self, wiring: Wiring, delays_ps: Mapping[str, int], parts: Regions) -> None:
        self._wiring, self._delays_ps, self._parts = wiring, delays_ps, parts
        self._into: dict[str, list[Wire]] = {}
        self._out: dict[str, Wire] = {}
        for wire in wiring.wires.values():
            if wire.origin.node in wiring.ports:
                self._out[wire.origin.node] = wire
            else:
                self._into.setdefault(wire.to.node, []).append(wire)
        self._to: dict[tuple[str, ...], dict[str, _Way]] = {}

    def router_routes(self) -> dict[str, dict[str, str]]:
        """Return at each router the next wire to each interface that it reaches, behind gateways too."""
        routes: dict[str, dict[str, str]] = {router: {} for router in self._wiring.routers}
        for port in self._wiring.ports:
            for router, way in self._ways((port,)).items():
                routes[router][port] = way.wire
            for region in self._parts.gateways:
                if region != self._parts.of[port]:
                    for router, way in self._ways(self._ends(region, port)).items():
                        routes[router][port] = way.wire
        return routes

    def host_routes(self) -> dict[str, dict[str, str]]:
        """Return at each host the device to each interface of other hosts that it reaches.

        Of several devices the one with the least delay is taken, then that with the fewest hops, then the first; devices in
        the region of the destination come before those from which a gateway leads there.
        """
        devices = {port.host: self._wiring.ports_of(port.host) for port in self._wiring.ports.values()}
        routes: dict[str, dict[str, str]] = {host: {} for host in devices}
        for name, port in self._wiring.ports.items():
            for host, own in devices.items():
                if host == port.host:
                    continue
                costs = [(cost, index) for index, at in enumerate(own) if (cost := self._cost(at, name)) is not None]
                if costs:
                    routes[host][name] = own[min(costs)[1]].device
        return routes

    def _cost(self, at: Port, end: str) -> tuple[bool, Cost] | None:
        """Return what it costs to get from an interface to another, gateways on the way last; ``None``: no way."""
        region = self._parts.of[at.name]
        away = region != self._parts.of[end]
        ends = self._ends(region, end)
        # A host does not pass packets on to itself.
        if not ends or (away and any(self._wiring.ports[gateway].host == at.host for gateway in ends)):
            return None
        wire = self._out[at.name]
        delay = self._delays_ps[wire.name]
        if wire.to.node in ends:
            return away, (delay, 1)
        # A cable that ends at a host which is not among them leads nowhere.
        way = self._ways(ends).get(wire.to.node)
        return None if way is None else (away, (delay + way.cost[0], 1 + way.cost[1]))

    def _ends(self, region: int, end: str) -> tuple[str, ...]:
        """Return where packets for ``end`` are to be brought within a region: there, or to gateways that lead there."""
        aim = self._parts.of[end]
        if aim == region:
            return (end,)
        return tuple(
            gateway.port.name
            for gateway in self._parts.gateways.get(region, ())
            if any(aim in self._parts.reachable(other) for other in gateway.leads_to)
        )

    def _ways(self, ends: tuple[str, ...]) -> dict[str, _Way]:
        """Return the best way from each router of a region to the nearest of these interfaces of it.

        Dijkstra, from the ends backwards. Every next hop is nearer, or as near and fewer hops away: routes have no loops.
        """
        if ends in self._to:
            return self._to[ends]
        best: dict[str, _Way] = {}
        settled: set[str] = set()
        heap: list[tuple[Cost, str]] = [((0, 0), end) for end in ends]
        while heap:
            (delay, hops), node = heapq.heappop(heap)
            if node in settled:
                continue
            settled.add(node)
            for wire in self._into.get(node, ()):
                router = wire.origin.node
                way = _Way((delay + self._delays_ps[wire.name], hops + 1), wire.name)
                known = best.get(router)
                if router not in settled and (known is None or (way.cost, way.wire) < (known.cost, known.wire)):
                    best[router] = way
                    heapq.heappush(heap, (way.cost, router))
        self._to[ends] = best
        return best
