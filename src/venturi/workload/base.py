"""Base class of workloads: a table of the scenario that can be checked and expanded."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pydantic import Field, WithJsonSchema

from venturi.errors import ScenarioError
from venturi.messages import Problem
from venturi.scenario.fields import ScenarioTable, Text
from venturi.testbed.plan import ResolvedTestbed, resolve_testbed

if TYPE_CHECKING:
    from venturi.plan import Plan
    from venturi.scenario import Scenario

__all__ = ["FACTORS", "OPTIONS", "Combinations", "Workload", "omit_factor_values"]

FACTORS = WithJsonSchema(
    {
        "type": "object",
        "additionalProperties": {
            "type": "array", "minItems": 1, "items": {"type": ["string", "integer", "number", "boolean"]},
        },
    }
)  # fmt: skip
"""JSON Schema of a table of factors."""

OPTIONS = WithJsonSchema({"type": "object", "additionalProperties": {"type": ["string", "integer", "boolean"]}})
"""JSON Schema of a table of mover options."""


class Combinations(ScenarioTable):
    """Combinations of factors."""

    zip: tuple[tuple[Text, ...], ...] = Field(
        (), description="Groups of factors that vary together: first value with first value, and so on."
    )
    filter: tuple[Text, ...] = Field((), description="Expressions that must be true for a design point.")


class Workload(ScenarioTable):
    """A rule that defines transfers. Each kind is a subclass with ``kind: Literal[…]`` and :meth:`planner` in its own file."""

    kind: str

    def planner(
        self, scenario: Scenario, parts: ResolvedTestbed | None, problems: list[Problem]
    ) -> Callable[[], Plan] | None:
        """Return a function that creates the plan, or ``None`` after errors, which are appended to ``problems``.

        It checks names and combinations of values. ``parts`` is the resolved testbed, or ``None`` if the testbed has errors,
        which are reported separately.
        """
        raise NotImplementedError

    def problems(self, scenario: Scenario) -> list[Problem]:
        """Return the errors of the workload."""
        found: list[Problem] = []
        self.planner(scenario, resolve_testbed(scenario.testbed, scenario.scale, []), found)
        return found

    def expand(self, scenario: Scenario) -> Plan:
        """Return the plan; the same scenario gives the same plan.

        Raises
        ------
        ScenarioError
            If the scenario is invalid.
        """
        found: list[Problem] = []
        make = self.planner(scenario, resolve_testbed(scenario.testbed, scenario.scale, found), found)
        if make is None or found:
            raise ScenarioError(found)
        return make()


def omit_factor_values(written: dict[str, Any], options: dict[str, Any], factors: dict[str, Any]) -> dict[str, Any]:
    """Return a workload without the fixed values that factors replace."""
    written["options"] = {key: value for key, value in options.items() if key not in factors}
    return {key: value for key, value in written.items() if key not in factors}
