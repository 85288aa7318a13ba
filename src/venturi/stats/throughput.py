"""Throughput of one sweep point from the times of its repetitions, with the estimators of document 000.

A point moves ``n`` files in parallel, each in a *slot*, and is executed ``R`` times.

========  =========================================================================  =======
symbol    meaning                                                                    unit
========  =========================================================================  =======
s         size of each file                                                          bytes
t_ir      time of slot i in repetition r                                             s
m_i       mean of t_ir over r                                                        s
σ(t_i)    error of m_i: sample deviation of t_ir over √R_i                           s
μ_i       s / m_i                                                                    bytes/s
σ_i       s σ(t_i) / m_i², eq. (1)                                                   bytes/s
v_i       weight of slot i, (1/σ_i²) / Σ(1/σ²), or 1/n if that is undefined          1
μ_f       Σ v_i μ_i, eq. (2)                                                         bytes/s
========  =========================================================================  =======

There are four forms of the error of μ_f:

printed
    √(Σ v_i μ_i² k_i) with k_i = 1/(R_i − 1), which is eq. (3) as printed (the paper has one R = 200). This form omits
    the deviation from the mean, so for any scatter it is near μ_f/√(R − 1) (000-E02). For comparison only.
internal
    √(Σ v_i² σ_i²) = (Σ 1/σ_i²)^(−1/2), from the scatter of the repetitions, with independent slots.
external
    √(Σ v_i (μ_i − μ_f)² / (n − 1)), from the scatter of the slots about their mean.
trial
    √(R/(R − 1) Σ_r u_r²) with u_r = Σ_i v_i (s/m_i²) (t_ir − m_i)/R_i, the contribution of repetition r to the
    deviation of μ_f. This is the cluster form (Liang & Zeger, Biometrika 73 (1986) 13). The slots of one repetition
    start together and share disturbances, so the internal and external errors do not see a bad trial as one event. The
    expected value is the internal error for independent slots. The form equals the internal error for one slot, and is
    √n times larger if all slots vary together.

The default is the largest existing error of internal, external and trial. The first two follow the rule of the Particle
Data Group, which multiplies the internal error by S = max(1, √(χ²/(n − 1))) (Review of Particle Physics, introduction,
"Unconstrained averaging"). The third follows the project's rule that the replicate is the whole trial. The paper leaves
the meaning of σ_time open (000-E13), so both are kept for each slot, as *spread* and *error*.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from venturi.errors import SampleError
from venturi.stats._arrays import NEGLIGIBLE_SPREAD, FloatArray, as_positive

__all__ = ["Absence", "PointThroughput", "SlotThroughput", "point_throughput", "slot_throughput"]


class Absence(enum.IntFlag):
    """Reason for an absent number of a point."""

    NOTHING = 0
    ONE_SLOT = enum.auto()
    """No external error, which needs two slots."""
    ONE_REPETITION = enum.auto()
    """A slot has one time only, so there are no weights, no weighted mean, and no printed, internal or trial error."""
    ZERO_SPREAD = enum.auto()
    """All times of a slot are equal, so its weight is infinite, and there is no weighted mean or printed error."""
    NOT_ALIGNED = enum.auto()
    """The times of one repetition are not known to belong together, so there is no trial error."""
    ZERO_SIZE = enum.auto()
    """Files without bytes have a time but no throughput."""

    @property
    def reasons(self) -> tuple[str, ...]:
        """Reasons as text, one for each flag."""
        return tuple(_REASONS[flag] for flag in Absence if flag in self)


_REASONS = {
    Absence.ONE_SLOT: "one file slot: no scatter between slots",
    Absence.ONE_REPETITION: "a slot was measured only once: no scatter between repetitions",
    Absence.ZERO_SPREAD: "a slot took the same time in every repetition: the weights are undefined",
    Absence.NOT_ALIGNED: "times are not matched by repetition: no error between trials",
    Absence.ZERO_SIZE: "files of size zero have no throughput",
}


@dataclass(frozen=True, slots=True)
class SlotThroughput:
    """Throughput of one file slot: eq. (1) of document 000 with both meanings of its σ (000-E13).

    Attributes
    ----------
    size_bytes
        Size of the file.
    n
        Number of repetitions.
    mean_time_s
        Mean time.
    spread_time_s, error_time_s
        Sample deviation of single times (divided by n − 1), and the same over √n. ``None`` for one repetition.
    throughput_bytes_per_s
        Size / mean time, which is the harmonic mean of the single throughputs, not the arithmetic one (000-E15).
    spread_bytes_per_s, error_bytes_per_s
        Eq. (1) with the spread and with the error of the mean. ``None`` for one repetition.
    """

    size_bytes: float
    n: int
    mean_time_s: float
    spread_time_s: float | None
    error_time_s: float | None
    throughput_bytes_per_s: float
    spread_bytes_per_s: float | None
    error_bytes_per_s: float | None


def slot_throughput(time_s: npt.ArrayLike, size_bytes: float) -> SlotThroughput:
    """Return the throughput of one file slot.

    Parameters
    ----------
    time_s
        Times of the successful repetitions, shape (R,), > 0.
    size_bytes
        Size of the file, > 0.

    Examples
    --------
    >>> slot = slot_throughput([1.0, 3.0], 100)
    >>> slot.throughput_bytes_per_s, round(slot.spread_bytes_per_s, 3), slot.error_bytes_per_s
    (50.0, 35.355, 25.0)
    """
    if not size_bytes > 0:
        raise SampleError(f"size_bytes: expected a size > 0, found {size_bytes!r}")
    times = as_positive(time_s, "time_s")
    mean, spread, error = _time_moments(times)
    slope = size_bytes / mean**2
    return SlotThroughput(
        size_bytes=size_bytes,
        n=times.size,
        mean_time_s=mean,
        spread_time_s=spread,
        error_time_s=error,
        throughput_bytes_per_s=size_bytes / mean,
        spread_bytes_per_s=None if spread is None else slope * spread,
        error_bytes_per_s=None if error is None else slope * error,
    )


ErrorKind = Literal["internal", "external", "trial"]


@dataclass(frozen=True, slots=True)
class PointThroughput:
    """Throughput per file of one sweep point. Errors are in bytes/s, except ``error_time_s``.

    Attributes
    ----------
    size_bytes
        Size of each file.
    n_slots, n_times
        Number of file slots, and of times in all slots.
    mean_time_s
        Mean of the mean times of the slots.
    error_time_s
        Error of the mean time: the trial form, or the internal form if times are not aligned. ``None`` if a slot has
        one time only.
    plain_mean_bytes_per_s, weighted_mean_bytes_per_s
        Mean of the slots' throughputs, unweighted and by eq. (2).
    error_printed, error_internal, error_external, error_trial
        Four errors of :attr:`throughput_bytes_per_s`; formulas in the module docstring.
    absent
        Reasons for values that are ``None``.
    """

    size_bytes: float
    n_slots: int
    n_times: int
    mean_time_s: float
    error_time_s: float | None
    plain_mean_bytes_per_s: float | None
    weighted_mean_bytes_per_s: float | None
    error_printed: float | None
    error_internal: float | None
    error_external: float | None
    error_trial: float | None
    absent: Absence

    @property
    def throughput_bytes_per_s(self) -> float | None:
        """The weighted mean if it exists, otherwise the plain mean; ``None`` for files of size zero."""
        weighted = self.weighted_mean_bytes_per_s
        return self.plain_mean_bytes_per_s if weighted is None else weighted

    @property
    def error_default(self) -> float | None:
        """The largest of the internal, external and trial errors; ``None`` if all are absent."""
        return max(self._errors().values(), default=None)

    @property
    def error_default_kind(self) -> ErrorKind | None:
        """Kind of :attr:`error_default`."""
        errors = self._errors()
        return max(errors, key=errors.__getitem__, default=None)

    @property
    def scale_factor(self) -> float | None:
        """External over internal error, √(χ²/(n − 1)). The slots disagree if it is well above 1. ``None`` if undefined."""
        return self.error_external / self.error_internal if self.error_internal and self.error_external else None

    def _errors(self) -> dict[ErrorKind, float]:
        errors: dict[ErrorKind, float | None] = {
            "internal": self.error_internal,
            "external": self.error_external,
            "trial": self.error_trial,
        }
        return {kind: error for kind, error in errors.items() if error is not None}


def point_throughput(
    time_s: npt.NDArray[np.floating] | Sequence[npt.ArrayLike], size_bytes: float
) -> PointThroughput:
    """Return the throughput of one sweep point from the times of its file slots.

    Parameters
    ----------
    time_s
        Times in s, > 0. In an array of shape (slots, repetitions), a column is one repetition and NaN marks a failed
        transfer. In a list of 1-D arrays, one per slot and of any lengths, repetitions cannot be matched, so
        ``error_trial`` is absent.
    size_bytes
        Size of each file, > 0.

    Raises
    ------
    SampleError
        If a slot has no time, a time is not positive, or the shape is invalid.

    See Also
    --------
    venturi.stats.point_throughputs : the columnar form for thousands of points.

    Examples
    --------
    Equal slots. The printed error is always 1/√199 of the mean, here about 50 times the internal error (000-E02).

    >>> import numpy as np
    >>> times = np.tile(np.linspace(9.0, 11.0, 200), (10, 1))
    >>> times[1::2] = times[1::2, ::-1]
    >>> point = point_throughput(times, 1000)
    >>> round(point.throughput_bytes_per_s, 3), round(point.error_printed, 3), round(point.error_internal, 3)
    (100.0, 7.089, 0.13)
    """
    rows, aligned = _rows(time_s)
    slots = [slot_throughput(row[~np.isnan(row)], size_bytes) for row in rows]
    n = len(slots)
    absent = Absence.ONE_SLOT if n == 1 else Absence.NOTHING
    if min(slot.n for slot in slots) < 2:
        absent |= Absence.ONE_REPETITION
    elif any((slot.spread_time_s or 0.0) <= NEGLIGIBLE_SPREAD * slot.mean_time_s for slot in slots):
        absent |= Absence.ZERO_SPREAD
    if not aligned:
        absent |= Absence.NOT_ALIGNED
    repeated = Absence.ONE_REPETITION not in absent
    weighted = repeated and Absence.ZERO_SPREAD not in absent

    rate = np.array([slot.throughput_bytes_per_s for slot in slots])
    error = np.array([slot.error_bytes_per_s or 0.0 for slot in slots])
    weight = error**-2.0 if weighted else np.ones(n)
    weight /= weight.sum()
    mean = float(np.sum(weight * rate))
    inverse_freedom = np.array([1 / (slot.n - 1) for slot in slots]) if weighted else None
    internal = math.sqrt(np.sum((weight * error) ** 2)) if repeated else None
    time_error = _trial_error(rows, np.full(n, 1 / n)) if repeated and aligned else None
    if repeated and not aligned:
        time_error = math.sqrt(sum((slot.error_time_s or 0.0) ** 2 for slot in slots)) / n
    steepness = np.array([size_bytes / slot.mean_time_s**2 for slot in slots])
    return PointThroughput(
        size_bytes=size_bytes,
        n_slots=n,
        n_times=sum(slot.n for slot in slots),
        mean_time_s=float(np.mean([slot.mean_time_s for slot in slots])),
        error_time_s=time_error,
        plain_mean_bytes_per_s=float(rate.mean()),
        weighted_mean_bytes_per_s=mean if weighted else None,
        error_printed=None if inverse_freedom is None else math.sqrt(np.sum(weight * rate**2 * inverse_freedom)),
        error_internal=internal,
        error_external=math.sqrt(np.sum(weight * (rate - mean) ** 2) / (n - 1)) if n > 1 else None,
        error_trial=_trial_error(rows, weight * steepness) if repeated and aligned else None,
        absent=absent,
    )


def _rows(time_s: npt.NDArray[np.floating] | Sequence[npt.ArrayLike]) -> tuple[list[FloatArray], bool]:
    """Return one row of times per slot, and whether the columns are repetitions."""
    aligned = isinstance(time_s, np.ndarray)
    if isinstance(time_s, np.ndarray) and time_s.ndim != 2:
        raise SampleError(
            f"time_s: expected an array (slots, repetitions) or a list of 1-D arrays, found shape {time_s.shape}"
        )
    rows = [np.asarray(row, dtype=np.float64) for row in time_s]
    if not rows:
        raise SampleError("time_s: expected at least one file slot, found none")
    return rows, aligned


def _time_moments(times: FloatArray) -> tuple[float, float | None, float | None]:
    # Deviations from the first value, so that equal times give a spread of exactly zero.
    shifted = times - times[0]
    mean = float(times[0] + shifted.mean())
    if times.size < 2:
        return mean, None, None
    spread = float(shifted.std(ddof=1))
    return mean, spread, spread / math.sqrt(times.size)


def _trial_error(rows: list[FloatArray], factor: FloatArray) -> float:
    """Return the trial error of Σ_i factor_i m_i over aligned rows, with NaN for failed transfers."""
    deviation = np.array([(row - np.nanmean(row)) / np.count_nonzero(~np.isnan(row)) for row in rows])
    part = np.nansum(factor[:, None] * deviation, axis=0)
    repetitions = int(np.count_nonzero(~np.all(np.isnan(deviation), axis=0)))
    return math.sqrt(repetitions / (repetitions - 1) * np.sum(part**2))
