"""Load a scenario and report all errors, each with its location."""

# ruff: noqa: ANN401 - a TOML value has any type before its validation
from __future__ import annotations

import copy
import itertools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from venturi.errors import ScenarioError
from venturi.messages import Problem, Where
from venturi.scenario.cost import check_costs
from venturi.scenario.document import Document, build_document, read_document
from venturi.scenario.model import Scenario
from venturi.scenario.problems import complete_message, describe_problems, locations
from venturi.scenario.tools import resolve_movers
from venturi.testbed.plan import resolve_testbed
from venturi.workload.limits import required_limits

__all__ = ["load_scenario", "scenario_from"]


def load_scenario(path: str | Path, overrides: Iterable[str] = ()) -> Scenario:
    """Load a scenario file.

    Parameters
    ----------
    path
        A TOML file; files that it includes are found relative to it.
    overrides
        Values to set, such as ``workload.repeat=20``. A value is TOML if it parses as TOML, otherwise text.

    Raises
    ------
    ScenarioError
        With all problems: location, expected value, found value, next step.
    """
    document = read_document(Path(path), overrides)
    if document.problems:
        raise ScenarioError(document.problems, str(path))
    return _scenario(document, str(path))


def scenario_from(
    document: Mapping[str, Any],
    source: str = "scenario",
    *,
    overrides: Iterable[str] = (),
    directory: Path | None = None,
) -> Scenario:
    """Return the scenario of a document that was read from TOML or JSON.

    Parameters
    ----------
    document
        The document.
    source
        Its name, for messages.
    overrides
        Values to set, as in :func:`load_scenario`.
    directory
        Base directory of the files in the document. Default: the working directory.

    Raises
    ------
    ScenarioError
        As in :func:`load_scenario`; also if the document includes files, because it has no directory.

    Examples
    --------
    >>> scenario_from({"venturi": 1, "name": "x", "workload": {"kind": "swep"}})  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    venturi.errors.ScenarioError: scenario: workload: expected one of the kinds of workload: sweep, ...; did you mean sweep?
    """
    read = build_document(document, overrides, directory)
    if read.problems:
        raise ScenarioError(read.problems, source)
    return _scenario(read, source)


def _scenario(document: Document, source: str) -> Scenario:
    problems: list[tuple[str, str]] = []
    if document.data.get("include"):
        problems.append(("include", "expected no includes in a document without a file, found some; remove include"))
    scenario = _validate(document, problems)
    if scenario is not None:
        problems += [problem for problem in _check(scenario) if not _is_reported(problem, problems)]
    if problems or scenario is None:
        raise ScenarioError(
            [(where, complete_message(what, document.origin(where))) for where, what in problems], source
        )
    return scenario


def _validate(document: Document, problems: list[Problem]) -> Scenario | None:
    """Return the scenario without its invalid values, so that the other values are checked too."""
    context = {"directory": document.directory or Path()}
    try:
        return Scenario.model_validate(document.data, context=context)
    except ValidationError as error:
        problems += describe_problems(error, Scenario, document.data)
        rest = copy.deepcopy(document.data)
        for where in locations(error):
            _prune(rest, where)
            _stand_in(rest, where)
    try:
        return Scenario.model_validate(rest, context=context)
    except ValidationError:
        return None


def _prune(data: Any, where: Where) -> None:
    """Remove the value at ``where``, or its list: a list without one element has another meaning."""
    keys = list(itertools.takewhile(lambda part: isinstance(part, str), where))
    for key in keys[:-1]:
        data = data.get(key) if isinstance(data, dict) else None
    if isinstance(data, dict) and keys:
        data.pop(keys[-1], None)


_STAND_INS = {
    ("link", "rate"): "1 Gb/s",
    ("storage", "path"): "stand-in",
    ("service", "url"): "tcp://stand-in.invalid:1",
}
"""Valid values for required keys that were invalid; no other check uses them."""


def _stand_in(data: Any, where: Where) -> None:
    """Set a valid value where a required one of the testbed was invalid or missing, so that the other values are checked."""
    if len(where) != 4 or where[0] != "testbed" or (where[1], where[3]) not in _STAND_INS:
        return
    for key in where[:-1]:
        data = data.get(key) if isinstance(data, dict) else None
    if isinstance(data, dict):
        data[where[3]] = _STAND_INS[where[1], where[3]]  # type: ignore[index]


def _check(scenario: Scenario) -> list[Problem]:
    """Return the errors of the testbed, the movers and the names in the workload."""
    problems: list[Problem] = []
    resolve_testbed(scenario.testbed, scenario.scale, problems)
    movers, wrong = resolve_movers(scenario)
    problems += wrong + check_costs(scenario.testbed, movers)
    return problems + required_limits(scenario) + scenario.workload.problems(scenario)


def _is_reported(problem: Problem, problems: list[Problem]) -> bool:
    """Return whether a location has an error already; a removed value must not be reported as missing."""
    return any(problem[0] == where or problem[0].startswith((f"{where}.", f"{where}[")) for where, _ in problems)
