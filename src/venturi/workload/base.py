"""What every kind of workload is: a table of the scenario that can be checked and expanded."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pydantic import Field, WithJsonSchema

from venturi.errors import ScenarioError
from venturi.scenario.fields import Part, Text
from venturi.scenario.words import Problem
from venturi.testbed.plan import ResolvedTestbed, resolve_testbed

if TYPE_CHECKING:
    from venturi.plan import Plan
    from venturi.scenario import Scenario

__all__ = ["FACTORS", "OPTIONS", "Combinations", "Workload", "without_factors"]

FACTORS = WithJsonSchema(
    {
        "type": "object",
        "additionalProperties": {
            "type": "array", "minItems": 1, "items": {"type": ["string", "integer", "number", "boolean"]},
        },
    }
)  # fmt: skip
"""Schema of a table of factors."""

OPTIONS = WithJsonSchema({"type": "object", "additionalProperties": {"type": ["string", "integer", "boolean"]}})
"""Schema of a table of options of a mover."""


class Combinations(Part):
    """Which combinations of factors there are."""

    zip: tuple[tuple[Text, ...], ...] = Field((), description="Groups of factors that vary together.")
    filter: tuple[Text, ...] = Field((), description="Expressions that must hold of a point.")


class Workload(Part):
    """A rule that yields transfers. A kind is a subclass with ``kind: Literal[…]`` and :meth:`planner`, in one file of its own."""

    kind: str

    def planner(
        self, scenario: Scenario, parts: ResolvedTestbed | None, problems: list[Problem]
    ) -> Callable[[], Plan] | None:
        """Return what makes the plan, ``None`` if it cannot be made; add what is wrong to the problems.

        Wrong beyond the form of each value: names, and values that do not go together. ``parts`` is the resolved testbed, ``None`` where
        that has problems of its own, which are told elsewhere.
        """
        raise NotImplementedError

    def problems(self, scenario: Scenario) -> list[Problem]:
        """Return what is wrong with the workload."""
        found: list[Problem] = []
        self.planner(scenario, resolve_testbed(scenario.testbed, scenario.scale, []), found)
        return found

    def expand(self, scenario: Scenario) -> Plan:
        """Return the plan; the same scenario gives the same plan.

        Raises
        ------
        ScenarioError
            If the scenario was not checked and cannot be expanded.
        """
        found: list[Problem] = []
        make = self.planner(scenario, resolve_testbed(scenario.testbed, scenario.scale, found), found)
        if make is None or found:
            raise ScenarioError(found)
        return make()


def without_factors(written: dict[str, Any], options: dict[str, Any], factors: dict[str, Any]) -> dict[str, Any]:
    """Return a workload as written, without the fixed values of what factors set, so that the document says one thing only."""
    written["options"] = {key: value for key, value in options.items() if key not in factors}
    return {key: value for key, value in written.items() if key not in factors}
