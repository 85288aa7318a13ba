"""Results of ``calibrate`` and ``validate`` as plain data, for a report, a cost file, or a program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from venturi.cost import CostParameters
from venturi.model import HeldOutErrors, Holds

__all__ = [
    "Calibration",
    "CalibrationPoint",
    "Errors",
    "Estimated",
    "Predicted",
    "State",
    "TransferComparison",
    "Validation",
]


State = Literal["estimated", "moved", "no effect", "not told apart", "too uncertain"]


@dataclass(frozen=True, slots=True)
class CalibrationPoint:
    """A point of a run: its settings, and the measured time of its transfers.

    Attributes
    ----------
    run
        Number of the run, from 0.
    point, mover, call, factors
        Identity of the point; ``point`` is -1 for transfers outside trials.
    files, bytes
        Size of one transfer.
    together
        Number of transfers in a trial.
    timed
        Whether the tool ran for a set time. If so, ``time_s`` is the time per byte.
    trials, time_s, error
        Number of good trials, the median of their times in seconds, and the standard error of its logarithm.
    path_bytes_per_s, rtt_s
        Rate of the slowest link of the path, and the round-trip time. None if unknown.
    """

    run: int
    point: int
    mover: str
    call: str
    factors: Mapping[str, str | int | float | bool]
    files: int
    bytes: float
    together: int
    timed: bool
    trials: int
    time_s: float
    error: float
    path_bytes_per_s: float | None
    rtt_s: float | None


@dataclass(frozen=True, slots=True)
class Predicted:
    """A point with three predictions of its ``time_s``. A prediction is None if it is not available.

    ``naive_s`` is bytes / rate of the slowest link + RTT.
    """

    point: CalibrationPoint
    held_out: bool
    calibrated_s: float | None
    defaults_s: float | None
    naive_s: float | None


@dataclass(frozen=True, slots=True)
class Errors:
    """Relative errors |predicted − measured| / measured of ``n`` points: their median and their 90th percentile."""

    n: int
    median: float | None
    p90: float | None


@dataclass(frozen=True, slots=True)
class Estimated:
    """A parameter and its estimate.

    Attributes
    ----------
    name, parameter, of
        Full name (``start_s of globus-url-copy, gsiftp to file``), the name in :mod:`venturi.cost`, and the subject of
        the parameter.
    value, default
        In base units. None if unknown or unlimited.
    low, high
        The interval, if the parameter was identified.
    state
        ``"estimated"``, or the reason why the parameter was not estimated.
        ``"moved"``: its default contradicts the times, but they do not determine its value.
        ``"no effect"``: it has no effect on these times.
        ``"not told apart"``: its effect equals that of ``partner``.
        ``"too uncertain"``: its standard error is too large.
    partner
        The parameter that has nearly the same effect, or "".
    correlation
        Correlation with ``partner``.
    """

    name: str
    parameter: str
    of: str
    value: float | None
    default: float | None
    low: float | None
    high: float | None
    state: State
    partner: str = ""
    correlation: float | None = None


@dataclass(frozen=True)
class Calibration:
    """Parameters that were estimated from runs.

    Attributes
    ----------
    runs
        Names of the runs.
    machine_cores
        For each run, the cores that all of its hosts share, from its plan or as reported by the agents. None if each
        host has its own, or if unknown.
    cost
        Costs for a scenario: the estimated parameters, and the cores that hosts share if all runs agree on them.
    parameters
        All parameters that were considered.
    points
        Points with predictions. The fit used the points that are not held out.
    level, method
        Level and method of the intervals.
    fitted, held_out, defaults, naive
        Errors of the fit on its own points and on the points held out. Errors of the defaults and of the naive estimate
        on the points held out, or on all points if none is held out.
    repeatability
        Errors of one trial against the median of the other trials of its point. ``n`` is 0 if no trial was repeated.
    floor
        Errors of a perfect model on the points held out, caused by their measurement errors alone. On all points if
        none is held out.
    hold_out, seed
        The arguments of ``calibrate``.
    simulations, took_s
        Number of simulated plans, and their total time.
    """

    runs: tuple[str, ...]
    machine_cores: tuple[float | None, ...]
    cost: CostParameters
    parameters: tuple[Estimated, ...]
    points: tuple[Predicted, ...]
    level: float
    method: str
    fitted: Errors
    held_out: Errors
    defaults: Errors
    naive: Errors
    repeatability: Errors
    floor: Errors
    hold_out: float
    seed: int
    simulations: int
    took_s: float


@dataclass(frozen=True, slots=True)
class TransferComparison:
    """A measured transfer and its simulation.

    ``bottleneck`` limited the simulated transfer for the longest fraction of its time.
    """

    trial: str | None
    actor: str
    slot: int
    point: CalibrationPoint
    measured_s: float
    simulated_s: float
    naive_s: float | None
    bottleneck: str
    bottleneck_fraction: float | None


@dataclass(frozen=True)
class Validation:
    """A run compared with its simulation.

    Attributes
    ----------
    run, costs
        Names of the run and of the cost file. ``costs`` is "" if the costs of the plan and the defaults were used.
    transfers
        Transfers that succeeded in both.
    left_out
        Number of measured transfers that failed or have no simulated one.
    points
        Medians of points; ``calibrated_s`` is the simulated one.
    of_points, of_transfers, defaults, naive
        Errors of points, of single transfers, of points with the costs of the plan, and of the naive estimate of
        points. ``defaults`` has no points if no other costs were passed.
    repeatability, floor
        As in :class:`Calibration`; ``repeatability`` covers all points.
    hold_out, seed
        Only the points that a calibration with these arguments held out are compared. All points if ``hold_out`` is 0.
    errors
        Errors of the points with their bias. An interval is the simulated time with the errors that the calibration
        assumes: the error of the point and the error of a perfect model, for normal log times.
    holds, rule
        The verdict, and the rule that decided.
    """

    run: str
    costs: str
    transfers: tuple[TransferComparison, ...]
    left_out: int
    points: tuple[Predicted, ...]
    of_points: Errors
    of_transfers: Errors
    defaults: Errors
    naive: Errors
    repeatability: Errors
    floor: Errors
    hold_out: float
    seed: int
    errors: HeldOutErrors
    holds: Holds
    rule: str
