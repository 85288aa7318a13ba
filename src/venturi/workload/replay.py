"""The workload ``replay``: the transfers of a recorded run, or of a trace, again, each at its time (open arrivals).

What was a closed loop when it was recorded is an open one here: a transfer begins when it began then, however long others take. That
makes replays comparable with each other to the last digit, and takes the chaos out of long closed loops.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, PrivateAttr, ValidationInfo, model_validator

from venturi.scenario.fields import Duration, Moment, Number, Part, Text, Whole
from venturi.scenario.words import Problem
from venturi.testbed.plan import ResolvedTestbed
from venturi.workload.base import OPTIONS, Workload
from venturi.workload.replay_plan import lay_out, replay_plan

if TYPE_CHECKING:
    from venturi.plan import Plan
    from venturi.scenario import Scenario

__all__ = ["Replay", "Window"]


class Window(Part):
    """Which transfers: those that start within a time of the trace."""

    begin: Number | None = Field(None, description="Seconds of the trace from which on.")
    end: Number | None = Field(None, description="Seconds of the trace before which.")


class Replay(Workload):
    """The transfers of a recorded run or a trace, again."""

    kind: Literal["replay"]
    mover: Text = Field(description="The mover.")
    trace: Annotated[Text, Field(min_length=1)] = Field(
        description="A run directory, or a CSV or Parquet file with start_s, source, destination, size_bytes; relative to the scenario."
    )
    map: dict[str, Text] = Field(
        {}, description="Names in the trace → storages; others are storages, hosts or sites of the same name."
    )
    window: Window = Field(Window(), description="A part of the trace.")
    speed: Annotated[Number, Field(gt=0, le=1e6)] = Field(1.0, description="How many times as fast.")
    size_factor: Annotated[Number, Field(gt=0, le=1e6)] = Field(1.0, description="Multiplies sizes, besides scale.")
    digits: Annotated[Whole, Field(ge=1, le=16)] | None = Field(
        None,
        description="Significant digits that sizes are rounded to, so that fewer files have to be made; all if not given.",
    )
    client: Literal["source", "destination"] = Field("source", description="The end whose host calls the mover.")
    lead: Moment = Field(0.0, description="Before the first transfer: time to make the files.")
    timeout: Duration = Field(3600.0, description="Of one transfer.")
    options: Annotated[dict[str, Any], OPTIONS] = Field({}, description="Options of the mover.")

    _folder: Path = PrivateAttr(Path())

    @model_validator(mode="after")
    def _find_folder(self, info: ValidationInfo) -> Replay:
        self._folder = Path((info.context or {}).get("folder", Path()))
        return self

    @property
    def path(self) -> Path:
        """Where the trace is."""
        return self._folder / self.trace

    def planner(
        self, scenario: Scenario, parts: ResolvedTestbed | None, problems: list[Problem]
    ) -> Callable[[], Plan] | None:
        """Check the trace, its names and the ways between them."""
        layout = None if parts is None else lay_out(scenario, self, parts, problems)
        return None if parts is None or layout is None else partial(replay_plan, scenario, self, layout, parts)
