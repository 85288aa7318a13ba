"""The interval of the mean of a series: coverage, widths compared with closed forms, and degenerate series.

There are 1000 series with a fixed seed at level 0.95, so the standard error of a coverage is 0.7 %.
"""

import numpy as np
import pytest
from scipy.signal import lfilter

from venturi.errors import SampleError
from venturi.stats import series_mean_interval, student_interval
from venturi.stats.series import _autoregression, long_run_error


def filtered(rng, numerator, denominator, count, n):
    return lfilter(numerator, denominator, rng.normal(size=(count, n + 300)), axis=1)[:, 300:]


def autoregressive(phi, n, count=1000):
    return filtered(np.random.default_rng(28), [1.0], [1.0, -phi], count, n)


def deviation_of_mean(phi, n):
    """Standard deviation of the mean of n values of an AR(1) series with unit innovations (closed form)."""
    lag = np.arange(1, n)
    return np.sqrt((1 + 2 * np.sum((1 - lag / n) * phi**lag)) / (1 - phi**2) / n)


def coverage(series):
    return np.mean([series_mean_interval(values).contains(0.0) for values in series])


@pytest.mark.parametrize(
    ("phi", "n", "least", "widest"),
    [
        (0.0, 30, 0.93, 1.6), (0.0, 60, 0.93, 1.4), (0.0, 300, 0.93, 1.15),
        (0.5, 30, 0.93, 1.8), (0.5, 60, 0.93, 1.5), (0.5, 300, 0.93, 1.15),
        (0.7, 30, 0.92, 2.4), (0.7, 60, 0.92, 1.6), (0.7, 120, 0.92, 1.3), (0.7, 300, 0.92, 1.2),
        (0.9, 30, 0.85, 3.0), (0.9, 60, 0.88, 2.7), (0.9, 120, 0.90, 1.7), (0.9, 300, 0.92, 1.2),
        (-0.5, 60, 0.93, 1.5),
    ],
)  # fmt: skip
def test_intervals_cover_the_mean_of_an_autoregressive_series(phi, n, least, widest):
    # For 0.7 and 60 values, the stationary bootstrap with widened percentiles covers 0.84, and Student's t of the
    # values 0.57.
    intervals = [series_mean_interval(values) for values in autoregressive(phi, n)]
    assert least <= np.mean([interval.contains(0.0) for interval in intervals]) <= 0.985
    mean_width = np.mean([interval.half_width for interval in intervals])
    assert mean_width <= widest * 1.96 * deviation_of_mean(phi, n)
    if phi > 0.6:
        assert np.mean([student_interval(values).contains(0.0) for values in autoregressive(phi, n)]) < 0.7


@pytest.mark.parametrize(
    ("numerator", "denominator", "least"),
    [
        pytest.param([1.0, 0.8], [1.0], 0.92, id="moving average"),
        pytest.param([1.0], [1.0, -1.2, 0.6], 0.92, id="cycles"),
        pytest.param([1.0], [1.0, -0.5, -0.25], 0.90, id="second order"),
    ],
)
@pytest.mark.parametrize("n", [60, 300])
def test_intervals_cover_the_mean_of_other_correlated_series(numerator, denominator, least, n):
    assert coverage(filtered(np.random.default_rng(4), numerator, denominator, 1000, n)) >= least


def test_intervals_cover_the_mean_of_skewed_series():
    # exp of AR(1) 0.7: the mean of 60 values is itself skewed.
    rng = np.random.default_rng(6)
    normal = filtered(rng, [1.0], [1.0, -0.7], 1000, 60) * 0.5
    truth = np.exp(0.5 * 0.25 / (1 - 0.49))
    assert np.mean([series_mean_interval(np.exp(values)).contains(truth) for values in normal]) >= 0.90


def test_the_error_of_a_long_series_agrees_with_the_closed_form():
    errors = [long_run_error(values)[0] for values in autoregressive(0.8, 4000, count=40)]
    assert np.sqrt(np.mean(np.square(errors))) == pytest.approx(deviation_of_mean(0.8, 4000), rel=0.05)


def test_a_million_values_need_little_memory():
    values = np.random.default_rng(1).normal(5.0, 1.0, 1_000_000)
    assert series_mean_interval(values).half_width == pytest.approx(1.96e-3, rel=0.1)


def test_the_coefficients_of_an_autoregression_are_recovered():
    (values,) = filtered(np.random.default_rng(3), [1.0], [1.0, -0.6, 0.3], 1, 20_000)
    found = _autoregression(values - values.mean())
    assert found[:2] == pytest.approx([0.6, -0.3], abs=0.03)
    assert found[2:] == pytest.approx(np.zeros(found.size - 2), abs=0.03)


def test_an_interval_shifts_and_scales_with_its_values():
    (values,) = autoregressive(0.6, 80, count=1)
    one, other = series_mean_interval(values), series_mean_interval(1e9 + 1e6 * values)
    assert (other.low - 1e9) / 1e6 == pytest.approx(one.low, rel=1e-6)
    assert other.half_width == pytest.approx(1e6 * one.half_width, rel=1e-6)


@pytest.mark.parametrize(
    "values",
    [
        np.tile([1.0, -1.0], 20),
        np.arange(40.0),
        np.sin(np.arange(60.0)),
        np.concatenate([np.zeros(30), np.ones(30)]),
        np.eye(1, 25, 7)[0],
    ],
    ids=["alternating", "line", "sine", "step", "one spike"],
)
def test_series_without_noise_have_a_finite_interval(values):
    interval = series_mean_interval(values)
    assert np.isfinite([interval.low, interval.high]).all()
    assert interval.low <= interval.estimate <= interval.high


def test_equal_values_have_an_interval_of_zero_width_and_short_series_are_rejected():
    assert series_mean_interval(np.full(20, 3.3)).half_width == 0
    with pytest.raises(SampleError, match="expected at least 12 values, found 11"):
        series_mean_interval(np.arange(11.0))
