"""The allocation is weighted max-min fair: compared with linear programs, the bottleneck property and closed forms."""

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.sparse import csr_array

from venturi.challenge.allocation import NO_LIMIT, allocate


def random_network(seed, flows=7, resources=5):
    """Return demands, weights, usage and capacities: each flow uses one to three resources, with headers."""
    draw = np.random.default_rng(seed)
    usage = np.zeros((flows, resources))
    for flow in range(flows):
        used = draw.choice(resources, size=draw.integers(1, 4), replace=False)
        usage[flow, used] = draw.choice([1.0, 1500 / 1448, 9000 / 8948], size=len(used))
    return draw.uniform(1, 10, flows), draw.uniform(0.5, 3, flows), usage, draw.uniform(2, 25, resources)


def largest(objective, usage, capacity, floor, demand):
    """Return the solution of a linear program with the smallest normalised rates ``floor``."""
    flows = len(demand)
    bounds = [(floor[flow], demand[flow]) for flow in range(flows)]
    found = linprog(-objective, A_ub=usage.T, b_ub=capacity, bounds=bounds, method="highs")
    assert found.status == 0, found.message
    return found.x


def max_min_by_linear_programs(demand, weight, usage, capacity):
    """Return the lexicographic max-min rates: raise the lowest normalised rate, fix the flows that cannot rise, repeat."""
    flows = len(demand)
    fixed = np.full(flows, np.nan)
    while np.isnan(fixed).any():
        free = np.isnan(fixed)
        # Variables: the rates and the level t, with x >= w t for free flows.
        rows = [np.append(-np.eye(flows)[flow], weight[flow]) for flow in np.flatnonzero(free)]
        matrix = np.vstack([np.hstack([usage.T, np.zeros((len(capacity), 1))]), *rows])
        limits = np.concatenate([capacity, np.zeros(len(rows))])
        bounds = [(0, demand[f]) if free[f] else (fixed[f], fixed[f]) for f in range(flows)] + [(0, None)]
        found = linprog(np.append(np.zeros(flows), -1.0), A_ub=matrix, b_ub=limits, bounds=bounds, method="highs")
        assert found.status == 0, found.message
        level = found.x[-1]
        # Slack of 1e-9 keeps the next programs feasible within the tolerance of the solver.
        floor = np.where(free, weight * level, np.nan_to_num(fixed)) * (1 - 1e-9)
        for flow in np.flatnonzero(free):
            best = largest(np.eye(flows)[flow], usage, capacity, floor, demand)[flow]
            if best <= weight[flow] * level * (1 + 1e-6):
                fixed[flow] = weight[flow] * level * (1 - 1e-10)
    return fixed


@pytest.mark.parametrize("seed", range(25))
def test_the_rates_agree_with_lexicographic_linear_programs(seed):
    demand, weight, usage, capacity = random_network(seed)
    found = allocate(demand, weight, csr_array(usage), capacity)
    # The solver has a tolerance of 1e-7, which the chain of programs multiplies.
    assert found.rate == pytest.approx(max_min_by_linear_programs(demand, weight, usage, capacity), rel=1e-5)


@pytest.mark.parametrize("seed", range(20))
def test_each_flow_below_its_demand_has_the_largest_normalised_rate_on_a_full_resource(seed):
    demand, weight, usage, capacity = random_network(1000 + seed, flows=400, resources=60)
    capacity *= 400 * 2 / 60
    found = allocate(demand, weight, csr_array(usage), capacity)
    load = usage.T @ found.rate
    normal = found.rate / weight
    assert np.all(load <= capacity * (1 + 1e-8))
    assert np.all(found.rate <= demand * (1 + 1e-8))
    short = found.rate < demand * (1 - 1e-8)
    assert 0 < short.sum() < len(demand)
    assert np.array_equal(short, found.limit != NO_LIMIT)
    for flow in np.flatnonzero(short):
        resource = found.limit[flow]
        assert usage[flow, resource] > 0
        assert load[resource] == pytest.approx(capacity[resource], rel=1e-8)
        assert normal[flow] >= normal[usage[:, resource] > 0].max() * (1 - 1e-8)


def test_a_line_of_links_has_the_textbook_rates():
    # Parking lot: a flow over n links of capacity 1, and one more flow on each link. All get 1/2; a wider second link
    # gives its own flow the rest.
    usage = csr_array(np.array([[1, 1, 1], [1, 0, 0], [0, 1, 0], [0, 0, 1]], dtype=float))
    found = allocate(np.full(4, 10.0), np.ones(4), usage, np.array([1.0, 2.0, 1.0]))
    assert found.rate == pytest.approx([0.5, 0.5, 1.5, 0.5])
    assert found.limit.tolist() == [0, 0, 1, 2]


def test_weights_that_are_the_demands_give_equal_fractions_of_the_demands():
    demand = np.array([80.0, 40.0, 20.0])
    found = allocate(demand, demand, csr_array(np.ones((3, 1))), np.array([70.0]))
    assert found.rate == pytest.approx(demand / 2)


def test_a_resource_without_capacity_gives_its_flows_nothing_and_no_resource_no_limit():
    usage = csr_array(np.array([[1.0], [0.0]]))
    found = allocate(np.array([3.0, 4.0]), np.ones(2), usage, np.array([0.0]))
    assert found.rate.tolist() == [0.0, 4.0]
    assert found.limit.tolist() == [0, NO_LIMIT]
    empty = allocate(np.array([3.0]), np.ones(1), csr_array((1, 0)), np.array([]))
    assert empty.rate.tolist() == [3.0]


def test_a_demand_equal_to_the_capacity_is_reached_despite_rounding():
    demand = np.full(1000, 0.1)
    found = allocate(demand, demand, csr_array(np.ones((1000, 1))), np.array([100.0]))
    assert np.all(found.limit == NO_LIMIT)
    assert found.rate == pytest.approx(demand)
