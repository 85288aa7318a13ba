"""Mean rates by definition, and the rate of a whole trial.

With size b_i (bytes), duration t_i (s) and rate r_i = b_i / t_i of transfer i:

=============  =======================  ===================================================================
name           formula                  meaning
=============  =======================  ===================================================================
arithmetic     Σ r_i / n                average rate of a file
harmonic       n / Σ (1/r_i)            inverse of the mean time per byte, with equal weights for files
byte-weighted  Σ b_i r_i / Σ b_i        average rate of a byte
time-weighted  Σ t_i r_i / Σ t_i        = Σ b_i / Σ t_i: bytes for each second that a transfer was open
=============  =======================  ===================================================================

The harmonic mean weighted by bytes *is* the time-weighted arithmetic mean. For files of one size, the harmonic and the
time-weighted mean equal size / mean time, the estimator of document 000 (L122, 000-E15). The arithmetic mean then
equals the byte-weighted one and is at least the harmonic mean, with equality only if all rates are equal. No mean is
the rate of a link, because concurrent transfers share it. Only :func:`trial_rate` (bytes over the span of the trial)
gives the total rate.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from venturi.errors import SampleError
from venturi.stats._arrays import FloatArray, IntArray, as_index, as_positive, as_sample, dense, same_length

__all__ = ["MeanRates", "TrialRate", "TrialRates", "mean_rates", "trial_rate", "trial_rates"]


@dataclass(frozen=True, slots=True)
class MeanRates:
    """Four means of the rates of ``n`` transfers, in bytes/s; formulas in the module docstring."""

    n: int
    arithmetic_bytes_per_s: float
    harmonic_bytes_per_s: float
    byte_weighted_bytes_per_s: float
    time_weighted_bytes_per_s: float


def mean_rates(size_bytes: npt.ArrayLike, duration_s: npt.ArrayLike) -> MeanRates:
    """Return the four mean rates of a set of transfers.

    Parameters
    ----------
    size_bytes, duration_s
        Shape (n,), both > 0.

    Examples
    --------
    Two files of 100 bytes, at 100 and at 25 bytes/s:

    >>> means = mean_rates([100, 100], [1.0, 4.0])
    >>> means.arithmetic_bytes_per_s, means.harmonic_bytes_per_s, means.time_weighted_bytes_per_s
    (62.5, 40.0, 40.0)
    """
    size, duration = as_positive(size_bytes, "size_bytes"), as_positive(duration_s, "duration_s")
    same_length(size_bytes=size, duration_s=duration)
    rate = size / duration
    return MeanRates(
        n=size.size,
        arithmetic_bytes_per_s=float(rate.mean()),
        harmonic_bytes_per_s=float(size.size / np.sum(duration / size)),
        byte_weighted_bytes_per_s=float(np.sum(size * rate) / size.sum()),
        time_weighted_bytes_per_s=float(size.sum() / duration.sum()),
    )


@dataclass(frozen=True, slots=True)
class TrialRate:
    """Bytes, times and aggregate rate of a whole trial.

    Attributes
    ----------
    n
        Transfers in the trial.
    size_bytes
        Bytes of all transfers.
    first_start_s, last_start_s, first_end_s, last_end_s
        Times of the first and last start, and of the first and last end ("first done", "last done").
    span_s
        ``last_end_s`` − ``first_start_s``.
    tail_s
        ``last_end_s`` − ``first_end_s``: time after the first transfer ended.
    aggregate_bytes_per_s
        ``size_bytes`` / ``span_s``; ``None`` if the span is zero.
    """

    n: int
    size_bytes: float
    first_start_s: float
    last_start_s: float
    first_end_s: float
    last_end_s: float
    span_s: float
    tail_s: float
    aggregate_bytes_per_s: float | None


def trial_rate(start_s: npt.ArrayLike, end_s: npt.ArrayLike, size_bytes: npt.ArrayLike) -> TrialRate:
    """Return the aggregate rate of one trial: bytes over (last end − first start).

    Parameters
    ----------
    start_s, end_s
        Shape (n,), on one clock, ``end_s`` ≥ ``start_s``.
    size_bytes
        Bytes delivered by each transfer, shape (n,), ≥ 0.

    Examples
    --------
    >>> trial = trial_rate([0.0, 0.0], [1.0, 4.0], [100, 100])
    >>> trial.aggregate_bytes_per_s, trial.tail_s
    (50.0, 3.0)
    """
    starts = as_sample(start_s, "start_s")
    return trial_rates(np.zeros(starts.size, dtype=np.int64), starts, end_s, size_bytes).row(0)


@dataclass(frozen=True, slots=True, eq=False)
class TrialRates:
    """Columns of :class:`TrialRate`, one element per trial. If the span is zero, the aggregate rate is NaN (absent)."""

    trial: IntArray
    n: IntArray
    size_bytes: FloatArray
    first_start_s: FloatArray
    last_start_s: FloatArray
    first_end_s: FloatArray
    last_end_s: FloatArray
    span_s: FloatArray
    tail_s: FloatArray
    aggregate_bytes_per_s: FloatArray

    def __len__(self) -> int:
        return len(self.trial)

    def row(self, position: int) -> TrialRate:
        """Return one trial as a :class:`TrialRate`, with ``None`` for absent values."""
        rate = float(self.aggregate_bytes_per_s[position])
        return TrialRate(
            n=int(self.n[position]),
            size_bytes=float(self.size_bytes[position]),
            first_start_s=float(self.first_start_s[position]),
            last_start_s=float(self.last_start_s[position]),
            first_end_s=float(self.first_end_s[position]),
            last_end_s=float(self.last_end_s[position]),
            span_s=float(self.span_s[position]),
            tail_s=float(self.tail_s[position]),
            aggregate_bytes_per_s=None if np.isnan(rate) else rate,
        )


def trial_rates(
    trial_index: npt.ArrayLike, start_s: npt.ArrayLike, end_s: npt.ArrayLike, size_bytes: npt.ArrayLike
) -> TrialRates:
    """Return the rates of many trials like :func:`trial_rate`, in the order of their index.

    Parameters
    ----------
    trial_index
        Trial of each transfer: integers, shape (n,), in any order.
    start_s, end_s, size_bytes
        As for :func:`trial_rate`, shape (n,).
    """
    trial, at = dense(as_index(trial_index, "trial_index"))
    start, end = as_sample(start_s, "start_s", minimum=0), as_sample(end_s, "end_s", minimum=0)
    size = as_sample(size_bytes, "size_bytes", minimum=0)
    same_length(trial_index=at, start_s=start, end_s=end, size_bytes=size)
    if np.any(end < start):
        where = int(np.argmax(end < start))
        raise SampleError(f"end_s: expected an end after the start {start[where]} s, found {end[where]} s at {where}")
    if np.any(size < 0):
        raise SampleError(f"size_bytes: expected sizes >= 0, found {size.min():g}")
    order = np.argsort(at, kind="stable")
    n = np.bincount(at)
    edges = np.cumsum(n) - n
    start, end = start[order], end[order]
    first_start, last_start = np.minimum.reduceat(start, edges), np.maximum.reduceat(start, edges)
    first_end, last_end = np.minimum.reduceat(end, edges), np.maximum.reduceat(end, edges)
    total = np.bincount(at, size).astype(np.float64, copy=False)
    span = last_end - first_start
    return TrialRates(
        trial=trial,
        n=n,
        size_bytes=total,
        first_start_s=first_start,
        last_start_s=last_start,
        first_end_s=first_end,
        last_end_s=last_end,
        span_s=span,
        tail_s=last_end - first_end,
        aggregate_bytes_per_s=np.divide(total, span, out=np.full(len(n), np.nan), where=span > 0),
    )
