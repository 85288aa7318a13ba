"""From runs to parameters: split the points, fit one half, foretell the other."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy.special import ndtri

from venturi.calibration.estimate import LEAST_EFFECT, LEVEL, METHOD, Estimate, Flags, Floats, estimate
from venturi.calibration.naive import naive_s
from venturi.calibration.observations import Moved, measured, medians, points_of
from venturi.calibration.parameters import Parameter, Subject, cost_of, ends_of, parameters_of
from venturi.calibration.result import Calibration, Errors, Estimated, Point, Predicted, State
from venturi.calibration.simulator import Model
from venturi.cost import Cost
from venturi.errors import SampleError
from venturi.run import Run

__all__ = ["MODEL_ERROR", "calibrate", "errors_of", "floor", "repeatability", "split"]

MODEL_ERROR = 0.05
"""What log times of a model are off by at least, however good its parameters: it is added to the error of a point, in squares."""
FEWEST_POINTS = 3
ALIKE = 0.95
"""Correlation of effects from which two parameters count as not told apart."""


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
        Of one testbed, from the lab or real machines.
    hold_out
        Share of the points that the fit does not see, 0 to below 1.
    seed
        Of the choice of these points.
    engine
        Path of the engine; without it, it is looked for.
    workers
        Simulations at the same time; without it, one for each processor that this process may use.
    on_progress
        Called with the number of simulations done.

    Raises
    ------
    SampleError
        If there are fewer than three points with good trials to fit.
    BackendError
        If there is no engine, or it refuses a plan.

    Examples
    --------
    >>> result = calibrate([Run.open("runs/cnaf-gridftp-two-nodes-20261121T213700Z")])  # doctest: +SKIP
    >>> result.held_out.median  # doctest: +SKIP
    0.07
    """
    began_s = time.monotonic()
    models = [Model(run, engine) for run in runs]
    told = [measured(run) for run in runs]
    points = [point for number, run in enumerate(runs) for point in points_of(run, told[number], number)]
    said = _said(models)
    with _Simulations(models, points, said, workers, on_progress) as simulations:
        parameters = _scaled(_parameters(models, told), points)
        defaults = simulations.seconds([np.array([p.start for p in parameters])], parameters)[0]
        # A point whose simulation does not end, or that has none, tells nothing of costs.
        there = np.isfinite(defaults)
        held = split(points, hold_out, seed) & there
        seen = there & ~held
        if seen.sum() < FEWEST_POINTS:
            names = ", ".join(model.name for model in models)
            raise SampleError(
                f"{names}: expected at least {FEWEST_POINTS} points with good trials to calibrate from, found"
                f" {int(seen.sum())}; give more runs, or a smaller --hold-out"
            )
        found = _fit(simulations, parameters, points, seen)
        calibrated = simulations.seconds([found.numbers], parameters)[0]
    predicted = _predicted(points, held, calibrated, defaults)
    out = [one for one in predicted if one.held_out] or predicted
    return Calibration(
        runs=tuple(model.name for model in models),
        machine_cores=tuple(model.machine_cores for model in models),
        cost=_written(said, parameters, found),
        parameters=tuple(_estimated(parameters, found)),
        points=tuple(predicted),
        level=LEVEL,
        method=METHOD,
        fitted=errors_of((p.calibrated_s, p.point.time_s) for p in predicted if not p.held_out),
        held_out=errors_of((p.calibrated_s, p.point.time_s) for p in predicted if p.held_out),
        defaults=errors_of((p.defaults_s, p.point.time_s) for p in out),
        naive=errors_of((p.naive_s, p.point.time_s) for p in out),
        repeatability=repeatability(told),
        floor=floor([one.point for one in out]),
        hold_out=hold_out,
        seed=seed,
        simulations=simulations.done,
        took_s=time.monotonic() - began_s,
    )


