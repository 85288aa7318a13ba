"""Comparison of two samples: ratio of their means, and a verdict with a margin of indifference.

Pairs share the effects of the environment, for example the same block of a randomised order or the two halves of a duet
run. They are compared pair by pair. In a noisy environment, this improves the precision several times.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy.typing as npt

from venturi.errors import SampleError
from venturi.stats._arrays import as_level, as_positive
from venturi.stats.interval import LARGEST_EXPONENT, Interval
from venturi.stats.quantiles import student_reach

__all__ = ["RatioComparison", "Verdict", "compare", "ratio_interval"]

Verdict = Literal["faster", "slower", "same within margin", "cannot tell"]


def ratio_interval(
    sample: npt.ArrayLike,
    reference: npt.ArrayLike,
    *,
    paired: bool,
    level: float = 0.95,
) -> Interval:
    """Return the interval of mean(sample) / mean(reference).

    The method is Student's t on the logarithm of the ratio, with the error propagated to first order from the two
    means. Without pairs, it uses Welch's degrees of freedom. Simulated at level 0.95 with 10 lognormal(0, 1) values in
    each sample, it covers 0.91. With 20 values it covers 0.93, and a BCa bootstrap covers 0.86.

    Parameters
    ----------
    sample, reference
        One value per trial, > 0, shape (n,) and (m,), n and m ≥ 2. If ``paired``, n = m, in the same order.
    paired
        Whether elements i of both samples form a pair.
    level
        Confidence.

    Examples
    --------
    >>> ratio = ratio_interval([21, 40, 62], [10, 20, 30], paired=True)
    >>> ratio.estimate, round(ratio.low, 2), round(ratio.high, 2), ratio.method
    (2.05, 1.95, 2.16, 'paired Student t of the log ratio')
    """
    above = as_positive(sample, "sample", minimum=2)
    below = as_positive(reference, "reference", minimum=2)
    if paired and above.size != below.size:
        raise SampleError(f"expected pairs, found {above.size} values in sample and {below.size} in reference")
    ratio = float(above.mean() / below.mean())
    if paired:
        n = above.size
        deviation = above / above.mean() - below / below.mean()
        error, freedom = float(deviation.std(ddof=1)) / math.sqrt(n), float(n - 1)
    else:
        n = above.size + below.size
        parts = [float(x.var(ddof=1) / x.mean() ** 2 / x.size) for x in (above, below)]
        error = math.sqrt(sum(parts))
        spread = parts[0] ** 2 / (above.size - 1) + parts[1] ** 2 / (below.size - 1)
        freedom = sum(parts) ** 2 / spread if spread else float(n - 2)
    reach = math.exp(min(student_reach(as_level(level), freedom) * error, LARGEST_EXPONENT))
    method = "paired Student t of the log ratio" if paired else "Welch t of the log ratio"
    return Interval(ratio, ratio / reach, ratio * reach, level, method, n)


@dataclass(frozen=True, slots=True)
class RatioComparison:
    """Result of the comparison of two samples.

    Attributes
    ----------
    ratio
        Interval of mean(sample) / mean(reference).
    margin
        Relative change that does not matter: 0.05 means ratios from 1/1.05 to 1.05.
    of
        Kind of the values. Higher rates are faster; shorter times are faster.
    verdict
        ``"same within margin"`` if the whole interval lies within the margin, even if it excludes 1 (a real change that
        is too small to matter). Otherwise, ``"faster"`` or ``"slower"`` if the interval excludes 1. In all other cases,
        ``"cannot tell"``: more trials are needed, which does not mean equality.
    """

    ratio: Interval
    margin: float
    of: Literal["rate", "time"]
    verdict: Verdict


def compare(
    sample: npt.ArrayLike,
    reference: npt.ArrayLike,
    *,
    of: Literal["rate", "time"],
    paired: bool,
    margin: float = 0.05,
    level: float = 0.95,
) -> RatioComparison:
    """Return the comparison of ``sample`` with ``reference``: faster, slower, the same within ``margin``, or undecided.

    Parameters
    ----------
    sample, reference, paired, level
        As for :func:`ratio_interval`.
    of
        ``"rate"`` or ``"time"``.
    margin
        Margin of indifference, > 0.

    Examples
    --------
    >>> compare([99, 101, 100], [50, 51, 52], of="rate", paired=False).verdict
    'faster'
    >>> compare([99, 101, 100], [50, 51, 52], of="time", paired=False).verdict
    'slower'
    """
    if not margin > 0:
        raise SampleError(f"margin: expected a number > 0, such as 0.05, found {margin!r}")
    if of not in ("rate", "time"):
        raise SampleError(f'of: expected "rate" or "time", found {of!r}')
    ratio = ratio_interval(sample, reference, paired=paired, level=level)
    return RatioComparison(ratio, margin, of, _verdict(ratio, margin, of))


def _verdict(ratio: Interval, margin: float, of: Literal["rate", "time"]) -> Verdict:
    if 1 / (1 + margin) <= ratio.low and ratio.high <= 1 + margin:
        return "same within margin"
    if ratio.contains(1.0):
        return "cannot tell"
    return "faster" if (ratio.low > 1) == (of == "rate") else "slower"
