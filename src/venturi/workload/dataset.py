"""The workload ``dataset``: sets of files moved between many interfaces at once, by one call each or by several.

Source: report 002, sections on GridFTP and SRM: small, medium and large files, every interface of one site with every interface of the
other, as many calls at a time as there are pairs. A trial is one set, moved once by all pairs that a client's host has; where
there are several clients' hosts, their trials of a point begin together.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from venturi.scenario.fields import Duration, Size, Text, Whole
from venturi.scenario.words import Problem
from venturi.testbed.plan import ResolvedTestbed
from venturi.workload.base import FACTORS, OPTIONS, Combinations, Workload, without_factors
from venturi.workload.dataset_design import dataset_points
from venturi.workload.dataset_layout import lay_out_sets
from venturi.workload.dataset_plan import dataset_plan
from venturi.workload.factors import MAX_FILES, MAX_FILES_PER_CALL
from venturi.workload.filesets import FileSet

if TYPE_CHECKING:
    from venturi.plan import Plan
    from venturi.scenario import Scenario

__all__ = ["Datasets"]


class Datasets(Workload):
    """Sets of files, moved between pairs of interfaces at the same time."""

    kind: Literal["dataset"]
    mover: Text | None = Field(None, description="The mover; or a factor.")
    set: Text | None = Field(
        None, description="The set: small, medium, large or one of [workload.sets]; or a factor."
    )
    source: Text | None = Field(None, description='Storages that are read from, joined by "+"; or a factor.')
    destination: Text | None = Field(
        None, description='Storages that are written to, joined by "+", or "null"; or a factor.'
    )
    source_service: Text | None = Field(
        None, description='Services that are read through, joined by "+", with "*" for any letters; or a factor.'
    )
    destination_service: Text | None = Field(
        None, description='Services that are written through, likewise; "none": as the client finds it; or a factor.'
    )
    pairs: Literal["all", "one to one"] = Field(
        "all", description="Every source with every destination, or each with one; or a factor."
    )
    calls: Annotated[Whole, Field(ge=1, le=MAX_FILES)] = Field(
        1, description="Of each pair at the same time, each with the whole set; or a factor."
    )
    files_per_call: Annotated[Whole, Field(ge=1, le=MAX_FILES_PER_CALL)] | None = Field(
        None, description="The set is moved by calls of so many files, one after the other; by default by one call."
    )
    client: Text | None = Field(None, description="The host that the mover runs on; or a factor.")
    volume: Size | None = Field(None, description="Of each set that says none of its own.")
    sets: dict[str, FileSet] = Field({}, description="Sets of files by name.")
    files: Literal["shared", "own"] = Field("shared", description="Whether calls read the same files, or their own.")
    repeat: Whole = Field(1, ge=1, description="Repetitions of each point; each is a complete block.")
    order: Literal["random", "given"] = Field("random", description="Of the points within each block.")
    cache: Literal["as_is", "cold", "warm"] = Field("as_is", description="State of the page cache before a trial.")
    timeout: Duration = Field(600.0, description="Of one call.")
    factors: Annotated[dict[str, Any], FACTORS] = Field({}, description="What is varied: name and list of values.")
    options: Annotated[dict[str, Any], OPTIONS] = Field({}, description="Options of the mover, fixed.")
    sweep: Combinations = Field(Combinations(), description="Which combinations of factors there are.")

    def planner(
        self, scenario: Scenario, parts: ResolvedTestbed | None, problems: list[Problem]
    ) -> Callable[[], Plan] | None:
        """Check names, factors, sets and ends."""
        points = dataset_points(scenario, self, problems)
        if points is None or parts is None:
            return None
        layout = lay_out_sets(scenario, self, points, parts, problems)
        return None if layout is None else partial(dataset_plan, scenario, self, layout, parts)

    @model_serializer(mode="wrap")
    def _without_what_is_a_factor(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out the fixed value of what a factor sets, so that the document says one thing only."""
        written: dict[str, Any] = handler(self)
        return without_factors(written, self.options, self.factors)
