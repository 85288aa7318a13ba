"""Throughput without the fixed cost of a transfer, which is the time of a file of size zero.

Document 000 (Fig. 7, L188) subtracts the mean time of zero-size transfers, with the same number of parallel files, from
the measured time. This time contains every fixed cost: process start, connection, authentication, file creation. The
paper names only the authorisation (000-E18).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from venturi.errors import SampleError

__all__ = ["SIGNIFICANT_DEVIATIONS", "CorrectedThroughput", "zero_size_correction"]

SIGNIFICANT_DEVIATIONS = 3.0
"""Minimum corrected time, in standard errors.

The first-order error of the inverse of a smaller number is not usable: at 3, the second-order term is already a ninth
of the value.
"""


@dataclass(frozen=True, slots=True)
class CorrectedThroughput:
    """Size over (time − zero-size time), or the reason for its rejection.

    Attributes
    ----------
    outcome
        ``"corrected"``. ``"untested"``: corrected, but of unknown significance, because errors are missing.
        ``"not positive"``: the zero-size files took at least as long. ``"not significant"``: the difference is less
        than :data:`SIGNIFICANT_DEVIATIONS` of its errors.
    corrected_time_s, corrected_time_error_s
        Difference of the times, also if rejected, and its standard error (``None`` if one of the two is unknown).
    throughput_bytes_per_s, error_bytes_per_s
        ``None`` if rejected. The error is also ``None`` if unknown.
    uncorrected_bytes_per_s
        Size / time, for comparison.
    """

    outcome: Literal["corrected", "untested", "not positive", "not significant"]
    corrected_time_s: float
    corrected_time_error_s: float | None
    throughput_bytes_per_s: float | None
    error_bytes_per_s: float | None
    uncorrected_bytes_per_s: float

    @property
    def rejected(self) -> bool:
        """Whether the corrected throughput is absent."""
        return self.throughput_bytes_per_s is None


def zero_size_correction(
    size_bytes: float, time_s: float, time_error_s: float | None, zero_time_s: float, zero_time_error_s: float | None
) -> CorrectedThroughput:
    """Return the throughput corrected for the time of zero-size files.

    Parameters
    ----------
    size_bytes
        Size of each file, > 0.
    time_s, time_error_s
        Mean time of the transfers and its error: ``mean_time_s`` and ``error_time_s`` of a point.
    zero_time_s, zero_time_error_s
        The same for files of size zero, with an equal number of parallel files.

    Examples
    --------
    >>> fixed = zero_size_correction(1000, 3.0, 0.03, 1.0, 0.04)
    >>> fixed.outcome, fixed.throughput_bytes_per_s, round(fixed.error_bytes_per_s, 3)
    ('corrected', 500.0, 12.5)
    >>> zero_size_correction(1000, 1.1, 0.1, 1.0, 0.1).outcome
    'not significant'
    """
    for name, value in (("size_bytes", size_bytes), ("time_s", time_s), ("zero_time_s", zero_time_s)):
        if not (math.isfinite(value) and value > 0):
            raise SampleError(f"{name}: expected a number > 0, found {value!r}")
    for name, error in (("time_error_s", time_error_s), ("zero_time_error_s", zero_time_error_s)):
        if error is not None and not (math.isfinite(error) and error >= 0):
            raise SampleError(f"{name}: expected a standard error >= 0 or None, found {error!r}")
    difference = time_s - zero_time_s
    known = time_error_s is not None and zero_time_error_s is not None
    deviation = math.hypot(time_error_s or 0.0, zero_time_error_s or 0.0) if known else None
    outcome = _outcome(difference, deviation)
    accepted = outcome in ("corrected", "untested")
    return CorrectedThroughput(
        outcome=outcome,
        corrected_time_s=difference,
        corrected_time_error_s=deviation,
        throughput_bytes_per_s=size_bytes / difference if accepted else None,
        error_bytes_per_s=size_bytes / difference**2 * deviation if accepted and deviation is not None else None,
        uncorrected_bytes_per_s=size_bytes / time_s,
    )


def _outcome(
    difference: float, deviation: float | None
) -> Literal["corrected", "untested", "not positive", "not significant"]:
    if difference <= 0:
        return "not positive"
    if deviation is None:
        return "untested"
    return "not significant" if difference < SIGNIFICANT_DEVIATIONS * deviation else "corrected"
