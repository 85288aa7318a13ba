"""The largest scale at which one machine can emulate the network of a plan and hold its files."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from venturi.plan import Header, Plan, Step, TransferStep, Trial
from venturi.plan.steps import data_steps
from venturi.testbed.paths import NetworkPaths, endpoint_host
from venturi.units import format_bit_rate, format_bytes

__all__ = ["CPU_RATE_BIT_PER_S", "FREE_FRACTION", "LabScale", "find_lab_scale"]

CPU_RATE_BIT_PER_S = 1.5e9
"""Traffic of emulated links for each CPU, which hosts, tools and emulator share.

Measured on two CPUs, with one copy over a link with a round-trip time of 20 ms: at 2 Gb/s, the emulator delivers late by 0.4 % of
the round trip, at 4 Gb/s by 1.4 %, and at 8 Gb/s the CPUs limit the rate.
"""

FREE_FRACTION = 0.5
"""Largest fraction of the free disk space for the files of a plan."""

_DIGITS = (5, 2, 1)
"""First digits of a scale."""

_MAX_TRIALS = 5_000
"""Trials that are examined. The blocks of a longer sweep repeat their routes."""

Route = tuple[str, str]


@dataclass(frozen=True, slots=True)
class LabScale:
    """A scale with its reason.

    Attributes
    ----------
    scale
        At most 1; its first digit is 1, 2 or 5.
    traffic_bit_per_s
        Largest traffic of all emulated links at scale 1.
    disk_bytes
        Files of the plan at scale 1.
    reason
        The limit of the machine, as a phrase.
    """

    scale: float
    traffic_bit_per_s: float
    disk_bytes: int
    reason: str


def find_lab_scale(plan: Plan, *, cpus: int, free_bytes: int) -> LabScale:
    """Return the largest scale for a lab on one machine.

    Parameters
    ----------
    plan
        The plan at scale 1.
    cpus
        CPUs of the machine.
    free_bytes
        Free disk space for the files.
    """
    traffic, capacity = _traffic_bit_per_s(plan), cpus * CPU_RATE_BIT_PER_S
    disk_bytes = sum(plan.header.totals.disk_bytes.values())
    by_traffic = capacity / traffic if traffic else math.inf
    by_disk = FREE_FRACTION * free_bytes / disk_bytes if disk_bytes else math.inf
    if min(by_traffic, by_disk) >= 1:
        reason = "this machine can carry the links and files at full size"
    elif by_disk < by_traffic:
        reason = f"the files need {format_bytes(disk_bytes)}, and {format_bytes(free_bytes)} are free"
    else:
        reason = (
            f"the links of its transfers carry up to {format_bit_rate(traffic)} in total,"
            f" and {cpus} CPUs can emulate about {format_bit_rate(capacity)}"
        )
    return LabScale(_round_down(min(by_traffic, by_disk, 1.0)), traffic, disk_bytes, reason)


def _round_down(scale: float) -> float:
    """Return the next smaller 1, 2 or 5 times a power of ten.

    Examples
    --------
    >>> _round_down(1.0), _round_down(0.3), _round_down(0.0999)
    (1.0, 0.2, 0.05)
    """
    power = math.floor(math.log10(scale))
    return next(rounded for digit in _DIGITS if (rounded := float(f"{digit}e{power}")) <= scale)


def _traffic_bit_per_s(plan: Plan) -> float:
    """Return the largest traffic of all links, for the routes that are in use at the same time."""
    header = plan.header
    if header.network is None:
        return 0.0
    labs = {name: host.lab for name, host in header.hosts.items() if host.lab is not None}
    paths = NetworkPaths(header.network, labs)
    rates = {name: link.rate_bit_per_s for name, link in header.network.links.items()}
    found = (
        _fair_traffic([paths.links(*route) or () for route in routes], rates) for routes in _concurrent_routes(plan)
    )
    return max(found, default=0.0)


def _fair_traffic(routes: Sequence[tuple[str, ...]], rates: Mapping[str, float]) -> float:
    """Return the sum of the rates of all links, if the routes get max-min fair rates.

    Examples
    --------
    >>> _fair_traffic([("a", "wan"), ("b", "wan"), ("c",)], {"a": 10.0, "b": 1.0, "c": 5.0, "wan": 6.0})
    17.0
    """
    left = {link: rates[link] for route in routes for link in route}
    active = [route for route in routes if route]
    traffic = 0.0
    while active:
        users = Counter(link for route in active for link in route)
        full = min(users, key=lambda link: left[link] / users[link])
        rate = left[full] / users[full]
        for route in (route for route in active if full in route):
            traffic += rate * len(route)
            for link in route:
                left[link] = max(0.0, left[link] - rate)
        active = [route for route in active if full not in route]
    return traffic


def _concurrent_routes(plan: Plan) -> Iterator[set[Route]]:
    """Yield the routes that are in use at the same time: of each trial of a sweep, or all routes of other workloads."""
    workload = plan.header.scenario.get("workload")
    is_sweep = isinstance(workload, dict) and workload.get("kind") == "sweep"
    if is_sweep:
        steps = ((line.host, step) for line in plan.lines for step in line.steps if isinstance(step, Trial))
        yield from (set(_routes(plan.header, host, step.steps)) for host, step in islice(steps, _MAX_TRIALS))
    else:
        yield {route for line in plan.lines for route in _routes(plan.header, line.host, line.steps)}


def _routes(header: Header, host: str, steps: Sequence[Step]) -> Iterator[Route]:
    for step in data_steps(steps):
        destination_via = step.destination_via if isinstance(step, TransferStep) else None
        yield endpoint_host(header, step.source_via, host), endpoint_host(header, destination_via, host)
