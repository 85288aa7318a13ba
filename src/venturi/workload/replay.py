"""Workload ``replay``: repeat the transfers of a recorded run, a trace or a log at their recorded times (open loop).

A recorded closed loop becomes an open loop: a transfer starts at its recorded time, independent of the duration of other
transfers. So replays of one trace are directly comparable.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, PrivateAttr, ValidationInfo, model_validator

from venturi.messages import Problem
from venturi.scenario.fields import Duration, Moment, Number, ScenarioTable, Text, Whole
from venturi.testbed.plan import ResolvedTestbed
from venturi.workload.base import OPTIONS, Workload
from venturi.workload.transfer_log import EndpointKind, LogFormat

if TYPE_CHECKING:
    from venturi.plan import Plan
    from venturi.scenario import Scenario

__all__ = ["Replay", "TraceWindow"]


class TraceWindow(ScenarioTable):
    """Part of a trace: transfers that start in an interval."""

    start: Number | None = Field(None, description="First second of the trace.")
    end: Number | None = Field(None, description="End of the part, in seconds of the trace; excluded.")


class Replay(Workload):
    """Repeated transfers of a recorded run or a trace."""

    kind: Literal["replay"]
    mover: Text = Field(description="The mover.")
    trace: Annotated[Text, Field(min_length=1)] = Field(
        description="Run directory, CSV or Parquet file with start_s, source, destination, size_bytes, or log of FTS or Rucio (JSON Lines); relative to the scenario file."
    )
    format: LogFormat | None = Field(None, description="Format of a log. Default: recognized from its records.")
    endpoints: EndpointKind | None = Field(
        None, description="Names in a log: hosts or RSEs. Default: hosts for FTS, RSEs for Rucio."
    )
    map: dict[str, Text] = Field(
        {}, description="Storages of the names in the trace. Default: the storage, host or site of the same name."
    )
    window: TraceWindow = Field(TraceWindow(), description="Part of the trace.")
    speed: Annotated[Number, Field(gt=0, le=1e6)] = Field(1.0, description="Speed factor for the recorded times.")
    size_factor: Annotated[Number, Field(gt=0, le=1e6)] = Field(
        1.0, description="Factor for sizes, in addition to scale."
    )
    digits: Annotated[Whole, Field(ge=1, le=16)] | None = Field(
        None,
        description="Significant digits of rounded sizes, to create fewer files. Default: all digits.",
    )
    client: Literal["source", "destination"] = Field("source", description="Endpoint whose host runs the mover.")
    lead: Moment = Field(0.0, description="Time before the first transfer, for the creation of the files.")
    timeout: Duration = Field(3600.0, description="Timeout of a transfer.")
    options: Annotated[dict[str, Any], OPTIONS] = Field({}, description="Options of the mover.")

    _directory: Path = PrivateAttr(Path())

    @model_validator(mode="after")
    def _find_directory(self, info: ValidationInfo) -> Replay:
        self._directory = Path((info.context or {}).get("directory", Path()))
        return self

    @property
    def path(self) -> Path:
        """Path of the trace."""
        return self._directory / self.trace

    def planner(
        self, scenario: Scenario, parts: ResolvedTestbed | None, problems: list[Problem]
    ) -> Callable[[], Plan] | None:
        """Check the trace, its names and their routes."""
        from venturi.workload.replay_plan import replay_plan, resolve_trace

        layout = None if parts is None else resolve_trace(scenario, self, parts, problems)
        return None if parts is None or layout is None else partial(replay_plan, scenario, self, layout, parts)
