"""The workload ``sweep``: product, zip and filter of factors, repeated in randomised complete blocks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from venturi.scenario.fields import Duration, Text, VolumeText, Whole
from venturi.scenario.words import Problem
from venturi.testbed.plan import ResolvedTestbed
from venturi.workload.base import FACTORS, OPTIONS, Combinations, Workload, without_factors
from venturi.workload.design import design
from venturi.workload.factors import MAX_FILES_PER_CALL
from venturi.workload.layout import lay_out
from venturi.workload.trials import sweep_plan

if TYPE_CHECKING:
    from venturi.plan import Plan
    from venturi.scenario import Scenario

__all__ = ["Sweep"]


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
    retries: Whole = Field(
        0, ge=0, le=9, description="Trials that failed are carried out so many times more, when all are done."
    )
    order: Literal["random", "given"] = Field("random", description="Of the points within each block.")
    cache: Literal["as_is", "cold", "warm"] = Field("as_is", description="State of the page cache before a trial.")
    timeout: Duration = Field(600.0, description="Of one transfer.")
    data_at_least: VolumeText | None = Field(
        None, description="Rotate over so much data before a file is used again."
    )
    factors: Annotated[dict[str, Any], FACTORS] = Field(description="What is varied: name and list of values.")
    options: Annotated[dict[str, Any], OPTIONS] = Field({}, description="Options of the mover, fixed.")
    sweep: Combinations = Field(Combinations(), description="Which combinations of factors there are.")

    def planner(
        self, scenario: Scenario, parts: ResolvedTestbed | None, problems: list[Problem]
    ) -> Callable[[], Plan] | None:
        """Check names, factors, filters and data sets."""
        points = design(scenario, self, problems)
        if points is None or parts is None:
            return None
        layout = lay_out(scenario, self, points, parts, problems)
        return None if layout is None else partial(sweep_plan, scenario, self, layout, parts)

    @model_serializer(mode="wrap")
    def _without_what_is_a_factor(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out the fixed value of what a factor sets, so that the document says one thing only."""
        written: dict[str, Any] = handler(self)
        return without_factors(written, self.options, self.factors)
