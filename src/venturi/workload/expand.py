"""Expansion of a scenario to a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from venturi.errors import ScenarioError
from venturi.messages import path_text
from venturi.scenario.tools import resolve_movers
from venturi.workload.limits import limit_problems
from venturi.workload.rate_limit import limit_rate

if TYPE_CHECKING:
    from venturi.plan import Plan
    from venturi.scenario import Scenario

__all__ = ["expand"]


def expand(scenario: Scenario) -> Plan:
    """Return the plan of a scenario.

    Each iteration creates the lines of the plan one after the other, so a plan of a million transfers needs little memory.

    Parameters
    ----------
    scenario
        From :func:`venturi.scenario.load_scenario`.

    Raises
    ------
    ScenarioError
        If the scenario is invalid, or the plan exceeds the limits of the scenario.
    """
    plan = scenario.workload.expand(scenario)
    for dataset in plan.header.datasets.values():
        if plan.header.storages[dataset.storage].existing and not dataset.is_existing:
            where = path_text(("testbed", "storage", dataset.storage, "existing"))
            found = scenario.workload.kind
            raise ScenarioError(
                [
                    (
                        where,
                        f'expected a storage for generated files in the workload "{found}", found existing; remove it',
                    )
                ]
            )
    if scenario.limits is not None:
        plan, rate_problems = limit_rate(plan, scenario, resolve_movers(scenario)[0])
        problems = limit_problems(scenario.limits, plan, scenario.workload.kind) + rate_problems
        if problems:
            raise ScenarioError(problems)
    return plan
