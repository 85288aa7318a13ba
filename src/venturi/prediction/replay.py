r"""Replay of an offered load in the simulator: throughput, backlog over time, latencies, and whether the load is sustained.

Arrivals are a Poisson process with its number of arrivals given: :math:`n` independent uniform times. The mix of transfers
is exact and in random order. So each seed offers exactly the requested rate, and seeds differ less than with a random
number of arrivals.

The backlog :math:`B(t)` is the bytes of the transfers that were due but have not ended. Means over the second and the last
quarter of the time give its growth, as a fraction of the bytes :math:`V` that are requested in the half between them:

.. math:: g = \frac{\bar B_4 - \bar B_2}{V / 2}

A seed sustains the load if

- :math:`g` is at most the larger of 1 % and :math:`1 / \sqrt{n'}`, and
- of the bytes that are due in the first three quarters, at least the fraction ``within`` completes by the end, and
- the same is true for each route (endpoints and client), with :math:`3 / \sqrt{n'}` of its own transfers.

The first quarter is warm-up. In a system with the utilisation :math:`\rho > 1`, :math:`g` tends to :math:`1 - 1/\rho` if
transfers are served in turn, and to more if they share a resource, because all bytes of a transfer count until its end. At :math:`\rho = 1`, the random order of arrivals and sizes alone gives :math:`g` a standard deviation of
about :math:`1 / \sqrt{n'}`, with the effective number of transfers :math:`n' = n / (1 + c^2)` and the coefficient of
variation :math:`c` of their sizes. A smaller overload cannot be detected in this time. Over the seeds, Student's t
interval of :math:`g` states the growth.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from venturi.prediction.engine import SimulatedTransfers, simulate_closed, simulate_open, spread
from venturi.prediction.offered import OfferedLoad

__all__ = [
    "GROWTH",
    "Horizon",
    "SeedReplay",
    "closed_horizon",
    "horizon",
    "in_progress",
    "replay_clients",
    "replay_seed",
    "summarise_transfers",
]

FloatArray = npt.NDArray[np.float64]

GROWTH = 0.01
"""Largest growth of the backlog of a sustained load with many transfers, as a fraction of the requested bytes."""

TRANSFERS, MOST_TRANSFERS = 6000, 200_000
"""Effective number of transfers in a replay without a requested duration, and the maximum number of transfers."""

PLAN_TRANSFERS = 2000
"""Number of transfers if each is a step of a plan, which takes more time."""

ALONE_TIMES = 30.0
"""Minimum duration in times of a transfer without load, so that the warm-up is complete in the first quarter."""

MOST_PLAN_TRANSFERS = 50_000
"""Maximum number of transfers of closed-loop clients, unless each client then has fewer than :data:`FEWEST_CYCLES`."""

FEWEST_CYCLES = 8.0
"""Minimum number of transfers of each client."""

GRID = 256
"""Number of times for the backlog."""

FEWEST_OF_ROUTE, ROUTE_DEVIATIONS = 30, 3.0
"""Transfers of a route whose backlog is tested alone, and the allowed standard deviations of its growth.

