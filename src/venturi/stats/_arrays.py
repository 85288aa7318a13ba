"""Input checks of all statistics: finite numbers, of the right shape and number."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from venturi.errors import SampleError

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

NEGLIGIBLE_SPREAD = 1e-9
"""Spread of times, relative to their mean, below which they count as equal.

Clocks have a resolution of nanoseconds, and virtual time near 10⁵ s resolves 10⁻¹¹ s. A smaller spread is rounding, so
it must not determine a weight.
"""

_SQUARABLE = (1e-100, 1e100)
"""Range of the largest absolute value. Sums and quotients of squares overflow or underflow outside it."""

_ROUNDING = 1e-13
"""Range of values, relative to the largest, that a few roundings of doubles can cause."""


def as_sample(values: npt.ArrayLike, name: str, *, minimum: int = 1) -> FloatArray:
    """Return ``values`` as a 1-D array of finite doubles."""
    sample = np.asarray(values, dtype=np.float64)
    if sample.ndim != 1:
        raise SampleError(f"{name}: expected one dimension, found shape {sample.shape}")
    if sample.size < minimum:
        raise SampleError(f"{name}: expected at least {minimum} values, found {sample.size}")
    wrong = np.flatnonzero(~np.isfinite(sample))
    if wrong.size:
        raise SampleError(
            f"{name}: expected finite numbers, found {sample[wrong[0]]} at position {wrong[0]}"
            f" ({wrong.size} such values); omit failed measurements"
        )
    largest = float(np.max(np.abs(sample), initial=0.0))
    if largest and not _SQUARABLE[0] <= largest <= _SQUARABLE[1]:
        low, high = _SQUARABLE
        raise SampleError(
            f"{name}: expected magnitudes from {low:g} to {high:g}, found {largest:g}; use another unit"
        )
    return sample


def as_positive(values: npt.ArrayLike, name: str, *, minimum: int = 1) -> FloatArray:
    """Return ``values`` like :func:`as_sample`, all greater than zero."""
    sample = as_sample(values, name, minimum=minimum)
    wrong = np.flatnonzero(sample <= 0)
    if wrong.size:
        raise SampleError(f"{name}: expected numbers > 0, found {sample[wrong[0]]:g} at position {wrong[0]}")
    return sample


def as_index(values: npt.ArrayLike, name: str) -> IntArray:
    """Return ``values`` as a 1-D array of integers."""
    index = np.asarray(values)
    if index.ndim != 1 or not (np.issubdtype(index.dtype, np.integer) or index.size == 0):
        raise SampleError(f"{name}: expected one dimension of integers, found shape {index.shape} of {index.dtype}")
    return index.astype(np.int64, copy=False)


def as_errors(values: npt.ArrayLike, name: str, size: int) -> FloatArray:
    """Return standard errors: ``size`` finite, non-negative numbers."""
    errors = as_sample(values, name)
    if errors.size != size:
        raise SampleError(f"{name}: expected one standard error per value, {size} in all, found {errors.size}")
    if np.any(errors < 0):
        raise SampleError(f"{name}: expected standard errors >= 0, found {errors.min():g}")
    return errors


def same_length(**arrays: npt.NDArray[np.generic]) -> None:
    """Raise SampleError if the arrays have different lengths."""
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise SampleError(
            "expected arrays of one length, found " + ", ".join(f"{n}: {k}" for n, k in lengths.items())
        )


def as_level(level: float) -> float:
    """Return a confidence level between 0 and 1."""
    if not 0 < level < 1:
        raise SampleError(f"level: expected a number between 0 and 1, such as 0.95, found {level!r}")
    return level


def is_constant(sample: FloatArray) -> bool:
    """Return whether all values are equal up to rounding."""
    return bool(np.ptp(sample) <= _ROUNDING * np.max(np.abs(sample)))


def dense(index: IntArray) -> tuple[IntArray, IntArray]:
    """Return the sorted distinct values of ``index``, and for each element the position of its value among them."""
    values, position = np.unique(index, return_inverse=True)
    return values, position.astype(np.int64, copy=False)
