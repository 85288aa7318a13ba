"""Errors of predictions for measurements that a model has not seen, and the verdict about the model.

========  =====================================================================
symbol    meaning
========  =====================================================================
e         relative error (predicted - measured) / measured
n         number of points
k         number of points whose measurement lies in the prediction interval
level     probability of the prediction interval
========  =====================================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from venturi.model.family import Array

__all__ = [
    "ACCURATE",
    "FEWEST",
    "LEVEL",
    "SIGNIFICANCE",
    "WIDEST",
    "HeldOutErrors",
    "Holds",
    "held_out_errors",
    "verdict",
]

Holds = Literal["yes", "no", "unknown"]
"""Whether a model holds for measurements that it has not seen."""

LEVEL = 0.9
"""Probability of the prediction intervals."""
FEWEST = 5
"""Minimum number of points for a verdict."""
ACCURATE = 0.1
"""90th percentile of the absolute errors up to which a model holds even if its intervals are too narrow.

Fits to points without scatter, as of simulated runs, have intervals that are narrower than differences that matter.
"""
WIDEST = 0.5
"""Median half-width of the intervals, relative to the prediction, above which they accept nearly everything."""
SIGNIFICANCE = 0.05
"""Probability of rejecting a model with correct intervals."""


@dataclass(frozen=True, slots=True)
class HeldOutErrors:
    """Errors of ``n`` predictions.

    Attributes
    ----------
    n
        Number of points.
    median, p90
        Median and 90th percentile of \\|e\\|. None without points.
    bias
        Median of e: positive if predictions are too large. None without points.
    intervals, inside
        Number of points with a prediction interval, and with the measurement in it.
    half_width
        Median half-width of the intervals, relative to the prediction. None without intervals.
    """

    n: int
    median: float | None
    p90: float | None
    bias: float | None
    intervals: int
    inside: int
    half_width: float | None

    @property
    def coverage(self) -> float | None:
        """Fraction of the intervals that contain the measurement. None without intervals."""
        return self.inside / self.intervals if self.intervals else None


def held_out_errors(
    predicted: Sequence[float], measured: Sequence[float], low: Sequence[float], high: Sequence[float]
) -> HeldOutErrors:
    """Return the errors of predictions.

    Parameters
    ----------
    predicted, measured
        Shape (n,); measured values are positive.
    low, high
        Ends of the prediction intervals, (n,). NaN without an interval; an end can be infinite.

    Examples
    --------
    >>> nan = float("nan")
    >>> found = held_out_errors([1.1, 0.9, 2.0], [1.0, 1.0, 1.0], [1.0, 0.85, nan], [1.2, 0.95, nan])
    >>> round(found.median, 6), round(found.bias, 6), found.coverage
    (0.1, 0.1, 0.5)
    """
    value, truth, lower, upper = (np.asarray(column, dtype=float) for column in (predicted, measured, low, high))
    if not len(value):
        return HeldOutErrors(0, None, None, None, 0, 0, None)
    error = (value - truth) / truth
    known = ~(np.isnan(lower) | np.isnan(upper))
    inside = known & (lower <= truth) & (truth <= upper)
    return HeldOutErrors(
        n=len(value),
        median=float(np.median(np.abs(error))),
        p90=float(np.quantile(np.abs(error), 0.9)),
        bias=float(np.median(error)),
        intervals=int(known.sum()),
        inside=int(inside.sum()),
        half_width=_half_width(value[known], lower[known], upper[known]),
    )


def _half_width(value: Array, low: Array, high: Array) -> float | None:
    if not len(value):
        return None
    with np.errstate(all="ignore"):
        widths = (high - low) / 2 / np.abs(value)
    return float(np.median(np.where(np.isnan(widths), np.inf, widths)))


def verdict(errors: HeldOutErrors, level: float = LEVEL) -> tuple[Holds, str]:
    """Return whether a model holds, and the rule that decided, as a sentence.

    The rules, in this order:

    1. Fewer than :data:`FEWEST` points: unknown.
    2. The 90th percentile of \\|e\\| is at most :data:`ACCURATE`: yes.
    3. Fewer than :data:`FEWEST` intervals, or a median half-width above :data:`WIDEST`: unknown.
    4. At most k of n measurements in their intervals has a probability below :data:`SIGNIFICANCE` if each is there with
       probability ``level`` (binomial distribution): no. Otherwise: yes.

    Examples
    --------
    >>> verdict(HeldOutErrors(n=10, median=0.2, p90=0.3, bias=0.2, intervals=10, inside=9, half_width=0.25))[0]
    'yes'
    >>> verdict(HeldOutErrors(n=10, median=0.2, p90=0.3, bias=0.2, intervals=10, inside=6, half_width=0.1))[0]
    'no'
    """
    from scipy.special import bdtr  # takes seconds to import

    if errors.n < FEWEST or errors.p90 is None:
        return "unknown", f"{errors.n} points in the range of the model, at least {FEWEST} are needed"
    if errors.p90 <= ACCURATE:
        return "yes", f"90 % of the errors are at most {100 * errors.p90:.3g} %, the limit is {100 * ACCURATE:g} %"
    if errors.intervals < FEWEST or errors.half_width is None:
        return "unknown", f"{errors.intervals} points have a prediction interval, at least {FEWEST} are needed"
    if errors.half_width > WIDEST:
        width = "infinite" if not np.isfinite(errors.half_width) else f"± {100 * errors.half_width:.3g} %"
        return (
            "unknown",
            f"the prediction intervals are {width} wide in the median, the limit is ± {100 * WIDEST:g} %",
        )
    chance = float(bdtr(errors.inside, errors.intervals, level))
    found = f"{errors.inside} of {errors.intervals} measurements lie in their {100 * level:g} % intervals"
    if chance < SIGNIFICANCE:
        return (
            "no",
            f"{found}; a correct model has so few with probability {chance:.2g}, the limit is {SIGNIFICANCE:g}",
        )
    return "yes", f"{found}; for a correct model, so few or fewer have a probability of {chance:.2g}"
