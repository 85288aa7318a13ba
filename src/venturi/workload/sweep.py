"""Workload ``sweep``: product, zip and filter of factors, repeated in randomised complete blocks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from venturi.messages import Problem
from venturi.scenario.fields import Duration, Text, VolumeText, Whole
from venturi.testbed.plan import ResolvedTestbed
from venturi.workload.base import FACTORS, OPTIONS, Combinations, Workload, omit_factor_values
from venturi.workload.design import design
from venturi.workload.factors import MAX_FILES_PER_CALL

if TYPE_CHECKING:
    from venturi.plan import Plan
    from venturi.scenario import Scenario

__all__ = ["Sweep"]


class Sweep(Workload):
    """Repeated trials of all design points of a grid."""

    kind: Literal["sweep"]
    mover: Text | None = Field(None, description='Mover, or two concurrent movers such as "read+write"; or a factor.')
    source: Text | None = Field(None, description="Source storage; or a factor.")
    destination: Text | None = Field(None, description="Destination storage; or a factor.")
    client: Text | None = Field(None, description="Host of the mover; or a factor.")
    source_service: Text | None = Field(None, description="Service of the source; or a factor.")
    destination_service: Text | None = Field(None, description="Service of the destination; or a factor.")
    direction: Literal["one way", "two ways"] = Field(
        "one way", description='"two ways": each slot has concurrent transfers in both directions; or a factor.'
    )
    files_per_call: Annotated[Whole, Field(ge=1, le=MAX_FILES_PER_CALL)] = Field(
        1, description="Files of each mover call; or a factor."
    )
    repeat: Whole = Field(1, ge=1, description="Repetitions of each design point, in complete blocks.")
    retries: Whole = Field(0, ge=0, le=9, description="Maximum repetitions of failed trials, after all other trials.")
    order: Literal["random", "given"] = Field("random", description="Order of the design points in each block.")
    cache: Literal["as_is", "cold", "warm"] = Field("as_is", description="Page cache before a trial.")
    timeout: Duration = Field(600.0, description="Timeout of a transfer.")
    data_at_least: VolumeText | None = Field(
        None, description="Minimum amount of data between two reads of the same file."
    )
    factors: Annotated[dict[str, Any], FACTORS] = Field(description="Factors: name and list of values.")
    options: Annotated[dict[str, Any], OPTIONS] = Field({}, description="Fixed options of the mover.")
    sweep: Combinations = Field(Combinations(), description="Combinations of factors.")

    def planner(
        self, scenario: Scenario, parts: ResolvedTestbed | None, problems: list[Problem]
    ) -> Callable[[], Plan] | None:
        """Check names, factors, filters and datasets."""
        from venturi.workload.layout import resolve_points
        from venturi.workload.trials import sweep_plan

        points = design(scenario, self, problems)
        if points is None or parts is None:
            return None
        layout = resolve_points(scenario, self, points, parts, problems)
        return None if layout is None else partial(sweep_plan, scenario, self, layout, parts)

    @model_serializer(mode="wrap")
    def _omit_factor_values(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Omit the fixed values that factors replace."""
        written: dict[str, Any] = handler(self)
        return omit_factor_values(written, self.options, self.factors)
