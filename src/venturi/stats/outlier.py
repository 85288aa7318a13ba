"""Labels for values far from the rest. All values are kept.

A slow transfer in a series is a result until its cause is known. A report gives its numbers with and without the
labelled values. Look for the cause in the counters of the hosts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from venturi.errors import SampleError
from venturi.stats._arrays import BoolArray, FloatArray, as_sample, is_constant

__all__ = ["ROBUST_Z_LIMIT", "Outliers", "label_outliers"]

ROBUST_Z_LIMIT = 3.5
"""Absolute z above which a value is labelled (Iglewicz & Hoaglin, How to Detect and Handle Outliers, 1993)."""

_MAD_PER_SIGMA = 0.6744897501960817
"""Median absolute deviation of a normal distribution with unit deviation, which is its upper quartile."""

_MEAN_DEVIATION_PER_SIGMA = 0.7978845608028654
"""Mean absolute deviation of the same distribution: √(2/π)."""


@dataclass(frozen=True, slots=True, eq=False)
class Outliers:
    """Labels of a sample, in its order.

    Attributes
    ----------
    z
        Robust z of each value: (value − median) over the robust deviation; 0 if all values are equal.
    is_outlier
        Whether the absolute z exceeds ``limit``.
    limit
        Limit of the absolute z.
    scale
        Estimator of the deviation: ``"median deviation"``; ``"mean deviation"`` if more than half of the values equal
        the median; ``"none"`` if all values are equal.
    """

    z: FloatArray
    is_outlier: BoolArray
    limit: float
    scale: str

    @property
    def first_only(self) -> bool:
        """Whether the first value is the only outlier, often because of a cold cache or of connection setup."""
        return bool(self.is_outlier[0]) and int(self.is_outlier.sum()) == 1


def label_outliers(values: npt.ArrayLike, *, limit: float = ROBUST_Z_LIMIT) -> Outliers:
    """Return the robust z of each value and whether it is an outlier.

    Parameters
    ----------
    values
        Shape (n,), n ≥ 1, any unit. With fewer than about five values, labels are rare.
    limit
        Values above this absolute z are labelled; > 0.

    Examples
    --------
    >>> labels = label_outliers([9.0, 1.0, 1.1, 0.9, 1.0, 1.05])
    >>> labels.is_outlier.tolist(), labels.first_only
    ([True, False, False, False, False, False], True)
    """
    sample = as_sample(values, "values")
    if not limit > 0:
        raise SampleError(f"limit: expected a number > 0, such as {ROBUST_Z_LIMIT}, found {limit!r}")
    deviation = sample - np.median(sample)
    if is_constant(sample):
        return Outliers(np.zeros_like(sample), np.zeros(sample.shape, dtype=np.bool_), limit, "none")
    sigma, scale = float(np.median(np.abs(deviation))) / _MAD_PER_SIGMA, "median deviation"
    if sigma == 0:
        sigma, scale = float(np.mean(np.abs(deviation))) / _MEAN_DEVIATION_PER_SIGMA, "mean deviation"
    z = deviation / sigma
    return Outliers(z, np.abs(z) > limit, limit, scale)
