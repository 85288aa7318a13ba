"""A fit without its points predicts the same curve, with the interval of a new measurement. Errors give a verdict."""

import numpy as np
import pytest
from nist_sets import read
from scipy import stats

from venturi.errors import FitError
from venturi.model import FAMILIES, Curve, HeldOutErrors, SavedFit, fit, held_out_errors, verdict

NORRIS_X = np.array([0.2, 337.4, 118.2, 884.6, 10.1, 226.5, 666.3, 996.3, 448.6, 777.0, 558.2, 0.4, 0.6, 775.5, 666.9, 338.0, 447.5, 11.6,
                     556.0, 228.1, 995.8, 887.6, 120.2, 0.3, 0.3, 556.8, 339.1, 887.2, 999.0, 779.0, 11.1, 118.3, 229.2, 669.1, 448.9, 0.5])  # fmt: skip
NORRIS_Y = np.array([0.1, 338.8, 118.1, 888.0, 9.2, 228.1, 668.5, 998.5, 449.1, 778.9, 559.2, 0.3, 0.1, 778.1, 668.8, 339.3, 448.9, 10.8,
                     557.7, 228.3, 998.0, 888.8, 119.6, 0.3, 0.6, 557.6, 339.3, 888.0, 998.5, 778.9, 10.2, 117.6, 228.9, 668.4, 449.2, 0.2])  # fmt: skip
NORRIS_S = 0.884796396144373
"""Certified residual standard deviation of the NIST StRD linear dataset Norris (36 points)."""
NORRIS_LINE = (-0.262323073774029, 1.00211681802045)
"""Certified intercept and slope."""


def test_the_interval_of_a_straight_line_is_the_textbook_one_with_certified_values():
    saved = SavedFit.of(fit(Curve(NORRIS_X, NORRIS_Y), FAMILIES["linear"]))
    x = np.array([0.0, 250.0, 999.0, 2000.0])
    new = saved.predict(x, level=0.9)
    n, mean = len(NORRIS_X), NORRIS_X.mean()
    assert new.value == pytest.approx(NORRIS_LINE[0] + NORRIS_LINE[1] * x, rel=1e-9)
    half = stats.t.ppf(0.95, n - 2) * NORRIS_S * np.sqrt(1 + 1 / n + (x - mean) ** 2 / ((NORRIS_X - mean) ** 2).sum())
    assert (new.high - new.low) / 2 == pytest.approx(half, rel=1e-8)
    assert new.extrapolated.tolist() == [True, False, False, True]


def test_a_saved_power_law_has_the_certified_parameters_and_residual_deviation():
    data = read("DanWood")
    saved = SavedFit.of(fit(Curve(data.x, data.y), FAMILIES["power"]))
    assert list(saved.parameters.values()) == pytest.approx(list(data.parameters.values()), rel=1e-6)
    assert saved.degrees_of_freedom == 4
    assert saved.residual_variance == pytest.approx(data.residual_sum_of_squares / 4, rel=1e-6)


def test_new_measurements_lie_in_their_intervals_at_the_stated_level():
    generator = np.random.default_rng(7)
    x, truth = np.linspace(1, 30, 12), lambda x: 8e7 / (1 + 0.05 * x)
    inside = total = 0
    for _ in range(60):
        y = truth(x) * (1 + 0.05 * generator.normal(size=len(x)))
        saved = SavedFit.of(fit(Curve(x, y, 0.05 * truth(x)), FAMILIES["exponential"]))
        at = generator.uniform(1, 30, 20)
        measured = truth(at) * (1 + 0.05 * generator.normal(size=20))
        new = saved.predict(at, (0.05 * truth(at)).tolist(), level=0.9)
        inside += int(((new.low <= measured) & (measured <= new.high)).sum())
        total += 20
    # 1200 draws of 90 % have a standard deviation of 0.9 %, and the wrong family adds a small bias.
    assert inside / total == pytest.approx(0.9, abs=0.03)


def test_a_missing_standard_error_is_replaced_by_the_typical_relative_one():
    x = np.linspace(1, 10, 8)
    saved = SavedFit.of(fit(Curve(x, 2 * x + 0.1 * (-1.0) ** np.arange(8), 0.2 * x), FAMILIES["linear"]))
    assert saved.relative_sigma == pytest.approx(0.1, rel=0.1)
    known = saved.predict([5.0], [saved.relative_sigma * float(saved.predict([5.0]).value[0])])
    assert saved.predict([5.0]).high == pytest.approx(known.high)


def test_a_fit_through_all_points_has_no_interval():
    saved = SavedFit.of(fit(Curve(np.array([1.0, 2.0]), np.array([3.0, 5.0])), FAMILIES["linear"]))
    new = saved.predict([1.5])
    assert new.value == pytest.approx([4.0]) and np.isnan(new.low).all() and np.isnan(new.high).all()


def test_parameters_of_another_family_are_rejected():
    with pytest.raises(FitError, match=r"expected the parameters .* of linear, found a"):
        SavedFit(FAMILIES["linear"], {"a": 1.0}, np.eye(1), 5, 1.0, None, False, (0.0, 1.0))


def errors(n=10, p90=0.3, intervals=10, inside=9, half_width=0.2):
    return HeldOutErrors(n, 0.2, p90, 0.0, intervals, inside, half_width)


@pytest.mark.parametrize(
    ("found", "holds"),
    [
        (errors(n=4, p90=0.01, intervals=4, inside=4), "unknown"),
        (errors(p90=0.1, inside=0), "yes"),
        (errors(intervals=4, inside=4), "unknown"),
        (errors(half_width=0.6, inside=10), "unknown"),
        (errors(half_width=float("inf"), inside=10), "unknown"),
        # P(K <= 6 | 10, 0.9) = 0.0128 and P(K <= 7) = 0.0702 (binomial distribution).
        (errors(inside=6), "no"),
        (errors(inside=7), "yes"),
    ],
)
def test_the_verdict_follows_the_rules_in_order(found, holds):
    assert verdict(found)[0] == holds


def test_errors_are_relative_to_the_measurement_and_bias_has_a_sign():
    nan = float("nan")
    found = held_out_errors([90.0, 80.0, 130.0], [100.0] * 3, [80.0, 70.0, nan], [110.0, 90.0, nan])
    assert (found.n, found.intervals, found.inside, found.coverage) == (3, 2, 1, 0.5)
    assert found.median == pytest.approx(0.2) and found.bias == pytest.approx(-0.1)
    assert found.p90 == pytest.approx(np.quantile([0.1, 0.2, 0.3], 0.9))
    assert held_out_errors([], [], [], []).coverage is None
