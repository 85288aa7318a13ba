"""Fixed cost of a transfer: the times of zero-size transfers, as distributions.

Report 000 calls it the authorisation time, but it contains every fixed cost: program start, connection, authentication,
and creation of the file (000-E18). Two values of a factor, such as services with different authentication, separate
these costs.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from venturi import stats
from venturi.analysis.result import FactorColumn
from venturi.analysis.result_lab import FixedCost, FixedCostRatio
from venturi.analysis.run_columns import RunColumns
from venturi.analysis.values import FactorValue, FloatArray
from venturi.run import Run

__all__ = ["fixed_cost_ratios", "fixed_costs", "zero_trial_times"]

_SERVICE_FACTORS = ("source_service", "destination_service")


def fixed_costs(run: Run, measured: RunColumns) -> tuple[FixedCost, ...]:
    """Return the distribution of the transfer times of each point with only empty files."""
    empty = {
        measured_point.point: measured_point
        for measured_point in measured.points
        if measured_point.sizes_bytes == (0,)
    }
    if not empty:
        return ()
    levels = ", ".join(f"{percent / 100}" for percent in range(101))
    rows = run.query(
        f"""SELECT point::INTEGER AS point, count(*) AS n, count(DISTINCT position) AS trials, avg(duration_s) AS mean,
                   quantile_cont(duration_s, [{levels}]) AS quantiles
            FROM transfers
            WHERE outcome = 'ok' AND duration_s > 0 AND list_contains($points::INTEGER[], point::INTEGER) AND requested_bytes = 0
            GROUP BY 1 ORDER BY 1""",
        {"points": list(empty)},
    )
    return tuple(_row(rows, index, empty[int(point)].factors) for index, point in enumerate(rows["point"]))


def _row(rows: Mapping[str, Any], index: int, factors: Mapping[str, FactorValue]) -> FixedCost:
    quantiles = tuple(float(value) for value in rows["quantiles"][index])
    return FixedCost(
        point=int(rows["point"][index]),
        factors=factors,
        transfers=int(rows["n"][index]),
        trials=int(rows["trials"][index]),
        mean_s=float(rows["mean"][index]),
        least_s=quantiles[0],
        lower_quartile_s=quantiles[25],
        median_s=quantiles[50],
        upper_quartile_s=quantiles[75],
        greatest_s=quantiles[100],
        quantiles_s=quantiles,
    )


def zero_trial_times(measured: RunColumns) -> dict[int, FloatArray]:
    """Return the mean transfer time of each trial, by point, for points with only empty files."""
    empty = np.array(
        [measured_point.point for measured_point in measured.points if measured_point.sizes_bytes == (0,)],
        dtype=np.int64,
    )
    keep = np.isin(measured.transfer_point, empty)
    if not keep.any():
        return {}
    point, time = measured.transfer_point[keep], measured.transfer_time_s[keep]
    most = int(measured.transfer_repetition.max()) + 1
    pairs, trial = np.unique(point * most + measured.transfer_repetition[keep], return_inverse=True)
    mean = np.bincount(trial, time) / np.bincount(trial)
    of_pair = pairs // most
    return {int(number): mean[of_pair == number] for number in np.unique(of_pair)}


def fixed_cost_ratios(
    costs: Sequence[FixedCost], measured: RunColumns, header: Mapping[str, Any], *, level: float
) -> tuple[FixedCostRatio, ...]:  # fmt: skip
    """Return the ratio of each value to the first one, for each factor whose values are names or booleans."""
    times = zero_trial_times(measured)
    found = []
    for factor in measured.factors:
        if not factor.varied or factor.numeric:
            continue
        for first, second in itertools.product(costs, costs):
            ratio = _ratio(factor, first, second, times, level)
            if ratio is None:
                continue
            value, reference = second.factors[factor.name], first.factors[factor.name]
            found.append(
                FixedCostRatio(
                    factor=factor.name, value=value, reference=reference, value_text=_text(factor.name, value, header),
                    reference_text=_text(factor.name, reference, header),
                    others={name: kept for name, kept in first.factors.items() if name != factor.name}, ratio=ratio,
                )
            )  # fmt: skip
    return tuple(found)


def _ratio(
    factor: FactorColumn, first: FixedCost, second: FixedCost, times: Mapping[int, FloatArray], level: float
) -> stats.Interval | None:  # fmt: skip
    apart = {name for name in first.factors if first.factors[name] != second.factors.get(name)}
    if apart != {factor.name} or first.factors[factor.name] != factor.values[0]:
        return None
    samples = times.get(second.point), times.get(first.point)
    if samples[0] is None or samples[1] is None or min(len(samples[0]), len(samples[1])) < 2:
        return None
    return stats.ratio_interval(samples[0], samples[1], paired=False, level=level)


def _text(factor: str, value: FactorValue, header: Mapping[str, Any]) -> str:
    """Return a value as text, with the authentication of a service."""
    if factor in _SERVICE_FACTORS:
        options = ((header.get("services") or {}).get(str(value)) or {}).get("options") or {}
        if options.get("auth"):
            return f"{value} ({'anonymous' if options['auth'] == 'none' else options['auth']})"
    return "none" if value is None else str(value)
