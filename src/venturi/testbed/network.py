"""The testbed of a scenario as the network of a plan: interfaces with addresses, directed links, routes, changes.

Pure: the same testbed gives the same network. Public addresses are 10.77.x.y, private ones 192.168.x.y, both counted in the
order of hosts and devices. The one function to read first: :func:`resolve_network`.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from venturi.plan.header import LabHost
from venturi.plan.network import BurstyLoss, Change, IndependentLoss, Interface, Link, LinkSetting, Loss, Network
from venturi.testbed.paths import Paths
from venturi.testbed.profiles import DEFAULT_PROFILE, PROFILES, problem_of_setting
from venturi.testbed.routing import PICOSECONDS, Regions, Ways, regions
from venturi.testbed.wiring import Port, Wire, Wiring, wire
from venturi.units import BITS_PER_BYTE
from venturi.wording import Problem, one_of, path_text

if TYPE_CHECKING:
    from venturi.scenario import fields
    from venturi.scenario.testbed import Change as WrittenChange
    from venturi.scenario.testbed import Host, Testbed
    from venturi.scenario.testbed import Link as WrittenLink

__all__ = ["DEFAULT_MTU", "MIN_QUEUE_PACKETS", "ResolvedNetwork", "host_name", "resolve_network", "scaled_bytes"]

DEFAULT_MTU = 1500

MIN_QUEUE_PACKETS = 64
"""Full packets that a queue holds at least where none is given: a sender's bursts alone need that (one TSO packet is 44)."""

DOMAIN = "lab.test"

_PER_SUBNET = 254


@dataclass(frozen=True, slots=True)
class ResolvedNetwork:
    """A network and how its hosts are made."""

    network: Network
    hosts: Mapping[str, LabHost]
    paths: Paths


def host_name(host: str, device: str | None = None) -> str:
    """Return the name by which a host is known in the lab, or one of its further interfaces.

    Examples
    --------
    >>> host_name("a"), host_name("a", "eth1")
    ('a.lab.test', 'a-eth1.lab.test')
    """
    return f"{host}.{DOMAIN}" if device is None else f"{host}-{device}.{DOMAIN}"


def scaled_bytes(size_bytes: int, scale: float) -> int:
    """Return a size at a scale: to the nearest byte, at least 1 unless it is 0.

    Examples
    --------
    >>> scaled_bytes(100_000_000, 0.001), scaled_bytes(10, 0.001), scaled_bytes(0, 0.5)
    (100000, 1, 0)
    """
    return max(1, round(size_bytes * Fraction(repr(scale)))) if size_bytes else 0


def resolve_network(testbed: Testbed, scale: float, problems: list[Problem]) -> ResolvedNetwork | None:
    """Return the network of a testbed and its hosts, or ``None`` with what is wrong appended to ``problems``.

    Parameters
    ----------
    scale
        Multiplies rates and queues; times and the lengths of packets stay.
    """
    before = len(problems)
    settings = _settings(testbed, problems)
    _check_links(testbed, problems)
    wiring = wire(testbed, problems)
    if wiring is None:
        _check_changes(testbed, None, problems)
        return None
    _check_changes(testbed, wiring, problems)
    nat = {name: _nat(name, host, testbed, wiring, problems) for name, host in testbed.host.items()}
    parts = regions(wiring, {host: devices for host, devices in nat.items() if devices})
    _check_regions(wiring, parts, nat, problems)
    if len(problems) > before:
        return None
    interfaces = _interfaces(testbed, wiring)
    ways = Ways(wiring, {name: _delay_ps(testbed.link[w.link], w.back) for name, w in wiring.wires.items()}, parts)
    at_hosts = ways.host_routes()
    hosts = {
        name: _lab_host(
            host, settings[name], nat[name], at_hosts.get(name, {}), interfaces, wiring.ports_of(name)[:1]
        )
        for name, host in testbed.host.items()
    }
    bare = Network(
        interfaces=interfaces,
        links={name: _link(testbed.link[w.link], w, scale) for name, w in wiring.wires.items()},
        routers=wiring.routers,
        routes=ways.router_routes(),
    )
    queues = _Queues(testbed, wiring, bare, hosts, scale)
    links = {
        name: dataclasses.replace(
            link, queue_bytes=queues.of(name, testbed.link[wiring.wires[name].link].queue, link)
        )
        for name, link in bare.links.items()
    }
    network = dataclasses.replace(bare, links=links, changes=tuple(_changes(testbed, wiring, links, queues, scale)))
    return ResolvedNetwork(network, hosts, Paths(network, hosts))


