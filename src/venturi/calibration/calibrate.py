"""Estimation of parameters from runs: split the points, fit one part, predict the other."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy.special import ndtri

from venturi.calibration.estimate import LEAST_EFFECT, LEVEL, METHOD, CostEstimate, Flags, Floats, estimate
from venturi.calibration.naive import naive_s
from venturi.calibration.observations import Moved, measured, medians, points_of
from venturi.calibration.parameters import Parameter, Subject, cost_of, ends_of, parameters_of
from venturi.calibration.result import Calibration, CalibrationPoint, Errors, Estimated, Predicted, State
from venturi.calibration.simulator import Model
from venturi.cost import CostParameters
from venturi.errors import SampleError
from venturi.run import Run

__all__ = ["MODEL_ERROR", "calibrate", "errors_of", "floor", "repeatability", "split"]

MODEL_ERROR = 0.05
"""Minimum error of log times of a model, even with perfect parameters. It is added in quadrature to the error of a point."""
FEWEST_POINTS = 3
ALIKE = 0.95
"""Two parameters with at least this correlation of their effects count as indistinguishable."""


def calibrate(
    runs: Sequence[Run],
    *,
    hold_out: float = 0.5,
    seed: int = 1,
    engine: Path | None = None,
    workers: int | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> Calibration:
    """Estimate the costs of a testbed from runs on it.

    Parameters
    ----------
    runs
        Runs of one testbed, from the lab or real machines.
    hold_out
        Fraction of the points that is held out of the fit, from 0 to below 1.
    seed
        Seed of the random choice of these points.
    engine
        Path of the engine. Default: search for it.
    workers
        Number of concurrent simulations. Default: one for each CPU that this process may use.
    on_progress
        Called with the number of completed simulations.

    Raises
    ------
    SampleError
        If there are fewer than three points with good trials to fit.
    BackendError
        If there is no engine, or it rejects a plan.

    Examples
    --------
    >>> result = calibrate([Run.open("runs/cnaf-gridftp-two-nodes-20261121T213700Z")])  # doctest: +SKIP
    >>> result.held_out.median  # doctest: +SKIP
    0.07
    """
    start_s = time.monotonic()
    models = [Model(run, engine) for run in runs]
    measurements = [measured(run) for run in runs]
    points = [point for number, run in enumerate(runs) for point in points_of(run, measurements[number], number)]
    declared = _declared(models)
    with _Simulations(models, points, declared, workers, on_progress) as simulations:
        parameters = _scaled(_parameters(models, measurements), points)
        defaults = simulations.seconds([np.array([p.start for p in parameters])], parameters)[0]
        # A point without a finite simulated time carries no information about costs.
        finite = np.isfinite(defaults)
        held = split(points, hold_out, seed) & finite
        seen = finite & ~held
        if seen.sum() < FEWEST_POINTS:
            names = ", ".join(model.name for model in models)
            raise SampleError(
                f"{names}: expected at least {FEWEST_POINTS} points with good trials to calibrate from, found"
                f" {int(seen.sum())}; add runs, or reduce --hold-out"
            )
        found = _fit(simulations, parameters, points, seen)
        calibrated = simulations.seconds([found.numbers], parameters)[0]
    predicted = _predicted(points, held, calibrated, defaults)
    out = [one for one in predicted if one.held_out] or predicted
    return Calibration(
        runs=tuple(model.name for model in models),
        machine_cores=tuple(model.machine_cores for model in models),
        cost=_written(declared, parameters, found),
        parameters=tuple(_estimated(parameters, found)),
        points=tuple(predicted),
        level=LEVEL,
        method=METHOD,
        fitted=errors_of((p.calibrated_s, p.point.time_s) for p in predicted if not p.held_out),
        held_out=errors_of((p.calibrated_s, p.point.time_s) for p in predicted if p.held_out),
        defaults=errors_of((p.defaults_s, p.point.time_s) for p in out),
        naive=errors_of((p.naive_s, p.point.time_s) for p in out),
        repeatability=repeatability(measurements),
        floor=floor([one.point for one in out]),
        hold_out=hold_out,
        seed=seed,
        simulations=simulations.done,
        took_s=time.monotonic() - start_s,
    )


def split(points: Sequence[CalibrationPoint], hold_out: float, seed: int) -> Flags:
    """Return the points that are held out.

    The points of a run and mover are sorted by time. A fraction ``hold_out`` is chosen at random, one from each block
    of neighbours.

    Examples
    --------
    >>> points = [CalibrationPoint(0, n, "cp", "cp", {}, 1, 1e6, 1, False, 3, n + 1.0, 0.03, None, None) for n in range(6)]
    >>> held = split(points, 0.5, 7)
    >>> int(held.sum()), [int(held[n : n + 2].sum()) for n in (0, 2, 4)]
    (3, [1, 1, 1])
    """
    held = np.zeros(len(points), dtype=bool)
    strata: dict[tuple[int, str], list[int]] = {}
    for index, point in enumerate(points):
        strata.setdefault((point.run, point.mover), []).append(index)
    # Each run has its own generator, so that its split does not depend on the other runs.
    generators = {run: np.random.default_rng(seed) for run, _ in strata}
    for key in sorted(strata):
        generator = generators[key[0]]
        ordered = sorted(strata[key], key=lambda index: (points[index].time_s, points[index].point))
        # A fraction of 1/2 takes one of each pair. Any other takes one whenever the fractions add up to 1.
        due = float(generator.uniform(0.0, 1.0)) if hold_out != 0.5 else 0.0
        block: list[int] = []
        for index in ordered:
            block.append(index)
            due += hold_out
            if due >= 1.0 - 1e-9:
                held[block[int(generator.integers(len(block)))]] = True
                due -= 1.0
                block = []
    return held


def errors_of(pairs: Iterable[tuple[float | None, float]]) -> Errors:
    """Return the relative errors of pairs of a predicted and a measured time. Pairs without a prediction are ignored."""
    found = [abs(predicted_s - time) / time for predicted_s, time in pairs if predicted_s is not None]
    if not found:
        return Errors(0, None, None)
    return Errors(len(found), float(np.median(found)), float(np.quantile(found, 0.9)))


def repeatability(measurements: Sequence[list[Moved]]) -> Errors:
    """Return the relative errors of trials that are predicted by the median of the other trials of their point."""
    pairs = [
        (float(np.median([*trials[:index], *trials[index + 1 :]])), trials[index])
        for transfers in measurements
        for trials in medians(transfers).values()
        if len(trials) > 1
        for index in range(len(trials))
    ]
    return errors_of(pairs)


def floor(points: Sequence[CalibrationPoint]) -> Errors:
    """Return the errors of a perfect model, caused by the scatter of measured times alone.

    Log times are assumed to be normal.

    Examples
    --------
    >>> one = CalibrationPoint(0, 0, "cp", "cp", {}, 1, 1e6, 1, False, 3, 1.0, 0.1, None, None)
    >>> found = floor([one] * 10)
    >>> 0.06 < found.median < 0.075, 0.15 < found.p90 < 0.18
    (True, True)
    """
    if not points:
        return Errors(0, None, None)
    deviates = ndtri((np.arange(_DEVIATES) + 0.5) / _DEVIATES)
    errors = np.abs(np.expm1(np.outer([point.error for point in points], deviates)))
    return Errors(len(points), float(np.median(errors)), float(np.quantile(errors, 0.9)))


_DEVIATES = 200


def _declared(models: Sequence[Model]) -> CostParameters:
    """Return the costs of the first plan that declares any, with the cores that all hosts share if all runs agree on them."""
    declared = next((model.header.cost for model in models if model.header.cost is not None), CostParameters())
    cores = {model.machine_cores for model in models}
    return replace(declared, machine_cores=cores.pop() if len(cores) == 1 else None)


def _parameters(models: Sequence[Model], measurements: Sequence[list[Moved]]) -> list[Parameter]:
    return parameters_of(
        Subject(
            model.name,
            model.header,
            frozenset(ends_of(model.header, one.call, one.source_via, one.destination_via) for one in transfers),
            model.machine_cores,
        )
        for model, transfers in zip(models, measurements, strict=True)
    )


def _scaled(parameters: list[Parameter], points: Sequence[CalibrationPoint]) -> list[Parameter]:
    """Set the scale of rates without a default to the fastest measured rate, because a slower bound would contradict it."""
    rates = [1 / p.time_s if p.timed else p.bytes / p.time_s for p in points]
    fastest = max(rates, default=0.0)
    if fastest <= 0:
        return parameters
    return [
        replace(one, scale=1.0 / fastest) if one.default is None and one.field.endswith("_bytes_per_s") else one
        for one in parameters
    ]


class _Simulations:
    """Simulated times of points in seconds. Several plans are simulated concurrently."""

    def __init__(
        self,
        models: Sequence[Model],
        points: Sequence[CalibrationPoint],
        declared: CostParameters,
        workers: int | None,
        on_progress: Callable[[int], None] | None,
    ) -> None:
        self._models = models
        self._points = points
        self._declared = declared
        self._pool = ThreadPoolExecutor(workers or len(os.sched_getaffinity(0)))
        self._on_progress = on_progress
        self.done = 0

    def __enter__(self) -> _Simulations:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def seconds(self, numbers: Sequence[Floats], parameters: Sequence[Parameter]) -> list[Floats]:
        """Return an array of shape (points,) for each list of numbers. A point without a simulated time is NaN."""
        changed = [[p for p, number in zip(parameters, one, strict=True) if number != p.start] for one in numbers]
        costs = [
            cost_of(self._declared, changed[index], [n for p, n in zip(parameters, one, strict=True) if n != p.start])
            for index, one in enumerate(numbers)
        ]
        jobs = [[self._pool.submit(model.simulate, cost) for model in self._models] for cost in costs]
        found = []
        for of_runs in jobs:
            times = [medians(job.result()) for job in of_runs]
            found.append(np.array([_median(times[p.run].get((p.point, _name(p)))) for p in self._points]))
            self.done += len(of_runs)
            if self._on_progress:
                self._on_progress(self.done)
        return found


def _name(point: CalibrationPoint) -> str:
    return point.mover if point.point >= 0 else point.call


def _median(times: list[float] | None) -> float:
    return float(np.exp(np.median(np.log(times)))) if times else float("nan")


def _fit(
    simulations: _Simulations,
    parameters: Sequence[Parameter],
    points: Sequence[CalibrationPoint],
    seen: Flags,
) -> CostEstimate:
    def log_times(numbers: list[Floats]) -> list[Floats]:
        with np.errstate(divide="ignore", invalid="ignore"):
            return [np.nan_to_num(np.log(one[seen]), nan=_NEVER) for one in simulations.seconds(numbers, parameters)]

    chosen = [point for point, is_seen in zip(points, seen, strict=True) if is_seen]
    return estimate(
        log_times,
        np.log([point.time_s for point in chosen]),
        np.hypot([point.error for point in chosen], MODEL_ERROR),
        np.array([p.start for p in parameters]),
        np.array([p.prior for p in parameters]),
    )


_NEVER = 20.0
"""Log time of a transfer that does not finish."""


def _predicted(
    points: Sequence[CalibrationPoint], held: Flags, calibrated: Floats, defaults: Floats
) -> list[Predicted]:
    return [
        Predicted(point, bool(out), _or_none(one), _or_none(other), naive_s(point))
        for point, out, one, other in zip(points, held, calibrated, defaults, strict=True)
    ]


def _or_none(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _written(declared: CostParameters, parameters: Sequence[Parameter], found: CostEstimate) -> CostParameters:
    chosen = [index for index in range(len(parameters)) if found.identified[index] or found.moved[index]]
    return cost_of(
        declared, [parameters[index] for index in chosen], [float(found.numbers[index]) for index in chosen]
    )


def _estimated(parameters: Sequence[Parameter], found: CostEstimate) -> Iterable[Estimated]:
    for index, parameter in enumerate(parameters):
        if found.identified[index]:
            half = found.quantile * float(found.errors[index])
            number = float(found.numbers[index])
            ends = sorted(
                (parameter.value(end) for end in (max(0.0, number - half), number + half)),
                key=lambda end: np.inf if end is None else end,
            )
            yield Estimated(
                parameter.name, parameter.field, parameter.of, parameter.value(number), parameter.default,
                ends[0], ends[1], "estimated",
            )  # fmt: skip
            continue
        yield _left(parameters, found, index)


def _left(parameters: Sequence[Parameter], found: CostEstimate, index: int) -> Estimated:
    """Return a parameter that was not estimated, with the reason."""
    parameter = parameters[index]
    if found.moved[index]:
        value = parameter.value(float(found.numbers[index]))
        return Estimated(parameter.name, parameter.field, parameter.of, value, parameter.default, None, None, "moved")
    like = np.abs(found.correlation[index]) * found.identified
    partner = int(np.argmax(like)) if len(like) else 0
    state: State = "too uncertain"
    name, correlation = "", None
    if found.effect[index] < LEAST_EFFECT:
        state = "no effect"
    elif like[partner] >= ALIKE:
        state, name, correlation = (
            "not told apart",
            parameters[partner].name,
            float(found.correlation[index, partner]),
        )
    return Estimated(
        parameter.name, parameter.field, parameter.of, parameter.default, parameter.default, None, None, state, name,
        correlation,
    )  # fmt: skip
