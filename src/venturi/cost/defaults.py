"""Defaults: what was measured of a mover or a service, declared beside it, and found again for a call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from venturi.cost.parameters import MoverCost, ServiceCost, over

if TYPE_CHECKING:
    from venturi.plan.header import OptionValue

__all__ = ["FILE", "LAB", "LAB_BYTES", "Measured", "MeasuredService", "default_of_mover", "default_of_service"]

LAB = (
    "measured in the lab, November 2026: calls with files of 1 kB over 1 Gb/s at round trips of 0.1, 20 and 50 ms, warm, cubic, on two cores of an "
    "Intel Xeon at work with other things, Linux 6.18, Debian 12; time = start + k RTT + files (time + k RTT) by least squares, round trips from medians of "
    "5 to 9 calls a point, times from the fastest"
)
"""Where most defaults of movers are from."""

LAB_BYTES = (
    "measured in the lab, November 2026: one file of 256 MB from or to a disk over 10 Gb/s at a round trip of 0.1 ms, processor time of the client, least of 3 calls, "
    "less that of its start; Intel Xeon, Linux 6.18, Debian 12"
)
"""Where processor times of a byte are from."""

FILE = "file"
"""An end on the client's own host, also one that is made up or thrown away."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What a call costs between these ends, and where that is known from.

    Attributes
    ----------
    sources, destinations
        Protocols of doors, or :data:`FILE`.
    cost
        What it costs.
    origin
        How it was measured, on what, and how often; or the document that says so.
    options
        Which options a call must have, by :attr:`Option.key`.
    """

    sources: tuple[str, ...]
    destinations: tuple[str, ...]
    cost: MoverCost
    origin: str
    options: Mapping[str, OptionValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MeasuredService:
    """What a service costs if it has these options, and where that is known from."""

    cost: ServiceCost
    origin: str
    options: Mapping[str, OptionValue] = field(default_factory=dict)


def default_of_mover(
    measured: tuple[Measured, ...], options: Mapping[str, OptionValue], source: str, destination: str
) -> MoverCost | None:
    """Return what a call with these options between these ends costs by default; ``None`` if that was never measured.

    All entries that fit count, later ones over earlier ones, parameter by parameter.
    """
    fitting = [
        entry.cost
        for entry in measured
        if source in entry.sources and destination in entry.destinations and _has(options, entry.options)
    ]
    found = MoverCost()
    for cost in fitting:
        found = over(found, cost)
    return found if fitting else None


def default_of_service(measured: tuple[MeasuredService, ...], options: Mapping[str, OptionValue]) -> ServiceCost:
    """Return what a service with these options costs by default: nothing in it is said of what was never measured."""
    found = ServiceCost()
    for entry in measured:
        if _has(options, entry.options):
            found = over(found, entry.cost)
    return found


def _has(options: Mapping[str, OptionValue], wanted: Mapping[str, OptionValue]) -> bool:
    return all(key in options and options[key] == value for key, value in wanted.items())
