"""Network of a lab: interfaces, routers, directed links, routes and planned changes.

``crates/emulator`` emulates it. The reference page *The plan* describes all keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

__all__ = [
    "ANY_DESTINATION",
    "ETHERNET_MSS_BYTES",
    "INITIAL_WINDOW_BYTES",
    "TCP_HEADER_BYTES",
    "BurstyLoss",
    "IndependentLoss",
    "Interface",
    "LinkChange",
    "LinkSetting",
    "Loss",
    "Network",
    "PlanLink",
    "link_bytes_per_byte",
]

TCP_HEADER_BYTES = 52
"""Headers of IPv4, and of TCP with timestamps (RFC 791, 9293, 7323)."""

ETHERNET_MSS_BYTES = 1500.0 - TCP_HEADER_BYTES
"""Payload of a full TCP segment with the MTU of Ethernet."""

INITIAL_WINDOW_BYTES = 10 * ETHERNET_MSS_BYTES
"""Initial congestion window (RFC 6928)."""

ANY_DESTINATION = "*"
"""Key of the default route of a router."""


@dataclass(frozen=True, slots=True)
class Interface:
    """Network interface of a host. The host receives all packets of the interface, with any destination address.

    ``mtu`` is in bytes; ``offload`` enables segmentation offload.
    """

    host: str
    device: str
    address: str
    mtu: int = 1500
    offload: bool = True


@dataclass(frozen=True, slots=True)
class IndependentLoss:
    """Independent loss of each packet with this probability."""

    probability: float


@dataclass(frozen=True, slots=True)
class BurstyLoss:
    """Gilbert-Elliott model: after each packet, the link enters and leaves the bad state with these probabilities.

    In the bad state, a packet is lost with ``probability``.
    """

    enter: float
    leave: float
    probability: float


Loss: TypeAlias = IndependentLoss | BurstyLoss
LinkSetting: TypeAlias = float | int | bool | Loss | None


@dataclass(frozen=True, slots=True)
class PlanLink:
    """Directed link between interfaces or routers.

    ``delay_s`` is the one-way delay, ``jitter_s`` its standard deviation. ``overhead_bytes`` are the link-layer bytes of a
    packet. A link that is not ``up`` drops all packets.
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
class LinkChange:
    """Change of link settings at ``time_s`` of the run; settings that are not in ``set`` do not change.

    Keys of ``set``: ``rate_bit_per_s``, ``delay_s``, ``jitter_s``, ``queue_bytes``, ``loss`` (``None`` disables it),
    ``reorder_probability``, ``up``.
    """

    time_s: float
    link: str
    set: Mapping[str, LinkSetting]


@dataclass(frozen=True, slots=True)
class Network:
    """Interfaces and links by name; ``routes``: for each router, the link to each destination interface."""

    interfaces: Mapping[str, Interface]
    links: Mapping[str, PlanLink]
    routers: tuple[str, ...] = ()
    routes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    changes: tuple[LinkChange, ...] = ()


def link_bytes_per_byte(mtu_bytes: int, overhead_bytes: int) -> float:
    """Return the bytes of a link for each byte of file data, in full TCP segments.

    The simulator has the same ratio.

    Examples
    --------
    >>> round(link_bytes_per_byte(1500, 38), 4)
    1.0622
    """
    return (mtu_bytes + overhead_bytes) / (mtu_bytes - TCP_HEADER_BYTES)
