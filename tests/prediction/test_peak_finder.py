"""The peak finder on simulated queues with a known limit: M/D/1, M/M/c, M/G/1 with sharing, and noisy probes."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from venturi.errors import PlanError
from venturi.prediction.load_probe import LoadTarget, ProbeTransfers, evaluate_load
from venturi.prediction.peak_finder import (
    LoadOrder,
    LoadProbe,
    MeasuredLimit,
    PeakFinder,
    StopFinding,
    measured_limit,
)

FloatArray = npt.NDArray[np.float64]
Queue = Callable[[FloatArray, np.random.Generator], tuple[FloatArray, FloatArray]]
"""Ends and sizes of transfers with these starts."""


def many_servers(servers: int) -> Queue:
    """Return a queue with exponential services of mean 1 s in c servers, first come first served."""

    def serve(start_s: FloatArray, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        free_s = [0.0] * servers
        ends = []
        for arrival_s, service_s in zip(start_s, rng.exponential(1.0, len(start_s)), strict=True):
            end_s = max(arrival_s, heapq.heappop(free_s)) + service_s
            heapq.heappush(free_s, end_s)
            ends.append(end_s)
        return np.array(ends), np.ones(len(start_s))

    return serve


def sharing(sizes: tuple[float, ...], rate: float = 10.0) -> Queue:
    """Return a link that active transfers share equally (M/G/1-PS), with sizes in turn, in bytes."""

    def serve(start_s: FloatArray, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        work = np.resize(np.array(sizes), len(start_s))
        ends = np.zeros(len(start_s))
        # In virtual time, a transfer that arrives at v ends at v + its work; all active ones progress alike.
        active: list[tuple[float, int]] = []
        now_s = virtual = 0.0
        for number, arrival_s in enumerate([*start_s, math.inf]):
            while active and now_s + (active[0][0] - virtual) * len(active) / rate <= arrival_s:
                done, index = active[0]
                now_s += (done - virtual) * len(active) / rate
                virtual = done
                ends[index] = now_s
                heapq.heappop(active)
            if number == len(start_s):
                break
            if active:
                virtual += (arrival_s - now_s) * rate / len(active)
            now_s = arrival_s
            heapq.heappush(active, (virtual + work[number], number))
        return ends, work

    return serve


def find_limit(
    queue: Queue, finder: PeakFinder, *, seed: int, even: bool = True, target: LoadTarget | None = None, warm_up: float = 0.25
) -> tuple[list[LoadProbe], MeasuredLimit, str]:  # fmt: skip
    """Return the probes on a queue, the limit, and the reason of the end."""
    history: list[LoadProbe] = []
    while True:
        order = finder.next(history)
        if isinstance(order, StopFinding):
            return history, measured_limit(history), order.reason
        rng = np.random.default_rng([seed, len(history)])
        count = round(order.per_s * order.duration_s)
        if even:
            start_s = np.asarray((np.arange(count) + rng.random()) / order.per_s, dtype=np.float64)
        else:
            start_s = np.sort(rng.uniform(0, order.duration_s, count))
        end_s, sizes = queue(start_s, rng)
        found = ProbeTransfers(start_s, start_s, end_s, sizes, np.ones(count, dtype=bool))
        streams = sorted(set(sizes.tolist())) if even else None
        probe = evaluate_load(found, order, target or LoadTarget(), warm_up=warm_up, streams=streams)
        history.append(
            LoadProbe(probe.per_s, order.duration_s, probe.holds, probe.tolerance, time_s=order.duration_s)
        )


def finder(start_per_s: float, *, transfers: int = 133, **changes: float) -> PeakFinder:
    return PeakFinder(start_per_s, math.log(1.1), transfers, 27, 1.0, 1.0, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("guess", [0.4, 0.95, 1.0, 1.1, 2.5])
def test_the_interval_contains_the_limit_of_a_shared_link_from_good_and_bad_predictions(guess: float) -> None:
    # Mean size 20 at 10 B/s: 0.5 transfers per second.
    history, found, _ = find_limit(sharing((10.0, 30.0)), finder(0.5 * guess), seed=1)
    assert found.low <= 0.5 <= found.high
    assert found.high / found.low < 1.2
    assert len(history) <= 16


def test_random_services_of_many_servers_are_bracketed_in_90_percent_of_the_cases() -> None:
    # Four servers of 1 s: the limit is 4 per second. A probe with exponential services errs by several percent.
    found = [find_limit(many_servers(4), finder(4.4, transfers=400), seed=seed)[1] for seed in range(20)]
    assert sum(one.low <= 4.0 <= one.high for one in found) >= 18
    assert np.median([one.high / one.low for one in found]) < 1.35


def test_random_arrivals_with_a_latency_target_find_the_load_of_the_closed_form() -> None:
    # M/M/1 with rate 1: the 95th percentile of the time is ln(20) / (1 - λ) (Kleinrock, Queueing Systems 1, 5.119).
    target = LoadTarget(p95_s=12.0)
    limit = 1 - math.log(20) / 12.0
    found = [
        find_limit(
            many_servers(1), finder(limit * 1.15, transfers=1200), seed=seed, even=False, target=target
        )[1]
        for seed in range(10)
    ]  # fmt: skip
    assert sum(one.low <= limit <= one.high for one in found) >= 9
    assert np.median([one.value for one in found]) == pytest.approx(limit, rel=0.08)


@pytest.mark.parametrize(("noise", "least"), [(0.0, 200), (0.02, 190), (0.05, 180), (0.1, 160)])
def test_noisy_decisions_widen_the_interval(noise: float, least: int) -> None:
    rng = np.random.default_rng(7)
    inside, widths = 0, []
    for _ in range(200):
        history: list[LoadProbe] = []
        chooser = finder(float(rng.uniform(0.7, 1.4)))
        while isinstance(order := chooser.next(history), LoadOrder):
            holds = math.log(order.per_s) + noise * rng.standard_normal() < 0
            history.append(LoadProbe(order.per_s, order.duration_s, bool(holds), 0.02))
        found = measured_limit(history)
        inside += found.low <= 1.0 <= found.high
        widths.append(found.high / found.low)
        assert len(history) <= 16
    assert inside >= least
    assert np.median(widths) < 1.07 + 2 * noise


def test_without_noise_the_last_quarter_is_within_two_smallest_steps() -> None:
    chooser = finder(3.0)
    history: list[LoadProbe] = []
    while isinstance(order := chooser.next(history), LoadOrder):
        history.append(LoadProbe(order.per_s, order.duration_s, order.per_s < 1.0, 0.0))
    found = measured_limit(history)
    last = history[-found.probes :]
    assert {probe.holds for probe in last} == {True, False}
    assert all(1 / 1.05 < probe.per_s < 1.05 for probe in last)
    assert (found.low, found.high) == (min(p.per_s for p in last), max(p.per_s for p in last))


def test_the_same_probes_give_the_same_load() -> None:
    history = [LoadProbe(1.0, 1.0, True, 0.02), LoadProbe(1.1, 1.0, False, 0.02)]
    assert finder(1.0).next(history) == finder(1.0).next(list(history))


def test_the_time_bounds_the_probes_and_shortens_them() -> None:
    history, _, reason = find_limit(sharing((10.0,)), finder(2.0, time_s=300.0), seed=1)
    assert reason == "the time is over"
    assert sum(probe.time_s for probe in history) <= 300.0
    assert len(history) >= 4
    # 133 transfers at about 1 per second need 133 s; an eighth of the time, at least 27 transfers, is available.
    assert all(27 <= probe.duration_s <= 60 for probe in history)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"time_s": 10.0}, "--time: expected at least 27 s for one probe, found 10 s"),
        ({"time_s": 30.0, "overhead_s": 7.0}, "--time: expected at least 34 s for one probe, found 30 s"),
        ({"probe_s": 5.0}, "--probe: expected at least 27 s for 27 transfers, found 5 s"),
    ],
)
def test_a_time_that_is_too_short_for_one_probe_is_an_error(changes: dict[str, float], expected: str) -> None:
    with pytest.raises(PlanError, match=expected):
        finder(1.0, **changes).next([])  # type: ignore[arg-type]


def test_caches_prolong_a_probe_until_the_load_has_filled_them_twice() -> None:
    # 2 × 2000 B at 10 transfers of 1 B per second.
    cached = finder(10.0, fill_bytes=4000.0)
    assert cached.next([]) == LoadOrder(10.0, 400.0)
    assert cached.fill_s(5.0) == 800.0
    second = cached.next([LoadProbe(10.0, 400.0, False, 0.02)])
    assert isinstance(second, LoadOrder) and second.duration_s == pytest.approx(440.0)
    assert finder(10.0, fill_bytes=4000.0, time_s=800.0).next([]) == LoadOrder(10.0, 100.0)


def test_a_queue_that_slows_down_when_its_cache_is_full_does_not_hold_in_the_last_quarter() -> None:
    start_s = np.arange(400) / 1.0
    rate = np.where(start_s < 250, 2.0, 0.8)
    end_s = np.zeros(400)
    last_s = 0.0
    for number, arrival_s in enumerate(start_s):
        last_s = end_s[number] = max(last_s, arrival_s) + 1 / rate[number]
    late, short = (
        evaluate_load(
            ProbeTransfers(start_s[:n], start_s[:n], end_s[:n], np.ones(n), np.ones(n, dtype=bool)),
            LoadOrder(1.0, float(n)), LoadTarget(), warm_up=0.75, streams=[1.0],
        )
        for n in (400, 200)
    )  # fmt: skip
    assert short.holds and not late.holds
    assert late.growth == pytest.approx(0.2, abs=0.02)


def test_failed_transfers_count_as_infinite_times_and_missing_bytes() -> None:
    start_s = np.arange(100.0)
    good = np.arange(100) % 10 != 0
    found = ProbeTransfers(start_s, start_s, start_s + 0.5, np.ones(100), good)
    probe = evaluate_load(found, LoadOrder(1.0, 100.0), LoadTarget(), warm_up=0.0, streams=[1.0])
    assert not probe.holds and probe.reason == "only 90 % of the bytes arrive"
    assert probe.failed == pytest.approx(0.1) and math.isinf(probe.latency_s[1])
    kinder = evaluate_load(found, LoadOrder(1.0, 100.0), LoadTarget(within=0.8), warm_up=0.0, streams=[1.0])
    assert kinder.holds
    assert not evaluate_load(
        found, LoadOrder(1.0, 100.0), LoadTarget(0.8, p95_s=9.0), warm_up=0.0, streams=[1.0]
    ).holds


def test_loads_with_equal_results_give_an_interval_with_one_finite_end() -> None:
    up = measured_limit([LoadProbe(1.0, 1.0, True, 0.0), LoadProbe(1.2, 1.0, True, 0.0)])
    down = measured_limit([LoadProbe(1.0, 1.0, False, 0.0), LoadProbe(0.8, 1.0, False, 0.0)])
    assert (up.low, up.high) == (1.2, math.inf)
    assert (down.low, down.high) == (0.0, 0.8)
