"""Prediction for a load that was not measured: bounds, queueing theory, and replays in the simulator.

No layer extrapolates a fitted curve. Beyond the measured range, only the simulator is used: its model is mechanistic.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from venturi.errors import PlanError
from venturi.prediction.measured import MeasuredBasis, measured_basis
from venturi.prediction.offered import OfferedLoad
from venturi.prediction.replay import Horizon, SeedReplay, closed_horizon, horizon, replay_clients, replay_seed
from venturi.prediction.request import LoadRequest
from venturi.prediction.resources import ResourceLimit
from venturi.prediction.result import Estimate, LoadPrediction, Sustained
from venturi.prediction.search import GreatestRate, greatest_rate
from venturi.prediction.summarise import TIGHT, caveats, layers, next_step, purchases, seed_range
from venturi.prediction.system import LoadSystem, load_system
from venturi.prediction.uncertainty import Probability, draw_costs, jeffreys, time_factors
from venturi.run import Run
from venturi.scenario import Scenario
from venturi.stats import student_interval
from venturi.units import format_duration

__all__ = ["predict_load"]

SEARCH_SEEDS = 5
"""Seeds of the search of the greatest rate."""

OVERLOAD = 1.1
"""Multiple of the greatest rate for the observation of the bottleneck."""

FEWEST_TRANSFERS, MOST_TRANSFERS = 50, 2_000_000
"""Range of the number of transfers within a requested duration."""

TAIL = 1.645
"""Quantile 0.95 of the normal distribution."""

BACKLOG_TIMES = 16
"""Intervals of the backlog over time in the result."""

QUANTILES = ("p50", "p95", "p99")

QUEUE = "queue"
"""Bottleneck of transfers that wait for a session of a server."""

OnProgress = Callable[[str, int, int | None], None]
"""Receives the step, the number of finished simulations in it, and their total if known."""


@dataclass(frozen=True)
class _Seeds:
    """Load and time_factor of each seed; the loads differ in their costs if these are uncertain."""

    loads: tuple[OfferedLoad, ...]
    time_factor: tuple[float, ...]
    varied: int
    deviation: float


@dataclass(frozen=True)
class _Simulated:
    """Simulations of the load: one per seed, their horizon, and the greatest rate (clients: the throughput)."""

    replays: list[SeedReplay]
    span: Horizon
    greatest: Estimate
    bottlenecks: dict[str, int]


def predict_load(
    scenario: Scenario, request: LoadRequest, *, run: Run | None = None, on_progress: OnProgress | None = None
) -> LoadPrediction:
    """Return whether a testbed sustains a load, with its latencies and its greatest rate.

    Parameters
    ----------
    scenario
        Testbed and workload at scale 1. The workload gives endpoints, mover, options and sizes; the load replaces its
        times.
    request
        The load, with a rate or clients.
    run
        Run of the scenario. If it was measured, its error of the model widens the intervals.
    on_progress
        Called after each simulation.

    Raises
    ------
    PlanError
        If the simulator cannot represent the testbed or the load, or if a route has no known rate.
    ScenarioError
        If the costs are not valid.
    BackendError
        If the engine is missing, or a transfer fails without other load.
    SampleError
        If no rate is sustained, or the run cannot be compared.

    Examples
    --------
    >>> from venturi.prediction import RequestedRate
    >>> from venturi.scenario import load_scenario
    >>> request = LoadRequest(RequestedRate.parse("600 /min"))
    >>> predict_load(load_scenario("my.toml"), request).sustained  # doctest: +SKIP
    'yes'
    """
    show = on_progress or (lambda step, done, total: None)
    system = load_system(scenario, request, run)
    basis = measured_basis(run, request.costs)
    seeds = _seeds(system.load, request, basis)
    per_s = None if request.rate is None else request.rate.per_s(system.load.mean_bytes)
    if request.clients is not None:
        found = _simulate_clients(system, request, seeds, per_s, show)
    elif per_s is not None:
        found = _simulate_open(system, request, seeds, per_s, show)
    else:
        raise PlanError("--rate: expected a rate or a number of clients, found neither; set one of them")
    return _prediction(scenario.name, system, request, basis, seeds.varied, per_s, found)


def _prediction(
    name: str, system: LoadSystem, request: LoadRequest, basis: MeasuredBasis, varied: int, per_s: float | None,
    found: _Simulated,
) -> LoadPrediction:  # fmt: skip
    replays, opens = found.replays, request.clients is None
    probability = None if per_s is None else jeffreys(sum(one.sustained for one in replays), len(replays))
    sustained = _sustained(probability, system.limits, per_s)
    at_per_s = found.greatest.value if per_s is None else per_s
    bottleneck = _bottleneck_name(system.limits, found.bottlenecks, found.greatest.value)
    needed = purchases(system.limits, per_s)
    return LoadPrediction(
        name=name if basis.run is None else basis.run.path.name,
        sustained=sustained,
        probability=probability,
        rate=request.rate,
        clients=request.clients,
        think_s=request.think_s,
        per_s=at_per_s,
        mean_bytes=system.load.mean_bytes,
        greatest=found.greatest,
        bottleneck=bottleneck,
        throughput_bytes_per_s=seed_range([one.completed_bytes_per_s for one in replays]),
        latency_s={key: seed_range([one.latency_s[n] for one in replays]) for n, key in enumerate(QUANTILES)},
        failed=float(np.mean([one.failed for one in replays])),
        growth=_growth(replays) if opens else None,
        backlog=_backlog(replays, found.span) if opens else (),
        within=request.within,
        p95_s=request.p95_s,
        duration_s=found.span.duration_s,
        transfers=found.span.transfers,
        seeds=len(replays),
        kinds=len(system.load.kinds),
        layers=layers(system, request, at_per_s, replays, found.greatest),
        resources=system.limits,
        purchases=needed,
        support=basis.support,
        varied_parameters=varied,
        caveats=caveats(system, request, basis, varied, bottleneck, found.greatest.value, at_per_s),
        next_step=next_step(sustained, basis, needed),
    )


def _seeds(load: OfferedLoad, request: LoadRequest, basis: MeasuredBasis) -> _Seeds:
    deviation = 0.0 if basis.support is None else basis.support.deviation
    time_factor = time_factors(deviation, request.seeds)
    origin = basis.origin
    if origin is None or not origin.intervals or load.header.cost is None:
        return _Seeds((load,) * request.seeds, time_factor, 0, deviation)
    costs, varied = draw_costs(load, load.header.cost, origin, range(request.seeds))
    loads = tuple(
        dataclasses.replace(load, header=dataclasses.replace(load.header, cost=cost)) if varied else load
        for cost in costs
    )
    return _Seeds(loads, time_factor, varied, deviation)


def _simulate_open(
    system: LoadSystem, request: LoadRequest, seeds: _Seeds, per_s: float, show: OnProgress
) -> _Simulated:
    _check_p95(system, request)
    span = horizon(system.load, per_s, system.longest_s, request.duration_s, system.limits[0].fraction)
    if request.duration_s is not None and not FEWEST_TRANSFERS <= span.transfers <= MOST_TRANSFERS:
        raise PlanError(
            f"--duration: expected a time for {FEWEST_TRANSFERS} to {MOST_TRANSFERS:,} transfers, found {span.transfers:,};"
            f" use {'a longer' if span.transfers < FEWEST_TRANSFERS else 'a shorter'} duration, or omit it"
        )
    replays = []
    for seed, (load, time_factor) in enumerate(zip(seeds.loads, seeds.time_factor, strict=True), 1):
        replays.append(_replay(load, span, seed, request, time_factor))
        show("load", seed, len(seeds.loads))
    found, bottlenecks = _limit(system, request, seeds, show)
    spread = math.exp(TAIL * seeds.deviation)
    return _Simulated(replays, span, Estimate(found.per_s, found.low / spread, found.high * spread), bottlenecks)


def _replay(
    load: OfferedLoad, span: Horizon, seed: int, request: LoadRequest, time_factor: float = 1.0
) -> SeedReplay:
    """Replay a seed with all requirements of the request."""
    found = replay_seed(load, span, seed, within=request.within, time_factor=time_factor)
    if request.p95_s is None or found.latency_s[1] <= request.p95_s:
        return found
    return dataclasses.replace(found, sustained=False)


def _check_p95(system: LoadSystem, request: LoadRequest) -> None:
    """Reject a requirement that no load meets, however small."""
    if request.p95_s is None:
        return
    # At most 5 % of the transfers can take longer.
    longer = math.fsum(kind.fraction for kind in system.load.kinds if system.alone_s[kind] > request.p95_s)
    if longer > 0.05:
        alone = format_duration(system.longest_s)
        raise PlanError(
            f"--p95: expected more than the {alone} of a transfer without other load,"
            f" found {format_duration(request.p95_s)}; use a longer time, or smaller transfers"
        )


def _limit(
    system: LoadSystem, request: LoadRequest, seeds: _Seeds, show: OnProgress
) -> tuple[GreatestRate, dict[str, int]]:
    """Return the greatest rate, and the bottlenecks of transfers slightly above it."""
    loads = seeds.loads[:SEARCH_SEEDS]

    def span(per_s: float) -> Horizon:
        return horizon(system.load, per_s, system.longest_s, request.duration_s, system.limits[0].fraction)

    def holds(per_s: float) -> Sequence[bool]:
        return [_replay(load, span(per_s), seed, request).sustained for seed, load in enumerate(loads, 1)]

    found = greatest_rate(holds, system.limits[0].per_s, on_rate=lambda done: show("greatest rate", done, None))
    above = replay_seed(system.load, span(OVERLOAD * found.per_s), 1, within=request.within, explain=True)
    return found, above.bottlenecks


def _simulate_clients(
    system: LoadSystem, request: LoadRequest, seeds: _Seeds, per_s: float | None, show: OnProgress
) -> _Simulated:
    assert request.clients is not None, "the caller checks it"
    span = closed_horizon(request.clients, request.think_s, system.mean_s, system.limits[0].per_s, request.duration_s)
    target = math.nan if per_s is None else per_s * system.load.mean_bytes
    replays = []
    for seed, (load, time_factor) in enumerate(zip(seeds.loads, seeds.time_factor, strict=True), 1):
        replays.append(
            replay_clients(
                load, request.clients, request.think_s, span, seed, target_bytes_per_s=target,
                within=request.within, time_factor=time_factor, explain=seed == 1,
            )
        )  # fmt: skip
        show("clients", seed, len(seeds.loads))
    throughput = seed_range([one.completed_bytes_per_s / system.load.mean_bytes for one in replays])
    return _Simulated(replays, span, throughput, replays[0].bottlenecks)


def _bottleneck_name(limits: Sequence[ResourceLimit], bottlenecks: dict[str, int], greatest_per_s: float) -> str:
    """Return the resource that limits most transfers, by its name in the bounds if it is one of them.

    If a link is full, sessions last longer, so transfers also wait for sessions. Such a queue is an effect and not the
    cause, unless the rate stays below the bounds.
    """
    first = limits[0]
    effect = first.kind != "sessions" and greatest_per_s >= TIGHT * first.per_s
    counts = {name: count for name, count in bottlenecks.items() if not (effect and name == QUEUE)}
    most = max(counts, key=lambda name: counts[name], default=first.bottleneck)
    for limit in limits:
        if most == limit.bottleneck or most.startswith(f"{limit.bottleneck}#"):
            return f"{limit.name}, assumed rate" if limit.assumed else limit.name
    # Work for a CPU has the name of its stage, such as `session`.
    return first.name if first.kind == "cpu" else f"the time of single transfers ({most})"


def _sustained(probability: Probability | None, limits: Sequence[ResourceLimit], per_s: float | None) -> Sustained:
    """Return whether the load is sustained. An assumed rate alone does not justify a *no*."""
    if probability is None or per_s is None:
        return "no target"
    if probability.low > 0.5:
        return "yes"
    only_assumed = any(one.per_s < per_s for one in limits if one.assumed) and all(
        one.per_s >= per_s for one in limits if not one.assumed
    )
    return "no" if probability.high < 0.5 and not only_assumed else "cannot tell"


def _growth(replays: Sequence[SeedReplay]) -> Estimate:
    interval = student_interval([one.growth for one in replays])
    return Estimate(interval.estimate, interval.low, interval.high)


def _backlog(replays: Sequence[SeedReplay], span: Horizon) -> tuple[tuple[float, float], ...]:
    means = np.mean([one.backlog for one in replays], axis=0)
    times_s = np.linspace(0.0, span.duration_s, len(means))
    every = max(1, (len(means) - 1) // BACKLOG_TIMES)
    return tuple((float(time), float(mean)) for time, mean in zip(times_s[::every], means[::every], strict=True))
