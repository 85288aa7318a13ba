"""Results of sweep points: the estimators of document 000 as printed and as corrected, and statistics over trials.

An interval needs one value per trial. For the throughput per file this value is the *pseudo-value* of repetition r,

    u_r = μ_f − R Σ_i v_i (s/m_i²) (t_ir − m_i) / R_i,

in the symbols of :mod:`venturi.stats.throughput`. The mean of u_r over the repetitions is μ_f itself, and their scatter
gives the trial error. So the interval belongs to the reported throughput, and whole trials are resampled.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from venturi.analysis.intervals import trial_interval
from venturi.analysis.result import FactorValue, FloatArray, IntArray, MoverPart, PointResult, Trials, ZeroSize
from venturi.analysis.run_columns import MeasuredPoint, RunColumns
from venturi.stats import PointThroughputs, label_outliers, point_throughputs, zero_size_correction

__all__ = ["MIN_FOR_OUTLIERS", "MIXED_SIZES", "point_rows", "throughputs", "trial_columns"]

MIXED_SIZES = "files of different sizes in one point: no throughput per file"
MIN_FOR_OUTLIERS = 5


def throughputs(measured: RunColumns) -> PointThroughputs:
    """Return the throughput of every point with a single file size."""
    uniform = np.array(
        [measured_point.point for measured_point in measured.points if len(measured_point.sizes_bytes) == 1],
        dtype=np.int64,
    )
    keep = np.isin(measured.transfer_point, uniform)
    return point_throughputs(
        measured.transfer_point[keep],
        measured.transfer_slot[keep],
        measured.transfer_time_s[keep],
        measured.transfer_size_bytes[keep],
        measured.transfer_repetition[keep],
    )


def trial_columns(measured: RunColumns, columns: PointThroughputs) -> Trials:
    """Return the trials in execution order, with their rate as a whole and per file."""
    span = measured.trial_end_s - measured.trial_start_s
    sized = (span > 0) & (measured.trial_bytes > 0)
    together = np.divide(measured.trial_bytes, span, out=np.full(len(span), np.nan), where=sized)
    return Trials(
        point=measured.trial_point,
        repetition=measured.trial_repetition,
        position=measured.trial_position,
        start_s=measured.trial_start_s,
        end_s=measured.trial_end_s,
        together_bytes_per_s=together,
        throughput_bytes_per_s=_pseudo_values(measured, columns),
        tail_s=measured.trial_tail_s,
    )


def point_rows(
    measured: RunColumns, columns: PointThroughputs, trials: Trials, *, planned: int | None, level: float,
) -> tuple[PointResult, ...]:  # fmt: skip
    """Return one row per point, in the order of the plan."""
    at = {int(point): index for index, point in enumerate(columns.group)}
    parts = _parts(measured, trials)
    of_point = _Groups(trials.point)
    zero_times = _zero_times(measured, columns, at)
    rows = []
    for measured_point in measured.points:
        own = of_point.members(measured_point.point)
        rows.append(
            _row(measured_point, columns, at.get(measured_point.point), trials, own, measured, parts.get(measured_point.point, ()), zero_times,
                 planned, level)
        )  # fmt: skip
    return tuple(rows)


class _Groups:
    """Index of the members of each group."""

    def __init__(self, group: IntArray) -> None:
        self._order = np.argsort(group, kind="stable")
        values, first = np.unique(group[self._order], return_index=True)
        edges = np.append(first, len(group))
        self._range = {int(value): (edges[i], edges[i + 1]) for i, value in enumerate(values)}

    def members(self, value: int) -> IntArray:
        first, last = self._range.get(value, (0, 0))
        return self._order[first:last]


def _pseudo_values(measured: RunColumns, columns: PointThroughputs) -> FloatArray:
    """Return u_r of each trial, with NaN if its point has no throughput."""
    result = np.full(len(measured.trial_point), np.nan)
    if len(columns) == 0:
        return result
    storage = np.searchsorted(columns.group, measured.transfer_point)
    storage = np.minimum(storage, len(columns) - 1)
    keep = (columns.group[storage] == measured.transfer_point) & np.isfinite(columns.throughput_bytes_per_s[storage])
    if not keep.any():
        return result
    point, time = storage[keep], measured.transfer_time_s[keep]
    _, first, slot = np.unique(
        point * (int(measured.transfer_slot.max()) + 1) + measured.transfer_slot[keep],
        return_index=True,
        return_inverse=True,
    )
    of_slot = point[first]
    n = np.bincount(slot)
    mean = np.bincount(slot, time) / n
    residual = time - mean[slot]
    spread = np.sqrt(np.bincount(slot, residual**2) / np.maximum(n - 1, 1))
    slope = columns.size_bytes[of_slot] / mean**2
    weighted = np.isfinite(columns.weighted_mean_bytes_per_s[of_slot])
    error = np.where(weighted, slope * spread / np.sqrt(n), 1.0)
    weight = np.where(weighted, np.where(error > 0, error, 1.0) ** -2.0, 1.0)
    weight /= np.bincount(of_slot, weight, len(columns))[of_slot]
    influence = (weight * slope / n)[slot] * residual

    most = int(measured.transfer_repetition.max()) + 1
    pairs, cluster = np.unique(point * most + measured.transfer_repetition[keep], return_inverse=True)
    summed = np.bincount(cluster, influence)
    of_pair = pairs // most
    repetitions = np.bincount(of_pair, minlength=len(columns))
    value = columns.throughput_bytes_per_s[of_pair] - repetitions[of_pair] * summed
    trial_storage = np.minimum(np.searchsorted(columns.group, measured.trial_point), len(columns) - 1)
    keys = trial_storage * most + measured.trial_repetition
    found = np.minimum(np.searchsorted(pairs, keys), len(pairs) - 1)
    known = (pairs[found] == keys) & (columns.group[trial_storage] == measured.trial_point)
    result[known] = value[found[known]]
    return result


def _row(
    measured_point: MeasuredPoint, columns: PointThroughputs, at: int | None, trials: Trials, own: IntArray, measured: RunColumns,
    parts: tuple[MoverPart, ...], zero_times: Mapping[tuple[FactorValue, ...], tuple[float, float | None]], planned: int | None,
    level: float,
) -> PointResult:  # fmt: skip
    point = None if at is None else columns.row(at)
    rate = None if point is None else point.throughput_bytes_per_s
    # The scatter of the slots of one trial does not predict the next trial, so the replicate is the whole trial.
    repeated = point if len(own) > 1 else None
    together = trials.together_bytes_per_s[own]
    together = together[np.isfinite(together)]
    outliers, without = _outliers(trials.throughput_bytes_per_s[own])
    movers = max(len(measured_point.calls), 1)
    return PointResult(
        point=measured_point.point,
        factors=measured_point.factors,
        size_bytes=float(measured_point.sizes_bytes[0]) if len(measured_point.sizes_bytes) == 1 else None,
        files=measured_point.files,
        trials=measured_point.trials,
        trials_planned=planned,
        trials_failed=measured_point.trials_failed,
        transfers_ok=measured_point.transfers_ok,
        transfers_failed=measured_point.transfers_failed,
        mean_time_s=None if point is None else point.mean_time_s,
        error_time_s=None if point is None else point.error_time_s,
        throughput_bytes_per_s=rate,
        error_bytes_per_s=repeated.error_default if repeated else None,
        error_kind=repeated.error_default_kind if repeated else None,
        plain_mean_bytes_per_s=None if point is None else point.plain_mean_bytes_per_s,
        weighted_mean_bytes_per_s=None if point is None else point.weighted_mean_bytes_per_s,
        error_printed_bytes_per_s=None if point is None else point.error_printed,
        error_internal_bytes_per_s=None if point is None else point.error_internal,
        error_external_bytes_per_s=None if point is None else point.error_external,
        error_trial_bytes_per_s=None if point is None else point.error_trial,
        interval=trial_interval(trials.throughput_bytes_per_s[own], level=level),
        together_bytes_per_s=float(together.mean()) if len(together) else None,
        together_error_bytes_per_s=float(together.std(ddof=1) / np.sqrt(len(together))) if len(together) > 1 else None,
        together_interval=trial_interval(together, level=level),
        files_times_bytes_per_s=None if rate is None else rate * measured_point.files * movers,
        tail_s=_mean(trials.tail_s[own]),
        start_spread_s=_mean(measured.trial_start_spread_s[own]),
        span_s=_mean((trials.end_s - trials.start_s)[own]),
        cpu_s_per_byte=measured_point.cpu_s / measured_point.cpu_bytes if measured_point.cpu_s is not None and measured_point.cpu_bytes else None,
        read_disk_ratio=(
            measured_point.read_disk_bytes / measured_point.read_disk_of_bytes
            if measured_point.read_disk_bytes is not None and measured_point.read_disk_of_bytes else None
        ),
        trend_ratio=_trend(trials.throughput_bytes_per_s[own]),
        outliers=outliers,
        throughput_without_outliers_bytes_per_s=without,
        zero_size=_zero_size(measured_point, point.mean_time_s, point.error_time_s, zero_times) if point is not None else None,
        parts=parts,
        absent=(MIXED_SIZES,) if len(measured_point.sizes_bytes) > 1 else () if point is None else point.absent.reasons,
    )  # fmt: skip


def _mean(values: FloatArray) -> float | None:
    return float(values.mean()) if len(values) else None


def _outliers(values: FloatArray) -> tuple[int, float | None]:
    """Return the number of outlier trials and the mean of the other trials. All other numbers include the outliers."""
    values = values[np.isfinite(values)]
    if len(values) < MIN_FOR_OUTLIERS:
        return 0, None
    labels = label_outliers(values).is_outlier
    count = int(labels.sum())
    return count, float(values[~labels].mean()) if count else None


def _trend(values: FloatArray) -> float | None:
    """Return the ratio of the last to the first value of a straight line through the trials."""
    values = values[np.isfinite(values)]
    if len(values) < MIN_FOR_OUTLIERS:
        return None
    storage = np.linspace(-0.5, 0.5, len(values))
    slope = float(storage @ values / (storage @ storage))
    mean = float(values.mean())
    first, last = mean - slope / 2, mean + slope / 2
    return last / first if first > 0 and last > 0 else None


def _parts(measured: RunColumns, trials: Trials) -> dict[int, tuple[MoverPart, ...]]:
    """Return the movers of the points that run several movers, each with its own rates."""
    mixed = [
        measured_point
        for measured_point in measured.points
        if len(measured_point.calls) > 1 and len(measured_point.sizes_bytes) == 1
    ]
    if not mixed:
        return {}
    keep = np.isin(measured.transfer_point, np.array([measured_point.point for measured_point in mixed]))
    many = len(measured.calls)
    group = (measured.transfer_point * many + measured.transfer_call)[keep]
    columns = point_throughputs(
        group, measured.transfer_slot[keep], measured.transfer_time_s[keep], measured.transfer_size_bytes[keep],
        measured.transfer_repetition[keep],
    )  # fmt: skip
    n = np.bincount(np.searchsorted(columns.group, group), minlength=len(columns))
    span_s = np.bincount(trials.point, trials.end_s - trials.start_s)
    found: dict[int, list[MoverPart]] = {}
    for index, pair in enumerate(columns.group):
        point, call = divmod(int(pair), many)
        row = columns.row(index)
        moved = row.size_bytes * n[index]
        part = MoverPart(
            mover=measured.calls[call],
            transfers_ok=int(n[index]),
            throughput_bytes_per_s=row.throughput_bytes_per_s,
            error_bytes_per_s=row.error_default,
            together_bytes_per_s=moved / span_s[point] if moved and span_s[point] > 0 else None,
        )
        found.setdefault(point, []).append(part)
    return {point: tuple(parts) for point, parts in found.items()}


def _others(measured_point: MeasuredPoint) -> tuple[FactorValue, ...]:
    return tuple(value for name, value in measured_point.factors.items() if name != "size_bytes")


def _zero_times(
    measured: RunColumns, columns: PointThroughputs, at: Mapping[int, int]
) -> dict[tuple[FactorValue, ...], tuple[float, float | None]]:
    """Return mean time and error of the points of size zero, by their other factors."""
    found = {}
    for measured_point in measured.points:
        if measured_point.sizes_bytes == (0,) and measured_point.point in at:
            row = columns.row(at[measured_point.point])
            found[_others(measured_point)] = (row.mean_time_s, row.error_time_s)
    return found


def _zero_size(
    measured_point: MeasuredPoint, time_s: float, error_s: float | None,
    zero_times: Mapping[tuple[FactorValue, ...], tuple[float, float | None]],
) -> ZeroSize | None:  # fmt: skip
    zero = zero_times.get(_others(measured_point))
    if zero is None or measured_point.sizes_bytes[0] == 0:
        return None
    corrected = zero_size_correction(measured_point.sizes_bytes[0], time_s, error_s, *zero)
    return ZeroSize(
        outcome=corrected.outcome,
        zero_time_s=zero[0],
        corrected_time_s=corrected.corrected_time_s,
        throughput_bytes_per_s=corrected.throughput_bytes_per_s,
        error_bytes_per_s=corrected.error_bytes_per_s,
    )
