"""Throughput of many sweep points by columns, with the estimators of :mod:`venturi.stats.throughput`.

The columns process a million transfers in one or two seconds. A test checks that both forms give equal results. The
symbols are those of :mod:`venturi.stats.throughput`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from venturi.errors import SampleError
from venturi.stats._arrays import (
    NEGLIGIBLE_SPREAD,
    FloatArray,
    IntArray,
    as_index,
    as_positive,
    as_sample,
    dense,
    same_length,
)
from venturi.stats.throughput import Absence, PointThroughput

__all__ = ["PointThroughputs", "point_throughputs"]


@dataclass(frozen=True, slots=True, eq=False)
class PointThroughputs:
    """Columns of :class:`venturi.stats.PointThroughput`, one element per point, in the order of ``group``.

    NaN in a column of doubles means absent; write it to a table as null. ``absent`` (bits of
    :class:`venturi.stats.Absence`) contains the reason. :meth:`row` converts one point.
    """

    group: IntArray
    size_bytes: FloatArray
    n_slots: IntArray
    n_times: IntArray
    mean_time_s: FloatArray
    error_time_s: FloatArray
    plain_mean_bytes_per_s: FloatArray
    weighted_mean_bytes_per_s: FloatArray
    throughput_bytes_per_s: FloatArray
    error_printed: FloatArray
    error_internal: FloatArray
    error_external: FloatArray
    error_trial: FloatArray
    error_default: FloatArray
    absent: IntArray

    def __len__(self) -> int:
        return len(self.group)

    def row(self, position: int) -> PointThroughput:
        """Return one point, with ``None`` for absent values."""

        def value(column: FloatArray) -> float | None:
            number = float(column[position])
            return None if np.isnan(number) else number

        return PointThroughput(
            size_bytes=float(self.size_bytes[position]),
            n_slots=int(self.n_slots[position]),
            n_times=int(self.n_times[position]),
            mean_time_s=float(self.mean_time_s[position]),
            error_time_s=value(self.error_time_s),
            plain_mean_bytes_per_s=value(self.plain_mean_bytes_per_s),
            weighted_mean_bytes_per_s=value(self.weighted_mean_bytes_per_s),
            error_printed=value(self.error_printed),
            error_internal=value(self.error_internal),
            error_external=value(self.error_external),
            error_trial=value(self.error_trial),
            absent=Absence(int(self.absent[position])),
        )


def point_throughputs(
    group_index: npt.ArrayLike,
    slot_index: npt.ArrayLike,
    time_s: npt.ArrayLike,
    size_bytes: npt.ArrayLike,
    repetition_index: npt.ArrayLike | None = None,
) -> PointThroughputs:
    """Return the throughput of every sweep point from a table of transfers.

    Parameters
    ----------
    group_index
        Sweep point of each transfer: integers, shape (N,), in any order, with or without gaps.
    slot_index
        File slot within the point: integers, shape (N,).
    time_s
        Time of each transfer, shape (N,), > 0, without failed transfers.
    size_bytes
        Size of each file, shape (N,) or one number, >= 0, equal within a point. A point of size zero has a mean time
        (for :func:`venturi.stats.zero_size_correction`) but no throughput.
    repetition_index
        Repetition of each transfer: integers, shape (N,), compared only within a point. Without it, there are no trial
        errors.

    Raises
    ------
    SampleError
        If shapes differ, a time is not positive, or sizes differ within a point.

    Examples
    --------
    >>> points = point_throughputs([7, 7, 7, 7], [0, 0, 1, 1], [1.0, 3.0, 2.0, 2.5], 100)
    >>> points.group.tolist(), points.n_slots.tolist(), points.plain_mean_bytes_per_s.round(2).tolist()
    ([7], [2], [47.22])
    """
    time = as_positive(time_s, "time_s", minimum=0)
    size = as_sample(np.broadcast_to(np.asarray(size_bytes, dtype=np.float64), time.shape), "size_bytes", minimum=0)
    groups, group = dense(as_index(group_index, "group_index"))
    same_length(group_index=group, time_s=time)
    slots = _Slots.of(group, as_index(slot_index, "slot_index"), time)
    clusters = None if repetition_index is None else _pair(group, as_index(repetition_index, "repetition_index"))
    return _Points(groups, slots, _point_sizes(group, size, len(groups)), group, clusters).columns()


@dataclass(frozen=True, slots=True)
class _Slots:
    """Moments of the times of each slot of each point; ``of_transfer`` maps a transfer to its slot."""

    of_transfer: IntArray
    point: IntArray
    n: IntArray
    mean: FloatArray
    spread: FloatArray
    residual: FloatArray

    @classmethod
    def of(cls, group: IntArray, slot_index: IntArray, time: FloatArray) -> _Slots:
        same_length(slot_index=slot_index, time_s=time)
        key, first = _pair(group, slot_index)
        n = np.bincount(key)
        # Deviations from the first value, as in the scalar form, so that equal times give a spread of exactly zero.
        shifted = time - time[first][key]
        offset = np.bincount(key, shifted, len(n)) / n
        residual = shifted - offset[key]
        squares = np.bincount(key, residual**2, len(n))
        return cls(
            of_transfer=key,
            point=group[first],
            n=n,
            mean=time[first] + offset,
            spread=np.sqrt(squares / np.maximum(n - 1, 1)),
            residual=residual,
        )


@dataclass(frozen=True, slots=True)
class _Points:
    """Sums over the slots of each point."""

    groups: IntArray
    slots: _Slots
    size: FloatArray
    group: IntArray
    clusters: tuple[IntArray, IntArray] | None

    def columns(self) -> PointThroughputs:
        slots, point = self.slots, self.slots.point
        n_slots = np.bincount(point, minlength=len(self.groups))
        single = self._any(slots.n < 2)
        still = self._any(slots.spread <= NEGLIGIBLE_SPREAD * slots.mean) & ~single
        weighted = ~single & ~still & (self.size > 0)

        rate = self.size[point] / slots.mean
        slope = rate / slots.mean
        error = slope * slots.spread / np.sqrt(slots.n)
        weight = np.power(error, -2.0, out=np.ones_like(error), where=weighted[point])
        weight /= self._sum(weight)[point]
        mean = self._sum(weight * rate)
        scatter = self._sum(weight * (rate - mean[point]) ** 2)
        printed = np.sqrt(self._sum(weight * rate**2 / np.maximum(slots.n - 1, 1)))
        internal = np.sqrt(self._sum((weight * error) ** 2))
        time_internal = np.sqrt(self._sum((slots.spread**2) / slots.n)) / n_slots
        trial, time_trial = self._trial(weight * slope), self._trial(1 / n_slots[point])

        sized = self.size > 0
        error_internal = _where(~single & sized, internal)
        error_external = _where((n_slots > 1) & sized, np.sqrt(scatter / np.maximum(n_slots - 1, 1)))
        error_trial = _where(~single & sized, trial)
        return PointThroughputs(
            group=self.groups,
            size_bytes=self.size,
            n_slots=n_slots,
            n_times=np.bincount(self.group, minlength=len(self.groups)),
            mean_time_s=self._sum(slots.mean) / n_slots,
            error_time_s=_where(~single, time_internal if self.clusters is None else time_trial),
            plain_mean_bytes_per_s=_where(sized, self._sum(rate) / n_slots),
            weighted_mean_bytes_per_s=_where(weighted, mean),
            throughput_bytes_per_s=_where(sized, mean),
            error_printed=_where(weighted, printed),
            error_internal=error_internal,
            error_external=error_external,
            error_trial=error_trial,
            error_default=np.fmax(np.fmax(error_internal, error_external), error_trial),
            absent=(n_slots == 1) * int(Absence.ONE_SLOT)
            | single * int(Absence.ONE_REPETITION)
            | still * int(Absence.ZERO_SPREAD)
            | (~sized) * int(Absence.ZERO_SIZE)
            | (int(Absence.NOT_ALIGNED) if self.clusters is None else 0),
        )

    def _sum(self, values: FloatArray) -> FloatArray:
        return np.bincount(self.slots.point, values, len(self.groups)).astype(np.float64, copy=False)

    def _any(self, condition: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        return np.bincount(self.slots.point, condition, len(self.groups)) > 0

    def _trial(self, factor: FloatArray) -> FloatArray:
        """Return the trial error of Σ_i factor_i m_i for each point; NaN without repetitions."""
        if self.clusters is None:
            return np.full(len(self.groups), np.nan)
        cluster, first = self.clusters
        contribution = (factor / self.slots.n)[self.slots.of_transfer] * self.slots.residual
        part = np.bincount(cluster, contribution, len(first))
        point = self.group[first]
        repetitions = np.bincount(point, minlength=len(self.groups))
        squares = np.bincount(point, part**2, len(self.groups))
        return np.sqrt(squares * repetitions / np.maximum(repetitions - 1, 1))


def _pair(group: IntArray, index: IntArray) -> tuple[IntArray, IntArray]:
    """Return a dense number for each pair (group, index), and the first position of each pair."""
    if len(group) != len(index):
        raise SampleError(f"expected an index for each of {len(group)} transfers, found {len(index)}")
    values, position = dense(index)
    _, first, key = np.unique(group * max(len(values), 1) + position, return_index=True, return_inverse=True)
    return key.astype(np.int64, copy=False), first.astype(np.int64, copy=False)


def _point_sizes(group: IntArray, size: FloatArray, n_points: int) -> FloatArray:
    """Return the size of each point."""
    if np.any(size < 0):
        raise SampleError(f"size_bytes: expected sizes >= 0, found {size.min():g}")
    sizes = np.empty(n_points)
    sizes[group] = size
    wrong = np.flatnonzero(sizes[group] != size)
    if wrong.size:
        raise SampleError(
            f"size_bytes: expected one size within a point, found {size[wrong[0]]:g} and {sizes[group[wrong[0]]]:g}"
            f" in point {group[wrong[0]]}; make size part of the group"
        )
    return sizes


def _where(condition: npt.NDArray[np.bool_], values: FloatArray) -> FloatArray:
    return np.where(condition, values, np.nan)
