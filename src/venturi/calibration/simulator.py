"""The simulator as a model: it maps the plan of a run and costs to times. No run directory is written."""

from __future__ import annotations

import dataclasses
import json
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from venturi.backend.engine import find_engine
from venturi.backend.sim import engine_assumptions, simulated_records
from venturi.calibration.observations import Moved, moved
from venturi.cost import CostParameters
from venturi.cost.engine_inputs import ASSUMED_STORAGE_READ_BYTES_PER_S, ASSUMED_STORAGE_WRITE_BYTES_PER_S
from venturi.errors import BackendError, PlanError
from venturi.plan import Header, read_header
from venturi.plan.emit import emit_header
from venturi.run import Run
from venturi.run.directory import PLAN

__all__ = ["ASSUMED", "LONGEST_SIMULATION_S", "Model"]

LONGEST_SIMULATION_S = 120.0
"""A simulation of a plan that takes longer is aborted."""
ASSUMED = {
    "storage_read_bytes_per_s": ASSUMED_STORAGE_READ_BYTES_PER_S,
    "storage_write_bytes_per_s": ASSUMED_STORAGE_WRITE_BYTES_PER_S,
}
"""Rates of storages without a rate in the plan and the costs.

They equal the engine's defaults and are explicit start values of a fit.
"""
_STEPS_THAT_BIND = ("at", "acquire", "release", "repeat", "arrivals", "pause")
"""Steps that make a trial depend on time or on resources that other trials use.

A plan with such a step is simulated completely.
"""
_STEPS_THAT_STAY = ("wait", "signal")
"""Steps of an omitted trial that are kept, because other actors can wait for them."""


class Model:
    """The simulated testbed of a run's plan.

    Each point is simulated once, because repetitions are identical in a simulation. The whole plan is simulated if
    trials depend on time or on resources that other trials use.

    Parameters
    ----------
    run
        Run whose plan is simulated. Hosts of a lab share the cores of its machine. A single host has the cores that its
        agent reported. Nothing is assumed for several hosts.
    engine
        Path of the engine. Default: search for it.

    Raises
    ------
    BackendError
        If there is no engine.
    PlanError
        If the plan cannot be read.
    """

    def __init__(self, run: Run, engine: Path | None = None) -> None:
        self.name = run.path.name
        self.header: Header = dataclasses.replace(read_header(run.path / PLAN, upgrade=True), scenario={})
        self._engine = engine or find_engine()
        self.machine_cores = _machine_cores(run, self.header)
        self._calls: Mapping[str, Any] = run.header["calls"]
        header = dataclasses.replace(self.header, measure=dataclasses.replace(self.header.measure, interval_s=None))
        lines, self._points = _lines_once(run.path / PLAN)
        self._plan = "\n".join([emit_header(header), *lines, ""]).encode()

    def simulate(self, cost: CostParameters | None = None, *, explain: bool = False) -> list[Moved]:
        """Simulate the plan with these costs instead of the plan's costs, and return the transfers.

        If the costs do not set ``machine_cores``, all hosts share the cores of the machine of the run.

        Raises
        ------
        BackendError
            If the engine rejects the plan, or needs more than two minutes.
        """
        declared = cost or self.header.cost or CostParameters()
        shared = self.machine_cores if declared.machine_cores is None else declared.machine_cores
        header = dataclasses.replace(self.header, cost=dataclasses.replace(declared, machine_cores=shared))
        world = json.dumps({"world": engine_assumptions(header, {**ASSUMED, "explain": explain})}).encode()
        try:
            records = simulated_records(world + b"\n" + self._plan, self._engine, timeout_s=LONGEST_SIMULATION_S)
            return list(self._read(records))
        except subprocess.TimeoutExpired:
            raise BackendError(
                f"{self.name}: expected a simulation of at most {LONGEST_SIMULATION_S:g} s, found a longer one;"
                " calibrate from a run with fewer transfers"
            ) from None
        except BackendError as error:
            raise BackendError(f"{self.name}: {error}") from error

    def _read(self, records: Iterable[Mapping[str, Any]]) -> Iterator[Moved]:
        for record in records:
            match record["record"]:
                case "trial":
                    point = self._points.get(str(record["trial"]))
                    for one in record["transfers"]:
                        yield moved(one, self._calls, point, str(record["host"]))
                case "transfer":
                    yield moved(record, self._calls, None, str(record["host"]))


def _machine_cores(run: Run, header: Header) -> float | None:
    """Return the cores that all hosts share.

    They are declared in the plan, or reported by the agents of a lab or of a single host. None for several hosts, or if
    unknown.
    """
    if header.cost and header.cost.machine_cores is not None:
        return header.cost.machine_cores
    finished = [
        properties.get("cpu.usable") or properties.get("cpu.count") for properties in run.environment().values()
    ]
    known = [float(cores) for cores in finished if cores]
    return max(known, default=None) if run.backend == "lab" or len(run.header["hosts"]) == 1 else None


def _lines_once(path: Path) -> tuple[list[str], dict[str, int]]:
    """Return the actor lines to simulate, and the point of each trial in them."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()[1:]
        parsed = [json.loads(line) for line in lines]
    except (OSError, ValueError) as error:
        raise PlanError(f"{path}: expected the plan of a run, found none that can be read: {error}") from error
    every = [step for actor in parsed for step in _steps(actor["steps"])]
    trials = [step for step in every if step["step"] == "trial"]
    points = {str(trial["id"]): int(trial["point"]) for trial in trials}
    if any(step["step"] in _STEPS_THAT_BIND or step.get("counts") for step in every):
        return lines, points
    # Several hosts can run trials of one point at the same time, so all trials of the first repetition are kept.
    first: dict[int, int] = {}
    for trial in trials:
        first[trial["point"]] = min(trial["repetition"], first.get(trial["point"], trial["repetition"]))
    kept = {str(trial["id"]) for trial in trials if trial["repetition"] == first[trial["point"]]}
    for actor in parsed:
        actor["steps"] = [part for step in actor["steps"] for part in _once(step, kept)]
    return [json.dumps(actor) for actor in parsed], points


def _once(step: dict[str, Any], kept: set[str]) -> Iterator[dict[str, Any]]:
    """Yield a step, or the remaining steps of an omitted trial."""
    if step["step"] != "trial" or step["id"] in kept:
        yield step
    else:
        yield from (inner for inner in _steps(step["steps"]) if inner["step"] in _STEPS_THAT_STAY)


def _steps(steps: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield steps and all nested steps. The plan reader has already limited the depth."""
    for step in steps:
        yield step
        yield from _steps(step.get("steps", []))
        for child in step.get("children", []):
            yield from _steps(child)
