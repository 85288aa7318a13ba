"""Two samples against each other: the ratio of their means, and a verdict with a margin of indifference.

Pairs (the same block of a randomised order, or the two halves of a duet run) share what the environment did and are
compared pair by pair; that is worth a factor of several in precision where the environment is restless.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from venturi.errors import SampleError
from venturi.stats._arrays import FloatArray, as_level, as_positive, is_constant
from venturi.stats.interval import FEW_TRIALS, MANY_VALUES, RESAMPLES, Interval, bootstrap
from venturi.stats.quantiles import student_reach

__all__ = ["Comparison", "Verdict", "compare", "ratio_interval"]

Verdict = Literal["faster", "slower", "same within margin", "cannot tell"]


def ratio_interval(
    sample: npt.ArrayLike,
    reference: npt.ArrayLike,
    *,
    paired: bool,
    rng: np.random.Generator,
    level: float = 0.95,
    resamples: int = RESAMPLES,
) -> Interval:
    """Return the interval of mean(sample) / mean(reference).

    From :data:`venturi.stats.FEW_TRIALS` to :data:`venturi.stats.MANY_VALUES` values in each: BCa bootstrap,
    resampling pairs if ``paired``. Otherwise Student's t on the logarithm of the ratio, its error propagated to first
    order from the two means (Welch's degrees of freedom if not paired).

    Parameters
    ----------
    sample, reference
        One value a trial, > 0, shape (n,) and (m,), n and m ≥ 2; n = m in the same order if ``paired``.
    paired
        Whether element i of both belongs together.
    rng, level, resamples
        Source of the resamples, confidence, number of resamples.

    Examples
    --------
    >>> import numpy as np
    >>> ratio = ratio_interval([21, 40, 62], [10, 20, 30], paired=True, rng=np.random.default_rng(1))
    >>> ratio.estimate, round(ratio.low, 2), round(ratio.high, 2), ratio.method
    (2.05, 1.95, 2.16, 'paired Student t of the log ratio')
    """
    above = as_positive(sample, "sample", minimum=2)
    below = as_positive(reference, "reference", minimum=2)
    if paired and above.size != below.size:
        raise SampleError(f"expected pairs, found {above.size} values in sample and {below.size} in reference")
    n = above.size if paired else above.size + below.size
    fewest, most = min(above.size, below.size), max(above.size, below.size)
    if fewest < FEW_TRIALS or most > MANY_VALUES or is_constant(above / below if paired else above):
        return _log_ratio_interval(above, below, n, paired, as_level(level))
    return bootstrap((above, below), _ratio, n=n, paired=paired, rng=rng, level=level, resamples=resamples)


def _ratio(above: FloatArray, below: FloatArray, axis: int = -1) -> FloatArray:
    return np.asarray(np.mean(above, axis=axis) / np.mean(below, axis=axis))


def _log_ratio_interval(above: FloatArray, below: FloatArray, n: int, paired: bool, level: float) -> Interval:
    ratio = float(above.mean() / below.mean())
    if paired:
        deviation = above / above.mean() - below / below.mean()
        error, freedom = float(deviation.std(ddof=1)) / math.sqrt(n), float(n - 1)
    else:
        parts = [float(x.var(ddof=1) / x.mean() ** 2 / x.size) for x in (above, below)]
        error = math.sqrt(sum(parts))
        spread = parts[0] ** 2 / (above.size - 1) + parts[1] ** 2 / (below.size - 1)
        freedom = sum(parts) ** 2 / spread if spread else float(n - 2)
    reach = math.exp(student_reach(level, freedom) * error)
    method = "paired Student t of the log ratio" if paired else "Welch t of the log ratio"
    return Interval(ratio, ratio / reach, ratio * reach, level, method, n)


@dataclass(frozen=True, slots=True)
class Comparison:
    """What a comparison of two samples says.

    Attributes
    ----------
    ratio
        Interval of mean(sample) / mean(reference).
    margin
        The change that makes no difference to the reader: 0.05 stands for ratios from 1/1.05 to 1.05.
    of
        What the values are: of rates the greater is faster, of times the smaller.
    verdict
        ``"same within margin"`` if the whole interval lies within the margin, even where it leaves out 1 (a change
        that is real and too small to matter); ``"faster"`` or ``"slower"`` if it leaves out 1; else ``"cannot tell"``:
        more trials are needed, which is not the same as no difference.
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
    rng: np.random.Generator,
    margin: float = 0.05,
    level: float = 0.95,
) -> Comparison:
    """Return whether ``sample`` is faster than ``reference``, slower, the same within ``margin``, or cannot tell.

    Parameters
    ----------
    sample, reference, paired, rng, level
        As for :func:`ratio_interval`.
    of
        ``"rate"`` or ``"time"``.
    margin
        Margin of indifference, > 0.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(1)
    >>> compare([99, 101, 100], [50, 51, 52], of="rate", paired=False, rng=rng).verdict
    'faster'
    >>> compare([99, 101, 100], [50, 51, 52], of="time", paired=False, rng=rng).verdict
    'slower'
    """
    if not margin > 0:
        raise SampleError(f"margin: expected a number > 0, such as 0.05, found {margin!r}")
    if of not in ("rate", "time"):
        raise SampleError(f'of: expected "rate" or "time", found {of!r}')
    ratio = ratio_interval(sample, reference, paired=paired, rng=rng, level=level)
    return Comparison(ratio, margin, of, _verdict(ratio, margin, of))


def _verdict(ratio: Interval, margin: float, of: Literal["rate", "time"]) -> Verdict:
    if 1 / (1 + margin) <= ratio.low and ratio.high <= 1 + margin:
        return "same within margin"
    if ratio.contains(1.0):
        return "cannot tell"
    return "faster" if (ratio.low > 1) == (of == "rate") else "slower"
