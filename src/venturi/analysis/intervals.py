"""Confidence intervals of a sweep point from one value per trial."""

from __future__ import annotations

import numpy as np

from venturi.analysis.result import FloatArray
from venturi.stats import Interval, mean_interval

__all__ = ["MIN_TRIALS", "trial_interval"]

MIN_TRIALS = 3
"""Minimum number of trials for an interval. With two values, Student's t is 12.7 times their error, which misleads."""


def trial_interval(values: FloatArray, *, level: float) -> Interval | None:
    """Return the interval of the mean of one value per trial, or None below :data:`MIN_TRIALS`.

    The interval follows :func:`venturi.stats.mean_interval` for positive values.
    """
    sample = values[np.isfinite(values)]
    if len(sample) < MIN_TRIALS:
        return None
    return mean_interval(sample, level=level, positive=True)
