"""The simulator as a model: the plan of a run in, costs in, times out. No run directory is written."""

from __future__ import annotations

import dataclasses
import json
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from venturi.backend.engine import find_engine
from venturi.backend.sim import world_of
from venturi.calibration.observations import Moved, moved
from venturi.cost import Cost
from venturi.errors import BackendError, PlanError
from venturi.plan import Header, read_header
from venturi.plan.emit import emit_header
from venturi.run import Run
from venturi.run.directory import PLAN

__all__ = ["ASSUMED", "LONGEST_SIMULATION_S", "Model"]

LONGEST_SIMULATION_S = 120.0
"""One simulation of a plan that takes longer is given up."""
ASSUMED = {"storage_read_bytes_per_s": 2e9, "storage_write_bytes_per_s": 1e9}
"""Of places that neither plan nor costs give a rate: the engine's own assumptions, said so that what is fitted begins there."""
_STEPS_THAT_BIND = ("at", "acquire", "release", "repeat", "arrivals", "pause")
"""Steps by which a trial depends on time, or on what others take: then a plan is simulated whole."""
_STEPS_THAT_STAY = ("wait", "signal")
"""Steps of a trial that is left out which others may wait for."""


class Model:
    """The simulated world of a run's plan.

    Each point is simulated once, as repetitions are alike in a simulation, unless trials depend on time or on what others take.

    Parameters
    ----------
    run
        Its plan is the one simulated. Hosts of a lab share the cores of its machine, a single host has those that were found on it; of several
        hosts nothing is assumed.
    engine
        Path of the engine; without it, it is looked for.

    Raises
    ------
    BackendError
        If there is no engine.
    PlanError
        If the plan cannot be read.
    """

    def __init__(self, run: Run, engine: Path | None = None) -> None:
        self.name = run.path.name
        self.header: Header = dataclasses.replace(read_header(run.path / PLAN), scenario={})
        self._engine = engine or find_engine()
        self.machine_cores = _machine_cores(run, self.header)
        self._calls: Mapping[str, Any] = run.header["calls"]
        header = dataclasses.replace(self.header, measure=dataclasses.replace(self.header.measure, interval_s=None))
        lines, self._points = _lines_once(run.path / PLAN)
        self._plan = "\n".join([emit_header(header), *lines, ""]).encode()

    def simulate(self, cost: Cost | None = None, *, explain: bool = False) -> list[Moved]:
        """Return the transfers of the plan, carried out with these costs in place of those of the plan.

        Where costs say nothing of ``machine_cores``, all hosts share those of the machine that the run was on.

        Raises
        ------
        BackendError
            If the engine refuses the plan, or needs more than two minutes.
        """
        said = cost or self.header.cost or Cost()
        shared = self.machine_cores if said.machine_cores is None else said.machine_cores
        header = dataclasses.replace(self.header, cost=dataclasses.replace(said, machine_cores=shared))
        world = json.dumps({"world": world_of(header, {**ASSUMED, "explain": explain})}).encode()
        try:
            told = subprocess.run(
                [str(self._engine), "sim", "run"],
                input=world + b"\n" + self._plan,
                capture_output=True,
                check=False,
                timeout=LONGEST_SIMULATION_S,
            )
        except subprocess.TimeoutExpired:
            raise BackendError(
                f"{self.name}: expected a simulation of at most {LONGEST_SIMULATION_S:g} s, found a longer one;"
                " calibrate from a run with fewer transfers"
            ) from None
        except OSError as error:
            raise BackendError(f"cannot start {self._engine}: {error.strerror}") from error
        return list(self._read(told))

    def _read(self, told: subprocess.CompletedProcess[bytes]) -> Iterator[Moved]:
        ended = False
        for line in told.stdout.splitlines():
            record = json.loads(line)
            match record["record"]:
                case "trial":
                    point = self._points.get(str(record["trial"]))
                    for one in record["transfers"]:
                        yield moved(one, self._calls, point, str(record["host"]))
                case "transfer":
                    yield moved(record, self._calls, None, str(record["host"]))
                case "done":
                    ended = True
                case "fatal":
                    raise BackendError(f"{self.name}: simulation: {record['message']}")
        if not ended:
            talk = told.stderr.decode(errors="replace").strip()[-500:] or "it said nothing"
            raise BackendError(
                f"{self.name}: expected the simulation to come to its end, found that {self._engine.name} ended with"
                f" code {told.returncode}: {talk}"
            )


def _machine_cores(run: Run, header: Header) -> float | None:
    """Return the cores that all hosts share: as the plan says, else those of the one machine that they were on, as agents found them; None if there were several machines, or nothing tells."""
    if header.cost and header.cost.machine_cores is not None:
        return header.cost.machine_cores
    told = [facts.get("cpu.usable") or facts.get("cpu.count") for facts in run.environment().values()]
    known = [float(cores) for cores in told if cores]
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
    # Several hosts may have trials of one point at the same time: all of the first repetition stay.
    first: dict[int, int] = {}
    for trial in trials:
        first[trial["point"]] = min(trial["repetition"], first.get(trial["point"], trial["repetition"]))
    kept = {str(trial["id"]) for trial in trials if trial["repetition"] == first[trial["point"]]}
    for actor in parsed:
        actor["steps"] = [part for step in actor["steps"] for part in _once(step, kept)]
    return [json.dumps(actor) for actor in parsed], points


def _once(step: dict[str, Any], kept: set[str]) -> Iterator[dict[str, Any]]:
    """Yield a step as it is, or what stays of a trial that is left out."""
    if step["step"] != "trial" or step["id"] in kept:
        yield step
    else:
        yield from (inner for inner in _steps(step["steps"]) if inner["step"] in _STEPS_THAT_STAY)


def _steps(steps: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield steps with all that is in them; as deep as a plan may be, which its reader has checked."""
    for step in steps:
        yield step
        yield from _steps(step.get("steps", []))
        for child in step.get("children", []):
            yield from _steps(child)
