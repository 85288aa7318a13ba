"""Changes of a testbed for a prediction: ``link.wan.rate=100 Gb/s`` as an override of the scenario."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from venturi.errors import ScenarioError
from venturi.messages import one_of
from venturi.scenario import HostTable, LinkTable, Scenario, ServiceTable, StorageTable

__all__ = ["change_overrides", "named_as_changes"]

_TABLES: Mapping[str, type[Any]] = {
    "link": LinkTable,
    "storage": StorageTable,
    "host": HostTable,
    "service": ServiceTable,
}
_KINDS = (*_TABLES, "cost")
SOURCE = "--change"


def change_overrides(changes: Iterable[str], scenario: Scenario) -> list[str]:
    """Return the changes as overrides of the scenario.

    Parameters
    ----------
    changes
        Texts such as ``link.wan.rate=100 Gb/s``; the prefix ``testbed.`` is optional.
    scenario
        Scenario whose testbed changes.

    Raises
    ------
    ScenarioError
        If a text is no change, or if its link, storage, host, service or key does not exist.
    """
    return [_override(change, scenario) for change in changes]


def named_as_changes(error: ScenarioError, changes: Iterable[str]) -> ScenarioError:
    """Return an error of overrides from :func:`change_overrides` that names ``--change`` instead of ``--set``.

    Examples
    --------
    >>> error = ScenarioError([("testbed.link.wan.rate", "expected a rate (from --set testbed.link.wan.rate)")])
    >>> print(named_as_changes(error, ["link.wan.rate=9"]))
    scenario: testbed.link.wan.rate: expected a rate (from --change link.wan.rate)
    """
    problems = error.problems
    for change in changes:
        key = change.partition("=")[0].strip()
        # A path can start with another one: link.wan.rate and link.wan.rate_down.
        own = re.compile(rf"--set testbed\.{re.escape(key.removeprefix('testbed.'))}(?![\w.-])")
        problems = [
            tuple(own.sub(lambda _, key=key: f"{SOURCE} {key}", text) for text in problem)  # type: ignore[misc]
            for problem in problems
        ]
    return ScenarioError(problems, error.source)


def _override(change: str, scenario: Scenario) -> str:
    key, equals, value = change.partition("=")
    key = key.strip().removeprefix("testbed.")
    parts = key.split(".")
    if not equals or not value.strip() or len(parts) < 2:
        raise _error(change, f"expected KEY=VALUE such as link.wan.rate=100Gb/s, found {change}")
    kind = parts[0]
    if kind not in _KINDS:
        raise _error(key, one_of("the parts of a testbed", _KINDS, kind))
    if kind == "cost":
        return f"testbed.{key}={value.strip()}"
    known: Mapping[str, Any] = getattr(scenario.testbed, kind)
    name = parts[1]
    if name not in known:
        raise _error(f"{kind}.{name}", one_of(f"the {kind}s of the testbed", known, name))
    fields = _TABLES[kind].model_fields
    if len(parts) < 3 or parts[2] not in fields:
        raise _error(key, one_of(f"the keys of a {kind}", fields, parts[2] if len(parts) > 2 else ""))
    return f"testbed.{key}={value.strip()}"


def _error(where: str, what: str) -> ScenarioError:
    return ScenarioError([(where, what)], SOURCE)
