"""Mean and spread of a sample, with a separate name for each form of the spread.

Documents 002, 003 and 004 give averages and deviations without their definition: of single values or of means, divided
by n or by n − 1. With separate names, a reader can see which form a paper used.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from venturi.errors import SampleError
from venturi.stats._arrays import as_sample

__all__ = ["BatchSpread", "Summary", "batch_spread", "summarise"]


@dataclass(frozen=True, slots=True)
class Summary:
    """Mean and spread of ``n`` values, in the unit of the values.

    Attributes
    ----------
    n
        Number of values.
    mean, minimum, median, maximum
        Statistics of the values.
    std
        Sample standard deviation, divided by n − 1. ``None`` for a single value.
    std_population
        Standard deviation divided by n, the form of the "volatility" in document 003 (003-E04).
    std_pct
        100 × ``std`` / ``mean``, as in tables 6.1 and 6.2 of 003. ``None`` without ``std`` or with a mean of zero.
    error_of_mean
        ``std`` / √n, for independent values only. For a time series, use
        :func:`venturi.stats.stationary_bootstrap_interval`. ``None`` without ``std``.
    """

    n: int
    mean: float
    minimum: float
    median: float
    maximum: float
    std: float | None
    std_population: float
    std_pct: float | None
    error_of_mean: float | None


def summarise(values: npt.ArrayLike) -> Summary:
    """Return mean and spread of a sample.

    Parameters
    ----------
    values
        Shape (n,), n ≥ 1, any unit.

    Raises
    ------
    SampleError
        If there are no values, or if a value is not finite.

    Examples
    --------
    Direct Lustre, table 6.1 of document 003 (Mbit/s); the paper prints 4537.95 and 1526:

    >>> rates = summarise([1700, 3270, 5401, 5817, 5494, 5546])
    >>> rates.mean, round(rates.std_population, 1), round(rates.std, 1)
    (4538.0, 1526.0, 1671.7)
    """
    sample = as_sample(values, "values")
    n = sample.size
    # Deviations from the first value, so that equal values give a spread of exactly zero.
    shifted = sample - sample[0]
    mean = float(sample[0] + shifted.mean())
    squares = float(np.sum((shifted - shifted.mean()) ** 2))
    std = math.sqrt(squares / (n - 1)) if n > 1 else None
    return Summary(
        n=n,
        mean=mean,
        minimum=float(sample.min()),
        median=float(np.median(sample)),
        maximum=float(sample.max()),
        std=std,
        std_population=math.sqrt(squares / n),
        std_pct=None if std is None or mean == 0 else 100 * std / mean,
        error_of_mean=None if std is None else std / math.sqrt(n),
    )


@dataclass(frozen=True, slots=True)
class BatchSpread:
    """Spread of batch averages, separate from the spread inside the batches.

    Attributes
    ----------
    n_batches
        Number of batches.
    mean_of_means
        Mean of the batch averages, with equal weights.
    between_population, between
        Deviation of the batch averages, divided by the number of batches, and by one less (``None`` for one batch).
    within
        Mean over the batches of the sample deviation inside each. ``None`` if a batch has a single value.
    """

    n_batches: int
    mean_of_means: float
    between_population: float
    between: float | None
    within: float | None


def batch_spread(batches: Sequence[npt.ArrayLike]) -> BatchSpread:
    """Return the spread between batches and within them (003, L419 and L451; 003-E04).

    Parameters
    ----------
    batches
        One sample per batch, of any lengths and unit.

    Examples
    --------
    >>> batch_spread([[1.0, 3.0], [5.0, 7.0]])  # doctest: +ELLIPSIS
    BatchSpread(n_batches=2, mean_of_means=4.0, between_population=2.0, between=2.82..., within=1.41...)
    """
    if not batches:
        raise SampleError("batches: expected at least one, found none")
    summaries = [summarise(batch) for batch in batches]
    between = summarise([summary.mean for summary in summaries])
    inside = [summary.std for summary in summaries if summary.std is not None]
    return BatchSpread(
        n_batches=len(summaries),
        mean_of_means=between.mean,
        between_population=between.std_population,
        between=between.std,
        within=float(np.mean(inside)) if len(inside) == len(summaries) else None,
    )
