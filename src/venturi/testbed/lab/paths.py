"""Ways through the network: which links a packet takes, how long it is on its way, how much of it is in flight."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from venturi.plan.network import ANY_DESTINATION
from venturi.testbed.lab.asked import Asked, AskedHost, Nic

__all__ = ["Ping", "covering_pings", "in_flight_bytes", "paths_from", "round_trip"]

MAX_HOPS = 64
"""More than that is a loop of routes."""

_PING_BYTES = 36
"""IP bytes of a probe, two numbers in a datagram of UDP: what it takes to put them on every link counts too."""


@dataclass(frozen=True, slots=True)
class Ping:
    """A pair of interfaces and the way between them.

    Attributes
    ----------
    links
        There and back.
    rtt_s
        What the links' delays add up to, with the time to send a small packet over each.
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


def round_trip(asked: Asked, source: Nic, destination: Nic) -> tuple[str, ...] | None:
    """Return the links there and back, None if there is no way, or one of them is down."""
    there = _way(asked, source, destination.address)
    if there is None:
        return None
    back = _way(asked, destination, (there.hidden_behind or source).address)
    if back is None:
        return None
    links = [*there.links, *back.links]
    if there.hidden_behind is not None:
        # The gateway knows whom it has hidden, and sends on through the device by which it reaches him.
        gate, _ = asked.nic(there.hidden_behind.name)
        last = _way(asked, _leaving(gate, source.address), source.address)
        if last is None:
            return None
        links += last.links
    return tuple(links) if all(asked.network.links[link].up for link in links) else None


def paths_from(asked: Asked, source: Nic, host: AskedHost) -> Iterator[Ping]:
    """Yield a ping to every interface that one interface can talk to."""
    for other in asked.hosts.values():
        for destination in other.nics if other is not host else ():
            links = round_trip(asked, source, destination)
            if links is not None:
                yield _ping(asked, source, host, destination, other, links)


def covering_pings(asked: Asked) -> list[Ping]:
    """Return pings that together go over every link that is up and on some way, with few of them."""
    left = {name for name, link in asked.network.links.items() if link.up}
    chosen: list[Ping] = []
    # The links at interfaces first: ways from them cover most of the rest, and each search ends at its first find.
    for only_access in (True, False):
        for host in asked.hosts.values():
            for nic in host.nics:
                if not left:
                    return chosen
                if only_access and not any(nic.name in _ends(asked, link) for link in left):
                    continue
                for ping in paths_from(asked, nic, host):
                    if left & set(ping.links):
                        chosen.append(ping)
                        left -= set(ping.links)
                        if only_access:
                            break
    return chosen


def in_flight_bytes(asked: Asked) -> dict[str, int]:
    """Return interface → how much it can have on its way at once: bandwidth-delay product and queue of its fattest way."""
    most = {}
    for host in asked.hosts.values():
        for nic in host.nics:
            most[nic.name] = 0
            for ping in paths_from(asked, nic, host):
                narrow = min((asked.network.links[name] for name in ping.links), key=lambda link: link.rate_bit_per_s)
                most[nic.name] = max(most[nic.name], int(narrow.rate_bit_per_s / 8 * ping.rtt_s + narrow.queue_bytes))
    return most


@dataclass(frozen=True, slots=True)
class _Way:
    links: tuple[str, ...]
    hidden_behind: Nic | None


def _way(asked: Asked, start: Nic | None, address: str) -> _Way | None:
    """Follow the routes from an interface to an address: over routers, and through hosts that forward."""
    network = asked.network
    out = {link.origin: name for name, link in network.links.items() if link.origin in network.interfaces}
    target = asked.owner(address)
    if start is None or target is None or start.name not in out:
        return None
    links = [out[start.name]]
    hidden = None
    for _ in range(MAX_HOPS):
        at = network.links[links[-1]].to
        if at == target[1].name:
            return _Way(tuple(links), hidden)
        link = _next_link(asked, at, target[1].name, address, out)
        if link is None:
            return None
        if at in network.interfaces:
            gate, leaving = asked.nic(network.links[link].origin)
            if leaving.device in gate.lab.nat:
                hidden = leaving
        links.append(link)
    return None


def _next_link(asked: Asked, at: str, target: str, address: str, out: Mapping[str, str]) -> str | None:
    """Return the link by which a packet that has come to a router or an interface goes on."""
    if at in asked.network.interfaces:
        host, nic = asked.nic(at)
        leaving = _leaving(host, address)
        return None if leaving is None or leaving == nic else out.get(leaving.name)
    table = asked.network.routes.get(at) or {}
    return table.get(target, table.get(ANY_DESTINATION))


def _leaving(host: AskedHost, address: str) -> Nic | None:
    return host.device(host.lab.routes.get(address, host.default_device))


def _ends(asked: Asked, link: str) -> tuple[str, str]:
    return asked.network.links[link].origin, asked.network.links[link].to


def _ping(
    asked: Asked, source: Nic, host: AskedHost, destination: Nic, other: AskedHost, names: tuple[str, ...]
) -> Ping:
    links = [asked.network.links[name] for name in names]
    rtt_s = sum(link.delay_s + (_PING_BYTES + link.overhead_bytes) * 8 / link.rate_bit_per_s for link in links)
    return Ping(source, host.name, destination, other.name, names, rtt_s, sum(link.jitter_s for link in links))
