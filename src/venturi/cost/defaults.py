"""Measured default costs of movers and services, and their lookup for a call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from venturi.cost.parameters import MoverCost, ServiceCost, merge_cost

if TYPE_CHECKING:
    from venturi.plan.header import OptionValue

__all__ = [
    "FILE",
    "LAB",
    "LAB_BYTES",
    "MeasuredCost",
    "MeasuredService",
    "find_mover_default",
    "find_service_default",
]

LAB = (
    "measured in the lab, November 2026: calls with files of 1 kB over 1 Gb/s at round trips of 0.1, 20 and 50 ms, warm, cubic, on two cores of an "
    "Intel Xeon at work with other things, Linux 6.18, Debian 12; time = start + k RTT + files (time + k RTT) by least squares, round trips from medians of "
    "5 to 9 calls a point, times from the fastest"
)
"""Origin of most defaults of movers."""

LAB_BYTES = (
    "measured in the lab, November 2026: one file of 256 MB from or to a disk over 10 Gb/s at a round trip of 0.1 ms, processor time of the client, least of 3 calls, "
    "less that of its start; Intel Xeon, Linux 6.18, Debian 12"
)
"""Origin of CPU times of a byte."""

FILE = "file"
"""Endpoint on the client host, including ``zero`` and ``null``."""


@dataclass(frozen=True, slots=True)
class MeasuredCost:
    """Measured cost of a call between these endpoints, with its origin.

    Attributes
    ----------
    sources, destinations
        Protocols of service ports, or :data:`FILE`.
    cost
        Cost of the call.
    origin
        Method, hosts and number of measurements; or a document.
    options
        Required options of the call, by :attr:`venturi.mover.base.Option.key`.
    """

    sources: tuple[str, ...]
    destinations: tuple[str, ...]
    cost: MoverCost
    origin: str
    options: Mapping[str, OptionValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MeasuredService:
    """Measured cost of a service with these options, with its origin."""

    cost: ServiceCost
    origin: str
    options: Mapping[str, OptionValue] = field(default_factory=dict)


def find_mover_default(
    measured: tuple[MeasuredCost, ...], options: Mapping[str, OptionValue], source: str, destination: str
) -> MoverCost | None:
    """Return the default cost of a call with these options between these endpoints; ``None`` without a measurement.

    All matching entries apply; later entries override earlier ones, by parameter.
    """
    fitting = [
        entry.cost
        for entry in measured
        if source in entry.sources and destination in entry.destinations and _matches(options, entry.options)
    ]
    found = MoverCost()
    for cost in fitting:
        found = merge_cost(found, cost)
    return found if fitting else None


def find_service_default(measured: tuple[MeasuredService, ...], options: Mapping[str, OptionValue]) -> ServiceCost:
    """Return the default cost of a service with these options; unmeasured parameters stay ``None``."""
    found = ServiceCost()
    for entry in measured:
        if _matches(options, entry.options):
            found = merge_cost(found, entry.cost)
    return found


def _matches(options: Mapping[str, OptionValue], required: Mapping[str, OptionValue]) -> bool:
    return all(key in options and options[key] == value for key, value in required.items())
