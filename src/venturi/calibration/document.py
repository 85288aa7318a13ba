"""Cost files: ``[testbed.cost]`` as TOML with its origin, for a scenario to include. Writing and reading."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from venturi.calibration.origin import origin_lines
from venturi.calibration.result import Calibration
from venturi.cost import CostParameters, HostCost, MoverCost, MoverRule, ServiceCost, StorageCost
from venturi.errors import ScenarioError
from venturi.mover.table import movers
from venturi.report.toml import as_toml
from venturi.scenario.cost import CostTable as WrittenCost
from venturi.scenario.cost import check_rule, resolve_cost_table, scenario_key
from venturi.scenario.fields import format_duration_exact
from venturi.scenario.problems import describe_problems
from venturi.units import format_bytes_exact

__all__ = ["costs_document", "costs_text", "read_costs"]

DIGITS = 6
"""Significant digits of written values. An estimate is never more precise."""


def costs_text(result: Calibration) -> str:
    """Return the cost file of a calibration: a comment about its origin, and the table.

    A scenario includes it by ``include = ["costs.toml"]``.
    """
    return "\n".join(
        [*(f"# {line}".rstrip() for line in origin_lines(result)), "", as_toml(costs_document(result.cost)), ""]
    )


def costs_document(cost: CostParameters) -> dict[str, Any]:
    """Return costs in the form of a scenario: ``{"testbed": {"cost": …}}``, values with their units."""
    shared = {} if cost.machine_cores is None else {"machine_cores": _written("machine_cores", cost.machine_cores)}
    tables: dict[str, dict[str, Any]] = {"mover": {}, "service": {}, "storage": {}, "host": {}}
    for number, rule in enumerate(cost.movers, 1):
        tables["mover"][f"{rule.mover}-{number}"] = _rule(rule)
    parts: tuple[tuple[str, Mapping[str, ServiceCost] | Mapping[str, StorageCost] | Mapping[str, HostCost]], ...] = (
        ("service", cost.services),
        ("storage", cost.storages),
        ("host", cost.hosts),
    )
    for table, named in parts:
        tables[table] = {name: _part(part) for name, part in named.items()}
    return {"testbed": {"cost": shared | {name: table for name, table in tables.items() if table}}}


def _rule(rule: MoverRule) -> dict[str, Any]:
    known = {option.key: option for option in movers()[rule.mover].options} if rule.mover in movers() else {}
    options = {known[key].name if key in known else key: value for key, value in rule.options.items()}
    head: dict[str, Any] = {"mover": rule.mover, "source": rule.source, "destination": rule.destination}
    return {**head, **({"options": options} if options else {}), **_part(rule.cost)}


def _part(part: MoverCost | ServiceCost | StorageCost | HostCost) -> dict[str, Any]:
    given = ((field.name, getattr(part, field.name)) for field in fields(part))
    return {scenario_key(name): _written(name, value) for name, value in given if value is not None}


def _written(name: str, value: float | bool) -> Any:  # noqa: ANN401 - what TOML holds
    """Return a value with the unit that its name implies."""
    if isinstance(value, bool):
        return value
    if name.endswith("_bytes_per_s"):
        return f"{8 * float(f'{value:.{DIGITS}g}'):.{DIGITS + 2}g} b/s"
    if name.endswith("_bytes"):
        return format_bytes_exact(round(value))
    rounded = float(f"{value:.{DIGITS}g}")
    if name.endswith("_s"):
        return format_duration_exact(rounded)
    return value if isinstance(value, int) else rounded


def read_costs(path: Path) -> CostParameters:
    """Return the costs in ``[testbed.cost]`` of a file. The rest of the file is ignored.

    Raises
    ------
    ScenarioError
        If the file cannot be read, or the table is not valid in a scenario.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ScenarioError([("", f"cannot read the cost file ({error.strerror}); check the path")], str(path)) from error  # fmt: skip
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ScenarioError([("", f"expected a cost file, found {error}; create one with `venturi calibrate`")], str(path)) from error  # fmt: skip
    testbed = document.get("testbed")
    declared = testbed.get("cost") if isinstance(testbed, dict) else None
    if not isinstance(declared, dict):
        raise ScenarioError([("testbed.cost", "expected a table, found none; create a cost file with `venturi calibrate`")], str(path))  # fmt: skip
    try:
        written = WrittenCost.model_validate(declared)
    except ValidationError as error:
        raise ScenarioError([(f"testbed.cost.{where}", what) for where, what in describe_problems(error, WrittenCost, declared)], str(path)) from error  # fmt: skip
    problems = [problem for name, rule in written.mover.items() for problem in check_rule(name, rule, movers())]
    if problems:
        raise ScenarioError(problems, str(path))
    return resolve_cost_table(written, movers())