The allowance is larger than for all transfers, because there can be many routes.
"""

QUANTILES = (0.5, 0.95, 0.99)


@dataclass(frozen=True, slots=True)
class Horizon:
    """Duration of a replay in seconds, and its number of transfers."""

    duration_s: float
    transfers: int


@dataclass(frozen=True, slots=True)
class SeedReplay:
    """Result of one seed.

    Attributes
    ----------
    seed, time_factor
        Seed, and the factor of all times for the model's error.
    requested_bytes_per_s, completed_bytes_per_s
        Rates in the second half.
    growth
        Growth of the backlog, as a fraction of the requested bytes.
    failed
        Fraction of failed transfers.
    latency_s
        Quantiles 0.5, 0.95 and 0.99 of the time from the intended start to the end, after the warm-up. Seconds. NaN if
        all transfers failed.
    mean_latency_s
        Its mean.
    backlog
        Transfers that are due but have not ended, at equally spaced times from 0 to the duration.
    sustained
        Whether this seed sustains the load.
    bottlenecks
        Main bottleneck → number of transfers, if requested.
    """

    seed: int
    time_factor: float
    requested_bytes_per_s: float
    completed_bytes_per_s: float
    growth: float
    failed: float
    latency_s: tuple[float, float, float]
    mean_latency_s: float
    backlog: tuple[float, ...]
    sustained: bool
    bottlenecks: dict[str, int]


def horizon(
    load: OfferedLoad, per_s: float, alone_s: float, duration_s: float | None, fraction: float = 1.0
) -> Horizon:
    """Return the duration of a replay at this rate.

    Parameters
    ----------
    load, per_s
        The load, and its transfers per second.
    alone_s
        Largest time of a transfer without load, in s.
    duration_s
        Requested duration. None: long enough for the number of transfers, and for the longest transfer.
    fraction
        Fraction of the transfers that use the first resource; it needs enough of them.
    """
    if duration_s is not None:
        return Horizon(duration_s, max(1, round(per_s * duration_s)))
    least = PLAN_TRANSFERS if load.needs_plan else TRANSFERS * (1 + load.size_variation**2) / fraction
    number = min(MOST_TRANSFERS, round(max(least, per_s * ALONE_TIMES * alone_s)))
    return Horizon(number / per_s, number)


def replay_seed(
    load: OfferedLoad, span: Horizon, seed: int, *, within: float, time_factor: float = 1.0, explain: bool = False
) -> SeedReplay:
    """Simulate the load with one seed.

    Parameters
    ----------
    span
        Duration and number of transfers, which give the rate.
    within
        Fraction of the requested bytes that must complete.
    time_factor
        Factor of all times of the testbed. A testbed that is slower by this factor is simulated by arrivals that are
        faster by it; the times of the result are then multiplied by it.
    explain
        Whether to find the bottlenecks.

    Raises
    ------
    BackendError
        If the engine is missing or rejects the load.
    """
    rng = np.random.default_rng([seed, span.transfers])
    start_s = np.sort(rng.uniform(0.0, span.duration_s, span.transfers))
    kinds = spread([kind.fraction for kind in load.kinds], span.transfers, rng)
    found = simulate_open(_faster(load, time_factor), start_s / time_factor, kinds, explain=explain)
    times = replace(found, start_s=start_s, end_s=found.end_s * time_factor)
    return summarise_transfers(
        times, span.duration_s, seed, within=within, time_factor=time_factor, timeout_s=_timeout_s(load)
    )


def _timeout_s(load: OfferedLoad) -> float:
    return max(load.header.calls[kind.call].timeout_s for kind in load.kinds)


def _faster(load: OfferedLoad, time_factor: float) -> OfferedLoad:
    """Return the load with its timeouts and the changes of its testbed on the faster clock."""
    if time_factor == 1:
        return load
    header = load.header
    calls = {name: replace(call, timeout_s=call.timeout_s / time_factor) for name, call in header.calls.items()}
    network = header.network
    if network is not None:
        network = replace(
            network, changes=tuple(replace(one, time_s=one.time_s / time_factor) for one in network.changes)
        )
    return replace(load, header=replace(header, calls=calls, network=network))


def summarise_transfers(
    found: SimulatedTransfers,
    duration_s: float,
    seed: int,
    *,
    within: float,
    time_factor: float = 1.0,
    timeout_s: float = math.inf,
) -> SeedReplay:
    """Return rates, backlog and latencies of simulated transfers, and whether they sustain their load.

    Examples
    --------
    >>> import numpy as np
    >>> start_s = np.arange(100.0)
    >>> ones, late = np.ones(100), np.arange(100.0) * 1.25 + 1
    >>> summarise_transfers(SimulatedTransfers(start_s, start_s + 0.5, ones, {}), 100, 1, within=0.95).sustained
    True
    >>> found = summarise_transfers(SimulatedTransfers(start_s, late, ones, {}), 100, 1, within=0.95)
    >>> found.sustained, round(found.growth, 2)
    (False, 0.2)
    """
    start_s, end_s, sizes = found.start_s, found.end_s, found.size_bytes
    good = np.isfinite(end_s)
    # The simulator has no other failures than timeouts, and outages that last at most as long.
    left_s = np.where(good, end_s, start_s + timeout_s)
    grid = np.linspace(0.0, duration_s, GRID + 1)
    growth = _growth(start_s, left_s, sizes, grid)
    half_s = duration_s / 2
    requested = float(sizes[start_s > half_s].sum())
    completed = float(sizes[good & (end_s > half_s) & (end_s <= duration_s)].sum())
    latency_s = (end_s - start_s)[good & (start_s >= duration_s / 4)]
    quantiles = np.quantile(latency_s, QUANTILES) if len(latency_s) else np.full(3, np.nan)
    return SeedReplay(
        seed=seed,
        time_factor=time_factor,
        requested_bytes_per_s=requested / half_s,
        completed_bytes_per_s=completed / half_s,
        growth=growth,
        failed=float(np.mean(~good)),
        latency_s=(float(quantiles[0]), float(quantiles[1]), float(quantiles[2])),
        mean_latency_s=float(latency_s.mean()) if len(latency_s) else math.nan,
        backlog=tuple(map(float, in_progress(start_s, left_s, np.ones(len(sizes)), grid))),
        sustained=_sustains(found, left_s, grid, within),
        bottlenecks=found.bottlenecks,
    )


def _growth(start_s: FloatArray, left_s: FloatArray, sizes: FloatArray, grid: FloatArray) -> float:
    """Return the growth of the backlog as a fraction of the requested bytes."""
    backlog_bytes = in_progress(start_s, left_s, sizes, grid)
    quarter = GRID // 4
    second, last = backlog_bytes[quarter : 2 * quarter + 1].mean(), backlog_bytes[3 * quarter :].mean()
    return float(last - second) / (float(sizes.sum()) / 2)


def _most_growth(sizes: FloatArray, deviations: float = 1.0) -> float:
    """Return the largest growth of a sustained load."""
    effective = float(sizes.sum()) ** 2 / float(np.square(sizes).sum())
    return max(GROWTH, deviations / math.sqrt(effective))


def _sustains(found: SimulatedTransfers, left_s: FloatArray, grid: FloatArray, within: float) -> bool:
    """Return whether the whole load is sustained, and each route; the whole load can hide a route with few bytes."""
    if not _sustains_part(found, left_s, grid, within, slice(None), 1.0):
        return False
    counts = np.bincount(found.routes) if found.routes is not None else np.zeros(0, dtype=np.int64)
    tested = np.flatnonzero(counts >= FEWEST_OF_ROUTE) if len(counts) > 1 else ()
    return all(
        _sustains_part(found, left_s, grid, within, found.routes == route, ROUTE_DEVIATIONS) for route in tested
    )


def _sustains_part(
    found: SimulatedTransfers, left_s: FloatArray, grid: FloatArray, within: float, part: Any, deviations: float,  # noqa: ANN401 - an index
) -> bool:  # fmt: skip
    start_s, end_s, sizes = found.start_s[part], found.end_s[part], found.size_bytes[part]
    due = start_s <= 0.75 * grid[-1]
    # A comparison with NaN is false, so failed transfers are not complete.
    complete = float(sizes[due & (end_s <= grid[-1])].sum()) >= within * float(sizes[due].sum())
    return complete and _growth(start_s, left_s[part], sizes, grid) <= _most_growth(sizes, deviations)


def in_progress(start_s: FloatArray, end_s: FloatArray, weights: FloatArray, grid: FloatArray) -> FloatArray:
    """Return the sum of the weights of the transfers that are due but have not ended, at each time of the grid.

    Parameters
    ----------
    start_s, end_s, weights
        Intended start, ascending; end; and weight; shape (n,).
    grid
        Times in s, shape (m,).

    Examples
    --------
    >>> in_progress(np.array([0.0, 1.0]), np.array([3.0, 2.0]), np.array([5.0, 7.0]), np.array([0.5, 1.5, 2.5]))
    array([ 5., 12.,  5.])
    """
    order = np.argsort(end_s)
    started = np.concatenate(([0.0], np.cumsum(weights)))[np.searchsorted(start_s, grid, side="right")]
    ended = np.concatenate(([0.0], np.cumsum(weights[order])))[np.searchsorted(end_s[order], grid, side="right")]
    return started - ended


def closed_horizon(
    clients: int, think_s: float, alone_s: float, limit_per_s: float, duration_s: float | None
) -> Horizon:
    """Return the duration of a simulation of clients, and the expected number of transfers.

    Parameters
    ----------
    clients, think_s
        Number of clients, and their pause after each transfer.
    alone_s, limit_per_s
        Mean time of a transfer without other load, and the rate that fills the first resource.
    duration_s
        Requested duration. None: long enough for the number of transfers, and for several transfers of each client.
    """
    per_s = min(limit_per_s, clients / (alone_s + think_s))
    if duration_s is None:
        cycle_s = max(alone_s + think_s, clients / limit_per_s)
        duration_s = max(PLAN_TRANSFERS / per_s, ALONE_TIMES * cycle_s)
        duration_s = max(min(duration_s, MOST_PLAN_TRANSFERS / per_s), FEWEST_CYCLES * cycle_s)
    return Horizon(duration_s, max(1, round(per_s * duration_s)))


def replay_clients(
    load: OfferedLoad, clients: int, think_s: float, span: Horizon, seed: int, *, target_bytes_per_s: float,
    within: float, time_factor: float = 1.0, explain: bool = False,
) -> SeedReplay:  # fmt: skip
    """Simulate closed-loop clients with one seed.

    The clients sustain a target if they complete at least the fraction ``within`` of it in the second half. Without a
    target (NaN), ``sustained`` is False and has no meaning.

    Raises
    ------
    BackendError
        If the engine is missing or rejects the load.
    """
    duration_s, cycle_s = span.duration_s, clients * span.duration_s / span.transfers
    found = simulate_closed(
        _faster(load, time_factor), clients, think_s / time_factor, cycle_s / time_factor, duration_s / time_factor, seed,
        explain=explain,
    )  # fmt: skip
    times = SimulatedTransfers(
        found.start_s * time_factor, found.end_s * time_factor, found.size_bytes, found.bottlenecks
    )
    one = summarise_transfers(
        times, duration_s, seed, within=within, time_factor=time_factor, timeout_s=_timeout_s(load)
    )
    sustained = one.completed_bytes_per_s >= within * target_bytes_per_s
    return replace(one, requested_bytes_per_s=target_bytes_per_s, growth=0.0, sustained=sustained)
