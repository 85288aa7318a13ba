"""Paths through the network: links, round-trip times and bytes in flight."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from venturi.plan.network import ANY_DESTINATION
from venturi.testbed.lab.spec import LabHostSpec, LabSpec, Nic

__all__ = ["PingPair", "covering_pings", "in_flight_bytes", "paths_from", "round_trip"]

MAX_HOPS = 64
"""Limit of links in a path; a longer path is a routing loop."""

_PING_BYTES = 36
"""Size of a ping packet: IP and UDP headers and two numbers. Its transmission time on each link is part of the RTT."""


@dataclass(frozen=True, slots=True)
class PingPair:
    """Pair of interfaces and the path between them.

    Attributes
    ----------
    links
        Links in both directions.
    rtt_s
        Sum of the links' delays, plus the time to send a small packet over each link.
    jitter_s
        Sum of the links' standard deviations.
    """

    source: Nic
    source_host: str
    destination: Nic
    destination_host: str
    links: tuple[str, ...]
    rtt_s: float
    jitter_s: float


def round_trip(spec: LabSpec, source: Nic, destination: Nic) -> tuple[str, ...] | None:
    """Return the links in both directions; ``None`` if a route is missing or a link is down."""
    forward = _route(spec, source, destination.address)
    if forward is None:
        return None
    backward = _route(spec, destination, (forward.nat_interface or source).address)
    if backward is None:
        return None
    links = [*forward.links, *backward.links]
    if forward.nat_interface is not None:
        # The gateway translates replies to the hidden address and forwards them through its device for that address.
        gate, _ = spec.nic(forward.nat_interface.name)
        last = _route(spec, _leaving(gate, source.address), source.address)
        if last is None:
            return None
        links += last.links
    return tuple(links) if all(spec.network.links[link].up for link in links) else None


def paths_from(spec: LabSpec, source: Nic, host: LabHostSpec) -> Iterator[PingPair]:
    """Yield a ping to each interface that can be reached from one interface."""
    for other in spec.hosts.values():
        for destination in other.nics if other is not host else ():
            links = round_trip(spec, source, destination)
            if links is not None:
                yield _ping(spec, source, host, destination, other, links)


def covering_pings(spec: LabSpec) -> list[PingPair]:
    """Return a small set of pings that covers every used link that is up."""
    uncovered = {name for name, link in spec.network.links.items() if link.up}
    chosen: list[PingPair] = []
    # Start with links at interfaces: their paths cover most other links, and each search stops at its first match.
    for only_access in (True, False):
        for host in spec.hosts.values():
            for nic in host.nics:
                if not uncovered:
                    return chosen
                if only_access and not any(nic.name in _endpoints(spec, link) for link in uncovered):
                    continue
                for ping in paths_from(spec, nic, host):
                    if uncovered & set(ping.links):
                        chosen.append(ping)
                        uncovered -= set(ping.links)
                        if only_access:
                            break
    return chosen


def in_flight_bytes(spec: LabSpec) -> dict[str, int]:
    """Return the maximum bytes in flight per interface: bandwidth-delay product plus queue, largest over all paths."""
    in_flight = {}
    for host in spec.hosts.values():
        for nic in host.nics:
            in_flight[nic.name] = 0
            for ping in paths_from(spec, nic, host):
                narrow = min((spec.network.links[name] for name in ping.links), key=lambda link: link.rate_bit_per_s)
                in_flight[nic.name] = max(
                    in_flight[nic.name], int(narrow.rate_bit_per_s / 8 * ping.rtt_s + narrow.queue_bytes)
                )
    return in_flight


@dataclass(frozen=True, slots=True)
class _ProbePath:
    links: tuple[str, ...]
    nat_interface: Nic | None


def _route(spec: LabSpec, start: Nic | None, address: str) -> _ProbePath | None:
    """Return the path from an interface to an address, through routers and forwarding hosts."""
    network = spec.network
    out = {link.origin: name for name, link in network.links.items() if link.origin in network.interfaces}
    target = spec.owner(address)
    if start is None or target is None or start.name not in out:
        return None
    links = [out[start.name]]
    nat_interface = None
    for _ in range(MAX_HOPS):
        at = network.links[links[-1]].to
        if at == target[1].name:
            return _ProbePath(tuple(links), nat_interface)
        link = _next_link(spec, at, target[1].name, address, out)
        if link is None:
            return None
        if at in network.interfaces:
            gate, leaving = spec.nic(network.links[link].origin)
            if leaving.device in gate.lab.nat:
                nat_interface = leaving
        links.append(link)
    return None


def _next_link(spec: LabSpec, at: str, target: str, address: str, out: Mapping[str, str]) -> str | None:
    """Return the next link of a packet at a router or interface."""
    if at in spec.network.interfaces:
        host, nic = spec.nic(at)
        leaving = _leaving(host, address)
        return None if leaving is None or leaving == nic else out.get(leaving.name)
    table = spec.network.routes.get(at) or {}
    return table.get(target, table.get(ANY_DESTINATION))


def _leaving(host: LabHostSpec, address: str) -> Nic | None:
    return host.device(host.lab.routes.get(address, host.default_device))


def _endpoints(spec: LabSpec, link: str) -> tuple[str, str]:
    return spec.network.links[link].origin, spec.network.links[link].to


def _ping(
    spec: LabSpec, source: Nic, host: LabHostSpec, destination: Nic, other: LabHostSpec, names: tuple[str, ...]
) -> PingPair:
    links = [spec.network.links[name] for name in names]
    rtt_s = sum(link.delay_s + (_PING_BYTES + link.overhead_bytes) * 8 / link.rate_bit_per_s for link in links)
    return PingPair(source, host.name, destination, other.name, names, rtt_s, sum(link.jitter_s for link in links))
