"""The workload ``clients``: closed-loop clients that fetch one object again and again from servers or through proxies.

Source: report 002, section 3. The servers of one set-up (so many Squid processes, bound to cores or not) are a *group*: a point
names one. Clients stand on the hosts that the group names; each host has the same number of them, evenly divided among the
interfaces of the servers that it talks with: those of its partner (one to one), or of all servers (all to all).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, Field, SerializerFunctionWrapHandler, WithJsonSchema, model_serializer

from venturi.scenario.fields import Delay, Duration, Name, Number, Part, Size, Text, Whole, refuse
from venturi.scenario.words import Problem
from venturi.testbed.plan import ResolvedTestbed
from venturi.workload.base import OPTIONS, Workload
from venturi.workload.clients_layout import FACTORS, MAX_CLIENTS, lay_out
from venturi.workload.clients_plan import clients_plan

if TYPE_CHECKING:
    from venturi.plan import Plan
    from venturi.scenario import Scenario

__all__ = ["Clients", "Group"]

_VALUES = WithJsonSchema(
    {
        "type": "object",
        "properties": {
            name: {"type": "array", "minItems": 1, "items": {"type": ["string", "integer"]}} for name in FACTORS
        },
        "additionalProperties": False,
    }
)


def _some(names: tuple[str, ...]) -> tuple[str, ...]:
    if not names or len(set(names)) < len(names):
        raise refuse(f"expected distinct names, one or more, found {', '.join(names) or 'none'}")
    return names


class Group(Part):
    """Servers that belong to one set-up, and the hosts whose clients use them."""

    services: Annotated[tuple[Text, ...], AfterValidator(_some)] = Field(
        description="Proxies, or servers that have the object themselves; the first is the partner of the first client host."
    )
    clients: Annotated[tuple[Text, ...], AfterValidator(_some)] = Field(
        description="The hosts that clients stand on."
    )
    labels: Annotated[dict[Name, Any], OPTIONS] = Field(
        {}, description="What tells it from other groups: factors of its points, for filters and tables."
    )


class Clients(Workload):
    """Closed-loop clients."""

    kind: Literal["clients"]
    mover: Text | None = Field(None, description="The mover, which reads over HTTP; or a factor.")
    source: Text = Field(description="The storage that the object lies on.")
    source_service: Text | None = Field(
        None, description="Where proxies fetch it from; by default the only service that has it."
    )
    size: Size = Field(description="Of the object.")
    group: dict[Name, Group] = Field(description="The groups of servers, by name; or a factor names some of them.")
    pairing: Literal["one to one", "all to all"] = Field(
        "all to all",
        description="Whether a client host talks with its partner only, or with all servers; or a factor.",
    )
    clients: Annotated[Whole, Field(ge=1, le=MAX_CLIENTS)] | None = Field(
        None, description="On each client host, all interfaces of its servers together; or a factor."
    )
    clients_scale: Annotated[Number, Field(gt=0, le=1)] = Field(
        1.0, description="Multiplies the numbers of clients; factors keep what was written."
    )
    duration: Duration | None = Field(None, description="No fetch begins after it.")
    fetches: Annotated[Whole, Field(ge=1)] | None = Field(None, description="Of each client, in place of duration.")
    ramp: Delay = Field(0.0, description="Left out of what is steady, at the beginning.")
    think: Delay = Field(0.0, description="What a client waits between two fetches.")
    repeat: Whole = Field(1, ge=1, description="Repetitions of each point; each is a complete block.")
    order: Literal["random", "given"] = Field("random", description="Of the points within each block.")
    timeout: Duration = Field(
        600.0, description="Of one fetch; of all of a client host where one process makes them."
    )
    factors: Annotated[dict[str, Any], _VALUES] = Field({}, description="What is varied: name and list of values.")
    filter: tuple[Text, ...] = Field(
        (), description="Expressions that must hold of a point; labels are known to them."
    )
    options: Annotated[dict[str, Any], OPTIONS] = Field({}, description="Options of the mover, fixed.")

    def planner(
        self, scenario: Scenario, parts: ResolvedTestbed | None, problems: list[Problem]
    ) -> Callable[[], Plan] | None:
        """Check groups, factors, bounds and the ways between hosts."""
        layout = None if parts is None else lay_out(scenario, self, parts, problems)
        return None if parts is None or layout is None else partial(clients_plan, scenario, self, layout, parts)

    @model_serializer(mode="wrap")
    def _without_what_is_a_factor(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out the fixed value of what a factor sets, so that the document says one thing only."""
        written: dict[str, Any] = handler(self)
        return {key: value for key, value in written.items() if key == "group" or key not in self.factors}