def split(points: Sequence[Point], hold_out: float, seed: int) -> Flags:
    """Return which points are held out: of neighbours in time, within a run and a mover, a share at random.

    Examples
    --------
    >>> points = [Point(0, n, "cp", "cp", {}, 1, 1e6, 1, False, 3, n + 1.0, 0.03, None, None) for n in range(6)]
    >>> held = split(points, 0.5, 7)
    >>> int(held.sum()), [int(held[n : n + 2].sum()) for n in (0, 2, 4)]
    (3, [1, 1, 1])
    """
    held = np.zeros(len(points), dtype=bool)
    strata: dict[tuple[int, str], list[int]] = {}
    for place, point in enumerate(points):
        strata.setdefault((point.run, point.mover), []).append(place)
    # A run is divided in the same way whatever others are beside it.
    generators = {run: np.random.default_rng(seed) for run, _ in strata}
    for key in sorted(strata):
        generator = generators[key[0]]
        ordered = sorted(strata[key], key=lambda place: (points[place].time_s, points[place].point))
        # As a share of 1/2 takes one of each pair, any share takes one whenever so many have come together.
        due = float(generator.uniform(0.0, 1.0)) if hold_out != 0.5 else 0.0
        block: list[int] = []
        for place in ordered:
            block.append(place)
            due += hold_out
            if due >= 1.0 - 1e-9:
                held[block[int(generator.integers(len(block)))]] = True
                due -= 1.0
                block = []
    return held


def errors_of(pairs: Iterable[tuple[float | None, float]]) -> Errors:
    """Return the relative errors of pairs of a predicted and a measured time; pairs without a prediction do not count."""
    found = [abs(foretold - time) / time for foretold, time in pairs if foretold is not None]
    if not found:
        return Errors(0, None, None)
    return Errors(len(found), float(np.median(found)), float(np.quantile(found, 0.9)))


def repeatability(told: Sequence[list[Moved]]) -> Errors:
    """Return the relative errors of trials foretold by the median of the other trials of their point."""
    pairs = [
        (float(np.median([*trials[:place], *trials[place + 1 :]])), trials[place])
        for transfers in told
        for trials in medians(transfers).values()
        if len(trials) > 1
        for place in range(len(trials))
    ]
    return errors_of(pairs)


def floor(points: Sequence[Point]) -> Errors:
    """Return the errors of a perfect model, by the scatter of the measured times alone; log times are taken as normal.

    Examples
    --------
    >>> one = Point(0, 0, "cp", "cp", {}, 1, 1e6, 1, False, 3, 1.0, 0.1, None, None)
    >>> found = floor([one] * 10)
    >>> 0.06 < found.median < 0.075, 0.15 < found.p90 < 0.18
    (True, True)
    """
    if not points:
        return Errors(0, None, None)
    deviates = ndtri((np.arange(_DEVIATES) + 0.5) / _DEVIATES)
    off = np.abs(np.expm1(np.outer([point.error for point in points], deviates)))
    return Errors(len(points), float(np.median(off)), float(np.quantile(off, 0.9)))


_DEVIATES = 200


def _said(models: Sequence[Model]) -> Cost:
    """Return what the plans say of costs: what the first one says, where they differ; and the cores that all hosts share, where all runs agree."""
    said = next((model.header.cost for model in models if model.header.cost is not None), Cost())
    cores = {model.machine_cores for model in models}
    return replace(said, machine_cores=cores.pop() if len(cores) == 1 else None)


def _parameters(models: Sequence[Model], told: Sequence[list[Moved]]) -> list[Parameter]:
    return parameters_of(
        Subject(
            model.name,
            model.header,
            frozenset(ends_of(model.header, one.call, one.source_via, one.destination_via) for one in transfers),
            model.machine_cores,
        )
        for model, transfers in zip(models, told, strict=True)
    )


