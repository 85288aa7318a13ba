"""Forms of R² and AICc, compared with hand calculation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from venturi.model import FAMILIES, Curve, assess, fit

POINTS = st.lists(st.floats(-1e6, 1e6).map(lambda v: round(v, 3)), min_size=6, max_size=12, unique=True)


@settings(max_examples=60, deadline=None)
@given(POINTS, st.integers(0, 100))
def test_the_three_forms_of_r_squared_agree_for_a_line_with_a_constant(values, seed):
    y = np.array(values)
    sigma = np.random.default_rng(seed).uniform(0.5, 2, len(y))
    found = fit(Curve(np.arange(len(y), dtype=float), y, sigma), FAMILIES["linear"]).goodness
    # SST = SSE + SSR holds only with the weighted mean.
    assert found.r_squared == pytest.approx(found.r_squared_regression, abs=1e-9)
    assert found.r_squared_printed == pytest.approx(1 - found.r_squared, abs=1e-9)


def test_a_perfect_fit_has_a_printed_r_squared_of_zero_and_a_correct_one_of_one():
    y = np.array([5.0, 3, 2, 1])
    found = assess(y, y, np.ones(4), 2)
    assert (found.r_squared, found.r_squared_printed) == (1.0, 0.0)


def test_the_regression_form_of_r_squared_differs_without_a_constant_term():
    # y = B/x through flat data: SSE exceeds SST, so R² is negative, but SSR/SST is not.
    x, y = np.array([1.0, 2, 4]), np.array([2.0, 2.1, 2.0])
    found = fit(Curve(x, y), FAMILIES["share"]).goodness
    assert found.r_squared < 0 < found.r_squared_regression


def test_goodness_of_fit_uses_the_weighted_mean():
    y, fitted, weight = np.array([1.0, 2, 6]), np.array([1.5, 2, 5]), np.array([1.0, 2, 1])
    # w = 1, 4, 1: mean 2.5, SST 2.25 + 1 + 12.25 = 15.5, SSE 0.25 + 0 + 1, SSR 1 + 1 + 6.25
    found = assess(y, fitted, weight, 2)
    assert found.sse == pytest.approx(1.25)
    assert found.r_squared == pytest.approx(1 - 1.25 / 15.5)
    assert found.r_squared_printed == pytest.approx(1 - 8.25 / 15.5)
    assert found.r_squared_adjusted == pytest.approx(1 - (1.25 / 15.5) * 2 / 1)
    assert found.reduced_chi_square == pytest.approx(1.25)


def test_aicc_counts_the_variance_when_sigma_is_relative():
    y, fitted = np.arange(8.0), np.arange(8.0) + np.array([1, -1, 1, -1, 1, -1, 1, -1])
    # SSE 8, n 8, two parameters and the variance: 8 ln(1) + 6 + 2·3·4/(8 - 4)
    assert assess(y, fitted, np.ones(8), 2).aicc == pytest.approx(6 + 6)
    # Known sigma: chi-square 8, two parameters: 8 + 4 + 2·2·3/(8 - 3)
    assert assess(y, fitted, np.ones(8), 2, absolute=True).aicc == pytest.approx(8 + 4 + 12 / 5)


def test_aicc_is_infinite_for_too_few_points():
    y = np.array([1.0, 2, 4, 3, 5, 7])
    assert np.isinf(assess(y, y + 0.1, np.ones(6), 4).aicc)
    assert np.isfinite(assess(y, y + 0.1, np.ones(6), 3).aicc)


def test_a_flat_curve_has_no_r_squared():
    assert np.isnan(assess(np.ones(4), np.ones(4), np.ones(4), 1).r_squared)
