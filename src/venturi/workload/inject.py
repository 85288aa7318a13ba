"""Workload ``inject``: open-loop transfers that start at a given rate, as in a data challenge.

A *flow* is a rate between sites over a period, with ramps and file sizes. Each pair of storages and each size has its own
arrival process. For a Poisson process, this is equivalent to a random size per transfer.

Up to :data:`EACH` transfers are separate trials with start times. Above that, each pair is one trial with steps
``arrivals``, so a plan of 10⁸ transfers stays small.

Source: the data challenges of the WLCG define rates per pair of sites and period (DOMA, *Data Challenges*, 2021, 2024).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, Field, PlainSerializer, PlainValidator, WithJsonSchema, model_validator

from venturi.errors import UnitError
from venturi.messages import Problem, quote_value
from venturi.scenario.fields import Duration, Moment, Name, Number, ScenarioTable, Size, Text, validation_error
from venturi.testbed.plan import ResolvedTestbed
from venturi.units import PERIODS_S, parse_rate_bit_per_s, parse_transfer_rate
from venturi.workload.arrivals import Process, RateShape
from venturi.workload.base import OPTIONS, Workload
from venturi.workload.inject_layout import EACH, resolve_flows

if TYPE_CHECKING:
    from venturi.plan import Plan
    from venturi.scenario import Scenario

__all__ = ["EACH", "Flow", "FlowRate", "Inject"]


@dataclass(frozen=True, slots=True)
class FlowRate:
    """Rate of bytes (``bit_per_s``) or of transfers (``per_s``, with its text in the scenario)."""

    bit_per_s: float | None = None
    per_s: float | None = None
    text: str = ""


def _load(value: Any) -> FlowRate:  # noqa: ANN401 - a TOML value
    transfers = parse_transfer_rate(value) if isinstance(value, str) else None
    if transfers is not None:
        number, period = transfers
        return FlowRate(per_s=float(number) / PERIODS_S[period], text=f"{number} /{period}")
    try:
        rate = parse_rate_bit_per_s(value) if isinstance(value, str) else 0.0
    except UnitError:
        rate = 0.0
    if not 0 < rate < math.inf:
        raise validation_error(
            f'expected a rate such as "10 Gb/s", or "120 /h" for transfers, found {quote_value(value)}; use one form'
        )
    return FlowRate(bit_per_s=rate)


LoadText = Annotated[
    FlowRate,
    PlainValidator(_load),
    PlainSerializer(lambda load: load.text or f"{load.bit_per_s!r} b/s"),
    WithJsonSchema({"type": "string", "description": "A rate, of bytes or of transfers", "examples": ["10 Gb/s", "120 /h"]}),
]  # fmt: skip


def _names(value: Any) -> tuple[str, ...]:  # noqa: ANN401 - a TOML value
    names = (value,) if isinstance(value, str) else value
    if not isinstance(names, (list, tuple)) or not names or not all(isinstance(name, str) and name for name in names):
        raise validation_error(
            f'expected names of sites, hosts or storages such as ["T1-*"], found {quote_value(value)}; write a list'
        )
    return tuple(names)


Names = Annotated[
    tuple[str, ...],
    PlainValidator(_names),
    PlainSerializer(list),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]}),
]


def _some_sizes(sizes: tuple[int, ...]) -> tuple[int, ...]:
    if not sizes or len(set(sizes)) < len(sizes) or 0 in sizes:
        raise validation_error(f"expected one or more distinct sizes above 0, found {list(sizes)}; change the list")
    return sizes


class Flow(ScenarioTable):
    """Transfers between sites, at a rate, over a period."""

    source: Names = Field(description="Sites, hosts or storages; * is a wildcard.")
    destination: Names = Field(description="Sites, hosts or storages; pairs within one site are excluded.")
    rate: LoadText = Field(description="Rate of bytes or of transfers, between the ramps.")
    of: Literal["pair", "flow", "capacity"] = Field(
        "pair",
        description="Scope of the rate: each pair; all pairs with equal parts (flow); or all pairs in proportion to the product of their link rates (capacity).",
    )
    start: Moment = Field(0.0, description="Start time.")
    end: Moment = Field(description="End time for new transfers.")
    ramp_up: Moment = Field(0.0, description="Duration of the linear rise from 0.")
    ramp_down: Moment = Field(0.0, description="Duration of the linear fall to 0, before the end.")
    size: Annotated[tuple[Size, ...], AfterValidator(_some_sizes)] = Field(
        description="File size, or a list of sizes."
    )
    weights: tuple[Annotated[Number, Field(gt=0)], ...] = Field(
        (), description="Relative frequency of each size. Default: equal."
    )
    options: Annotated[dict[str, Any], OPTIONS] = Field(
        {}, description="Options of the mover for this flow; they override the common options."
    )
    client: Literal["source", "destination"] = Field("source", description="Endpoint whose host runs the mover.")

    @model_validator(mode="before")
    @classmethod
    def _wrap_single_size(cls, written: Any) -> Any:  # noqa: ANN401 - a TOML value
        if isinstance(written, dict) and isinstance(written.get("size"), str):
            return {**written, "size": [written["size"]]}
        return written

    @property
    def shape(self) -> RateShape:
        """Factor of the rate over time; 1 between the ramps."""
        rises, falls = self.start + self.ramp_up, self.end - self.ramp_down
        points = [(self.start, 0.0)] if self.ramp_up else []
        points += [(rises, 1.0), (falls, 1.0)]
        return RateShape((*points, *([(self.end, 0.0)] if self.ramp_down else [])))

    @property
    def fractions(self) -> tuple[float, ...]:
        """Relative frequencies of the sizes, with sum 1."""
        weights = self.weights or (1.0,) * len(self.size)
        return tuple(weight / math.fsum(weights) for weight in weights)


class Inject(Workload):
    """Open-loop transfers at given rates."""

    kind: Literal["inject"]
    mover: Text = Field(description="The mover.")
    flow: dict[Name, Flow] = Field(min_length=1, description="Flows, by name.")
    arrivals: Process = Field("poisson", description="Arrival process: random, or at even intervals.")
    lead: Moment = Field(0.0, description="Time for the creation of the files; the times of flows start after it.")
    form: Literal["auto", "each", "arrivals"] = Field(
        "auto",
        description="Form of the plan: a trial for each transfer (each), or for each pair (arrivals). auto selects by the number of transfers and measure.transfers.",
    )
    timeout: Duration = Field(3600.0, description="Timeout of a transfer.")
    options: Annotated[dict[str, Any], OPTIONS] = Field({}, description="Options of the mover.")

    def planner(
        self, scenario: Scenario, parts: ResolvedTestbed | None, problems: list[Problem]
    ) -> Callable[[], Plan] | None:
        """Check names, times, sizes and routes of each flow."""
        from venturi.workload.inject_plan import inject_plan

        layout = None if parts is None else resolve_flows(scenario, self, parts, problems)
        return None if parts is None or layout is None else partial(inject_plan, scenario, self, layout, parts)
