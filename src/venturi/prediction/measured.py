"""Measured support of a prediction: the error of the simulator on the points of a run, and the range that was measured."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from venturi.calibration.origin import CostOrigin, read_origin
from venturi.cost import CostParameters
from venturi.errors import SampleError
from venturi.run import Run

__all__ = ["MeasuredBasis", "MeasuredSupport", "measured_basis", "measured_support"]


@dataclass(frozen=True, slots=True)
class MeasuredSupport:
    """Comparison of the simulator with a run.

    Attributes
    ----------
    run
        Name of the run.
    points
        Number of compared points that no fit has used.
    median, p90
        Relative errors of the simulated times of these points.
    deviation
        Root mean square of ln(measured / simulated).
    greatest_bytes_per_s
        Largest throughput of a trial; None if unknown.
    """

    run: str
    points: int
    median: float
    p90: float
    deviation: float
    greatest_bytes_per_s: float | None


@dataclass(frozen=True)
class MeasuredBasis:
    """Measurements behind a prediction: the run, its comparison with the simulator, and the origin of the costs file."""

    run: Run | None
    support: MeasuredSupport | None
    origin: CostOrigin | None


def measured_basis(run: Run | None, costs: Path | None) -> MeasuredBasis:
    """Return the measurements behind a prediction. A simulated run is no measurement.

    Raises
    ------
    SampleError
        As for :func:`measured_support`.
    ScenarioError
        If the costs are not valid.
    """
    origin = None if costs is None else read_origin(costs)
    if run is None or run.backend == "sim":
        return MeasuredBasis(run, None, origin)
    from venturi.simulation.simulate import costs_from

    return MeasuredBasis(run, measured_support(run, costs_from(costs), origin), origin)


def measured_support(run: Run, cost: CostParameters | None, origin: CostOrigin | None) -> MeasuredSupport:
    """Return the held-out error of the simulator on a measured run.

    If the costs were calibrated on this run, only the points that the calibration left out are compared.

    Raises
    ------
    SampleError
        If no point can be compared.
    """
    from venturi.calibration.validate import validate  # imports scipy, which is slow

    fitted = origin is not None and run.path.name in origin.runs
    if fitted and origin is not None and not origin.hold_out:
        raise SampleError(
            f"{origin.name}: expected points of {run.path.name} that the calibration left out, found none;"
            " calibrate again with --hold-out 0.5"
        )
    found = validate(
        run, cost, costs=origin.name if origin else "", hold_out=origin.hold_out if fitted and origin else 0.0,
        seed=origin.seed if origin else 1,
    )  # fmt: skip
    logs = [
        math.log(one.point.time_s / one.calibrated_s)
        for one in found.points
        if one.calibrated_s and one.point.time_s > 0
    ]
    if not logs or found.of_points.median is None or found.of_points.p90 is None:
        raise SampleError(
            f"{run.path.name}: expected points that are simulated and measured, found none; look at the run with `venturi report`"
        )
    return MeasuredSupport(
        run=run.path.name,
        points=len(logs),
        median=found.of_points.median,
        p90=found.of_points.p90,
        deviation=math.sqrt(math.fsum(one * one for one in logs) / len(logs)),
        greatest_bytes_per_s=_greatest(run),
    )


def _greatest(run: Run) -> float | None:
    rows = run.query(
        """SELECT max(rate) AS rate FROM (
             SELECT sum(coalesce(received_bytes, requested_bytes)) / nullif(max(end_s) - min(start_s), 0) AS rate
             FROM transfers WHERE outcome = 'ok' GROUP BY coalesce(trial, actor || start_s::VARCHAR))"""
    )
    value = rows["rate"][0] if len(rows["rate"]) else None
    return None if value is None or not math.isfinite(float(value)) else float(value)
