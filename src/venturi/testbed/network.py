"""Conversion of the testbed of a scenario to the network of a plan: interfaces, directed links, routes, changes.

Pure: equal testbeds give equal networks. Public addresses are 10.77.x.y and private ones 192.168.x.y, numbered in the order
of hosts and devices. Start with :func:`resolve_network`.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from venturi.messages import Problem, one_of, path_text
from venturi.plan.header import LabHost
from venturi.plan.network import (
    BurstyLoss,
    IndependentLoss,
    Interface,
    LinkChange,
    LinkSetting,
    Loss,
    Network,
    PlanLink,
)
from venturi.testbed.paths import NetworkPaths
from venturi.testbed.profiles import DEFAULT_PROFILE, PROFILES, problem_of_setting
from venturi.testbed.routing import PICOSECONDS, Regions, RouteFinder, regions
from venturi.testbed.topology import DirectedLink, Port, Topology, build_topology
from venturi.units import BITS_PER_BYTE

if TYPE_CHECKING:
    from venturi.scenario import fields
    from venturi.scenario.testbed import HostTable, TestbedTable
    from venturi.scenario.testbed import LinkChangeTable as WrittenChange
    from venturi.scenario.testbed import LinkTable as WrittenLink

__all__ = ["DEFAULT_MTU", "MIN_QUEUE_PACKETS", "ResolvedNetwork", "host_name", "resolve_network", "scaled_bytes"]

DEFAULT_MTU = 1500

MIN_QUEUE_PACKETS = 64
"""Minimum of a default queue, in full packets. The bursts of one sender already need it (one TSO packet has 44)."""

DOMAIN = "lab.test"

_PER_SUBNET = 254


@dataclass(frozen=True, slots=True)
class ResolvedNetwork:
    """Network and the settings of its hosts."""

    network: Network
    hosts: Mapping[str, LabHost]
    paths: NetworkPaths


def host_name(host: str, device: str | None = None) -> str:
    """Return the name of a host in the lab, or of one of its further interfaces.

    Examples
    --------
    >>> host_name("a"), host_name("a", "eth1")
    ('a.lab.test', 'a-eth1.lab.test')
    """
    return f"{host}.{DOMAIN}" if device is None else f"{host}-{device}.{DOMAIN}"


def scaled_bytes(size_bytes: int, scale: float) -> int:
    """Return a scaled size, rounded to a byte and at least 1 unless the size is 0.

    Examples
    --------
    >>> scaled_bytes(100_000_000, 0.001), scaled_bytes(10, 0.001), scaled_bytes(0, 0.5)
    (100000, 1, 0)
    """
    return max(1, round(size_bytes * Fraction(repr(scale)))) if size_bytes else 0


def resolve_network(testbed: TestbedTable, scale: float, problems: list[Problem]) -> ResolvedNetwork | None:
    """Return the network of a testbed and its hosts; on errors, append them to ``problems`` and return ``None``.

    Parameters
    ----------
    scale
        Factor for rates and queues; times and packet lengths do not change.
    """
    before = len(problems)
    settings = _settings(testbed, problems)
    _check_links(testbed, problems)
    topology = build_topology(testbed, problems)
    if topology is None:
        _check_changes(testbed, None, problems)
        return None
    _check_changes(testbed, topology, problems)
    nat = {name: _nat(name, host, testbed, topology, problems) for name, host in testbed.host.items()}
    parts = regions(topology, {host: devices for host, devices in nat.items() if devices})
    _check_regions(topology, parts, nat, problems)
    if len(problems) > before:
        return None
    interfaces = _interfaces(testbed, topology)
    route_finder = RouteFinder(
        topology,
        {name: _delay_ps(testbed.link[w.link], w.back) for name, w in topology.directed_links.items()},
        parts,
    )
    at_hosts = route_finder.host_routes()
    hosts = {
        name: _lab_host(
            host, settings[name], nat[name], at_hosts.get(name, {}), interfaces, topology.host_ports(name)[:1]
        )
        for name, host in testbed.host.items()
    }
    bare = Network(
        interfaces=interfaces,
        links={name: _link(testbed.link[w.link], w, scale) for name, w in topology.directed_links.items()},
        routers=topology.routers,
        routes=route_finder.router_routes(),
    )
    queues = _Queues(testbed, topology, bare, hosts, scale)
    links = {
        name: dataclasses.replace(
            link, queue_bytes=queues.of(name, testbed.link[topology.directed_links[name].link].queue, link)
        )
        for name, link in bare.links.items()
    }
    network = dataclasses.replace(bare, links=links, changes=tuple(_changes(testbed, topology, links, queues, scale)))
    return ResolvedNetwork(network, hosts, NetworkPaths(network, hosts))


def _settings(testbed: TestbedTable, problems: list[Problem]) -> dict[str, Mapping[str, str]]:
    """Return the kernel settings of each host."""
    for profile, settings in testbed.tcp.items():
        where = path_text(("testbed", "tcp", profile))
        if profile in PROFILES:
            problems.append((where, f"expected a new name, found {profile}, a built-in profile"))
        for setting in settings:
            problem = problem_of_setting(setting)
            if problem:
                problems.append((where, problem))
    names = {**PROFILES, **testbed.tcp}
    found: dict[str, Mapping[str, str]] = {}
    for name, host in testbed.host.items():
        if host.tcp is not None and host.tcp not in names:
            where = path_text(("testbed", "host", name, "tcp"))
            problems.append((where, one_of("the profiles", names, host.tcp)))
        found[name] = names.get(host.tcp or DEFAULT_PROFILE, {})
    return found


def _check_links(testbed: TestbedTable, problems: list[Problem]) -> None:
    for name, link in testbed.link.items():
        if link.delay is not None and link.rtt is not None:
            where = path_text(("testbed", "link", name, "rtt"))
            problems.append((where, "expected delay (one way) or rtt (both ways), found both"))


def _check_changes(testbed: TestbedTable, topology: Topology | None, problems: list[Problem]) -> None:
    for index, change in enumerate(testbed.change):
        where = path_text(("testbed", "change", index))
        if not change.model_fields_set - {"at", "link"}:
            problems.append(
                (
                    where,
                    "expected at least one setting to change (rate, delay, jitter, queue, loss, reorder, up), found none",
                )
            )
        if topology is None:
            continue
        changed = topology.named(change.link)
        if not changed:
            names = [*testbed.link, *topology.directed_links]
            problems.append((f"{where}.link", one_of("the links", names, change.link)))
        for key in ("rate", "delay"):
            pair = getattr(change, key)
            if len(changed) == 1 and pair is not None and pair[0] != pair[1]:
                problems.append(
                    (f"{where}.{key}", f"expected one value for one direction ({change.link}), found two")
                )


def _nat(
    name: str, host: HostTable, testbed: TestbedTable, topology: Topology, problems: list[Problem]
) -> tuple[str, ...]:
    """Return the devices of the links in ``nat``, where a host masquerades packets of other hosts."""
    found: list[str] = []
    own = topology.host_ports(name)
    far = {w.origin.node: w.to.owner for w in topology.directed_links.values() if w.origin.node in topology.ports}
    for index, word in enumerate(host.nat):
        devices = [port.device for port in own if word in (port.device, port.link, far[port.name])]
        if not devices:
            where = path_text(("testbed", "host", name, "nat", index))
            names = dict.fromkeys(text for port in own for text in (far[port.name], port.link, port.device))
            problems.append((where, one_of("the neighbours, links and devices of the host", names, word)))
        found += [device for device in devices if device not in found]
    return tuple(found)


def _check_regions(
    topology: Topology, parts: Regions, nat: Mapping[str, tuple[str, ...]], problems: list[Problem]
) -> None:
    for number in sorted(set(parts.of.values())):
        ports = [port for port in topology.ports.values() if parts.of[port.name] == number]
        hidden = [port for port in ports if port.private]
        for port in ports:
            if hidden and not port.private:
                where = path_text(("testbed", "link", port.link, "private"))
                problems.append(
                    (where, f"expected only private addresses in a network with any ({hidden[0].name} is in the same one "
                     f"and private), found {port.name} public; add {port.host} here, or connect the two networks by a host with nat")
                )  # fmt: skip
    for host, devices in nat.items():
        if devices and not any(port.device not in devices for port in topology.host_ports(host)):
            where = path_text(("testbed", "host", host, "nat"))
            problems.append(
                (where, "expected a host with a further interface, on a link to the hosts that it hides, found none")
            )
        for port in topology.host_ports(host):
            inside = [other for other in topology.host_ports(host) if other.device not in devices]
            same = [other.name for other in inside if parts.of[other.name] == parts.of[port.name]]
            if port.device in devices and same:
                where = path_text(("testbed", "host", host, "nat"))
                problems.append(
                    (where, f"expected a host between two networks, found {port.name} and {same[0]} in one network: packets do not need to "
                     "pass the host")
                )  # fmt: skip


def _interfaces(testbed: TestbedTable, topology: Topology) -> dict[str, Interface]:
    counts = {True: 0, False: 0}
    found = {}
    for name, port in topology.ports.items():
        subnet, last = divmod(counts[port.private], _PER_SUBNET)
        counts[port.private] += 1
        link = testbed.link[port.link]
        address = f"{'192.168' if port.private else '10.77'}.{subnet}.{last + 1}"
        found[name] = Interface(port.host, port.device, address, link.mtu or DEFAULT_MTU, link.offload)
    return found


def _lab_host(
    host: HostTable,
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


def _link(link: WrittenLink, w: DirectedLink, scale: float) -> PlanLink:
    return PlanLink(
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
    """Queue sizes, which can depend on the round-trip times of the paths through a link."""

    def __init__(
        self, testbed: TestbedTable, topology: Topology, network: Network, hosts: Mapping[str, LabHost], scale: float
    ) -> None:
        self._scale = scale
        self._packets = {name: _full_packet(testbed.link[w.link]) for name, w in topology.directed_links.items()}
        self._rtts_s = _largest_rtts_s(network, hosts)

    def of(self, name: str, queue: fields.LinkQueueSize | None, link: PlanLink) -> int:
        """Return the size of a queue from its setting and the rate of the link; at least one full packet fits."""
        if queue is not None and queue.size_bytes is not None:
            return max(self._packets[name], scaled_bytes(queue.size_bytes, self._scale))
        product = link.rate_bit_per_s / BITS_PER_BYTE * self._rtts_s.get(name, 0.0)
        if queue is None:
            return max(MIN_QUEUE_PACKETS * self._packets[name], round(product))
        return max(self._packets[name], round(product * (queue.products or 0.0)))


def _full_packet(link: WrittenLink) -> int:
    return (link.mtu or DEFAULT_MTU) + link.overhead


def _largest_rtts_s(network: Network, hosts: Mapping[str, LabHost]) -> dict[str, float]:
    """Return for each link the largest round-trip time of the paths through it; unused links are missing."""
    paths = NetworkPaths(network, hosts)
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
    """Return representative interfaces: all of hosts with several links, otherwise two for each router and delay.

    With two, each host has a peer. All pairs of hundreds of hosts would take seconds.
    """
    number = Counter(interface.host for interface in network.interfaces.values())
    out = {link.origin: link for link in network.links.values()}
    into = {link.to: link for link in network.links.values()}
    used: Counter[tuple[str, float, float]] = Counter()
    found = []
    for name, interface in network.interfaces.items():
        kind = (out[name].to, out[name].delay_s, into[name].delay_s)
        used[kind] += number[interface.host] == 1
        if number[interface.host] > 1 or used[kind] <= 2:
            found.append(name)
    return found


def _changes(
    testbed: TestbedTable, topology: Topology, links: Mapping[str, PlanLink], queues: _Queues, scale: float
) -> Iterator[LinkChange]:
    """Yield the changes of directed links, ordered by time and then as in the file."""
    for change in sorted(testbed.change, key=lambda change: change.at):
        for name in topology.named(change.link):
            back = topology.directed_links[name].back
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
            yield LinkChange(change.at, name, setting)
