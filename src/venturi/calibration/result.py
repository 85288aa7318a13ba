"""What ``calibrate`` and ``validate`` come to: plain data, for a report, a file of costs, or a program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from venturi.cost import Cost

__all__ = ["Calibration", "Errors", "Estimated", "Point", "Predicted", "State", "Transfer", "Validation"]


State = Literal["estimated", "moved", "no effect", "not told apart", "too uncertain"]


@dataclass(frozen=True, slots=True)
class Point:
    """A point of a run: what was asked, and how long its transfers took.

    Attributes
    ----------
    run
        Number of the run, from 0.
    point, mover, call, factors
        Which; ``point`` is -1 for transfers outside trials.
    files, bytes
        Of one transfer.
    together
        Transfers of a trial.
    timed
        Whether the tool ran for a set time: then ``time_s`` is the time of a byte.
    trials, time_s, error
        Good trials, the median of their times in seconds, and the standard error of its logarithm.
    path_bytes_per_s, rtt_s
        The slowest link of the way, and the delays there and back; None if nothing tells.
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
    """A point, and what was foretold of its ``time_s`` in three ways; None where one cannot tell.

    ``naive_s`` is bytes over the slowest link, and a round trip.
    """

    point: Point
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
    """A parameter: what the data say of it.

    Attributes
    ----------
    name, parameter, of
        ``start_s of globus-url-copy, gsiftp to file``: in words, the name in :mod:`venturi.cost`, and what it is of.
    value, default
        In base units; None: without a bound, or nobody knows.
    low, high
        The interval, if it was identified.
    state
        ``"estimated"``, or why not: ``"moved"``: its default contradicts the times, which do not tell its value either; ``"no effect"`` on these times, ``"not told apart"`` from ``partner``, ``"too uncertain"``.
    partner
        The parameter that has nearly the same effect, or "".
    correlation
        With it.
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
    """Parameters from runs.

    Attributes
    ----------
    runs
        Names of the runs.
    machine_cores
        Of each run, the cores that all of its hosts share, by its plan or as they were found; None: each has its own, or nothing tells.
    cost
        What a scenario is to say of costs: what was estimated, and the cores that hosts share, where all runs agree on them.
    parameters
        All that were looked at.
    points
        With predictions; those not held out are the ones that the fit has seen.
    level, method
        Of the intervals.
    fitted, held_out, defaults, naive
        Errors: of the fit on its own points; on the others; what the uncalibrated defaults and the naive estimate come to there.
    repeatability
        What the measured times differ by when the same trials are carried out again, as :class:`Errors` of one trial against the
        median of the others; ``n`` is 0 where nothing was repeated.
    floor
        What a perfect model would come to on the points held out (on all, if none is): their own errors alone.
    hold_out, seed
        As given.
    simulations, took_s
        Plans that were simulated, and the time of all.
    """

    runs: tuple[str, ...]
    machine_cores: tuple[float | None, ...]
    cost: Cost
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
class Transfer:
    """A measured transfer beside its simulated one. ``bound`` is what bounded the simulated one most, and for which share of its time."""

    trial: str | None
    actor: str
    slot: int
    point: Point
    measured_s: float
    simulated_s: float
    naive_s: float | None
    bound: str
    bound_share: float | None


@dataclass(frozen=True)
class Validation:
    """A run beside its simulation.

    Attributes
    ----------
    run, costs
        Names of the run and of the file of costs; ``costs`` is "" for those of the plan and the defaults.
    transfers
        Those that are good in both.
    left_out
        Measured transfers that failed, or have no simulated one.
    points
        Medians of points, ``calibrated_s`` being the simulated ones.
    of_points, of_transfers, defaults, naive
        Errors of points, of single transfers, of points with the costs of the plan, and of the naive estimate of points; ``defaults`` has no
        points where no other costs were given.
    repeatability, floor
        As in :class:`Calibration`; ``repeatability`` of all points.
    hold_out, seed
        Which points: those that a calibration with these did not see; all of them if ``hold_out`` is 0.
    """

    run: str
    costs: str
    transfers: tuple[Transfer, ...]
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
