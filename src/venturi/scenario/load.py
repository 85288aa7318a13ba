"""Load a scenario and check all of it: every problem at once, each with its place."""

# ruff: noqa: ANN401 - a TOML value is of any type until the models have looked at it
from __future__ import annotations

import copy
import itertools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from venturi.errors import ScenarioError
from venturi.scenario.cost import check_costs
from venturi.scenario.document import Document, document_of, read_document
from venturi.scenario.model import Scenario
from venturi.scenario.problems import locations, problems_of
from venturi.scenario.tools import movers_of
from venturi.scenario.words import Problem, Where
from venturi.testbed.plan import resolve_testbed

__all__ = ["load_scenario", "scenario_from"]


def load_scenario(path: str | Path, overrides: Iterable[str] = ()) -> Scenario:
    """Load a scenario file.

    Parameters
    ----------
    path
        A TOML file; files that it includes are found relative to it.
    overrides
        Values to set, as ``workload.repeat=20``: TOML if the value parses as such, otherwise text.

    Raises
    ------
    ScenarioError
        With all problems: place, what was expected, what was found.
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
    folder: Path | None = None,
) -> Scenario:
    """Return the scenario that a document (as TOML or JSON gives it) stands for.

    Parameters
    ----------
    document
        The document.
    source
        Its name, for messages.
    overrides
        Values to set, as of :func:`load_scenario`.
    folder
        What the files are relative to that it names; without it, the working directory.

    Raises
    ------
    ScenarioError
        As :func:`load_scenario`; also if the document includes files, for there is no folder to find them in.

    Examples
    --------
    >>> scenario_from({"venturi": 1, "name": "x", "workload": {"kind": "swep"}})
    Traceback (most recent call last):
    venturi.errors.ScenarioError: scenario: workload: expected one of the kinds of workload: sweep, found "swep" \
(did you mean sweep?)
    """
    read = document_of(document, overrides, folder)
    if read.problems:
        raise ScenarioError(read.problems, source)
    return _scenario(read, source)


def _scenario(document: Document, source: str) -> Scenario:
    problems: list[tuple[str, str]] = []
    if document.data.get("include"):
        problems.append(("include", "expected no includes in a document without a file, found some"))
    scenario = _validate(document, problems)
    if scenario is not None:
        problems += [problem for problem in _check(scenario) if not _known(problem, problems)]
    if problems or scenario is None:
        raise ScenarioError([(where, what + document.origin(where)) for where, what in problems], source)
    return scenario


def _validate(document: Document, problems: list[Problem]) -> Scenario | None:
    """Return the scenario, or what is left of it without the values that are wrong, so that the rest is checked too."""
    context = {"folder": document.folder or Path()}
    try:
        return Scenario.model_validate(document.data, context=context)
    except ValidationError as error:
        problems += problems_of(error, Scenario, document.data)
        rest = copy.deepcopy(document.data)
        for where in locations(error):
            _prune(rest, where)
            _stand_in(rest, where)
    try:
        return Scenario.model_validate(rest, context=context)
    except ValidationError:
        return None


def _prune(data: Any, where: Where) -> None:
    """Take out the value at ``where``, or the list that it is in: without one element a list would mean another thing."""
    keys = list(itertools.takewhile(lambda part: isinstance(part, str), where))
    for key in keys[:-1]:
        data = data.get(key) if isinstance(data, dict) else None
    if isinstance(data, dict) and keys:
        data.pop(keys[-1], None)


_STAND_INS = {("link", "rate"): "1 Gb/s", ("storage", "path"): "stand-in"}
"""Good values for what must be there and was wrong: nothing else is checked against them."""


def _stand_in(data: Any, where: Where) -> None:
    """Put a good value where a required one of the testbed was wrong or missing: the rest is checked all the same."""
    if len(where) != 4 or where[0] != "testbed" or (where[1], where[3]) not in _STAND_INS:
        return
    for key in where[:-1]:
        data = data.get(key) if isinstance(data, dict) else None
    if isinstance(data, dict):
        data[where[3]] = _STAND_INS[where[1], where[3]]  # type: ignore[index]


def _check(scenario: Scenario) -> list[Problem]:
    """Return what is wrong beyond forms: with the testbed, with movers, and with whatever the workload names."""
    problems: list[Problem] = []
    resolve_testbed(scenario.testbed, scenario.scale, problems)
    movers, wrong = movers_of(scenario)
    problems += wrong + check_costs(scenario.testbed, movers)
    return problems + scenario.workload.problems(scenario)


def _known(problem: Problem, problems: list[Problem]) -> bool:
    """Whether a place has been complained of already; a value that was taken out must not be missed as well."""
    return any(problem[0] == where or problem[0].startswith((f"{where}.", f"{where}[")) for where, _ in problems)
