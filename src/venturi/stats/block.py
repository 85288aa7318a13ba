"""Confidence interval of any statistic of an autocorrelated series.

The stationary bootstrap (Politis & Romano, J. Am. Stat. Assoc. 89 (1994) 1303) draws blocks of geometric length from
the series, which is closed to a circle. The mean block length is chosen from the data (Politis & White, Econometric
Reviews 23 (2004) 53, as corrected by Patton, Politis & White, ibid. 28 (2009) 372):

    b = (2 G² / D)^(1/3) N^(1/3),   G = Σ λ(k/M) |k| R(k),   D = 2 g²,   g = Σ λ(k/M) R(k)

======  ==========================================================================================
symbol  meaning
======  ==========================================================================================
N       number of values
R(k)    autocovariance at lag k; sums are over both signs of k
λ(t)    flat-top window: 1 up to |t| = 1/2, then 2 (1 − |t|) down to 0 at 1
M       2 m, with m the smallest lag after which K autocorrelations in a row are insignificant
g       spectral density at zero (× 2π): N times the variance of the mean. D = 2 g² is the 2009 form
======  ==========================================================================================

For an AR(1) series with coefficient φ the exact value is (2φ/(1 − φ²))^(2/3) N^(1/3), which the tests use.

Percentiles of such resamples are too close together, because few blocks fit into a short series and cuts remove
correlation. Their distances from the estimate are therefore multiplied by a factor that is known for the mean. This
factor is the half width of :func:`venturi.stats.series_mean_interval` over the half width of the resampled means.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from venturi.errors import SampleError
from venturi.stats._arrays import FloatArray, IntArray, as_level, as_sample, is_constant
from venturi.stats.interval import Interval, Statistic
from venturi.stats.quantiles import normal_reach, student_reach
from venturi.stats.series import SHORTEST_SERIES, long_run_error

__all__ = ["block_length", "stationary_bootstrap_interval"]

_SIGNIFICANT = 2.0
"""c of the rule: an autocorrelation below c √(log₁₀ N / N) is insignificant, as the paper recommends."""

_INDEX_ELEMENTS = 1 << 20
"""Numbers that the resampling holds in memory together."""


def block_length(series: npt.ArrayLike) -> float:
    """Return the mean block length for the stationary bootstrap, at least 1 and at most min(3√N, N/3).

    Parameters
    ----------
    series
        Equally spaced values, shape (N,), N ≥ :data:`SHORTEST_SERIES`, any unit.

    Examples
    --------
    Independent values need no blocks:

    >>> import numpy as np
    >>> block_length(np.random.default_rng(2).normal(size=400)) < 3
    True
    """
    values = as_sample(series, "series", minimum=SHORTEST_SERIES)
    return 1.0 if is_constant(values) else _block_length(values)


def _block_length(values: FloatArray) -> float:
    n = values.size
    longest = min(3 * math.sqrt(n), n / 3)
    return min(max(math.cbrt(_correlation_length(values) ** 2 * n), 1.0), longest)


def _correlation_length(values: FloatArray) -> float:
    """Return G / g, the average distance of correlated values; infinite if g ≤ 0."""
    n = values.size
    window = max(5, math.ceil(math.sqrt(math.log10(n))))
    longest_lag = min(math.ceil(math.sqrt(n)) + window, n - 1)
    covariance = _autocovariance(values, longest_lag)
    last_lag = min(2 * _decorrelation_lag(covariance, n, window), longest_lag)
    lag = np.arange(1, last_lag + 1)
    # Both signs of the lag together, because R is even.
    tapered = 2 * np.minimum(1.0, 2 * (1 - lag / last_lag)) * covariance[1 : last_lag + 1]
    moment, spectral = float(np.sum(lag * tapered)), float(covariance[0] + np.sum(tapered))
    # The flat-top window is not positive definite, so g can be negative for a short, alternating series.
    return moment / spectral if spectral > 0 else math.inf


def _autocovariance(values: FloatArray, longest_lag: int) -> FloatArray:
    centred = values - values.mean()
    # Zero padding prevents circular correlation in the transform.
    spectrum = np.abs(np.fft.rfft(centred, 2 * values.size)) ** 2
    return np.fft.irfft(spectrum, 2 * values.size)[: longest_lag + 1] / values.size


def _decorrelation_lag(covariance: FloatArray, n: int, window: int) -> int:
    """Return the smallest lag ≥ 1 after which ``window`` autocorrelations in a row are insignificant."""
    limit = _SIGNIFICANT * math.sqrt(math.log10(n) / n)
    significant = np.abs(covariance[1:] / covariance[0]) >= limit
    for lag in range(len(significant) - window + 1):
        if not significant[lag : lag + window].any():
            return max(lag, 1)
    return int(np.flatnonzero(significant)[-1]) + 1


def stationary_bootstrap_interval(
    series: npt.ArrayLike,
    statistic: Statistic = np.mean,
    *,
    rng: np.random.Generator,
    level: float = 0.95,
    mean_block_length: float | None = None,
    resamples: int = 2000,
) -> Interval:
    """Return the interval of a statistic of a stationary, autocorrelated series.

    For a mean, :func:`venturi.stats.series_mean_interval` gives nearly the same interval without resamples.

    Parameters
    ----------
    series
        Equally spaced values of one trial without its ramps, shape (N,), N ≥ :data:`SHORTEST_SERIES`.
    statistic
        Vectorised: takes ``axis``.
    rng, level, resamples
        Source of the resamples, confidence, number of resamples.
    mean_block_length
        In values, ≥ 1; by default :func:`block_length`.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(4)
    >>> slow = np.repeat(rng.normal(100, 5, 60), 5)  # each value held for five samples
    >>> interval = stationary_bootstrap_interval(slow, np.median, rng=rng)
    >>> interval.contains(100.0), interval.method
    (True, 'stationary bootstrap, mean block 5.9')
    """
    values = as_sample(series, "series", minimum=SHORTEST_SERIES)
    estimate = float(statistic(values, axis=-1))
    if is_constant(values):
        return Interval(estimate, estimate, estimate, as_level(level), "equal values", values.size)
    block = _block_length(values) if mean_block_length is None else mean_block_length
    if not 1 <= block < values.size / 2:
        raise SampleError(f"mean_block_length: expected 1 to half of {values.size} values, found {block:g}")
    drawn, means = _resampled(values, statistic, block, resamples, rng)
    error, freedom = long_run_error(values)
    factor = student_reach(as_level(level), freedom) * error / (normal_reach(level) * float(means.std()))
    low, high = np.quantile(drawn, ((1 - level) / 2, (1 + level) / 2))
    low, high = (min(float(low) - estimate, 0.0), max(float(high) - estimate, 0.0))
    return Interval(
        estimate,
        estimate + factor * low,
        estimate + factor * high,
        level,
        f"stationary bootstrap, mean block {block:.1f}",
        values.size,
    )


def _resampled(
    values: FloatArray, statistic: Statistic, block: float, resamples: int, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """Return the statistic and the mean of each resample."""
    if resamples < 2:
        raise SampleError(f"resamples: expected at least 2, found {resamples}")
    rows = max(1, _INDEX_ELEMENTS // values.size)
    drawn, means = [], []
    for done in range(0, resamples, rows):
        sample = values[_stationary_index(values.size, min(rows, resamples - done), block, rng)]
        drawn.append(np.asarray(statistic(sample, axis=-1), dtype=np.float64))
        means.append(sample.mean(axis=-1))
    return np.concatenate(drawn), np.concatenate(means)


def _stationary_index(n: int, rows: int, block: float, rng: np.random.Generator) -> IntArray:
    """Return ``rows`` series of indices, with a new block at each position with probability 1/``block``."""
    is_start = rng.random((rows, n)) < 1 / block
    is_start[:, 0] = True
    starts = rng.integers(0, n, size=(rows, n))
    position = np.arange(n)
    start_of = np.maximum.accumulate(np.where(is_start, position, 0), axis=1)
    index: IntArray = (np.take_along_axis(starts, start_of, axis=1) + position - start_of) % n
    return index
