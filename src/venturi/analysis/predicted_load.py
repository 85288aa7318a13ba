r"""Rates of flows that the links and storages of a run allow, as in ``venturi challenge``.

For each interval of time between changes of requests and links, the prediction is the weighted max-min fair allocation
(:mod:`venturi.challenge.allocation`) with the requested rates as weights. A flow uses each link of its route with headers
(:func:`venturi.plan.network.link_bytes_per_byte`). The low end of the prediction has links at 95 %
(:data:`venturi.advice.ceilings.TCP_USE`). A backlog is not carried over to the next interval.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from venturi.advice.ceilings import TCP_USE
from venturi.analysis.link_rates import LinkRates, change_times, link_rates
from venturi.analysis.requested_load import RequestedLoad
from venturi.analysis.values import FloatArray
from venturi.challenge.allocation import NO_LIMIT, allocate
from venturi.plan.network import link_bytes_per_byte
from venturi.run import Run
from venturi.units import BITS_PER_BYTE

__all__ = ["PredictedLoad", "predicted_load"]

MAX_PERIODS = 3000
"""Maximum number of intervals of time with an allocation each."""


@dataclass(frozen=True, eq=False)
class PredictedLoad:
    """Predicted bytes of flows.

    Attributes
    ----------
    bytes
        Predicted bytes of each flow until each edge of the load. Shape (flows, n + 1).
    flow_bytes
        Predicted bytes of each flow in its compared period. Shape (flows,).
    low_bytes
        The same with 95 % of the rate of each link. Shape (flows,).
    limits
        Resource that costs each flow the most bytes. None for a flow that reaches its rate.
    """

    bytes: FloatArray
    flow_bytes: FloatArray
    low_bytes: FloatArray
    limits: tuple[str | None, ...]


def predicted_load(run: Run, load: RequestedLoad) -> PredictedLoad | None:
    """Return the prediction for injected flows, or None without known links or storage rates for each flow.

    A replay has no rates that stay constant for a time, so it has no prediction: simulate it.
    """
    network = run.header.get("network")
    if load.kind != "inject" or not network or not all(load.routes):
        return None
    resources, usage = _resources(run.header, load)
    rates = link_rates(run)
    changes = [at for at in change_times(run) if load.edges_s[0] < at < load.edges_s[-1]]
    ends = [end for flow in load.flows for end in (flow.start_s, flow.low_s, flow.end_s, flow.high_s)]
    times = np.unique(np.concatenate((load.edges_s, [t for t in ends if load.edges_s[0] <= t <= load.edges_s[-1]], changes)))  # fmt: skip
    if len(times) - 1 > MAX_PERIODS:
        return None
    requested = _at(load.edges_s, load.requested, load, times)
    low_factor = np.array([TCP_USE if name.startswith("link ") else 1.0 for name, _ in resources])
    total, low_total = np.zeros((len(load.flows), len(times))), np.zeros((len(load.flows), len(times)))
    lost = np.zeros((len(load.flows), len(resources)))
    known: dict[bytes, tuple[FloatArray, FloatArray, Any]] = {}
    for number, (start_s, end_s) in enumerate(pairwise(times.tolist())):
        width_s = end_s - start_s
        demand = np.maximum(requested[:, number + 1] - requested[:, number], 0.0) * BITS_PER_BYTE / width_s
        capacity = np.array([_capacity(name, rate, rates, start_s, end_s) for name, rate in resources])
        key = np.round(np.concatenate((demand, capacity)), 3).tobytes()
        if key not in known:
            weight = np.maximum(demand, 1e-9)
            found = allocate(demand, weight, usage, capacity)
            known[key] = found.rate, allocate(demand, weight, usage, capacity * low_factor).rate, found.limit
        rate, low, limit = known[key]
        total[:, number + 1] = total[:, number] + rate * width_s / BITS_PER_BYTE
        low_total[:, number + 1] = low_total[:, number] + low * width_s / BITS_PER_BYTE
        for flow in np.flatnonzero(limit != NO_LIMIT):
            lost[flow, limit[flow]] += (demand[flow] - rate[flow]) * width_s
    in_period = [
        [float(np.diff(np.interp((flow.low_s, flow.high_s), times, one[number]))[0]) for number, flow in enumerate(load.flows)]
        for one in (total, low_total)
    ]  # fmt: skip
    limits = tuple(resources[int(own.argmax())][0] if own.any() else None for own in lost)
    edges = np.searchsorted(times, load.edges_s)
    return PredictedLoad(total[:, edges], np.array(in_period[0]), np.array(in_period[1]), limits)


def _at(edges_s: FloatArray, requested: FloatArray, load: RequestedLoad, times: FloatArray) -> FloatArray:
    """Return the requested bytes of each flow until each time, with the exact starts and ends of flows.

    Within an interval, the request of a flow is a straight line between its start and its end.
    """
    found = np.empty((len(load.flows), len(times)))
    for number, flow in enumerate(load.flows):
        inside = (edges_s > flow.start_s) & (edges_s < flow.end_s)
        knots = np.concatenate(([flow.start_s], edges_s[inside], [flow.end_s]))
        values = np.concatenate(([requested[number, 0]], requested[number, inside], [requested[number, -1]]))
        found[number] = np.interp(times, knots, values)
    return found


def _resources(header: Mapping[str, Any], load: RequestedLoad) -> tuple[list[tuple[str, float]], csr_array]:
    """Return names and rates in bit/s of the resources that flows use, and the use per bit of each flow."""
    network, storages = header["network"], header.get("storages") or {}
    numbers: dict[str, int] = {}
    resources: list[tuple[str, float]] = []
    entries: list[tuple[float, int, int]] = []

    def add(flow: int, name: str, rate: float, use: float) -> None:
        if name not in numbers:
            numbers[name] = len(resources)
            resources.append((name, rate))
        entries.append((use, flow, numbers[name]))

    for number, (flow, route) in enumerate(zip(load.flows, load.routes, strict=True)):
        links = [network["links"][name] for name in route]
        mtu = min(int(network["interfaces"][end]["mtu"]) for end in (links[0]["from"], links[-1]["to"]))
        for name, link in zip(route, links, strict=True):
            use = link_bytes_per_byte(mtu, int(link.get("overhead_bytes") or 0))
            add(number, f"link {name}", float(link.get("rate_bit_per_s") or np.inf), use)
        for storage, kind in ((flow.source_storage, "read"), (flow.destination_storage, "write")):
            rate = ((storages.get(storage) or {}).get("spec") or {}).get(f"{kind}_bytes_per_s")
            if rate is not None:
                add(number, f"storage {storage} ({kind}s)", float(rate) * BITS_PER_BYTE, 1.0)
    uses = [use for use, _, _ in entries]
    rows, columns = [row for _, row, _ in entries], [column for _, _, column in entries]
    usage = csr_array((uses, (rows, columns)), shape=(len(load.flows), len(resources)), dtype=np.float64)
    return resources, usage


def _capacity(name: str, rate: float, rates: LinkRates, start_s: float, end_s: float) -> float:
    if not name.startswith("link "):
        return rate
    mean = rates.mean(name.removeprefix("link "), start_s, end_s)
    return rate if mean is None else mean
