r"""Queueing layer: a station of queueing theory for the first resource that is full, with its assumptions.

A transfer takes the time :math:`d` that does not depend on its bytes (start, session, round trips), and the time of its
bytes. The bytes share the resource with the other transfers, so the mean time in an open system is

.. math:: T = d + T_\text{PS}(\lambda, S - d, c), \qquad c = (S - d) / D

with the time :math:`S` of a transfer alone and its demand :math:`D` at the resource: :math:`c` transfers fill it. For the
sessions of a server, :math:`T = W(c, \lambda, S) + S`. In a closed system, the station is part of a closed network with
:math:`d` and the think time outside of it. :mod:`venturi.prediction.queueing` has the formulas.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from venturi.prediction.offered import OfferedLoad
from venturi.prediction.queueing import MAX_CUSTOMERS, Station, closed_network, fcfs_wait_s, sharing_time_s
from venturi.prediction.resources import ResourceLimit
from venturi.prediction.system import LoadSystem

__all__ = ["QueueingResult", "queueing_closed", "queueing_open"]

MOST_USE = 0.7
"""Utilisation of a second resource above which one station does not describe the system."""

WIDTH_SPREAD, WIDTH_EQUAL = 0.5, 0.05
"""Relative differences of the transfers that fill the resource, between kinds of transfers: largest, and of equal kinds."""

CROWD_COSTS = ("seek_s", "half_users", "contention", "coherency")
"""Costs of a storage whose rate depends on the number of its users."""

SHARED = ("link", "storage", "processes", "loopback")
"""Kinds of resources that transfers share equally."""


@dataclass(frozen=True, slots=True)
class QueueingResult:
    """Result of the queueing layer.

    Attributes
    ----------
    model
        Name of the model; empty if no model holds.
    per_s
        Throughput of a closed system, 1/s; None in an open system, whose throughput is the rate.
    mean_latency_s
        Mean time of a transfer; None if no model holds.
    statement
        Assumptions of the model, or the reason why none holds.
    """

    model: str
    per_s: float | None
    mean_latency_s: float | None
    statement: str


@dataclass(frozen=True, slots=True)
class _Station:
    """The station of the first resource, and the time of a transfer outside of it."""

    model: str
    demand_s: float
    servers: float
    outside_s: float
    variation: float
    statement: str


def queueing_open(system: LoadSystem, per_s: float) -> QueueingResult:
    """Return the mean time of a transfer with Poisson arrivals, if one station describes the system.

    Parameters
    ----------
    system
        Testbed and load.
    per_s
        Transfers per second.
    """
    limits = system.limits
    use = per_s * limits[0].demand_s
    if use >= 1:
        return _none(f"no stationary state: {limits[0].name} would be {100 * use:.0f} % busy")
    found = _station(system, per_s)
    if isinstance(found, str):
        return _none(found)
    if found.model == "M/G/c":
        wait_s = fcfs_wait_s(int(found.servers), per_s, found.demand_s, found.variation)
        return QueueingResult(found.model, None, wait_s + found.demand_s, f"Poisson arrivals, {found.statement}")
    time_s = sharing_time_s(per_s, found.demand_s, found.servers)
    return QueueingResult(found.model, None, found.outside_s + time_s, f"Poisson arrivals, {found.statement}")


def queueing_closed(system: LoadSystem, clients: int, think_s: float) -> QueueingResult:
    """Return throughput and mean time of a transfer with closed-loop clients, if one station describes the system.

    Parameters
    ----------
    system
        Testbed and load.
    clients, think_s
        Number of clients, and their pause after each transfer.
    """
    if clients > MAX_CUSTOMERS:
        return _none(f"the exact solution needs at most {MAX_CUSTOMERS} clients")
    found = _station(system, min(system.limits[0].per_s, clients / (system.mean_s + think_s)))
    if isinstance(found, str):
        return _none(found)
    station = Station(found.demand_s, found.servers)
    state = closed_network(clients, [station], think_s + found.outside_s)
    return QueueingResult(
        "closed network (exact MVA)", state.per_s, state.response_s + found.outside_s, found.statement
    )


def _none(reason: str) -> QueueingResult:
    return QueueingResult("", None, None, f"skipped: {reason}")


def _station(system: LoadSystem, per_s: float) -> _Station | str:
    """Return the station of the first resource, or the reason why one station does not describe the system."""
    load, limits, alone_s, mean_s = system.load, system.limits, system.alone_s, system.mean_s
    first = limits[0]
    if load.header.network is not None and load.header.network.changes:
        return "the testbed changes over time"
    if first.fraction < 1 - 1e-9:
        return f"only {100 * first.fraction:.0f} % of the transfers use {first.name}"
    second = next((one for one in limits[1:] if per_s * one.demand_s > MOST_USE), None)
    if second is not None:
        return f"{second.name} is also {min(100, 100 * per_s * second.demand_s):.0f} % busy"
    if first.kind == "sessions":
        square = math.fsum(kind.fraction * (alone_s[kind] / mean_s - 1) ** 2 for kind in load.kinds)
        statement = f"first come first served, {first.capacity:.0f} sessions; sessions do not slow each other down"
        return _Station("M/G/c", mean_s, first.capacity, 0.0, math.sqrt(square), statement)
    if first.kind not in SHARED:
        return f"{first.name} is used in phases, not for the whole transfer"
    if first.kind == "storage" and _depends_on_users(load, first):
        return f"the rate of {first.name} depends on the number of its users"
    return _sharing(system, first)


def _sharing(system: LoadSystem, first: ResourceLimit) -> _Station | str:
    load, alone_s, fixed_s = system.load, system.alone_s, system.fixed_s
    if fixed_s is None:
        return "transfers with several files use resources in phases"
    bytes_s = {kind: max(0.0, alone_s[kind] - fixed_s[kind]) for kind in load.kinds}
    demand_s = {kind: first.demand_s * kind.size_bytes / load.mean_bytes for kind in load.kinds}
    widths = [max(1.0, bytes_s[kind] / demand_s[kind]) for kind in load.kinds]
    if max(widths) > (1 + WIDTH_SPREAD) * min(widths):
        return f"alone, some transfers use {100 / max(widths):.2g} % of {first.name} and others {100 / min(widths):.2g} %"
    mean_s = math.fsum(kind.fraction * bytes_s[kind] for kind in load.kinds)
    mean_s = max(mean_s, first.demand_s)
    width = mean_s / first.demand_s
    outside_s = math.fsum(kind.fraction * fixed_s[kind] for kind in load.kinds)
    statement = f"equal parts of {first.name}, which {width:.3g} transfers fill; all sizes"
    if max(widths) > (1 + WIDTH_EQUAL) * min(widths):
        statement += f"; approximate, because {min(widths):.3g} to {max(widths):.3g} fill it, by size"
    return _Station("M/G/c-PS", mean_s, width, outside_s, 1.0, statement)


def _depends_on_users(load: OfferedLoad, limit: ResourceLimit) -> bool:
    name = limit.bottleneck.split(":")[1]
    cost = load.header.cost.storages.get(name) if load.header.cost else None
    return cost is not None and any(getattr(cost, key) for key in CROWD_COSTS)
