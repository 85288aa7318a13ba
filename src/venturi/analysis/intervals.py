"""Intervals of a sweep point from one value a trial, cheap enough for thousands of points."""

from __future__ import annotations

import math

import numpy as np

from venturi.analysis.result import FloatArray
from venturi.stats import FEW_TRIALS, Interval, bca_interval
from venturi.stats.quantiles import student_reach

__all__ = ["FEWEST_TRIALS", "LARGEST_BOOTSTRAP", "trial_interval"]

FEWEST_TRIALS = 3
"""Below this no interval is given: Student's t of two values is 12.7 times their error, a number that misleads."""

LARGEST_BOOTSTRAP = 500
"""Above this many trials the mean is normal enough for Student's t, and a bootstrap of every point would cost seconds."""

RESAMPLES = 1999
"""The standard error of a 2.5 % tail is then 0.35 %."""


def trial_interval(values: FloatArray, *, level: float, rng: np.random.Generator) -> Interval | None:
    """Return the interval of the mean of one value a trial, or None below :data:`FEWEST_TRIALS`.

    Few values: Student's t of the logarithm of the mean (its error to first order), so that a rate cannot be negative.
    From :data:`venturi.stats.FEW_TRIALS` to :data:`LARGEST_BOOTSTRAP`: BCa bootstrap. Above: Student's t.
    """
    sample = values[np.isfinite(values)]
    n = len(sample)
    if n < FEWEST_TRIALS:
        return None
    if FEW_TRIALS <= n <= LARGEST_BOOTSTRAP:
        return bca_interval(sample, rng=rng, level=level, resamples=RESAMPLES)
    mean = float(sample.mean())
    error = float(sample.std(ddof=1)) / math.sqrt(n)
    reach = student_reach(level, n - 1) * error
    if mean <= 0 or n > LARGEST_BOOTSTRAP:
        return Interval(mean, mean - reach, mean + reach, level, "Student t", n)
    factor = math.exp(min(reach / mean, 700.0))
    return Interval(mean, mean / factor, mean * factor, level, "Student t of the logarithm", n)
