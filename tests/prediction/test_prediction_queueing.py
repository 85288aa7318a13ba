"""Queueing formulas against closed forms, published tables and the balance equations of Markov chains."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from venturi.errors import SampleError
from venturi.prediction.queueing import Station, closed_network, erlang_c, fcfs_wait_s, sharing_time_s


@pytest.mark.parametrize("load", [0.05, 0.5, 0.9, 0.99])
def test_one_server_has_the_closed_forms_of_mm1(load: float) -> None:
    assert erlang_c(1, load) == pytest.approx(load, rel=1e-12)
    assert fcfs_wait_s(1, load / 2.0, 2.0) == pytest.approx(2.0 * load / (1 - load), rel=1e-12)
    assert sharing_time_s(load / 2.0, 2.0, 1.0) == pytest.approx(2.0 / (1 - load), rel=1e-12)


def test_fixed_service_times_halve_the_wait_of_one_server() -> None:
    # Pollaczek and Khinchine.
    assert fcfs_wait_s(1, 0.8, 1.0, variation=0.0) == pytest.approx(0.8 / (2 * 0.2), rel=1e-12)


# a: offered load in Erlang. Values of the sum form of the formula: Kleinrock, Queueing Systems 1, eq. 3.40.
@pytest.mark.parametrize(
    ("servers", "offered", "expected"),
    [(2, 1.0, 1 / 3), (3, 2.0, 4 / 9), (5, 4.0, 0.5541), (10, 8.0, 0.4092), (20, 15.0, 0.1604), (100, 90.0, 0.2169)],
)
def test_erlang_c_has_the_values_of_the_tables(servers: int, offered: float, expected: float) -> None:
    assert erlang_c(servers, offered) == pytest.approx(expected, abs=6e-5)


@pytest.mark.parametrize(("width", "load"), [(1.0, 0.7), (2.5, 0.9), (11.6, 0.8), (40.0, 0.5)])
def test_shared_resources_have_the_mean_of_their_birth_death_chain(width: float, load: float) -> None:
    per_s, alone_s = load * width / 3.0, 3.0
    weights = [1.0]
    for n in range(1, 4000):
        weights.append(weights[-1] * per_s * alone_s / min(n, width))
    mean = math.fsum(n * weight for n, weight in enumerate(weights)) / math.fsum(weights)
    assert sharing_time_s(per_s, alone_s, width) == pytest.approx(mean / per_s, rel=1e-9)


def balance(customers: int, demands: list[tuple[float, float]], think_s: float) -> float:
    """Return the throughput of a closed cycle of exponential stations, from the global balance equations."""
    stations = [(think_s, math.inf), *demands]
    states = [s for s in itertools.product(range(customers + 1), repeat=len(stations)) if sum(s) == customers]
    index = {state: number for number, state in enumerate(states)}
    rates = np.zeros((len(states), len(states)))
    for state in states:
        for k, (time_s, servers) in enumerate(stations):
            if state[k] == 0:
                continue
            rate = min(state[k], servers) / time_s
            after = list(state)
            after[k] -= 1
            after[(k + 1) % len(stations)] += 1
            rates[index[state], index[tuple(after)]] += rate
            rates[index[state], index[state]] -= rate
    equations = np.vstack([rates.T, np.ones(len(states))])
    solution = np.linalg.lstsq(equations, np.append(np.zeros(len(states)), 1.0), rcond=None)[0]
    leaving = [min(state[0], math.inf) / think_s for state in states]
    return float(solution @ np.array(leaving))


@pytest.mark.parametrize(
    ("customers", "demands", "think_s"),
    [
        (1, [(1.0, 1.0)], 2.0),
        (5, [(1.0, 1.0)], 3.0),
        (6, [(1.0, 2.0), (0.4, 1.0)], 0.5),
        (4, [(2.0, 3.0), (0.1, 1.0), (0.5, 2.0)], 1.0),
    ],
)
def test_closed_networks_solve_the_balance_equations(
    customers: int, demands: list[tuple[float, float]], think_s: float
) -> None:
    found = closed_network(customers, [Station(*one) for one in demands], think_s)
    expected = balance(customers, demands, think_s)
    assert found.per_s == pytest.approx(expected, rel=1e-9)
    assert found.response_s == pytest.approx(customers / expected - think_s, rel=1e-9)


def test_closed_networks_have_the_values_of_mean_value_analysis() -> None:
    # Reiser and Lavenberg's recursion for single servers.
    demands, think_s, queue, per_s = [0.5, 0.3, 0.05], 4.0, [0.0, 0.0, 0.0], 0.0
    for customers in range(1, 61):
        times = [demand * (1 + length) for demand, length in zip(demands, queue, strict=True)]
        per_s = customers / (think_s + math.fsum(times))
        queue = [per_s * time for time in times]
    found = closed_network(60, [Station(demand) for demand in demands], think_s)
    assert found.per_s == pytest.approx(per_s, rel=1e-9)


def test_large_closed_networks_reach_the_bound_of_their_bottleneck() -> None:
    found = closed_network(3000, [Station(2.0, 4.0), Station(0.1)], 100.0)
    assert found.per_s == pytest.approx(2.0, rel=1e-9)


@pytest.mark.parametrize(("servers", "offered"), [(1, 1.0), (4, 5.0), (0, 0.5), (2, -1.0)])
def test_loads_without_a_stationary_state_are_rejected(servers: int, offered: float) -> None:
    with pytest.raises(SampleError, match="expected"):
        erlang_c(servers, offered)
    with pytest.raises(SampleError, match="expected"):
        sharing_time_s(offered, 1.0, float(servers))


@pytest.mark.parametrize("customers", [0, 1_000_000])
def test_a_number_of_customers_out_of_range_is_rejected(customers: int) -> None:
    with pytest.raises(SampleError, match="customers"):
        closed_network(customers, [Station(1.0)], 1.0)
