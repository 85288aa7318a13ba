"""The network between the hosts of a lab: interfaces, routers, directed links, routes, planned changes.

Only what it is; ``crates/wire`` carries it out, and *The plan* in the reference says what each key means.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

__all__ = [
    "ANY_DESTINATION",
    "BurstyLoss",
    "Change",
    "IndependentLoss",
    "Interface",
    "Link",
    "LinkSetting",
    "Loss",
    "Network",
]

ANY_DESTINATION = "*"
"""The key of a router's routes that stands for every destination without a route of its own."""


@dataclass(frozen=True, slots=True)
class Interface:
    """A network interface of a host. What arrives at it is handed to its host, whatever its destination address is.

    ``mtu`` is in bytes; ``offload``: the host may hand over several segments as one packet.
    """

    host: str
    device: str
    address: str
    mtu: int = 1500
    offload: bool = True


@dataclass(frozen=True, slots=True)
class IndependentLoss:
    """Each packet is lost with this probability, whatever becomes of the others."""

    probability: float


@dataclass(frozen=True, slots=True)
class BurstyLoss:
    """Gilbert-Elliott: after each packet the link turns bad with ``enter`` and good again with ``leave``.

    While it is bad, a packet is lost with ``probability``.
    """

    enter: float
    leave: float
    probability: float


Loss: TypeAlias = IndependentLoss | BurstyLoss
LinkSetting: TypeAlias = float | int | bool | Loss | None


@dataclass(frozen=True, slots=True)
class Link:
    """A link in one direction, between interfaces or routers.

    ``delay_s`` is one way, ``jitter_s`` its standard deviation; ``overhead_bytes`` is what a packet takes on the wire
    beyond its IP bytes; one that is not ``up`` drops all packets.
    """

    origin: str
    to: str
    rate_bit_per_s: float
    delay_s: float
    queue_bytes: int
    jitter_s: float = 0.0
    loss: Loss | None = None
    reorder_probability: float = 0.0
    overhead_bytes: int = 0
    up: bool = True


@dataclass(frozen=True, slots=True)
class Change:
    """At ``time_s`` of the run the link gets these settings; what ``set`` does not name stays as it is.

    Keys of ``set``: ``rate_bit_per_s``, ``delay_s``, ``jitter_s``, ``queue_bytes``, ``loss`` (``None`` ends it),
    ``reorder_probability``, ``up``.
    """

    time_s: float
    link: str
    set: Mapping[str, LinkSetting]


@dataclass(frozen=True, slots=True)
class Network:
    """Interfaces and links by name; ``routes``: at each router, destination interface → the link to take."""

    interfaces: Mapping[str, Interface]
    links: Mapping[str, Link]
    routers: tuple[str, ...] = ()
    routes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    changes: tuple[Change, ...] = ()
