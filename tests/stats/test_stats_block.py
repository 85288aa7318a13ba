"""The stationary bootstrap: block lengths against the closed form of AR(1), and coverage of autocorrelated series."""

import numpy as np
import pytest
from scipy.signal import lfilter

from venturi.errors import SampleError
from venturi.stats import block_length, stationary_bootstrap_interval, student_interval
from venturi.stats.block import _stationary_index


def autoregressive(rng, phi, n):
    return lfilter([1.0], [1.0, -phi], rng.normal(size=n + 300))[300:]


@pytest.mark.parametrize("phi", [0.3, 0.5, 0.7, 0.9])
def test_the_block_length_of_a_long_series_is_the_closed_form_of_ar_1(phi):
    # R(k) ∝ φ^|k| gives G/g = 2φ/(1 − φ²), so b = (2φ/(1 − φ²))^(2/3) N^(1/3). The circular bootstrap's length, or
    # the D of 2004 before its correction, would be off by 14 % and more.
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
    # A new block begins with probability 1/8, and by chance follows on in one of 50 cases.
    assert follows.mean() == pytest.approx(1 - (1 / 8) * (49 / 50), abs=0.004)
    assert np.bincount(index.ravel()) == pytest.approx(4000, rel=0.25)


@pytest.mark.parametrize(("phi", "least"), [(0.0, 0.85), (0.6, 0.83), (0.8, 0.79)])
def test_the_mean_of_an_autocorrelated_series_is_covered(phi, least):
    # Level 0.90. Values taken as independent cover 0.59 at φ = 0.6 and 0.42 at 0.8.
    rng = np.random.default_rng(8)
    series = [autoregressive(rng, phi, 300) for _ in range(300)]
    covered = np.mean(
        [stationary_bootstrap_interval(x, rng=rng, level=0.9, resamples=300).contains(0) for x in series]
    )
    assert least <= covered <= 0.95
    if phi:
        assert np.mean([student_interval(x, level=0.9).contains(0) for x in series]) < 0.7


def test_the_half_width_is_that_of_the_true_variance_of_the_mean():
    # The mean of n values of unit innovations has variance 1/(1 − φ)²/n. Blocks alone come out 7 to 9 % too narrow.
    rng = np.random.default_rng(8)
    series = [autoregressive(rng, 0.6, 1000) for _ in range(150)]
    widths = [stationary_bootstrap_interval(x, rng=rng, level=0.9, resamples=300).half_width for x in series]
    assert np.mean(widths) == pytest.approx(1.645 / (1 - 0.6) / np.sqrt(1000), rel=0.045)


def test_another_statistic_and_a_given_block_length_are_used():
    rng = np.random.default_rng(9)
    series = 100 + autoregressive(rng, 0.5, 400)
    interval = stationary_bootstrap_interval(series, np.median, rng=rng, mean_block_length=12)
    assert interval.estimate == np.median(series)
    assert interval.method == "stationary bootstrap, mean block 12.0"
    wide = stationary_bootstrap_interval(series, rng=rng).half_width
    assert wide > 1.3 * stationary_bootstrap_interval(series[rng.permutation(400)], rng=rng).half_width


def test_few_blocks_make_a_wide_interval():
    # Four blocks leave three degrees of freedom: 3.18 standard errors in place of 1.96.
    rng = np.random.default_rng(10)
    widths = [
        stationary_bootstrap_interval(rng.normal(size=40), rng=rng, mean_block_length=10).half_width
        for _ in range(60)
    ]
    assert np.mean(widths) > 1.15 * 1.96 / np.sqrt(40)


def test_a_series_too_short_or_a_block_too_long_is_refused_and_equal_values_are_not():
    rng = np.random.default_rng(1)
    with pytest.raises(SampleError, match="expected at least 12 values, found 5"):
        stationary_bootstrap_interval(np.arange(5.0), rng=rng)
    with pytest.raises(SampleError, match="expected 1 to half of 20 values, found 10"):
        stationary_bootstrap_interval(np.arange(20.0), rng=rng, mean_block_length=10)
    assert stationary_bootstrap_interval(np.full(20, 3.3), rng=rng).half_width == 0
