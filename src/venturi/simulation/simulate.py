"""Simulation of one scenario, equivalent to ``venturi run SCENARIO --on sim``."""

from __future__ import annotations

import dataclasses
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from venturi.backend import RunProgress, SimBackend
from venturi.cost import CostParameters
from venturi.errors import ScenarioError
from venturi.plan import Header, write_plan
from venturi.run import Run, RunWriter
from venturi.scenario import Scenario, load_scenario, scenario_from
from venturi.workload import expand

__all__ = ["Source", "costs_from", "read_scenario", "simulate", "with_costs"]

Source = Scenario | Mapping[str, Any] | Path | str
"""A loaded scenario, a document (as parsed from TOML or JSON), or the path of a scenario file."""


def simulate(
    scenario: Source,
    *,
    overrides: Iterable[str] = (),
    seed: int | None = None,
    costs: CostParameters | Path | str | None = None,
    directory: Path | str | None = None,
    on_progress: Callable[[RunProgress], None] | None = None,
) -> Run:
    """Simulate a scenario and return its run.

    The same scenario, seed and costs give the same run, bit for bit.

    Parameters
    ----------
    scenario
        Path of a scenario file, a document, or a loaded scenario.
    overrides
        Values to set, such as ``"workload.repeat=20"``; not allowed with a loaded scenario.
    seed
        Seed of all random draws. Default: the seed of the scenario.
    costs
        Cost parameters, or a file of them from ``venturi calibrate``, that replace the costs of the scenario.
    directory
        Run directory to create; it must not exist. Default: a temporary directory, which is deleted together with the
        returned object.
    on_progress
        Called from time to time with the progress.

    Raises
    ------
    ScenarioError
        If the scenario is not valid.
    RunError
        If the directory exists or is not writable.
    BackendError
        If the engine is missing or cannot execute the plan.

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
        with tempfile.TemporaryDirectory(prefix="venturi-plan-") as temporary:
            path = Path(temporary) / "plan.jsonl"
            write_plan(plan, path)
            writer = RunWriter.create(home.parent, path, backend=SimBackend.name, path=home)
        made = True
        outcome = SimBackend().execute(writer, on_progress=on_progress)
        if outcome.state == "stopped":
            raise KeyboardInterrupt
        run = Run.open(home)
    except BaseException:
        # An incomplete run has no value, because a new simulation takes the same time.
        if made or not kept:
            shutil.rmtree(away, ignore_errors=True)
        raise
    if not kept:
        weakref.finalize(run, shutil.rmtree, away, ignore_errors=True)
    return run


def read_scenario(scenario: Source, overrides: Iterable[str] = (), seed: int | None = None) -> Scenario:
    """Return the scenario of a source, with values set.

    Raises
    ------
    ScenarioError
        If the scenario is not valid, or if overrides are set for a loaded scenario.
    """
    given = [*overrides, *([] if seed is None else [f"seed={seed}"])]
    if isinstance(scenario, Scenario):
        if not given:
            return scenario
        if given == [f"seed={seed}"]:
            return scenario_from(scenario.document(), scenario.name, overrides=given)
        raise ScenarioError(
            [("", "expected no overrides of a loaded scenario, found some; pass them to load_scenario")],
            scenario.name,
        )
    if isinstance(scenario, Mapping):
        return scenario_from(scenario, overrides=given)
    return load_scenario(scenario, overrides=given)


def costs_from(costs: CostParameters | Path | str | None) -> CostParameters | None:
    """Return cost parameters, read from their file if necessary.

    Raises
    ------
    ScenarioError
        If the file is not a valid file of cost parameters.
    """
    if costs is None or isinstance(costs, CostParameters):
        return costs
    from venturi.calibration.document import read_costs  # imports scipy, which is slow

    return read_costs(Path(costs))


def with_costs(header: Header, costs: CostParameters | Path | str | None) -> Header:
    """Return a header with its costs replaced, or the same header if ``costs`` is None."""
    declared = costs_from(costs)
    return header if declared is None else dataclasses.replace(header, cost=declared)
