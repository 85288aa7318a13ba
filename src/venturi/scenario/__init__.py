"""Scenarios: what a user writes, a TOML file, as typed and checked data.

Left out on purpose: what follows from it. A plan is made by :mod:`venturi.workload`.

Read :class:`Scenario` first; :func:`load_scenario` makes it, and tells everything that is wrong with a file at once.
"""

from __future__ import annotations

from venturi.scenario.load import load_scenario, scenario_from
from venturi.scenario.model import Analyse, Criterion, Measure, MoverTemplate, Scenario
from venturi.scenario.schema import scenario_schema
from venturi.scenario.testbed import Change, Host, Link, Router, Service, Storage, Testbed
from venturi.scenario.tools import movers_of

__all__ = [
    "Analyse",
    "Change",
    "Criterion",
    "Host",
    "Link",
    "Measure",
    "MoverTemplate",
    "Router",
    "Scenario",
    "Service",
    "Storage",
    "Testbed",
    "load_scenario",
    "movers_of",
    "scenario_from",
    "scenario_schema",
]
