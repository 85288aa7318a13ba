"""The test of a sustained load, the search, and the intervals."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some
from scipy import stats

from venturi.errors import SampleError, UnitError
from venturi.prediction.engine import SimulatedTransfers, spread
from venturi.prediction.rate import RequestedRate
from venturi.prediction.replay import summarise_transfers
from venturi.prediction.search import PRECISION, greatest_rate
from venturi.prediction.uncertainty import jeffreys, time_factors


def fifo(load: float, count: int, seed: int) -> SimulatedTransfers:
    """Return transfers of 1 s at one server, first come first served, by Lindley's recursion."""
    duration_s = count / load
    start_s = np.sort(np.random.default_rng(seed).uniform(0, duration_s, count))
    end_s, free_s = np.empty(count), 0.0
    for number, start in enumerate(start_s):
        free_s = max(free_s, start) + 1.0
        end_s[number] = free_s
    return SimulatedTransfers(start_s, end_s, np.ones(count), {})


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("load", "sustained"), [(0.5, True), (0.9, True), (1.1, False), (1.5, False)])
def test_one_server_sustains_loads_below_its_capacity(load: float, sustained: bool, seed: int) -> None:
    found = fifo(load, 3000, seed)
    assert summarise_transfers(found, 3000 / load, seed, within=0.95).sustained is sustained


def test_the_growth_of_an_overloaded_server_is_the_excess_load() -> None:
    found = summarise_transfers(fifo(2.0, 20_000, 1), 10_000, 1, within=0.95)
    assert found.growth == pytest.approx(0.5, abs=0.02)
    assert found.completed_bytes_per_s == pytest.approx(1.0, rel=0.01)


def test_latencies_of_a_stable_server_have_the_mean_of_pollaczek_and_khinchine() -> None:
    found = [summarise_transfers(fifo(0.7, 20_000, seed), 20_000 / 0.7, seed, within=0.95) for seed in range(8)]
    expected_s = 1 + 0.7 / (2 * 0.3)
    # Eight seeds of 15,000 correlated latencies: a standard error of about 1 %.
    assert np.mean([one.mean_latency_s for one in found]) == pytest.approx(expected_s, rel=0.04)


def test_failed_transfers_count_against_the_completed_bytes() -> None:
    start_s = np.arange(1000.0)
    end_s = np.where(np.arange(1000) % 10 == 0, np.nan, start_s + 0.5)
    found = SimulatedTransfers(start_s, end_s, np.ones(1000), {})
    one = summarise_transfers(found, 1000, 1, within=0.95, timeout_s=20)
    assert (one.failed, one.sustained) == (0.1, False)
    assert summarise_transfers(found, 1000, 1, within=0.85, timeout_s=20).sustained
    # A failed transfer waits until its timeout: two of them at any time, beside the current one.
    assert np.mean(one.backlog[128:]) == pytest.approx(0.1 * 20 + 0.9 * 0.5, abs=0.3)


@given(limit=some.floats(1e-6, 1e6), guess=some.floats(0.05, 50))
def test_the_search_finds_a_limit_to_its_precision(limit: float, guess: float) -> None:
    found = greatest_rate(lambda rate: [rate < limit] * 5, guess * limit)
    assert found.low <= limit <= found.high * (1 + 1e-12)
    assert abs(math.log(found.per_s / limit)) <= PRECISION


def test_the_interval_of_the_search_contains_the_limits_of_all_seeds() -> None:
    limits = [0.9, 0.97, 1.0, 1.02, 1.1]
    found = greatest_rate(lambda rate: [rate < limit for limit in limits], 1.05)
    assert found.low <= 0.93 and found.high >= 1.05
    assert found.per_s == pytest.approx(1.0, rel=PRECISION)


@pytest.mark.parametrize("always", [True, False])
def test_a_search_without_a_limit_is_rejected(always: bool) -> None:
    with pytest.raises(SampleError, match="expected a"):
        greatest_rate(lambda _: [always], 1.0)


@pytest.mark.parametrize(("successes", "n"), [(0, 10), (3, 10), (8, 10), (10, 10), (40, 41)])
def test_probabilities_have_the_quantiles_of_the_posterior(successes: int, n: int) -> None:
    found = jeffreys(successes, n)
    posterior = stats.beta(successes + 0.5, n - successes + 0.5)
    assert found.value == pytest.approx(posterior.mean())
    if successes:
        assert posterior.cdf(found.low) == pytest.approx(0.025)
    if successes < n:
        assert posterior.cdf(found.high) == pytest.approx(0.975)


def test_time_factor_has_the_deviation_of_the_model_and_no_bias() -> None:
    logs = np.log(time_factors(0.2, 200))
    assert np.mean(logs) == pytest.approx(0, abs=1e-9)
    assert np.std(logs) == pytest.approx(0.2, rel=0.02)


@given(weights=some.lists(some.floats(0.01, 100), min_size=1, max_size=8), count=some.integers(0, 500))
def test_mixes_have_exact_counts_to_within_one(weights: list[float], count: int) -> None:
    drawn = np.bincount(spread(weights, count, np.random.default_rng(1)), minlength=len(weights))
    assert drawn.sum() == count
    assert np.all(np.abs(drawn - np.array(weights) / math.fsum(weights) * count) <= 1)


@pytest.mark.parametrize(
    ("text", "per_s"),
    [
        ("600 /min", 10),
        ("600 requests/min", 10),
        ("36 transfers / h", 0.01),
        ("5/s", 5),
        ("8 Gb/s", 1),
        ("1 GB/s", 1),
    ],
)
def test_rates_are_transfers_or_bytes_per_time(text: str, per_s: float) -> None:
    assert RequestedRate.parse(text).per_s(1e9) == pytest.approx(per_s)


@pytest.mark.parametrize("text", ["600", "0 /min", "600 min", "fast", "", "10 Gb", "-5 /s", "1e3 km/h"])
def test_rates_without_a_unit_are_rejected(text: str) -> None:
    with pytest.raises(UnitError, match="--rate: expected a rate with its unit"):
        RequestedRate.parse(text)
