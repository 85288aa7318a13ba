"""Distributions of durations from the simulator: counts by logarithm (columns ``sketch_*`` of the table ``routes``).

| symbol | meaning | unit |
|---|---|---|
| α | relative error of a quantile | 1 |
| γ | (1 + α)/(1 − α) | 1 |
| i | number of a bucket, which holds γ^(i−1) < x ≤ γ^i and has the value 2γ^i/(γ + 1) | 1 |

Source: Masson, Rim and Lee, *DDSketch*, PVLDB 12(12), 2019.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from venturi.analysis.values import FloatArray, IntArray

__all__ = ["RELATIVE_ERROR", "quantiles", "values_and_counts"]

RELATIVE_ERROR = 0.01
"""α of the table above."""
_GAMMA = (1 + RELATIVE_ERROR) / (1 - RELATIVE_ERROR)


def values_and_counts(
    first: Sequence[int] | IntArray, counts: Sequence[Sequence[int] | IntArray]
) -> tuple[FloatArray, IntArray, IntArray]:
    """Return the non-empty buckets of several sketches: value, count, and index of the sketch.

    Examples
    --------
    >>> value, count, sketch = values_and_counts([0, 1], [[2, 0, 1], [4]])
    >>> [round(float(one), 3) for one in value], count.tolist(), sketch.tolist()
    ([0.99, 1.03, 1.01], [2, 1, 4], [0, 0, 1])
    """
    lengths = np.array([len(one) for one in counts], dtype=np.int64)
    if not lengths.sum():
        return np.zeros(0), np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    sketch = np.repeat(np.arange(len(lengths)), lengths)
    within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    bucket = np.asarray(first, dtype=np.int64)[sketch] + within
    count = np.concatenate([np.asarray(one, dtype=np.int64) for one in counts if len(one)])
    held = count > 0
    value = 2.0 * _GAMMA ** bucket[held].astype(np.float64) / (_GAMMA + 1.0)
    return value, count[held], sketch[held]


def quantiles(value: FloatArray, count: IntArray, fractions: Sequence[float]) -> tuple[float, ...]:
    """Return the quantiles at ``fractions`` of values that occur ``count`` times each, or NaN without values.

    Examples
    --------
    >>> quantiles(np.array([3.0, 1.0]), np.array([1, 9]), (0.5, 0.95))
    (1.0, 3.0)
    """
    if not len(value):
        return (float("nan"),) * len(fractions)
    order = np.argsort(value, kind="stable")
    below = np.cumsum(count[order])
    ranks = np.maximum(np.ceil(np.asarray(fractions) * below[-1]), 1)
    return tuple(float(one) for one in value[order][np.searchsorted(below, ranks)])
