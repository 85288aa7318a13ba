"""What every kind of workload is: a table of the scenario that can be checked and expanded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from venturi.scenario.fields import Part
from venturi.scenario.words import Problem

if TYPE_CHECKING:
    from venturi.plan import Plan
    from venturi.scenario import Scenario

__all__ = ["Workload"]


class Workload(Part):
    """A rule that yields transfers. A kind is a subclass with ``kind: Literal[…]``, in one file of its own."""

    kind: str

    def problems(self, scenario: Scenario) -> list[Problem]:
        """Return what is wrong beyond the form of each value: names, and values that do not go together."""
        raise NotImplementedError

    def expand(self, scenario: Scenario) -> Plan:
        """Return the plan; the same scenario gives the same plan. The scenario has been checked."""
        raise NotImplementedError