def _settings(testbed: Testbed, problems: list[Problem]) -> dict[str, Mapping[str, str]]:
    """Return the kernel settings of each host."""
    for profile, settings in testbed.tcp.items():
        where = path_text(("testbed", "tcp", profile))
        if profile in PROFILES:
            problems.append((where, f"expected a name that is free, found {profile}, which Venturi has already"))
        for setting in settings:
            problem = problem_of_setting(setting)
            if problem:
                problems.append((where, problem))
    known = {**PROFILES, **testbed.tcp}
    found: dict[str, Mapping[str, str]] = {}
    for name, host in testbed.host.items():
        if host.tcp is not None and host.tcp not in known:
            where = path_text(("testbed", "host", name, "tcp"))
            problems.append((where, one_of("the profiles", known, host.tcp)))
        found[name] = known.get(host.tcp or DEFAULT_PROFILE, {})
    return found


def _check_links(testbed: Testbed, problems: list[Problem]) -> None:
    for name, link in testbed.link.items():
        if link.delay is not None and link.rtt is not None:
            where = path_text(("testbed", "link", name, "rtt"))
            problems.append((where, "expected delay (one way) or rtt (both ways), found both"))


def _check_changes(testbed: Testbed, wiring: Wiring | None, problems: list[Problem]) -> None:
    for index, change in enumerate(testbed.change):
        where = path_text(("testbed", "change", index))
        if not change.model_fields_set - {"at", "link"}:
            problems.append(
                (
                    where,
                    "expected what becomes different (rate, delay, jitter, queue, loss, reorder, up), found nothing",
                )
            )
        if wiring is None:
            continue
        meant = wiring.named(change.link)
        if not meant:
            known = [*testbed.link, *wiring.wires]
            problems.append((f"{where}.link", one_of("the links", known, change.link)))
        for key in ("rate", "delay"):
            pair = getattr(change, key)
            if len(meant) == 1 and pair is not None and pair[0] != pair[1]:
                problems.append(
                    (f"{where}.{key}", f"expected one value for one direction ({change.link}), found two")
                )


def _nat(name: str, host: Host, testbed: Testbed, wiring: Wiring, problems: list[Problem]) -> tuple[str, ...]:
    """Return the devices out of which a host hides others: those on the links that ``nat`` names."""
    found: list[str] = []
    own = wiring.ports_of(name)
    far = {w.origin.node: w.to.owner for w in wiring.wires.values() if w.origin.node in wiring.ports}
    for index, word in enumerate(host.nat):
        devices = [port.device for port in own if word in (port.device, port.link, far[port.name])]
        if not devices:
            where = path_text(("testbed", "host", name, "nat", index))
            known = dict.fromkeys(text for port in own for text in (far[port.name], port.link, port.device))
            problems.append((where, one_of("what its links lead to, its links and its devices", known, word)))
        found += [device for device in devices if device not in found]
    return tuple(found)


def _check_regions(
    wiring: Wiring, parts: Regions, nat: Mapping[str, tuple[str, ...]], problems: list[Problem]
) -> None:
    for number in sorted(set(parts.of.values())):
        ports = [port for port in wiring.ports.values() if parts.of[port.name] == number]
        hidden = [port for port in ports if port.private]
        for port in ports:
            if hidden and not port.private:
                where = path_text(("testbed", "link", port.link, "private"))
                problems.append(
                    (where, f"expected private addresses alone in a network that has any ({hidden[0].name} is in the same one "
                     f"and private), found {port.name} public; add {port.host} here, or join the two by a host with nat")
                )  # fmt: skip
    for host, devices in nat.items():
        if devices and not any(port.device not in devices for port in wiring.ports_of(host)):
            where = path_text(("testbed", "host", host, "nat"))
            problems.append(
                (where, "expected a host with a further interface, on a link to the hosts that it hides, found none")
            )
        for port in wiring.ports_of(host):
            inside = [other for other in wiring.ports_of(host) if other.device not in devices]
            same = [other.name for other in inside if parts.of[other.name] == parts.of[port.name]]
            if port.device in devices and same:
                where = path_text(("testbed", "host", host, "nat"))
                problems.append(
                    (where, f"expected a host between two networks, found {port.name} and {same[0]} in one: packets need not "
                     "pass it")
                )  # fmt: skip


def _interfaces(testbed: Testbed, wiring: Wiring) -> dict[str, Interface]:
    counts = {True: 0, False: 0}
    found = {}
    for name, port in wiring.ports.items():
        subnet, last = divmod(counts[port.private], _PER_SUBNET)
        counts[port.private] += 1
        link = testbed.link[port.link]
        address = f"{'192.168' if port.private else '10.77'}.{subnet}.{last + 1}"
        found[name] = Interface(port.host, port.device, address, link.mtu or DEFAULT_MTU, link.offload)
    return found


def _lab_host(
    host: Host,
    settings: Mapping[str, str],
    nat: tuple[str, ...],
    routes: Mapping[str, str],
    interfaces: Mapping[str, Interface],
    first: list[Port],
) -> LabHost:
    used = Counter(routes.values())
    default = used.most_common(1)[0][0] if used else first[0].device if first else None
    return LabHost(
        site=host.site,
        cpus=host.cpus,
        cpu_limit_cores=host.cpu_limit,
        memory_limit_bytes=host.memory_limit,
        congestion_control=host.congestion_control or LabHost().congestion_control,
        sysctls=dict(settings),
        nat=nat,
        routes={interfaces[end].address: device for end, device in routes.items() if device != default},
        default_device=default,
    )


