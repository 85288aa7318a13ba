"""A file of costs: ``[testbed.cost]`` as TOML, for a scenario to include, with where it came from; and such a file read again."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from venturi import __version__
from venturi.analysis.words import plural
from venturi.calibration.result import Calibration, Errors, Estimated
from venturi.calibration.words import value_text
from venturi.cost import Cost, HostCost, MoverCost, MoverRule, ServiceCost, StorageCost
from venturi.errors import ScenarioError
from venturi.mover.table import movers
from venturi.report.toml import as_toml
from venturi.scenario.cost import Cost as WrittenCost
from venturi.scenario.cost import check_rule, key_of, resolve_said
from venturi.scenario.fields import format_duration_exact
from venturi.scenario.problems import problems_of
from venturi.units import format_bytes_exact

__all__ = ["costs_document", "costs_text", "read_costs"]

DIGITS = 6
"""Significant digits of what is written: an estimate never has more."""


def costs_text(result: Calibration) -> str:
    """Return the file of costs of a calibration: a comment that says where it came from, and the table.

    A scenario takes it in by ``include = ["costs.toml"]``.
    """
    return "\n".join(
        [*(f"# {line}".rstrip() for line in _head(result)), "", as_toml(costs_document(result.cost)), ""]
    )


def costs_document(cost: Cost) -> dict[str, Any]:
    """Return costs as a scenario says them: ``{"testbed": {"cost": …}}``, values with their units."""
    shared = {} if cost.machine_cores is None else {"machine_cores": _written("machine_cores", cost.machine_cores)}
    tables: dict[str, dict[str, Any]] = {"mover": {}, "service": {}, "storage": {}, "host": {}}
    for number, rule in enumerate(cost.movers, 1):
        tables["mover"][f"{rule.mover}-{number}"] = _rule(rule)
    parts: tuple[tuple[str, Mapping[str, ServiceCost] | Mapping[str, StorageCost] | Mapping[str, HostCost]], ...] = (
        ("service", cost.services),
        ("storage", cost.places),
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
    return {key_of(name): _written(name, value) for name, value in given if value is not None}


def _written(name: str, value: float | bool) -> Any:  # noqa: ANN401 - what TOML holds
    """Return a value with the unit that its name tells."""
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


def _head(result: Calibration) -> list[str]:
    runs = ", ".join(result.runs)
    told = [
        f"Costs of transfers, estimated by `venturi calibrate` {__version__} from {runs}.",
        'To use them: include = ["<this file>"] in a scenario of the same testbed.',
        f"From {plural(result.fitted.n, 'point')}; {plural(result.held_out.n, 'other point')} held out"
        f" (share {result.hold_out:g}, seed {result.seed}).",
        f"Errors of points that the fit has not seen: {_errors(result.held_out)}; with defaults {_errors(result.defaults)};"
        f" bytes / slowest link + RTT: {_errors(result.naive)}.",
        f"Intervals: {100 * result.level:g} %, {result.method}, n = {result.fitted.n}.",
        "",
    ]
    told += [_line(one) for one in result.parameters if one.state == "estimated"]
    told += _shared(result)
    kept = [one for one in result.parameters if one.state != "estimated" and one.state != "no effect"]
    if kept:
        told += ["", "Not identified by these runs:"]
        told += [f"{one.name}: {one.state}{f' from {one.partner}' if one.partner else ''}" for one in kept]
    return told


def _shared(result: Calibration) -> list[str]:
    """Return what is to be known of the cores that all hosts share, if any do."""
    if result.cost.machine_cores is not None:
        return ["machine_cores: all hosts share them, as in a lab; take the line out where each has its own."]
    if len(set(result.machine_cores)) == 1:
        return []
    found = ", ".join(
        f"{'none' if cores is None else f'{cores:g}'} in {run}"
        for run, cores in zip(result.runs, result.machine_cores, strict=True)
    )
    return [
        f"Without machine_cores, as the runs differ in the cores that all hosts share: {found}. Each was simulated with its own."
    ]


def _line(one: Estimated) -> str:
    low, high = (value_text(one.parameter, end) for end in (one.low, one.high))
    return f"{one.name}: {value_text(one.parameter, one.value)} ({low} to {high}; before: {value_text(one.parameter, one.default)})"


def _errors(errors: Errors) -> str:
    if errors.median is None or errors.p90 is None:
        return "none measured"
    return f"median {100 * errors.median:.3g} %, p90 {100 * errors.p90:.3g} %"


def read_costs(path: Path) -> Cost:
    """Return the costs that a file says under ``[testbed.cost]``; whatever else is in it is not looked at.

    Raises
    ------
    ScenarioError
        If it cannot be read, or says something that no scenario could.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ScenarioError([("", f"expected a file of costs, found none that can be read ({error.strerror})")], str(path)) from error  # fmt: skip
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ScenarioError([("", f"expected a file of costs, found none ({error}); `venturi calibrate` writes one")], str(path)) from error  # fmt: skip
    testbed = document.get("testbed")
    said = testbed.get("cost") if isinstance(testbed, dict) else None
    if not isinstance(said, dict):
        raise ScenarioError([("testbed.cost", "expected a table, found none; `venturi calibrate` writes one")], str(path))  # fmt: skip
    try:
        written = WrittenCost.model_validate(said)
    except ValidationError as error:
        raise ScenarioError([(f"testbed.cost.{where}", what) for where, what in problems_of(error, WrittenCost, said)], str(path)) from error  # fmt: skip
    problems = [problem for name, rule in written.mover.items() for problem in check_rule(name, rule, movers())]
    if problems:
        raise ScenarioError(problems, str(path))
    return resolve_said(written, movers())
