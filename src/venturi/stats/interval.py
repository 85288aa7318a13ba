r"""Confidence intervals with their level, their method and their number of values.

The replicate is the whole trial, so pass one number per trial. Values *within* a trial are correlated in time; for
them, see :mod:`venturi.stats.series`.

Student's t assumes a symmetric distribution. The mean of skewed values is too small more often than too large, or vice
versa. Hall's monotone transformation (J. R. Stat. Soc. B 54 (1992) 221) removes this skewness to the order :math:`1/n`:

.. math:: y + a y^2 + \frac{a^2}{3} y^3 + \frac{g}{6 n} \sim \frac{t_{n-1}}{\sqrt n}, \qquad y = \frac{m - \mu}{s}

===========  =================================================================================================
symbol       meaning
===========  =================================================================================================
:math:`m`    mean of :math:`n` values; :math:`\mu` is the true mean
:math:`s`    sample standard deviation
:math:`g`    sample skewness times 1 + 4/n; without this factor, the skewness of a small sample is too small
:math:`a`    :math:`g / 3`. For the logarithm of the mean it is :math:`g / 3 - s / (2 m)`, with
             :math:`y = m / s \, \ln(m / \mu)`
===========  =================================================================================================

Simulated at level 0.95: coverage of Student's t and of the corrected interval, and mean width of the latter relative to
the interval with the known quantiles of :math:`y / s`:

===================  ====================  ====================  ====================
distribution         n = 8                 n = 10                n = 20
===================  ====================  ====================  ====================
normal               0.950, 0.946, 1.30    0.952, 0.946, 1.18    0.948, 0.948, 1.02
exponential          0.896, 0.944, 1.29    0.895, 0.943, 1.33    0.919, 0.944, 1.30
lognormal(0, 1)      0.833, 0.920, 1.06    0.837, 0.919, 1.15    0.868, 0.930, 1.33
lognormal(0, 0.5)    0.916, 0.933, 1.37    0.922, 0.941, 1.38    0.929, 0.939, 1.23
gamma(0.5)           0.853, 0.946, 1.00    0.854, 0.947, 1.14    0.896, 0.952, 1.34
Student t, 3         0.963, 0.932, 1.62    0.962, 0.921, 1.56    0.957, 0.919, 1.34
===================  ====================  ====================  ====================
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from venturi.errors import SampleError
from venturi.stats._arrays import FloatArray, as_level, as_sample, is_constant
from venturi.stats.quantiles import student_reach

__all__ = ["FEW_TRIALS", "Interval", "bca_interval", "mean_interval", "student_interval"]

FEW_TRIALS = 8
"""Number of values below which :func:`mean_interval` uses Student's t, because the skewness of so few values is mostly noise.

Corrected intervals of 5 normal values are 1.5 times as wide as those of Student's t.
"""

_SMALL_SAMPLE_SKEWNESS = 4.0
"""Factor of the sample skewness: 1 + 4/n."""

_LINEAR = 1e-8
"""Size of a correction below which its cube root loses all digits."""

RESAMPLES = 9999
"""Resamples of a bootstrap; the standard error of a 2.5 % tail is then 0.16 %."""

LARGEST_EXPONENT = 700.0
"""Largest exponent whose power is finite."""

_BATCH_ELEMENTS = 1 << 21
"""Numbers that a bootstrap holds in memory together (16 MiB)."""

Statistic = Callable[..., Any]
"""A vectorised statistic: ``statistic(sample, axis=-1)``, such as ``numpy.mean`` or ``numpy.median``."""


@dataclass(frozen=True, slots=True)
class Interval:
    """Estimate with its confidence interval.

    Attributes
    ----------
    estimate, low, high
        In the unit of the data. ``low`` ≤ ``high``; the estimate of a BCa interval need not be in its middle.
    level
        Two-sided confidence, such as 0.95.
    method
        Method as text for a report.
    n
        Number of values. For a comparison, the number of pairs, or of the values of both samples together.
    """

    estimate: float
    low: float
    high: float
    level: float
    method: str
    n: int

    @property
    def half_width(self) -> float:
        """Half of ``high`` − ``low``."""
        return (self.high - self.low) / 2

    @property
    def relative_half_width(self) -> float | None:
        """Half width over the size of the estimate; ``None`` if the estimate is zero."""
        return self.half_width / abs(self.estimate) if self.estimate else None

    def contains(self, value: float) -> bool:
        """Return whether ``value`` lies in the interval, ends included."""
        return self.low <= value <= self.high


def mean_interval(sample: npt.ArrayLike, *, level: float = 0.95, positive: bool = False) -> Interval:
    """Return the interval of a mean by the method for this number of trials; ``method`` names it.

    The method is Student's t. From :data:`FEW_TRIALS` values on, it has Hall's correction for skewness.

    Parameters
    ----------
    sample
        One value per trial, shape (n,), n ≥ 2. Reports give no interval of fewer than 3 values.
    level
        Confidence.
    positive
        Whether the values are positive, such as rates. Both ends are then positive. Below :data:`FEW_TRIALS` values,
        Student's t applies to the logarithm of the mean, with its error to first order. From there on, the logarithm
        gives the lower end if it would not be positive otherwise.

    Examples
    --------
    >>> mean_interval([1.0, 100.0, 2.0], positive=True).method
    'Student t of the logarithm'
    >>> interval = mean_interval([1.0, 2.0, 1.0, 3.0, 1.0, 9.0, 2.0, 1.0])
    >>> interval.method, round(interval.low, 2), round(interval.high, 2)
    ('Student t, corrected for skewness', 1.15, 8.54)
    """
    values = as_sample(sample, "sample", minimum=2)
    interval = student_interval(values, level=level)
    positive = positive and interval.estimate > 0
    if is_constant(values):
        return replace(interval, low=interval.estimate, high=interval.estimate, method="equal values")
    if values.size >= FEW_TRIALS:
        return _corrected(values, interval, positive)
    if not positive:
        return interval
    factor = math.exp(min(interval.half_width / interval.estimate, LARGEST_EXPONENT))
    return replace(
        interval, low=interval.estimate / factor, high=interval.estimate * factor, method="Student t of the logarithm"
    )


def _corrected(values: FloatArray, interval: Interval, positive: bool) -> Interval:
    """Return the interval with Hall's correction; see the formula in the module docstring."""
    n, mean = values.size, interval.estimate
    largest = float(np.max(np.abs(values - mean)))
    scaled = (values - mean) / largest
    deviation = largest * float(scaled.std(ddof=1))
    skewness = float(np.mean(scaled**3)) / float(scaled.std()) ** 3 * (1 + _SMALL_SAMPLE_SKEWNESS / n)
    reach = student_reach(interval.level, n - 1) / math.sqrt(n)
    shift = skewness / (6 * n)
    low = mean - deviation * _inverse(reach - shift, skewness / 3)
    high = mean - deviation * _inverse(-reach - shift, skewness / 3)
    if positive and low <= 0:
        spread = deviation / mean
        exponent = spread * _inverse(reach - shift, skewness / 3 - spread / 2)
        low = mean * math.exp(-min(exponent, LARGEST_EXPONENT))
    return replace(interval, low=low, high=high, method="Student t, corrected for skewness")