def _delays_s(link: WrittenLink | WrittenChange) -> tuple[float, float]:
    rtt_s: float | None = getattr(link, "rtt", None)
    if rtt_s is not None:
        return rtt_s / 2, rtt_s / 2
    return link.delay or (0.0, 0.0)


def _delay_ps(link: WrittenLink, back: bool) -> int:
    return round(_delays_s(link)[back] * PICOSECONDS)


def _loss(loss: fields.Loss | None) -> Loss | None:
    if loss is None or not loss.probability:
        return None
    if loss.enter is None or loss.leave is None:
        return IndependentLoss(loss.probability)
    return BurstyLoss(loss.enter, loss.leave, loss.probability)


def _link(link: WrittenLink, w: Wire, scale: float) -> Link:
    return Link(
        origin=w.origin.node,
        to=w.to.node,
        rate_bit_per_s=link.rate[w.back] * scale,
        delay_s=_delays_s(link)[w.back],
        queue_bytes=0,
        jitter_s=link.jitter,
        loss=_loss(link.loss),
        reorder_probability=link.reorder,
        overhead_bytes=link.overhead,
    )


class _Queues:
    """How much queues hold, where that depends on the round-trip times of the paths through them."""

    def __init__(
        self, testbed: Testbed, wiring: Wiring, network: Network, hosts: Mapping[str, LabHost], scale: float
    ) -> None:
        self._scale = scale
        self._packets = {name: _full_packet(testbed.link[w.link]) for name, w in wiring.wires.items()}
        self._rtts_s = _largest_rtts_s(network, hosts)

    def of(self, name: str, queue: fields.Queue | None, link: Link) -> int:
        """Return the size of the queue of a link as written, at its rate; a full packet always fits."""
        if queue is not None and queue.size_bytes is not None:
            return max(self._packets[name], scaled_bytes(queue.size_bytes, self._scale))
        product = link.rate_bit_per_s / BITS_PER_BYTE * self._rtts_s.get(name, 0.0)
        if queue is None:
            return max(MIN_QUEUE_PACKETS * self._packets[name], round(product))
        return max(self._packets[name], round(product * (queue.products or 0.0)))


def _full_packet(link: WrittenLink) -> int:
    return (link.mtu or DEFAULT_MTU) + link.overhead


def _largest_rtts_s(network: Network, hosts: Mapping[str, LabHost]) -> dict[str, float]:
    """Return for each link the largest round-trip time of the paths through it; links that no path takes are left out."""
    paths = Paths(network, hosts)
    found: dict[str, float] = {}
    typical = _typical(network)
    pairs = dict.fromkeys(
        pair
        for one in network.interfaces
        for other in typical
        if one != other
        for pair in ((one, other), (other, one))
    )
    for origin, to in pairs:
        rtt_s = paths.rtt_s(origin, to)
        for link in (paths.links(origin, to) or ()) if rtt_s is not None else ():
            found[link] = max(found.get(link, 0.0), rtt_s or 0.0)
    return found


def _typical(network: Network) -> list[str]:
    """Return interfaces that stand for all: of hosts with one link, two for each router and delay to it.

    Two, so that each host has another one to talk to: with hundreds of hosts, all pairs would take seconds.
    """
    number = Counter(interface.host for interface in network.interfaces.values())
    out = {link.origin: link for link in network.links.values()}
    into = {link.to: link for link in network.links.values()}
    taken: Counter[tuple[str, float, float]] = Counter()
    found = []
    for name, interface in network.interfaces.items():
        kind = (out[name].to, out[name].delay_s, into[name].delay_s)
        taken[kind] += number[interface.host] == 1
        if number[interface.host] > 1 or taken[kind] <= 2:
            found.append(name)
    return found


def _changes(
    testbed: Testbed, wiring: Wiring, links: Mapping[str, Link], queues: _Queues, scale: float
) -> Iterator[Change]:
    """Yield the changes of directed links in the order of time; those of one moment in the order of the file."""
    for change in sorted(testbed.change, key=lambda change: change.at):
        for name in wiring.named(change.link):
            back = wiring.wires[name].back
            setting: dict[str, LinkSetting] = {}
            link = links[name]
            if change.rate is not None:
                setting["rate_bit_per_s"] = change.rate[back] * scale
                link = dataclasses.replace(link, rate_bit_per_s=change.rate[back] * scale)
            if change.delay is not None:
                setting["delay_s"] = change.delay[back]
            if change.jitter is not None:
                setting["jitter_s"] = change.jitter
            if change.queue is not None:
                setting["queue_bytes"] = queues.of(name, change.queue, link)
            if change.loss is not None:
                setting["loss"] = _loss(change.loss)
            if change.reorder is not None:
                setting["reorder_probability"] = change.reorder
            if change.up is not None:
                setting["up"] = change.up
            yield Change(change.at, name, setting)
