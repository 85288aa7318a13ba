"""Scenario in, plan out."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from venturi.plan import Plan
    from venturi.scenario import Scenario

__all__ = ["expand"]


def expand(scenario: Scenario) -> Plan:
    """Return the plan of a scenario.

    The lines of the plan are made each time they are gone through, one after the other, so that a plan of a million
    transfers needs no memory.

    Parameters
    ----------
    scenario
        From :func:`venturi.scenario.load_scenario`.

    Raises
    ------
    ScenarioError
        If the scenario was not checked and cannot be expanded.
    """
    return scenario.workload.expand(scenario)
