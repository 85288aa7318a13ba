"""The workload ``inject``: transfers that begin at a rate, whether earlier ones have ended or not (an open loop), as in a data challenge.

A *flow* is a rate between sites, over a time, with a shape (ramp up, plateau, ramp down) and sizes. Each pair of storages in a flow
has a process of arrivals of its own, and so has each size: of a Poisson process that is the same law as drawing the size. Up to
:data:`EACH` transfers are lines of the plan, a trial each with the time at which it should begin; beyond that a pair is one trial with
steps ``arrivals``, and a plan of 10⁸ transfers stays small.

Source: the data challenges of the WLCG are given as rates per pair of sites and period (DOMA, *Data Challenges*, 2021 and 2024).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, Field, PlainSerializer, PlainValidator, WithJsonSchema, model_validator

from venturi.errors import UnitError
from venturi.plan.words import shown
from venturi.scenario.fields import Duration, Moment, Name, Number, Part, Size, Text, refuse
from venturi.scenario.words import Problem
from venturi.testbed.plan import ResolvedTestbed
from venturi.units import parse_rate_bit_per_s
from venturi.workload.arrivals import Process, Shape
from venturi.workload.base import OPTIONS, Workload
from venturi.workload.inject_layout import EACH, lay_out
from venturi.workload.inject_plan import inject_plan

if TYPE_CHECKING:
    from venturi.plan import Plan
    from venturi.scenario import Scenario

__all__ = ["EACH", "Flow", "Inject", "Load"]

_PER = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "year": 365 * 86400.0}
_FREQUENCY = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,12})?) */ *(s|min|h|d|year)")


@dataclass(frozen=True, slots=True)
class Load:
    """A rate: of bytes (``bit_per_s``) or of transfers (``per_s``, as it was written in ``text``)."""

    bit_per_s: float | None = None
    per_s: float | None = None
    text: str = ""


def _load(value: Any) -> Load:  # noqa: ANN401 - a TOML value
    match = _FREQUENCY.fullmatch(value) if isinstance(value, str) else None
    if match and float(match[1]) > 0:
        return Load(per_s=float(match[1]) / _PER[match[2]], text=f"{match[1]} /{match[2]}")
    try:
        rate = parse_rate_bit_per_s(value) if isinstance(value, str) else 0.0
    except UnitError:
        rate = 0.0
    if not 0 < rate < math.inf:
        raise refuse(f'expected a rate such as "10 Gb/s", or of transfers such as "120 /h", found {shown(value)}')
    return Load(bit_per_s=rate)


LoadText = Annotated[
    Load,
    PlainValidator(_load),
    PlainSerializer(lambda load: load.text or f"{load.bit_per_s!r} b/s"),
    WithJsonSchema({"type": "string", "description": "A rate, of bytes or of transfers", "examples": ["10 Gb/s", "120 /h"]}),
]  # fmt: skip


def _names(value: Any) -> tuple[str, ...]:  # noqa: ANN401 - a TOML value
    names = (value,) if isinstance(value, str) else value
    if not isinstance(names, (list, tuple)) or not names or not all(isinstance(name, str) and name for name in names):
        raise refuse(f'expected a name or names of sites, hosts or storages such as ["T1-*"], found {shown(value)}')
    return tuple(names)


Names = Annotated[
    tuple[str, ...],
    PlainValidator(_names),
    PlainSerializer(list),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]}),
]


def _some_sizes(sizes: tuple[int, ...]) -> tuple[int, ...]:
    if not sizes or len(set(sizes)) < len(sizes) or 0 in sizes:
        raise refuse(f"expected distinct sizes above 0, one or more, found {list(sizes)}")
    return sizes


class Flow(Part):
    """Transfers from some sites to others, over a time, at a rate."""

    source: Names = Field(description="Sites, hosts or storages, or patterns of such names with *.")
    destination: Names = Field(description="The same; pairs within one site are left out.")
    rate: LoadText = Field(description="Of bytes or of transfers, on the plateau.")
    of: Literal["pair", "flow", "capacity"] = Field(
        "pair",
        description="Whose rate: each pair's; or all pairs' together, shared evenly, or by the product of the rates of their ends' links.",
    )
    start: Moment = Field(0.0, description="When it begins.")
    end: Moment = Field(description="When nothing of it begins any more.")
    ramp_up: Moment = Field(0.0, description="How long the rate takes to rise from 0, in a line.")
    ramp_down: Moment = Field(0.0, description="How long it takes to fall to 0 again, up to the end.")
    size: Annotated[tuple[Size, ...], AfterValidator(_some_sizes)] = Field(description="Of a file, or several sizes.")
    weights: tuple[Annotated[Number, Field(gt=0)], ...] = Field(
        (), description="How often each size; alike if not given."
    )
    options: Annotated[dict[str, Any], OPTIONS] = Field({}, description="Options of the mover, before those of all.")
    client: Literal["source", "destination"] = Field("source", description="The end whose host calls the mover.")

    @model_validator(mode="before")
    @classmethod
    def _one_size_is_a_list(cls, written: Any) -> Any:  # noqa: ANN401 - a TOML value
        if isinstance(written, dict) and isinstance(written.get("size"), str):
            return {**written, "size": [written["size"]]}
        return written

    @property
    def shape(self) -> Shape:
        """The rate as a multiple of that of the plateau."""
        rises, falls = self.start + self.ramp_up, self.end - self.ramp_down
        points = [(self.start, 0.0)] if self.ramp_up else []
        points += [(rises, 1.0), (falls, 1.0)]
        return Shape((*points, *([(self.end, 0.0)] if self.ramp_down else [])))

    @property
    def shares(self) -> tuple[float, ...]:
        """How often each size, of 1 in all."""
        weights = self.weights or (1.0,) * len(self.size)
        return tuple(weight / math.fsum(weights) for weight in weights)


class Inject(Workload):
    """Transfers that begin at given rates, an open loop."""

    kind: Literal["inject"]
    mover: Text = Field(description="The mover.")
    flow: dict[Name, Flow] = Field(min_length=1, description="What goes from where to where, by name.")
    arrivals: Process = Field("poisson", description="At random, or at even intervals.")
    lead: Moment = Field(0.0, description="Before all of it: time to make the files. Times of flows count from then.")
    form: Literal["auto", "each", "arrivals"] = Field(
        "auto",
        description="A line of the plan for each transfer, or one for each pair; auto: by their number, and by measure.transfers.",
    )
    timeout: Duration = Field(3600.0, description="Of one transfer.")
    options: Annotated[dict[str, Any], OPTIONS] = Field({}, description="Options of the mover.")

    def planner(
        self, scenario: Scenario, parts: ResolvedTestbed | None, problems: list[Problem]
    ) -> Callable[[], Plan] | None:
        """Check names, times, sizes and the ways between the ends of each flow."""
        layout = None if parts is None else lay_out(scenario, self, parts, problems)
        return None if parts is None or layout is None else partial(inject_plan, scenario, self, layout, parts)
