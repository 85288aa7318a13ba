"""Workload ``dataset``: datasets that are moved between many interfaces at the same time.

Source: report 002, sections on GridFTP and SRM: small, medium and large files, between all pairs of interfaces of two
sites, one call per pair. A trial moves one dataset once over all pairs of a client host. With several client hosts, the
trials of a point start together.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from venturi.messages import Problem
from venturi.scenario.fields import Duration, Size, Text, Whole
from venturi.testbed.plan import ResolvedTestbed
from venturi.workload.base import FACTORS, OPTIONS, Combinations, Workload, omit_factor_values
from venturi.workload.dataset_design import dataset_points
from venturi.workload.factors import MAX_FILES, MAX_FILES_PER_CALL
from venturi.workload.filesets import FileSet

if TYPE_CHECKING:
    from venturi.plan import Plan
    from venturi.scenario import Scenario

__all__ = ["Datasets"]


class Datasets(Workload):
    """Datasets, moved between pairs of interfaces at the same time."""

    kind: Literal["dataset"]
    mover: Text | None = Field(None, description="Mover; or a factor.")
    set: Text | None = Field(
        None, description="Dataset: small, medium, large or a name of [workload.sets]; or a factor."
    )
    source: Text | None = Field(None, description='Source storages, joined by "+"; or a factor.')
    destination: Text | None = Field(None, description='Destination storages, joined by "+", or "null"; or a factor.')
    source_service: Text | None = Field(
        None, description='Services of the source, joined by "+", with "*" as wildcard; or a factor.'
    )
    destination_service: Text | None = Field(
        None, description='Services of the destination, in the same form; "none" selects automatically; or a factor.'
    )
    pairs: Literal["all", "one to one"] = Field(
        "all", description="Pairs of sources and destinations: all, or one to one; or a factor."
    )
    calls: Annotated[Whole, Field(ge=1, le=MAX_FILES)] = Field(
        1, description="Concurrent calls of each pair; each call moves the whole dataset; or a factor."
    )
    files_per_call: Annotated[Whole, Field(ge=1, le=MAX_FILES_PER_CALL)] | None = Field(
        None,
        description="Files of each call; the calls of a dataset run one after the other. Default: all files in one call.",
    )
    client: Text | None = Field(None, description="Host of the mover; or a factor.")
    volume: Size | None = Field(None, description="Volume of datasets without their own volume.")
    sets: dict[str, FileSet] = Field({}, description="Datasets, by name.")
    files: Literal["shared", "own"] = Field(
        "shared", description="Files of concurrent calls: the same files (shared), or different files (own)."
    )
    repeat: Whole = Field(1, ge=1, description="Repetitions of each design point, in complete blocks.")
    order: Literal["random", "given"] = Field("random", description="Order of the design points in each block.")
    cache: Literal["as_is", "cold", "warm"] = Field("as_is", description="Page cache before a trial.")
    timeout: Duration = Field(600.0, description="Timeout of a call.")
    factors: Annotated[dict[str, Any], FACTORS] = Field({}, description="Factors: name and list of values.")
    options: Annotated[dict[str, Any], OPTIONS] = Field({}, description="Fixed options of the mover.")
    sweep: Combinations = Field(Combinations(), description="Combinations of factors.")

    def planner(
        self, scenario: Scenario, parts: ResolvedTestbed | None, problems: list[Problem]
    ) -> Callable[[], Plan] | None:
        """Check names, factors, datasets and endpoints."""
        from venturi.workload.dataset_layout import resolve_dataset_points
        from venturi.workload.dataset_plan import dataset_plan

        points = dataset_points(scenario, self, problems)
        if points is None or parts is None:
            return None
        layout = resolve_dataset_points(scenario, self, points, parts, problems)
        return None if layout is None else partial(dataset_plan, scenario, self, layout, parts)

    @model_serializer(mode="wrap")
    def _omit_factor_values(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Omit the fixed values that factors replace."""
        written: dict[str, Any] = handler(self)
        return omit_factor_values(written, self.options, self.factors)
