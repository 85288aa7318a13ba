"""Profile-likelihood intervals: closed form, an independent search, and coverage."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import minimize_scalar

from venturi.errors import FitError
from venturi.model import FAMILIES, Curve, fit, fit_many, profile, profile_many

SIZES = np.array([1e7, 3e7, 1e8, 2e8, 5e8, 1e9, 2e9])
FILES = np.array([1.0, 2, 5, 10, 15, 20, 25, 30])


def test_a_linear_model_has_students_interval():
    x, y = np.arange(7.0), np.array([1.0, 2.2, 2.9, 4.1, 5.2, 5.8, 7.1])
    found = fit(Curve(x, y), FAMILIES["linear"])
    for name, interval in profile(found, level=0.9).items():
        half = stats.t.ppf(0.95, 5) * found.standard_errors[name]
        assert (interval.low, interval.high) == pytest.approx(
            (found.parameters[name] - half, found.parameters[name] + half), rel=1e-5
        )


def test_the_best_fit_at_the_ends_of_an_interval_is_worse_by_the_quantile():
    rng = np.random.default_rng(4)
    curve = Curve(SIZES, SIZES / (1.5 + SIZES / 1e8) * (1 + 0.05 * rng.standard_normal(len(SIZES))))
    found = fit(curve, FAMILIES["setup"])
    interval = profile(found, parameters=["t0"])["t0"]
    for end in (interval.low, interval.high):
        # one-dimensional search by scipy for r at this t0
        best = minimize_scalar(lambda u, t0=end: np.sum((curve.y - curve.x / (t0 + curve.x / (u * 1e8))) ** 2) / 1e14,
                               bounds=(0.2, 5), method="bounded", options={"xatol": 1e-12})  # fmt: skip
        rise = (best.fun * 1e14 - found.goodness.sse) / found.goodness.reduced_chi_square
        assert rise == pytest.approx(stats.t.ppf(0.975, 5) ** 2, rel=1e-4)


# Curvature is mild at this noise, so coverage is close to its level. 400 curves have a binomial standard deviation of
# 0.015 at 0.9, and the bounds contain 99.9 % of the binomial distribution.
@pytest.mark.parametrize(
    ("name", "x", "truth"),
    [
        ("setup", SIZES, {"t0": 1.5, "r": 1e8}),
        ("exponential-constant", FILES, {"a": 2e8, "b": 0.2, "c": 5e7}),
        ("overload", FILES, {"rate1": 1e8, "sigma": 0.2, "kappa": 0.004}),
        ("exponential-sum", FILES, {"a": 3e8, "b": 0.6, "c": 1e8, "d": 0.03}),
    ],
)
@pytest.mark.parametrize("absolute", [True, False])
def test_intervals_cover_the_planted_parameters_at_the_stated_level(name, x, truth, absolute):
    level, count = 0.9, 400
    rng = np.random.default_rng(20)
    family = FAMILIES[name]
    exact = family.value(x[:, None], np.array(list(truth.values()))[:, None])[:, 0]
    sigma = 0.01 * exact
    curves = [Curve(x, exact + sigma * rng.standard_normal(len(x)), sigma, sigma_is_absolute=absolute)
              for _ in range(count)]  # fmt: skip
    intervals = profile_many(fit_many(curves, family), level=level)
    low, high = stats.binom.ppf([0.0005, 0.9995], count, level)
    for key, planted in truth.items():
        covered = sum(each[key].low <= planted <= each[key].high for each in intervals)
        assert low <= covered <= high, (key, covered)


def test_an_undetermined_lower_end_is_the_smallest_meaningful_value():
    # The data have no fixed time, so t0 has an upper limit, and its lower limit is 0, its smallest meaningful value.
    noise = np.array([1, -1, 1, -1, 1, -1, 1]) * 0.05
    found = fit(Curve(SIZES, 1e8 * (1 + noise)), FAMILIES["setup"])
    interval = profile(found, parameters=["t0"])["t0"]
    assert interval.low == 0
    assert 0 < interval.high < 1


def test_a_profile_without_degrees_of_freedom_is_rejected():
    found = fit(Curve(SIZES[:2], SIZES[:2]), FAMILIES["linear"])
    with pytest.raises(FitError, match="as many parameters as points"):
        profile(found)


def test_unknown_parameters_are_rejected():
    found = fit(Curve(SIZES, SIZES), FAMILIES["linear"])
    with pytest.raises(FitError, match="among a, b"):
        profile(found, parameters=["slope"])
