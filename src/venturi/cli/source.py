"""Where a scenario comes from: a file, or a study by name."""

from __future__ import annotations

import difflib
import os
from pathlib import Path

from venturi.errors import ScenarioError
from venturi.run.directory import INFO
from venturi.scenario import Scenario, load_scenario
from venturi.study import studies, study

__all__ = ["check_one_variant", "is_scenario", "load", "scenario_file", "usual_backend"]


def load(
    named: str, overrides: list[str], *, quick: bool = False, full: bool = False, on: str | None = None
) -> Scenario:
    """Return the scenario of a file, or of a study (the usual variant of who carries it out, or the one asked for) where no such file exists.

    Raises
    ------
    ScenarioError
        If there is neither, a variant is asked of a file, or the scenario is not valid.
    """
    path, given = scenario_file(named, overrides, quick=quick, full=full, on=on)
    return load_scenario(path, overrides=given)


def scenario_file(
    named: str, overrides: list[str], *, quick: bool = False, full: bool = False, on: str | None = None
) -> tuple[Path, list[str]]:
    """Return the file of a scenario that :func:`load` would load, and the overrides that it would load it with.

    Raises
    ------
    ScenarioError
        If there is neither such a file nor such a study, or a variant is asked of a file.
    """
    check_one_variant(quick=quick, full=full)
    if not _is_there(named) and named in studies():
        chosen = study(named)
        return chosen.scenario_path, [*chosen.overrides(quick=quick, full=full, on=on), *overrides]
    if quick or full:
        variant = "quick" if quick else "full"
        raise ScenarioError(
            [("", f"only a study has a {variant} variant; use --set scale=… and --set workload.repeat=… instead")],
            named,
        )
    if not _is_there(named) and (near := difflib.get_close_matches(named, studies(), 1)):
        raise ScenarioError(
            [
                (
                    "",
                    f'expected a scenario file or the name of a study, found neither; did you mean the study "{near[0]}"?',
                )
            ],
            named,
        )
    if found := _no_file(named):
        raise ScenarioError([("", f"expected a scenario file or the name of a study, found {found}")], named)
    return Path(named), overrides


def _no_file(named: str) -> str:
    """Return what stands in place of a file, and what to do; "" if it is one."""
    if (Path(named) / INFO).is_file():
        return f"a run; go on with it: venturi run --resume {named}; look at it: venturi report {named}"
    if Path(named).is_dir():
        return "a directory; name the file in it"
    if not _is_there(named):
        return (
            "neither; see `venturi study list`, or begin with a copy: venturi study show cnaf/cp --scenario > my.toml"
        )
    return ""


def check_one_variant(*, quick: bool, full: bool) -> None:
    """Refuse two variants of a study at once.

    Raises
    ------
    ScenarioError
        If both are asked for.
    """
    if quick and full:
        raise ScenarioError([("", "expected one of --quick and --full, found both; leave one out")], "study")


def is_scenario(named: str) -> bool:
    """Return whether a word names a scenario, by a file or as a study; a directory is a run."""
    return os.path.isfile(named) or (not _is_there(named) and named in studies())  # noqa: PTH113


def usual_backend(named: str) -> str | None:
    """Return who carries a study out unless somebody says otherwise; ``None`` for a file, whose testbed decides."""
    return study(named).on if not _is_there(named) and named in studies() else None


def _is_there(named: str) -> bool:
    return os.path.exists(named)  # noqa: PTH110 - also False, and no error, where one may not look
