"""The stationary bootstrap: block lengths compared with the closed form of AR(1), and coverage of autocorrelated series."""

import numpy as np
import pytest
from scipy.signal import lfilter

from venturi.errors import SampleError
from venturi.stats import block_length, series_mean_interval, stationary_bootstrap_interval
from venturi.stats.block import _stationary_index


def autoregressive(rng, phi, n):
    return lfilter([1.0], [1.0, -phi], rng.normal(size=n + 300))[300:]


@pytest.mark.parametrize("phi", [0.3, 0.5, 0.7, 0.9])
def test_the_block_length_of_a_long_ar_1_series_agrees_with_the_closed_form(phi):
    # R(k) ∝ φ^|k| gives G/g = 2φ/(1 − φ²), so b = (2φ/(1 − φ²))^(2/3) N^(1/3). The length of the circular bootstrap, or
    # the D of 2004 before its correction, would differ by 14 % or more.
    n = 40_000
    rng = np.random.default_rng(21)
    found = np.median([block_length(autoregressive(rng, phi, n)) for _ in range(15)])
    assert found == pytest.approx((2 * phi / (1 - phi**2)) ** (2 / 3) * n ** (1 / 3), rel=0.1)


def test_the_block_length_grows_with_correlation_and_stays_in_bounds():
    rng = np.random.default_rng(4)
    lengths = [np.median([block_length(autoregressive(rng, phi, 500)) for _ in range(20)]) for phi in (0, 0.5, 0.9)]
    assert 1 <= lengths[0] < 4 < lengths[1] < lengths[2]
    walk = np.cumsum(rng.normal(size=60))
    assert block_length(walk) <= 60 / 3
    assert block_length(np.tile([1.0, -1.0], 10)) >= 1
    assert block_length(np.full(50, 0.1)) == 1


def test_blocks_have_geometric_length_and_wrap_around():
    index = _stationary_index(50, 4000, 8.0, np.random.default_rng(6))
    assert index.min() == 0
    assert index.max() == 49
    follows = (np.diff(index, axis=1) % 50) == 1
    # A new block starts with probability 1/8, and happens to continue the previous one in one of 50 cases.
    assert follows.mean() == pytest.approx(1 - (1 / 8) * (49 / 50), abs=0.004)
    assert np.bincount(index.ravel()) == pytest.approx(4000, rel=0.25)


@pytest.mark.parametrize("statistic", [np.mean, np.median])
@pytest.mark.parametrize(("phi", "n"), [(0.0, 60), (0.7, 60), (0.7, 200)])
def test_intervals_of_autocorrelated_series_cover_the_true_statistic(phi, n, statistic):
    # Plain percentiles of the resamples cover 0.82 for φ = 0.7 and n = 60.
    rng = np.random.default_rng(8)
    covered = np.mean(
        [
            stationary_bootstrap_interval(autoregressive(rng, phi, n), statistic, rng=rng, resamples=500).contains(0)
            for _ in range(400)
        ]
    )
    assert 0.92 <= covered <= 0.98


def test_the_bootstrap_interval_of_a_mean_agrees_with_the_interval_without_resampling():
    rng = np.random.default_rng(11)
    for _ in range(5):
        series = autoregressive(rng, 0.6, 120)
        exact, drawn = series_mean_interval(series), stationary_bootstrap_interval(series, rng=rng)
        assert drawn.half_width == pytest.approx(exact.half_width, rel=0.08)
        assert drawn.low == pytest.approx(exact.low, abs=0.1 * exact.half_width)


def test_the_half_width_agrees_with_the_true_variance_of_the_mean():
    # The mean of n values of unit innovations has variance 1/(1 − φ)²/n. Blocks alone give intervals that are 7 to 9 %
    # too narrow. The quantile of Student's t with about 38 degrees of freedom adds 3 %.
    rng = np.random.default_rng(8)
    series = [autoregressive(rng, 0.6, 1000) for _ in range(150)]
    widths = [stationary_bootstrap_interval(x, rng=rng, level=0.9, resamples=300).half_width for x in series]
    assert np.mean(widths) == pytest.approx(1.03 * 1.645 / (1 - 0.6) / np.sqrt(1000), rel=0.045)


def test_the_requested_statistic_and_block_length_are_used():
    rng = np.random.default_rng(9)
    series = 100 + autoregressive(rng, 0.5, 400)
    interval = stationary_bootstrap_interval(series, np.median, rng=rng, mean_block_length=12)
    assert interval.estimate == np.median(series)
    assert interval.method == "stationary bootstrap, mean block 12.0"
    series = 100 + autoregressive(rng, 0.8, 400)
    wide = stationary_bootstrap_interval(series, rng=rng).half_width
    assert wide > 2 * stationary_bootstrap_interval(series[rng.permutation(400)], rng=rng).half_width


def test_short_series_and_long_blocks_are_rejected_and_equal_values_are_accepted():
    rng = np.random.default_rng(1)
    with pytest.raises(SampleError, match="expected at least 12 values, found 5"):
        stationary_bootstrap_interval(np.arange(5.0), rng=rng)
    with pytest.raises(SampleError, match="expected 1 to half of 20 values, found 10"):
        stationary_bootstrap_interval(np.arange(20.0), rng=rng, mean_block_length=10)
    assert stationary_bootstrap_interval(np.full(20, 3.3), rng=rng).half_width == 0
