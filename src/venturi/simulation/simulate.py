"""One scenario, simulated: the same as ``venturi run SCENARIO --on sim``."""

from __future__ import annotations

import dataclasses
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from venturi.backend import Progress, SimBackend
from venturi.cost import Cost
from venturi.errors import ScenarioError
from venturi.plan import Header, write_plan
from venturi.run import Run, RunWriter
from venturi.scenario import Scenario, load_scenario, scenario_from
from venturi.workload import expand

__all__ = ["Source", "costs_from", "read_scenario", "simulate", "with_costs"]

Source = Scenario | Mapping[str, Any] | Path | str
"""A scenario: loaded, as a document (what TOML or JSON gives), or the path of its file."""


def simulate(
    scenario: Source,
    *,
    overrides: Iterable[str] = (),
    seed: int | None = None,
    costs: Cost | Path | str | None = None,
    directory: Path | str | None = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> Run:
    """Simulate a scenario and return its run.

    The same scenario, seed and costs give the same run, bit for bit.

    Parameters
    ----------
    scenario
        The path of a file, a document, or a scenario that is loaded.
    overrides
        Values to set, as ``"workload.repeat=20"``; not of a scenario that is loaded already.
    seed
        Of every random draw, in place of the scenario's.
    costs
        What transfers cost besides bytes, or a file of that, as ``venturi calibrate`` writes it, in place of what the scenario says.
    directory
        Where the run is to be; it must not be there yet. Without it the run lies in a temporary directory that goes with the object.
    on_progress
        Told now and then how far it is.

    Raises
    ------
    ScenarioError
        If the scenario is not valid.
    RunError
        If the directory is there, or cannot be written to.
    BackendError
        If there is no engine, or the plan cannot be carried out.

    Examples
    --------
    >>> import venturi
    >>> document = {"venturi": 1, "name": "tiny", "testbed": {"host": {"here": {}},
    ...     "storage": {"disk": {"host": "here", "path": "data"}}},
    ...     "workload": {"kind": "sweep", "mover": "cp", "source": "disk", "destination": "disk",
    ...     "factors": {"size": ["1 GB"], "files": [1, 2]}}}
    >>> run = venturi.simulate(document)  # doctest: +SKIP
    >>> run.query("SELECT factor_files, max(duration_s) AS duration_s FROM transfers GROUP BY ALL ORDER BY ALL")  # doctest: +SKIP
    {'factor_files': array([1, 2]), 'duration_s': array([1.00..., 2.00...])}
    """
    plan = expand(read_scenario(scenario, overrides, seed))
    plan = dataclasses.replace(plan, header=with_costs(plan.header, costs))
    kept = directory is not None
    home = Path(directory) if directory is not None else Path(tempfile.mkdtemp(prefix="venturi-simulation-")) / "run"
    away = home if kept else home.parent
    made = False
    try:
        with tempfile.TemporaryDirectory(prefix="venturi-plan-") as folder:
            path = Path(folder) / "plan.jsonl"
            write_plan(plan, path)
            writer = RunWriter.create(home.parent, path, backend=SimBackend.name, path=home)
        made = True
        outcome = SimBackend().carry_out(writer, on_progress=on_progress)
        if outcome.state == "stopped":
            raise KeyboardInterrupt
        run = Run.open(home)
    except BaseException:
        # What is not whole is worth nothing here: it is made again in the same time.
        if made or not kept:
            shutil.rmtree(away, ignore_errors=True)
        raise
    if not kept:
        weakref.finalize(run, shutil.rmtree, away, ignore_errors=True)
    return run


def read_scenario(scenario: Source, overrides: Iterable[str] = (), seed: int | None = None) -> Scenario:
    """Return a scenario with values set, from whatever it is given as.

    Raises
    ------
    ScenarioError
        If it is not valid, or loaded already and there are overrides.
    """
    given = [*overrides, *([] if seed is None else [f"seed={seed}"])]
    if isinstance(scenario, Scenario):
        if not given:
            return scenario
        if given == [f"seed={seed}"]:
            return scenario_from(scenario.document(), scenario.name, overrides=given)
        raise ScenarioError(
            [("", "expected no overrides of a scenario that is loaded; give them to load_scenario")], scenario.name
        )
    if isinstance(scenario, Mapping):
        return scenario_from(scenario, overrides=given)
    return load_scenario(scenario, overrides=given)


def costs_from(costs: Cost | Path | str | None) -> Cost | None:
    """Return costs, read if they are a file.

    Raises
    ------
    ScenarioError
        If the file is none of costs.
    """
    if costs is None or isinstance(costs, Cost):
        return costs
    from venturi.calibration.document import read_costs  # scipy: a moment that others need not wait for

    return read_costs(Path(costs))


def with_costs(header: Header, costs: Cost | Path | str | None) -> Header:
    """Return a header with these costs in place of its own; without any, as it is."""
    said = costs_from(costs)
    return header if said is None else dataclasses.replace(header, cost=said)