def _inverse(value: float, a: float) -> float:
    """Return y with y + a y² + a² y³ / 3 = ``value``."""
    if abs(a * value) < _LINEAR:
        return value
    return (float(np.cbrt(1 + 3 * a * value)) - 1) / a


def student_interval(sample: npt.ArrayLike, *, level: float = 0.95) -> Interval:
    """Return Student's t interval of a mean.

    It is exact for independent normal values, and keeps its level well for at least five values of moderate skew.

    Parameters
    ----------
    sample
        Shape (n,), n ≥ 2.
    level
        Confidence.

    Examples
    --------
    >>> interval = student_interval([9.0, 10.0, 11.0])
    >>> round(interval.low, 3), round(interval.high, 3)
    (7.516, 12.484)
    """
    values = as_sample(sample, "sample", minimum=2)
    mean = float(values.mean())
    quantile = student_reach(as_level(level), values.size - 1)
    half = quantile * float(values.std(ddof=1)) / math.sqrt(values.size)
    return Interval(mean, mean - half, mean + half, level, "Student t", values.size)


def bca_interval(
    sample: npt.ArrayLike,
    statistic: Statistic = np.mean,
    *,
    rng: np.random.Generator,
    level: float = 0.95,
    resamples: int = RESAMPLES,
) -> Interval:
    """Return the bias-corrected and accelerated bootstrap interval of a statistic of independent values.

    The bootstrap is scipy's (Efron, J. Am. Stat. Assoc. 82 (1987) 171). It uses only the spread of the sample
    (Hesterberg, Am. Stat. 69 (2015) 371). With 8 or 12 normal values, the interval of the mean at level 0.90 covers
    0.83 or 0.85, so prefer :func:`mean_interval`.

    If BCa is not defined, for example because all resamples lie on one side of the estimate, the function returns the
    percentile interval, and ``method`` names it. Equal values give an interval of zero width, with the method "equal
    values".

    Parameters
    ----------
    sample
        Shape (n,), n ≥ 2, better n ≥ 20.
    statistic
        Vectorised: takes ``axis``.
    rng, level, resamples
        Source of the resamples, confidence, number of resamples.

    Examples
    --------
    >>> import numpy as np
    >>> interval = bca_interval(np.arange(1.0, 31.0), np.median, rng=np.random.default_rng(1))
    >>> interval.estimate, interval.method, interval.contains(15.5)
    (15.5, 'BCa bootstrap', True)
    """
    values = as_sample(sample, "sample", minimum=2)
    estimate = float(statistic(values, axis=-1))
    if is_constant(values):
        return Interval(estimate, estimate, estimate, as_level(level), "equal values", values.size)
    if resamples < 1:
        raise SampleError(f"resamples: expected at least 1, found {resamples}")
    from scipy import stats  # takes a second to import, and few callers need it

    # scipy warns about a degenerate BCa and returns NaN. The warning is redundant, because the code below checks for NaN.
    with np.errstate(invalid="ignore", divide="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", stats.DegenerateDataWarning)
        result = stats.bootstrap(
            (values,),
            statistic,
            n_resamples=resamples,
            batch=max(1, _BATCH_ELEMENTS // values.size),
            vectorized=True,
            confidence_level=as_level(level),
            method="BCa",
            rng=rng,
        )
    low, high = float(result.confidence_interval.low), float(result.confidence_interval.high)
    method = "BCa bootstrap"
    if not (math.isfinite(low) and math.isfinite(high)):
        tail = 50 * (1 - level)
        low, high = map(float, np.percentile(result.bootstrap_distribution, (tail, 100 - tail)))
        method = "percentile bootstrap (BCa not defined)"
    return Interval(estimate, low, high, level, method, values.size)
