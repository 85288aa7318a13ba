"""Conversion of plans from version 1 to version 2: only names of keys differ.

Version 2 uses the terms of the glossary: ``storages`` instead of ``places``, ``service_ports`` instead of ``doors``.
:mod:`venturi.run.upgrade` reads old runs with these functions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["rename_keys", "upgrade_header", "upgrade_scenario"]

_COST_KEYS = {"piece_bytes": "chunk_bytes", "patience_s": "stall_timeout_s", "sessions_least": "min_sessions"}
_SCENARIO_COST_KEYS = {"piece": "chunk", "patience": "stall_timeout", "sessions_least": "min_sessions"}
_WORKLOAD_KEYS = {"made_in": "create_through", "own_site": "include_own_site"}
_PLACEHOLDERS = {"{folder}": "{directory}"}


def upgrade_header(header: Mapping[str, Any]) -> dict[str, Any]:
    """Return the header of a plan in version 2; a header of version 2 does not change.

    Examples
    --------
    >>> upgrade_header({"version": 1, "places": {"disk": {"host": "a", "path": "d", "storage": None}}})
    {'version': 2, 'storages': {'disk': {'host': 'a', 'path': 'd', 'spec': None}}}
    """
    if header.get("version") != 1:
        return dict(header)
    found = rename_keys({**header, "version": 2}, {"places": "storages"})
    _each(found, "storages", lambda storage: rename_keys(storage, {"storage": "spec"}))
    _each(found, "services", lambda service: rename_keys(service, {"places": "storages", "doors": "service_ports"}))
    _each(found, "datasets", lambda dataset: rename_keys(dataset, {"place": "storage"}))
    _each(found, "calls", _upgrade_call)
    if isinstance(found.get("cost"), Mapping):
        found["cost"] = _upgrade_cost(found["cost"])
    if isinstance(found.get("scenario"), Mapping):
        found["scenario"] = upgrade_scenario(found["scenario"])
    return found


def upgrade_scenario(scenario: Mapping[str, Any]) -> dict[str, Any]:
    """Return the resolved scenario of a plan of version 1 with the keys of version 2."""
    found = dict(scenario)
    _each(found, "mover", lambda mover: rename_keys(mover, {"speaks": "protocols"}) | _argv(mover))
    if isinstance(found.get("workload"), Mapping):
        found["workload"] = _upgrade_workload(found["workload"])
    testbed = found.get("testbed")
    if isinstance(testbed, Mapping) and isinstance(testbed.get("cost"), Mapping):
        found["testbed"] = {**testbed, "cost": _deep(testbed["cost"], _SCENARIO_COST_KEYS)}
    return found


def rename_keys(table: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return a table with renamed keys, in the same order."""
    return {names.get(key, key): value for key, value in table.items()}


def _each(found: dict[str, Any], key: str, change: Callable[[Mapping[str, Any]], dict[str, Any]]) -> None:
    table = found.get(key)
    if isinstance(table, Mapping):
        found[key] = {name: change(value) if isinstance(value, Mapping) else value for name, value in table.items()}


def _upgrade_call(call: Mapping[str, Any]) -> dict[str, Any]:
    return {**call, **_argv(call)}


def _argv(call: Mapping[str, Any]) -> dict[str, Any]:
    return {"argv": _placeholders(call["argv"])} if "argv" in call else {}


def _placeholders(argument: object) -> object:
    if isinstance(argument, list):
        return [_placeholders(part) for part in argument]
    if isinstance(argument, str):
        for old, new in _PLACEHOLDERS.items():
            argument = argument.replace(old, new)
    return argument


def _upgrade_cost(cost: Mapping[str, Any]) -> dict[str, Any]:
    found = rename_keys(cost, {"places": "storages"})
    if isinstance(found.get("movers"), list):
        found["movers"] = [
            {**rule, "cost": rename_keys(rule["cost"], _COST_KEYS)} if isinstance(rule.get("cost"), Mapping) else rule
            for rule in found["movers"]
        ]
    return found


def _upgrade_workload(workload: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = _deep(workload, _WORKLOAD_KEYS)
    if found.get("kind") == "peers":
        return rename_keys(found, {"begin": "first_direction"})
    if found.get("kind") == "replay" and isinstance(found.get("window"), Mapping):
        return {**found, "window": rename_keys(found["window"], {"begin": "start"})}
    return found


def _deep(value: Any, names: Mapping[str, str]) -> Any:  # noqa: ANN401 - any JSON value
    if isinstance(value, Mapping):
        return {names.get(key, key): _deep(part, names) for key, part in value.items()}
    if isinstance(value, list):
        return [_deep(part, names) for part in value]
    return value
