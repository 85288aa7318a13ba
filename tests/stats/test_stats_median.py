"""The interval of a median: exact coverage, published ranks, and errors."""

import math

import numpy as np
import pytest

from venturi.errors import SampleError
from venturi.stats import median_interval, shortest_median_sample

DRAWS = {
    "normal": (lambda rng, n: rng.normal(100, 10, n), 100.0),
    "exponential": (lambda rng, n: rng.exponential(1.0, n), math.log(2)),
    "lognormal": (lambda rng, n: rng.lognormal(3.0, 1.0, n), math.exp(3.0)),
    "Cauchy": (lambda rng, n: rng.standard_cauchy(n), 0.0),
}


@pytest.mark.parametrize("name", DRAWS)
@pytest.mark.parametrize("count", [5, 8, 13])
def test_intervals_at_90_percent_contain_the_median_at_least_at_that_level(name, count):
    draw, truth = DRAWS[name]
    rng = np.random.default_rng(20261129)
    held = np.mean([median_interval(draw(rng, count)).contains(truth) for _ in range(4000)])
    # Three standard errors of a fraction of 0.9 in 4000 draws.
    assert held >= 0.90 - 3 * math.sqrt(0.09 / 4000)


# Ranks for 90 %: Conover, Practical Nonparametric Statistics, 3rd edition, table A3 for p = 1/2.
@pytest.mark.parametrize(
    ("count", "low", "high"), [(5, 1, 5), (7, 1, 7), (8, 2, 7), (10, 2, 9), (11, 3, 9), (20, 6, 15)]
)
def test_interval_ranks_follow_the_binomial_distribution(count, low, high):
    interval = median_interval(np.arange(1.0, count + 1))
    assert (interval.low, interval.high, interval.n) == (low, high, count)


def test_too_few_values_are_an_error():
    assert shortest_median_sample(0.90) == 5
    with pytest.raises(SampleError, match="expected at least 5 values, found 4"):
        median_interval([1.0, 2.0, 3.0, 4.0])
