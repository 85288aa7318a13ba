"""The workload ``sweep``: product, zip and filter of factors, repeated in randomised complete blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, WithJsonSchema, model_serializer

from venturi.errors import ScenarioError
from venturi.scenario.fields import Duration, Part, Text, VolumeText, Whole
from venturi.scenario.words import Problem
from venturi.testbed.plan import ResolvedTestbed, resolve_testbed
from venturi.workload.base import Workload
from venturi.workload.design import design
from venturi.workload.factors import MAX_FILES_PER_CALL
from venturi.workload.layout import Layout, lay_out
from venturi.workload.trials import sweep_plan

if TYPE_CHECKING:
    from venturi.plan import Plan
    from venturi.scenario import Scenario

__all__ = ["Sweep", "SweepRules"]

_VALUES = WithJsonSchema(
    {
        "type": "object",
        "additionalProperties": {
            "type": "array", "minItems": 1, "items": {"type": ["string", "integer", "number", "boolean"]},
        },
    }
)  # fmt: skip
_SCALARS = WithJsonSchema({"type": "object", "additionalProperties": {"type": ["string", "integer", "boolean"]}})


class SweepRules(Part):
    """Which combinations of factors there are."""

    zip: tuple[tuple[Text, ...], ...] = Field((), description="Groups of factors that vary together.")
    filter: tuple[Text, ...] = Field((), description="Expressions that must hold of a point.")


class Sweep(Workload):
    """A sweep: every point of a grid, carried out a number of times."""

    kind: Literal["sweep"]
    mover: Text | None = Field(None, description='A mover, or two together as "read+write"; or a factor.')
    source: Text | None = Field(None, description="The storage that is read from; or a factor.")
    destination: Text | None = Field(None, description="The storage that is written to; or a factor.")
    client: Text | None = Field(None, description="The host that the mover runs on; or a factor.")
    source_service: Text | None = Field(None, description="The service that the source is read through; or a factor.")
    destination_service: Text | None = Field(
        None, description="The service that the destination is written through; or a factor."
    )
    direction: Literal["one way", "two ways"] = Field(
        "one way", description="Two ways: each slot has a transfer there and one back, at the same time; or a factor."
    )
    files_per_call: Annotated[Whole, Field(ge=1, le=MAX_FILES_PER_CALL)] = Field(
        1, description="Files that one call of the mover moves; or a factor."
    )
    repeat: Whole = Field(1, ge=1, description="Repetitions of each point; each is a complete block.")
    order: Literal["random", "given"] = Field("random", description="Of the points within each block.")
    cache: Literal["as_is", "cold", "warm"] = Field("as_is", description="State of the page cache before a trial.")
    timeout: Duration = Field(600.0, description="Of one transfer.")
    data_at_least: VolumeText | None = Field(
        None, description="Rotate over so much data before a file is used again."
    )
    factors: Annotated[dict[str, Any], _VALUES] = Field(description="What is varied: name and list of values.")
    options: Annotated[dict[str, Any], _SCALARS] = Field({}, description="Options of the mover, fixed.")
    sweep: SweepRules = Field(SweepRules(), description="Which combinations of factors there are.")

    def problems(self, scenario: Scenario) -> list[Problem]:
        """Return what is wrong with names, factors, filters and data sets."""
        found: list[Problem] = []
        # What is wrong with the testbed is told where that is checked.
        self._layout(scenario, resolve_testbed(scenario.testbed, scenario.scale, []), found)
        return found

    def expand(self, scenario: Scenario) -> Plan:
        """Return the plan of the sweep."""
        found: list[Problem] = []
        parts = resolve_testbed(scenario.testbed, scenario.scale, found)
        layout = None if parts is None else self._layout(scenario, parts, found)
        if parts is None or layout is None or found:
            raise ScenarioError(found)
        return sweep_plan(scenario, self, layout, parts)

    def _layout(self, scenario: Scenario, parts: ResolvedTestbed | None, problems: list[Problem]) -> Layout | None:
        points = design(scenario, self, problems)
        return None if points is None or parts is None else lay_out(scenario, self, points, parts, problems)

    @model_serializer(mode="wrap")
    def _without_what_is_a_factor(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out the fixed value of what a factor sets, so that the document says one thing only."""
        written: dict[str, Any] = handler(self)
        written["options"] = {key: value for key, value in self.options.items() if key not in self.factors}
        return {key: value for key, value in written.items() if key not in self.factors}
