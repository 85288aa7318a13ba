"""A run beside its own plan in virtual time, transfer by transfer."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from venturi.calibration.calibrate import errors_of, floor, repeatability, split
from venturi.calibration.naive import naive_s
from venturi.calibration.observations import Moved, measured, medians, points_of
from venturi.calibration.result import Point, Predicted, Transfer, Validation
from venturi.calibration.simulator import Model
from venturi.cost import Cost
from venturi.errors import SampleError, ScenarioError
from venturi.plan import Header
from venturi.run import Run
from venturi.wording import one_of

__all__ = ["validate"]

Place = tuple[object, ...]
"""Where in a plan a transfer is: its point or -1, actor, slot, call, and the how manieth of these in its trial."""


def validate(
    run: Run,
    cost: Cost | None = None,
    *,
    costs: str = "",
    hold_out: float = 0.0,
    seed: int = 1,
    engine: Path | None = None,
) -> Validation:
    """Simulate the plan of a run, and put each transfer beside the measured one.

    Parameters
    ----------
    cost
        What transfers cost, in place of what the plan says; without it, that and the defaults.
    costs
        Name of the file that these costs are from, for people.
    hold_out, seed
        Of the calibration that they are from: only the points that it did not see are compared. 0: all.
    engine
        Path of the engine; without it, it is looked for.

    Raises
    ------
    SampleError
        If no transfer is good in both worlds.
    ScenarioError
        If these costs are of services, storages or hosts that the run does not have.
    BackendError
        If there is no engine, or it refuses the plan.

    Examples
    --------
    >>> validate(Run.open("runs/mine"), read_costs(Path("costs.toml"))).of_points.median  # doctest: +SKIP
    0.08
    """
    model = Model(run, engine)
    if cost is not None:
        _check_names(cost, model.header, costs)
    told, simulated = measured(run), model.simulate(cost, explain=True)
    points = points_of(run, told)
    if hold_out > 0:
        points = [point for point, held in zip(points, split(points, hold_out, seed), strict=True) if held]
    by_key = {(p.point, p.mover if p.point >= 0 else p.call): p for p in points}
    there = dict(_placed(simulated, by_trial=False))
    transfers = []
    for place, one in _placed(told, by_trial=True):
        twin = there.get(place)
        point = by_key.get(one.key)
        if one.time_s is None or twin is None or twin.time_s is None or point is None:
            continue
        transfers.append(_beside(one, twin, point))
    if not transfers:
        raise SampleError(
            f"{model.name}: expected transfers that are good in the run and in its simulation, found none of"
            f" {len(told)}; look at the failures with `venturi report`"
        )
    times = medians(simulated)
    before = {} if cost is None else medians(model.simulate())
    predicted = tuple(
        Predicted(point, hold_out > 0, _time(times.get(key)), _time(before.get(key)), naive_s(point))
        for key, point in by_key.items()
    )
    return Validation(
        run=model.name,
        costs=costs,
        transfers=tuple(transfers),
        left_out=sum(one.key in by_key for one in told) - len(transfers),
        points=predicted,
        of_points=errors_of((p.calibrated_s, p.point.time_s) for p in predicted),
        of_transfers=errors_of((t.simulated_s, t.measured_s) for t in transfers),
        defaults=errors_of((p.defaults_s, p.point.time_s) for p in predicted),
        naive=errors_of((p.naive_s, p.point.time_s) for p in predicted),
        repeatability=repeatability([told]),
        floor=floor(points),
        hold_out=hold_out,
        seed=seed,
    )


def _check_names(cost: Cost, header: Header, source: str) -> None:
    """Refuse costs of what the plan does not have: they are of another testbed, and would count nothing."""
    problems = [
        (f"testbed.cost.{table}.{name}", one_of(f"the {table}s of the run", known, name))
        for table, said, known in (
            ("service", cost.services, header.services),
            ("storage", cost.places, header.places),
            ("host", cost.hosts, header.hosts),
        )
        for name in said
        if name not in known
    ]
    if problems:
        raise ScenarioError(problems, source or "costs")


def _placed(transfers: Iterable[Moved], *, by_trial: bool) -> Iterable[tuple[Place, Moved]]:
    """Yield transfers with their place in the plan. A simulated point stands for all of its trials: the first one counts."""
    seen: dict[Place, int] = {}
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


def _beside(one: Moved, twin: Moved, point: Point) -> Transfer:
    assert one.time_s is not None and twin.time_s is not None, "its caller has looked"
    bound, share = max(twin.bound.items(), key=lambda item: item[1], default=("", None))
    return Transfer(one.trial, one.actor, one.slot, point, one.time_s, twin.time_s, naive_s(point), bound, share)


def _time(found: list[float] | None) -> float | None:
    return float(np.exp(np.median(np.log(found)))) if found else None
