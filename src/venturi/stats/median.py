"""Interval of a median from order statistics: exact for independent values of any continuous distribution.

=====================  =============================================================
symbol                 meaning
=====================  =============================================================
:math:`n`              number of values
:math:`x_{(k)}`        k-th smallest value
:math:`B(k)`           probability of at most k successes in n trials of chance 1/2
=====================  =============================================================

The number of values below the median is binomial, so :math:`[x_{(k)}, x_{(n+1-k)}]` contains the median with
probability :math:`1 - 2 B(k - 1)` (David and Nagaraja, *Order Statistics*, 3rd edition, section 7.1). The interval uses
the largest k whose probability is at least the level.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from venturi.stats._arrays import as_level, as_sample
from venturi.stats.interval import Interval

__all__ = ["median_interval", "shortest_median_sample"]


def median_interval(sample: npt.ArrayLike, *, level: float = 0.90) -> Interval:
    """Return the median and its interval from order statistics.

    Parameters
    ----------
    sample
        One value per trial, shape (n,), n ≥ :func:`shortest_median_sample`.
    level
        Minimum confidence. The true one is higher, because ranks are integers: 0.94 for 5 values at level 0.90.

    Raises
    ------
    SampleError
        If there are too few values for the level.

    Examples
    --------
    >>> interval = median_interval([9.0, 11.0, 10.0, 30.0, 8.0])
    >>> interval.estimate, interval.low, interval.high
    (10.0, 8.0, 30.0)
    """
    values = np.sort(as_sample(sample, "sample", minimum=shortest_median_sample(level)))
    rank = _rank(values.size, as_level(level))
    low, high = float(values[rank - 1]), float(values[values.size - rank])
    return Interval(float(np.median(values)), low, high, level, "order statistics", values.size)


def shortest_median_sample(level: float = 0.90) -> int:
    """Return the smallest number of values with an interval of this level.

    Examples
    --------
    >>> shortest_median_sample(0.90), shortest_median_sample(0.95)
    (5, 6)
    """
    return math.ceil(1 - math.log2(1 - as_level(level)))


def _rank(n: int, level: float) -> int:
    """Return the largest rank, at least 1, whose interval has the level."""
    rank, outside = 1, 2.0 ** (1 - n)
    while 2 * rank < n and 1 - (outside + math.comb(n, rank) * 2.0 ** (1 - n)) >= level:
        outside += math.comb(n, rank) * 2.0 ** (1 - n)
        rank += 1
    return rank
