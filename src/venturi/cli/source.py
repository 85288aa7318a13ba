"""Where a scenario comes from: a file, or a study by name."""

from __future__ import annotations

from pathlib import Path

from venturi.errors import ScenarioError
from venturi.scenario import Scenario, load_scenario
from venturi.study import studies, study

__all__ = ["load"]


def load(named: str, overrides: list[str], *, quick: bool = False) -> Scenario:
    """Return the scenario of a file, or of a study where no such file exists.

    Raises
    ------
    ScenarioError
        If there is neither, ``quick`` is asked of a file, or the scenario is not valid.
    """
    if not Path(named).exists() and named in studies():
        chosen = study(named)
        return load_scenario(chosen.scenario_path, overrides=[*(chosen.quick if quick else ()), *overrides])
    if quick:
        raise ScenarioError(
            [("", "only a study has a quick variant; use --set scale=… and --set workload.repeat=… instead")], named
        )
    return load_scenario(Path(named), overrides=overrides)
