"""Scenarios: the TOML file of the user as typed, validated data.

:mod:`venturi.workload` expands a scenario to a plan.

Read :class:`Scenario` first. :func:`load_scenario` creates it and reports all errors of a file together.
"""

from __future__ import annotations

from venturi.scenario.load import load_scenario, scenario_from
from venturi.scenario.model import Analyse, Criterion, MeasureTable, MoverTemplate, Scenario
from venturi.scenario.schema import scenario_schema
from venturi.scenario.testbed import (
    HostTable,
    LinkChangeTable,
    LinkTable,
    RouterTable,
    ServiceTable,
    StorageTable,
    TestbedTable,
)
from venturi.scenario.tools import resolve_movers

__all__ = [
    "Analyse",
    "Criterion",
    "HostTable",
    "LinkChangeTable",
    "LinkTable",
    "MeasureTable",
    "MoverTemplate",
    "RouterTable",
    "Scenario",
    "ServiceTable",
    "StorageTable",
    "TestbedTable",
    "load_scenario",
    "resolve_movers",
    "scenario_from",
    "scenario_schema",
]
