"""What is connected with what: the links of a scenario as directed links between interfaces and routers.

Names only; rates, addresses and routes come later (:mod:`venturi.testbed.network`). The one type to read first: :class:`Wiring`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from venturi.plan.words import shown
from venturi.wording import Problem, one_of, path_text

if TYPE_CHECKING:
    from venturi.scenario.testbed import Link, Testbed

__all__ = ["MAX_INTERFACES", "End", "Port", "Wire", "Wiring", "wire"]

MAX_INTERFACES = 500
"""Interfaces of one network; each is a device and a piece of work for one process."""

_DEVICE = re.compile(r"eth(0|[1-9][0-9]{0,2})")


@dataclass(frozen=True, slots=True)
class Port:
    """An interface of a host: where it is, and which link ends there."""

    host: str
    device: str
    link: str
    private: bool

    @property
    def name(self) -> str:
        """Its name in the network: ``a.eth0``."""
        return f"{self.host}.{self.device}"


@dataclass(frozen=True, slots=True)
class End:
    """One end of a link: ``node`` is an interface or a router, ``word`` its name in names of directed links."""

    node: str
    word: str
    owner: str
    """The host or the router."""


@dataclass(frozen=True, slots=True)
class Wire:
    """One direction of a link."""

    name: str
    link: str
    back: bool
    origin: End
    to: End


@dataclass(frozen=True, slots=True)
class Wiring:
    """Interfaces by name, in the order of hosts and devices, and wires by name, in the order of links."""

    ports: Mapping[str, Port]
    wires: Mapping[str, Wire]
    routers: tuple[str, ...]

    def ports_of(self, host: str) -> list[Port]:
        """Return the interfaces of a host in the order of their devices."""
        return [port for port in self.ports.values() if port.host == host]

    def named(self, word: str) -> list[str]:
        """Return the wires that a change means by ``word``: a link (both directions) or a directed link."""
        return [wire.name for wire in self.wires.values() if word in (wire.link, wire.name)]


def wire(testbed: Testbed, problems: list[Problem]) -> Wiring | None:
    """Return what is connected with what, or ``None`` with what is wrong appended to ``problems``."""
    before = len(problems)
    _check_names(testbed, problems)
    taken = _written_devices(testbed, problems)
    ports: dict[str, Port] = {}
    wires: dict[str, Wire] = {}
    for name, link in testbed.link.items():
        ends = [_end(testbed, name, link, index, taken, ports, problems) for index in (0, 1)]
        _check_private(name, link, testbed, problems)
        if ends[0] is None or ends[1] is None:
            continue
        if ends[0].owner == ends[1].owner:
            where = path_text(("testbed", "link", name, "between"))
            problems.append((where, f"expected two ends that differ, found {ends[0].owner} at both"))
            continue
        for back, (origin, to) in enumerate((ends, ends[::-1])):
            directed = f"{origin.word}>{to.word}" if origin and to else ""
            if directed in wires:
                directed = f"{directed}@{name}"
            assert origin and to
            wires[directed] = Wire(directed, name, bool(back), origin, to)
    if len(ports) > MAX_INTERFACES:
        problems.append(
            ("testbed.link", f"expected at most {MAX_INTERFACES} interfaces of hosts, found {len(ports)}")
        )
    if len(problems) > before:
        return None
    return Wiring(_in_order(testbed, ports), wires, tuple(testbed.router))


def _check_names(testbed: Testbed, problems: list[Problem]) -> None:
    for name in testbed.router:
        if name in testbed.host:
            where = path_text(("testbed", "router", name))
            problems.append((where, f"expected a name that no host has, found {name}"))
    if not testbed.is_lab:
        return
    for name, host in testbed.host.items():
        where = path_text(("testbed", "host", name))
        # It becomes a host name (RFC 1123), which knows no capitals; a-eth1 is the name of a second interface of a.
        if not re.fullmatch(r"[a-z]([a-z0-9-]{0,48}[a-z0-9])?", name) or re.search(r"-eth[0-9]+$", name):
            problems.append(
                (where, "expected a name of small letters, digits and - (it becomes a host name of the lab, and "
                 f"NAME-eth1 is that of an interface), found {shown(name)}")
            )  # fmt: skip
        if host.ssh is not None:
            problems.append(
                (f"{where}.ssh", "expected none (a testbed with links, services or limits is made in the lab, hosts too), "
                 f"found {shown(host.ssh)}")
            )  # fmt: skip


def _written_devices(testbed: Testbed, problems: list[Problem]) -> dict[str, str]:
    """Return the interfaces that are named outright, with their links: the others take what is left."""
    taken: dict[str, str] = {}
    for name, link in testbed.link.items():
        for index, text in enumerate(link.between):
            host, dot, device = text.partition(".")
            if not dot or host not in testbed.host:
                continue
            where = path_text(("testbed", "link", name, "between", index))
            if not _DEVICE.fullmatch(device):
                problems.append((where, f"expected an interface such as {host}.eth0, found {shown(text)}"))
            elif text in taken:
                problems.append(
                    (where, f"expected an interface with one link, found {text} in {taken[text]} already")
                )
            else:
                taken[text] = name
    return taken


def _end(
    testbed: Testbed,
    name: str,
    link: Link,
    index: int,
    taken: dict[str, str],
    ports: dict[str, Port],
    problems: list[Problem],
) -> End | None:
    text = link.between[index]
    if text in testbed.router:
        return End(text, text, text)
    host, dot, device = text.partition(".")
    if host not in testbed.host:
        where = path_text(("testbed", "link", name, "between", index))
        problems.append((where, one_of("the hosts and routers", [*testbed.host, *testbed.router], text)))
        return None
    if not dot:
        device = next(free for number in range(1000) if f"{host}.{(free := f'eth{number}')}" not in taken)
        taken[f"{host}.{device}"] = name
    port = Port(host, device, name, private=text in link.private or host in link.private)
    ports[port.name] = port
    return End(port.name, text, host)


def _check_private(name: str, link: Link, testbed: Testbed, problems: list[Problem]) -> None:
    hosts = [end for end in link.between if end.partition(".")[0] in testbed.host]
    known = [*hosts, *(end.partition(".")[0] for end in hosts if "." in end)]
    for index, end in enumerate(link.private):
        if end not in known:
            where = path_text(("testbed", "link", name, "private", index))
            problems.append((where, one_of("the hosts at its ends", known, end)))
    if link.mtu is not None and not hosts:
        where = path_text(("testbed", "link", name, "mtu"))
        problems.append(
            (where, f"expected it at links that end at a host (routers pass any length), found {link.mtu}")
        )


def _in_order(testbed: Testbed, ports: Mapping[str, Port]) -> dict[str, Port]:
    """Return the interfaces by host in the order of the file, and by number of the device."""
    found: Iterable[Port] = ports.values()
    hosts = {host: index for index, host in enumerate(testbed.host)}
    ordered = sorted(found, key=lambda port: (hosts[port.host], int(port.device.removeprefix("eth"))))
    return {port.name: port for port in ordered}
