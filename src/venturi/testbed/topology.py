"""Topology: the links of a scenario as directed links between interfaces and routers.

It has names only; :mod:`venturi.testbed.network` adds rates, addresses and routes. Start with :class:`Topology`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from venturi.messages import Problem, one_of, path_text, quote_value

if TYPE_CHECKING:
    from venturi.scenario.testbed import LinkTable, TestbedTable

__all__ = ["MAX_INTERFACES", "DirectedLink", "LinkEndpoint", "Port", "Topology", "build_topology", "lab_name_problem"]

MAX_INTERFACES = 500
"""Maximum interfaces of one network. Each one is a device, and work for a single process."""

_DEVICE = re.compile(r"eth(0|[1-9][0-9]{0,2})")


@dataclass(frozen=True, slots=True)
class Port:
    """Interface of a host, with the link that ends at it."""

    host: str
    device: str
    link: str
    private: bool

    @property
    def name(self) -> str:
        """Name in the network: ``a.eth0``."""
        return f"{self.host}.{self.device}"


@dataclass(frozen=True, slots=True)
class LinkEndpoint:
    """End of a link: ``node`` is an interface or a router, ``word`` its name in names of directed links."""

    node: str
    word: str
    owner: str
    """The host or the router."""


@dataclass(frozen=True, slots=True)
class DirectedLink:
    """One direction of a link."""

    name: str
    link: str
    back: bool
    origin: LinkEndpoint
    to: LinkEndpoint


@dataclass(frozen=True, slots=True)
class Topology:
    """Interfaces by name, in the order of hosts and devices, and directed links by name, in the order of links."""

    ports: Mapping[str, Port]
    directed_links: Mapping[str, DirectedLink]
    routers: tuple[str, ...]

    def host_ports(self, host: str) -> list[Port]:
        """Return the interfaces of a host in the order of their devices."""
        return [port for port in self.ports.values() if port.host == host]

    def named(self, word: str) -> list[str]:
        """Return the directed links that ``word`` names: both directions of a link, or one directed link."""
        return [link.name for link in self.directed_links.values() if word in (link.link, link.name)]


def build_topology(testbed: TestbedTable, problems: list[Problem]) -> Topology | None:
    """Return the topology; if it is invalid, append the errors to ``problems`` and return ``None``."""
    before = len(problems)
    _check_names(testbed, problems)
    used = _named_devices(testbed, problems)
    ports: dict[str, Port] = {}
    directed_links: dict[str, DirectedLink] = {}
    for name, link in testbed.link.items():
        endpoints = [_endpoint(testbed, name, link, index, used, ports, problems) for index in (0, 1)]
        _check_private(name, link, testbed, problems)
        if endpoints[0] is None or endpoints[1] is None:
            continue
        if endpoints[0].owner == endpoints[1].owner:
            where = path_text(("testbed", "link", name, "between"))
            problems.append((where, f"expected two different ends, found {endpoints[0].owner} at both"))
            continue
        for back, (origin, to) in enumerate((endpoints, endpoints[::-1])):
            directed = f"{origin.word}>{to.word}" if origin and to else ""
            if directed in directed_links:
                directed = f"{directed}@{name}"
            assert origin and to
            directed_links[directed] = DirectedLink(directed, name, bool(back), origin, to)
    if len(ports) > MAX_INTERFACES:
        problems.append(
            ("testbed.link", f"expected at most {MAX_INTERFACES} interfaces of hosts, found {len(ports)}")
        )
    if len(problems) > before:
        return None
    return Topology(_in_order(testbed, ports), directed_links, tuple(testbed.router))


def _check_names(testbed: TestbedTable, problems: list[Problem]) -> None:
    for name in testbed.router:
        if name in testbed.host:
            where = path_text(("testbed", "router", name))
            problems.append((where, f"expected a name that no host uses, found {name}"))
    if testbed.needs_lab:
        problems += [
            (path_text(("testbed", "host", name)), problem)
            for name in testbed.host
            if (problem := lab_name_problem(name)) is not None
        ]


def lab_name_problem(name: str) -> str | None:
    """Return why the lab cannot use the name of a host, or ``None``."""
    # The name becomes a host name (RFC 1123), in lower case; a-eth1 is the name of a second interface of a.
    if re.fullmatch(r"[a-z]([a-z0-9-]{0,48}[a-z0-9])?", name) and not re.search(r"-eth[0-9]+$", name):
        return None
    return (
        "expected a name of small letters, digits and - (it becomes a host name of the lab; "
        f"NAME-eth1 is the name of an interface), found {quote_value(name)}"
    )


def _named_devices(testbed: TestbedTable, problems: list[Problem]) -> dict[str, str]:
    """Return the explicitly named interfaces, with their links. Other links get the remaining interfaces."""
    used: dict[str, str] = {}
    for name, link in testbed.link.items():
        for index, text in enumerate(link.between):
            host, dot, device = text.partition(".")
            if not dot or host not in testbed.host:
                continue
            where = path_text(("testbed", "link", name, "between", index))
            if not _DEVICE.fullmatch(device):
                problems.append((where, f"expected an interface such as {host}.eth0, found {quote_value(text)}"))
            elif text in used:
                problems.append((where, f"expected an interface with one link, found {text} in {used[text]}, too"))
            else:
                used[text] = name
    return used


def _endpoint(
    testbed: TestbedTable,
    name: str,
    link: LinkTable,
    index: int,
    used: dict[str, str],
    ports: dict[str, Port],
    problems: list[Problem],
) -> LinkEndpoint | None:
    text = link.between[index]
    if text in testbed.router:
        return LinkEndpoint(text, text, text)
    host, dot, device = text.partition(".")
    if host not in testbed.host:
        where = path_text(("testbed", "link", name, "between", index))
        problems.append((where, one_of("the hosts and routers", [*testbed.host, *testbed.router], text)))
        return None
    if not dot:
        device = next(free for number in range(1000) if f"{host}.{(free := f'eth{number}')}" not in used)
        used[f"{host}.{device}"] = name
    port = Port(host, device, name, private=text in link.private or host in link.private)
    ports[port.name] = port
    return LinkEndpoint(port.name, text, host)


def _check_private(name: str, link: LinkTable, testbed: TestbedTable, problems: list[Problem]) -> None:
    hosts = [end for end in link.between if end.partition(".")[0] in testbed.host]
    names = [*hosts, *(end.partition(".")[0] for end in hosts if "." in end)]
    for index, end in enumerate(link.private):
        if end not in names:
            where = path_text(("testbed", "link", name, "private", index))
            problems.append((where, one_of("the hosts at its ends", names, end)))
    if link.mtu is not None and not hosts:
        where = path_text(("testbed", "link", name, "mtu"))
        problems.append(
            (where, f"expected mtu only on links of a host (routers forward packets of any length), found {link.mtu}")
        )


def _in_order(testbed: TestbedTable, ports: Mapping[str, Port]) -> dict[str, Port]:
    """Return the interfaces sorted by host, in the order of the file, and by device number."""
    found: Iterable[Port] = ports.values()
    hosts = {host: index for index, host in enumerate(testbed.host)}
    ordered = sorted(found, key=lambda port: (hosts[port.host], int(port.device.removeprefix("eth"))))
    return {port.name: port for port in ordered}
