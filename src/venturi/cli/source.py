"""Load a scenario from a file, or a study by name."""

from __future__ import annotations

import difflib
import os
import shutil
from pathlib import Path

from venturi.cli.outcome import print_status
from venturi.errors import ScenarioError
from venturi.run.directory import INFO
from venturi.scenario import Scenario, load_scenario
from venturi.study import studies, study
from venturi.testbed import nearest_directory
from venturi.testbed.lab_scale import find_lab_scale
from venturi.testbed.plan import default_backend
from venturi.workload import expand

__all__ = ["check_one_variant", "is_scenario", "load", "scale_overrides", "scenario_file", "study_backend"]

AUTOMATIC_SCALE = "auto"


def load(
    named: str,
    overrides: list[str],
    *,
    quick: bool = False,
    full: bool = False,
    on: str | None = None,
    portable: bool = False,
) -> Scenario:
    """Return the scenario of a file, or of a study if no such file exists.

    A study has the usual variant of its backend, or the requested variant.

    Raises
    ------
    ScenarioError
        If neither exists, if a variant of a file is requested, or if the scenario is invalid.
    """
    path, all_overrides = scenario_file(named, overrides, quick=quick, full=full, on=on, portable=portable)
    return load_scenario(path, overrides=all_overrides)


def scale_overrides(
    scale: str | None,
    named: str,
    overrides: list[str],
    *,
    scratch: Path,
    quick: bool = False,
    full: bool = False,
    on: str | None = None,
    portable: bool = False,
) -> list[str]:
    """Return the overrides with the scale of ``--scale``. For ``auto``, print the scale and its reason.

    Parameters
    ----------
    scale
        Value of the option: a number, ``auto``, or ``None`` without the option.
    scratch
        Directory for the files of the lab.

    Raises
    ------
    ScenarioError
        If ``auto`` is not for a lab.
    """
    if scale is None:
        return overrides
    if scale != AUTOMATIC_SCALE or not is_scenario(named):
        return [*overrides, f"scale={scale}"]
    scenario = load(named, [*overrides, "scale=1"], quick=quick, full=full, on=on, portable=portable)
    plan = expand(scenario)
    backend = on or study_backend(named) or default_backend(scenario.testbed, plan.header)
    if backend != "lab":
        problem = f"expected a number, found auto for {backend}; auto is for labs, which share one machine"
        raise ScenarioError([("--scale", problem)], named)
    free_bytes = shutil.disk_usage(nearest_directory(scratch.absolute())).free
    choice = find_lab_scale(plan, cpus=len(os.sched_getaffinity(0)), free_bytes=free_bytes)
    print_status(f"scale {choice.scale:g}: {choice.reason}")
    return [*overrides, f"scale={choice.scale!r}"]


def scenario_file(
    named: str,
    overrides: list[str],
    *,
    quick: bool = False,
    full: bool = False,
    on: str | None = None,
    portable: bool = False,
) -> tuple[Path, list[str]]:
    """Return the scenario file and the overrides that :func:`load` uses.

    Raises
    ------
    ScenarioError
        If neither a file nor a study of this name exists, or if a variant of a file is requested.
    """
    check_one_variant(quick=quick, full=full)
    if not _exists(named) and named in studies():
        chosen = study(named)
        return chosen.scenario_path, [*chosen.overrides(quick=quick, full=full, on=on, portable=portable), *overrides]
    if quick or full or portable:
        variant = "quick" if quick else "full" if full else "portable"
        raise ScenarioError(
            [
                (
                    "",
                    f"expected a study, found a file: only studies have a {variant} variant; use --set scale=… and --set workload.repeat=… instead",
                )
            ],
            named,
        )
    if not _exists(named) and (near := difflib.get_close_matches(named, studies(), 1)):
        raise ScenarioError(
            [
                (
                    "",
                    f'expected a scenario file or the name of a study, found neither; did you mean the study "{near[0]}"?',
                )
            ],
            named,
        )
    if problem := _path_problem(named):
        raise ScenarioError([("", f"expected a scenario file or the name of a study, found {problem}")], named)
    return Path(named), overrides


def _path_problem(named: str) -> str:
    """Return the problem of a scenario path with the next step; "" if it is a file."""
    if (Path(named) / INFO).is_file():
        return f"a run; resume it with: venturi run --resume {named}; or report it with: venturi report {named}"
    if Path(named).is_dir():
        return "a directory; name a file in it"
    if not _exists(named):
        return (
            "neither; see `venturi study list`, or start from a copy: venturi study show cnaf/cp --scenario > my.toml"
        )
    return ""


def check_one_variant(*, quick: bool, full: bool) -> None:
    """Check that at most one variant of a study is requested.

    Raises
    ------
    ScenarioError
        If both are requested.
    """
    if quick and full:
        raise ScenarioError([("", "expected one of --quick and --full, found both; omit one")], "study")


def is_scenario(named: str) -> bool:
    """Return whether a name is a scenario file or a study. A directory is a run."""
    return os.path.isfile(named) or (not _exists(named) and named in studies())  # noqa: PTH113


def study_backend(named: str) -> str | None:
    """Return the default backend of a study; ``None`` for a file, whose testbed decides."""
    return study(named).on if not _exists(named) and named in studies() else None


def _exists(named: str) -> bool:
    return os.path.exists(named)  # noqa: PTH110 - False without an error if the path is not accessible
