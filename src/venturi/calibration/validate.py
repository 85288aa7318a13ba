"""Comparison of a run with the simulation of its plan, transfer by transfer."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

import numpy as np

from venturi.calibration.calibrate import MODEL_ERROR, errors_of, floor, repeatability, split
from venturi.calibration.naive import naive_s
from venturi.calibration.observations import Moved, measured, medians, points_of
from venturi.calibration.result import CalibrationPoint, Predicted, TransferComparison, Validation
from venturi.calibration.simulator import Model
from venturi.cost import CostParameters
from venturi.errors import SampleError, ScenarioError
from venturi.messages import one_of
from venturi.model import HeldOutErrors, held_out_errors, verdict
from venturi.model.held_out import LEVEL
from venturi.plan import Header
from venturi.run import Run
from venturi.stats.quantiles import normal_reach

__all__ = ["validate"]

PlanPosition = tuple[object, ...]
"""Position of a transfer in a plan: its point or -1, actor, slot, call, and index among such transfers of its trial."""


def validate(
    run: Run,
    cost: CostParameters | None = None,
    *,
    costs: str = "",
    hold_out: float = 0.0,
    seed: int = 1,
    calibrated_on: Collection[str] = (),
    engine: Path | None = None,
) -> Validation:
    """Simulate the plan of a run, and compare each transfer with the measured one.

    Parameters
    ----------
    cost
        Costs of transfers, which replace the costs of the plan. Default: the costs of the plan, and the defaults.
    costs
        Name of the cost file, for display.
    hold_out, seed
        Arguments of the calibration that produced the costs. Only the points that it held out are compared. All points
        if ``hold_out`` is 0.
    calibrated_on
        Names of the runs that the costs were estimated from. If this run is one of them and no points were held out,
        there is no verdict.
    engine
        Path of the engine. Default: search for it.

    Raises
    ------
    SampleError
        If no transfer succeeded in both the run and the simulation.
    ScenarioError
        If the costs name services, storages or hosts that the run does not have.
    BackendError
        If there is no engine, or it rejects the plan.

    Examples
    --------
    >>> validate(Run.open("runs/mine"), read_costs(Path("costs.toml"))).of_points.median  # doctest: +SKIP
    0.08
    """
    model = Model(run, engine)
    if cost is not None:
        _check_names(cost, model.header, costs)
    measurements, simulated = measured(run), model.simulate(cost, explain=True)
    points = points_of(run, measurements)
    if hold_out > 0:
        points = [point for point, held in zip(points, split(points, hold_out, seed), strict=True) if held]
    by_key = {(p.point, p.mover if p.point >= 0 else p.call): p for p in points}
    by_position = dict(_by_position(simulated, by_trial=False))
    transfers = []
    for position, one in _by_position(measurements, by_trial=True):
        counterpart = by_position.get(position)
        point = by_key.get(one.key)
        if one.time_s is None or counterpart is None or counterpart.time_s is None or point is None:
            continue
        transfers.append(_compare(one, counterpart, point))
    if not transfers:
        raise SampleError(
            f"{model.name}: expected transfers that succeeded in the run and in its simulation, found none of"
            f" {len(measurements)}; look at the failures with `venturi report`"
        )
    times = medians(simulated)
    before = {} if cost is None else medians(model.simulate())
    predicted = tuple(
        Predicted(point, hold_out > 0, _time(times.get(key)), _time(before.get(key)), naive_s(point))
        for key, point in by_key.items()
    )
    errors = _errors(predicted)
    holds, rule = verdict(errors)
    if hold_out == 0 and model.name in calibrated_on:
        holds, rule = "unknown", "the costs were estimated from this run, so these are not errors of predictions"
    return Validation(
        run=model.name,
        costs=costs,
        transfers=tuple(transfers),
        left_out=sum(one.key in by_key for one in measurements) - len(transfers),
        points=predicted,
        of_points=errors_of((p.calibrated_s, p.point.time_s) for p in predicted),
        of_transfers=errors_of((t.simulated_s, t.measured_s) for t in transfers),
        defaults=errors_of((p.defaults_s, p.point.time_s) for p in predicted),
        naive=errors_of((p.naive_s, p.point.time_s) for p in predicted),
        repeatability=repeatability([measurements]),
        floor=floor(points),
        hold_out=hold_out,
        seed=seed,
        errors=errors,
        holds=holds,
        rule=rule,
    )


def _errors(predicted: Sequence[Predicted]) -> HeldOutErrors:
    """Return the errors of simulated times, with the intervals that the calibration assumes."""
    known = [(one.calibrated_s, one.point) for one in predicted if one.calibrated_s is not None]
    factors = [math.exp(normal_reach(LEVEL) * math.hypot(point.error, MODEL_ERROR)) for _, point in known]
    return held_out_errors(
        [time for time, _ in known],
        [point.time_s for _, point in known],
        [time / factor for (time, _), factor in zip(known, factors, strict=True)],
        [time * factor for (time, _), factor in zip(known, factors, strict=True)],
    )


def _check_names(cost: CostParameters, header: Header, source: str) -> None:
    """Reject costs of services, storages and hosts that are not in the plan.

    They belong to another testbed and would have no effect.
    """
    problems = [
        (f"testbed.cost.{table}.{name}", one_of(f"the {table}s of the run", known, name))
        for table, declared, known in (
            ("service", cost.services, header.services),
            ("storage", cost.storages, header.storages),
            ("host", cost.hosts, header.hosts),
        )
        for name in declared
        if name not in known
    ]
    if problems:
        raise ScenarioError(problems, source or "costs")


def _by_position(transfers: Iterable[Moved], *, by_trial: bool) -> Iterable[tuple[PlanPosition, Moved]]:
    """Yield transfers with their position in the plan.

    Only the first simulated trial of a point is used, for all of its trials.
    """
    seen: dict[PlanPosition, int] = {}
    first: dict[object, object] = {}
    for one in transfers:
        if (
            not by_trial
            and one.trial is not None
            and first.setdefault((one.key[0], one.actor), one.trial) != one.trial
        ):
            continue
        within = (one.key[0], one.actor, one.slot, one.call)
        count = seen[(one.trial, *within)] = seen.get((one.trial, *within), -1) + 1
        yield (*within, count), one


def _compare(one: Moved, counterpart: Moved, point: CalibrationPoint) -> TransferComparison:
    assert one.time_s is not None and counterpart.time_s is not None, "the caller checks both"
    bottleneck, fraction = max(counterpart.bottleneck.items(), key=lambda item: item[1], default=("", None))
    return TransferComparison(
        one.trial, one.actor, one.slot, point, one.time_s, counterpart.time_s, naive_s(point), bottleneck, fraction
    )


def _time(found: list[float] | None) -> float | None:
    return float(np.exp(np.median(np.log(found)))) if found else None
