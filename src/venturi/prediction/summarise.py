"""Summaries of a prediction: intervals over seeds, layers, purchases, caveats and the next step."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from venturi.calibration.origin import CostOrigin
from venturi.prediction.measured import MeasuredBasis
from venturi.prediction.offered import OfferedLoad
from venturi.prediction.replay import SeedReplay
from venturi.prediction.request import LoadRequest
from venturi.prediction.resources import ResourceLimit
from venturi.prediction.result import Estimate, LayerResult, Purchase, Sustained
from venturi.prediction.stations import queueing_closed, queueing_open
from venturi.prediction.system import LoadSystem
from venturi.units import format_bit_rate, format_rate

__all__ = ["TIGHT", "capacity_text", "caveats", "layers", "next_step", "purchases", "seed_range"]

USE = 0.8
"""Utilisation of a purchased resource at the requested rate. At 1, waits grow without a limit."""

TIGHT = 0.9
"""Ratio of the greatest rate to the bound below which the difference is a caveat."""

LISTED = 3
"""Resources whose assumed rates are a caveat."""


def seed_range(values: Sequence[float]) -> Estimate:
    """Return the median of the seeds, and the quantiles 0.05 and 0.95; NaN if there are no finite values.

    Examples
    --------
    >>> seed_range([1.0, 2.0, 3.0])
    Estimate(value=2.0, low=1.1, high=2.9)
    """
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return Estimate(math.nan, math.nan, math.nan)
    low, middle, high = np.quantile(finite, (0.05, 0.5, 0.95))
    return Estimate(float(middle), float(low), float(high))


def layers(
    system: LoadSystem, request: LoadRequest, per_s: float, replays: Sequence[SeedReplay], greatest: Estimate
) -> tuple[LayerResult, ...]:
    """Return the results of the three layers for an open load, or for closed-loop clients."""
    first, mean_s, clients, think_s = system.limits[0], system.mean_s, request.clients, request.think_s
    latency_s = seed_range([one.mean_latency_s for one in replays]).value
    if clients is None:
        bounds = LayerResult(
            "bounds",
            "utilisation law",
            first.per_s,
            mean_s,
            f"{first.name} is full; the time is that of a transfer alone",
        )
        station = queueing_open(system, per_s)
        queueing_per_s = first.per_s if station.model else None
        replay = f"{len(replays)} seeds, Poisson arrivals; the rate from bisection to 2 %"
    else:
        per_client_s = mean_s + think_s
        most = min(first.per_s, clients / per_client_s)
        statement = f"at most N/(R + Z) and 1/D; {first.name} is full from {math.ceil(per_client_s * first.per_s):,} clients on"
        bounds = LayerResult(
            "bounds", "asymptotic bounds", most, max(mean_s, clients / first.per_s - think_s), statement
        )
        station = queueing_closed(system, clients, think_s)
        queueing_per_s = station.per_s
        replay = f"{len(replays)} seeds, closed loop"
    return (
        bounds,
        LayerResult("queueing", station.model or "none", queueing_per_s, station.mean_latency_s, station.statement),
        LayerResult("replay", "simulator", greatest.value, latency_s if math.isfinite(latency_s) else None, replay),
    )


def purchases(limits: Sequence[ResourceLimit], per_s: float | None) -> tuple[Purchase, ...]:
    """Return the resources that are more than 80 % busy at this rate, with the capacity for 80 %."""
    found = []
    for limit in limits:
        if per_s is None or limit.per_s * USE >= per_s:
            continue
        needed = limit.needed_capacity(per_s, USE)
        text = capacity_text(limit, needed, up=True)
        change = f'{limit.key}="{text}"' if limit.key and limit.kind not in ("sessions", "cpu") else ""
        if limit.key and not change:
            change = f"{limit.key}={text.partition(' ')[0]}"
        found.append(Purchase(limit.name, capacity_text(limit, limit.capacity), text, change, limit.assumed))
    return tuple(found)


def capacity_text(limit: ResourceLimit, capacity: float, *, up: bool = False) -> str:
    """Return a capacity with its unit, rounded up to three digits if ``up``."""
    if up and limit.kind != "sessions":
        digits = 10.0 ** (math.floor(math.log10(capacity)) - 2)
        capacity = math.ceil(capacity / digits - 1e-9) * digits
    match limit.kind:
        case "link":
            return format_bit_rate(capacity)
        case "sessions":
            return f"{capacity:.0f} sessions"
        case "cpu":
            return f"{capacity:.3g} cores"
        case _:
            return format_rate(capacity)


def caveats(
    system: LoadSystem, request: LoadRequest, basis: MeasuredBasis, varied: int, bottleneck: str,
    greatest_per_s: float, per_s: float,
) -> tuple[str, ...]:  # fmt: skip
    """Return the reasons for doubt, most important first."""
    opens = request.clients is None
    return (
        *_measurement(system.load, request, basis, per_s),
        *_costs(system.load, basis.origin, varied),
        *_testbed(system, request.duration_s),
        *(_agreement(system.limits, bottleneck, greatest_per_s) if opens else ()),
    )


def _measurement(load: OfferedLoad, request: LoadRequest, basis: MeasuredBasis, per_s: float) -> list[str]:
    if basis.run is None:
        return [
            "No measurement supports this prediction. Intervals cover seeds and parameters, not errors of the model."
        ]
    if basis.support is None:
        return ["The run is simulated, so no measurement supports this prediction."]
    found = []
    if request.changes:
        found.append(f"The run was measured without these changes: {', '.join(request.changes)}.")
    greatest, requested = basis.support.greatest_bytes_per_s, per_s * load.mean_bytes
    if greatest is not None and requested > greatest:
        found.append(
            f"The run reached {format_rate(greatest)} at most, below {format_rate(requested)}. Only the simulator"
            " extrapolates, because its model is mechanistic; no curve that was fitted to the run is used."
        )
    return found


def _costs(load: OfferedLoad, origin: CostOrigin | None, varied: int) -> list[str]:
    if origin is None:
        declared = load.header.cost is not None and bool(
            load.header.cost.movers
            or load.header.cost.services
            or load.header.cost.storages
            or load.header.cost.hosts
        )
        return (
            ["The costs are those of the scenario, without intervals."]
            if declared
            else [
                "The costs are defaults, not calibrated on this testbed: run `venturi calibrate`, then use --costs."
            ]
        )
    if not varied:
        return [f"{origin.name} has no intervals for the parameters of this load, so the costs do not vary."]
    return []


def _testbed(system: LoadSystem, duration_s: float | None) -> list[str]:
    load, limits, unknown = system.load, system.limits, system.unknown_costs
    found = [f"Unknown costs count as zero: {'; '.join(unknown)}."] if unknown else []
    assumed = [limit.name for limit in limits[:LISTED] if limit.assumed]
    if assumed:
        found.append(f"The simulator assumes the rate of {', '.join(assumed)}; set it in the scenario.")
    if load.header.network is not None and load.header.network.changes and duration_s is None:
        found.append("The testbed changes over time, and the simulated time is automatic; set --duration.")
    return found


def _agreement(limits: Sequence[ResourceLimit], bottleneck: str, greatest_per_s: float) -> list[str]:
    first = limits[0]
    if greatest_per_s >= TIGHT * first.per_s:
        return []
    return [
        f"The simulation sustains {100 * greatest_per_s / first.per_s:.0f} % of the bound of {first.name};"
        f" {bottleneck} limits most transfers."
    ]


def next_step(sustained: Sustained, basis: MeasuredBasis, needed: Sequence[Purchase]) -> str:
    """Return the action after this prediction."""
    changes = " ".join(f"--change '{one.change}'" for one in needed if one.change)
    if sustained == "no" and changes:
        return f"Predict again with {changes}."
    if sustained == "cannot tell":
        if any(one.assumed for one in needed):
            return "Set the assumed rates in the scenario, or calibrate them, and predict again."
        return "Use more seeds (--seeds 40), a longer --duration, or a rate farther from the limit."
    if basis.support is None:
        return "Measure this path, and predict from the run: venturi run SCENARIO, then venturi predict RUN."
    if basis.origin is None and basis.run is not None:
        return f"Calibrate the costs: venturi calibrate {basis.run.path.name} -o costs.toml, then use --costs costs.toml."
    return "Measure near the limit, and compare with this prediction: add --confirm."