def _scaled(parameters: list[Parameter], points: Sequence[Point]) -> list[Parameter]:
    """Give rates that nobody knows the scale of the fastest that was measured: a slower bound would contradict it."""
    rates = [1 / p.time_s if p.timed else p.bytes / p.time_s for p in points]
    fastest = max(rates, default=0.0)
    if fastest <= 0:
        return parameters
    return [
        replace(one, scale=1.0 / fastest) if one.default is None and one.field.endswith("_bytes_per_s") else one
        for one in parameters
    ]


class _Simulations:
    """Simulated seconds of points, several plans at the same time."""

    def __init__(
        self,
        models: Sequence[Model],
        points: Sequence[Point],
        said: Cost,
        workers: int | None,
        on_progress: Callable[[int], None] | None,
    ) -> None:
        self._models = models
        self._points = points
        self._said = said
        self._pool = ThreadPoolExecutor(workers or len(os.sched_getaffinity(0)))
        self._on_progress = on_progress
        self.done = 0

    def __enter__(self) -> _Simulations:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def seconds(self, numbers: Sequence[Floats], parameters: Sequence[Parameter]) -> list[Floats]:
        """Return an array of shape (points,) for each list of numbers; NaN where the simulation has no time."""
        changed = [[p for p, number in zip(parameters, one, strict=True) if number != p.start] for one in numbers]
        costs = [
            cost_of(self._said, changed[place], [n for p, n in zip(parameters, one, strict=True) if n != p.start])
            for place, one in enumerate(numbers)
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


def _name(point: Point) -> str:
    return point.mover if point.point >= 0 else point.call


def _median(times: list[float] | None) -> float:
    return float(np.exp(np.median(np.log(times)))) if times else float("nan")


def _fit(
    simulations: _Simulations,
    parameters: Sequence[Parameter],
    points: Sequence[Point],
    seen: Flags,
) -> Estimate:
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
"""Log of the time of a transfer that does not come to its end."""


def _predicted(points: Sequence[Point], held: Flags, calibrated: Floats, defaults: Floats) -> list[Predicted]:
    return [
        Predicted(point, bool(out), _or_none(one), _or_none(other), naive_s(point))
        for point, out, one, other in zip(points, held, calibrated, defaults, strict=True)
    ]


def _or_none(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _written(said: Cost, parameters: Sequence[Parameter], found: Estimate) -> Cost:
    chosen = [place for place in range(len(parameters)) if found.identified[place] or found.moved[place]]
    return cost_of(said, [parameters[place] for place in chosen], [float(found.numbers[place]) for place in chosen])


def _estimated(parameters: Sequence[Parameter], found: Estimate) -> Iterable[Estimated]:
    for place, parameter in enumerate(parameters):
        if found.identified[place]:
            half = found.quantile * float(found.errors[place])
            number = float(found.numbers[place])
            ends = sorted(
                (parameter.value(end) for end in (max(0.0, number - half), number + half)),
                key=lambda end: np.inf if end is None else end,
            )
            yield Estimated(
                parameter.name, parameter.field, parameter.of, parameter.value(number), parameter.default,
                ends[0], ends[1], "estimated",
            )  # fmt: skip
            continue
        yield _left(parameters, found, place)


def _left(parameters: Sequence[Parameter], found: Estimate, place: int) -> Estimated:
    """Return why a parameter keeps its default."""
    parameter = parameters[place]
    if found.moved[place]:
        value = parameter.value(float(found.numbers[place]))
        return Estimated(parameter.name, parameter.field, parameter.of, value, parameter.default, None, None, "moved")
    like = np.abs(found.correlation[place]) * found.identified
    partner = int(np.argmax(like)) if len(like) else 0
    state: State = "too uncertain"
    name, correlation = "", None
    if found.effect[place] < LEAST_EFFECT:
        state = "no effect"
    elif like[partner] >= ALIKE:
        state, name, correlation = (
            "not told apart",
            parameters[partner].name,
            float(found.correlation[place, partner]),
        )
    return Estimated(
        parameter.name, parameter.field, parameter.of, parameter.default, parameter.default, None, None, state, name,
        correlation,
    )  # fmt: skip
