"""Workload ``clients``: closed-loop clients that fetch one object repeatedly from servers or through proxies.

Source: report 002, section 3. The servers of one configuration (for example several Squid processes) are a *group*. A
design point names one group. Its client hosts have the same number of clients each, distributed evenly over the
interfaces of their servers: of the partner (one to one), or of all servers (all to all).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, Field, SerializerFunctionWrapHandler, WithJsonSchema, model_serializer

from venturi.messages import Problem
from venturi.scenario.fields import Delay, Duration, Name, Number, ScenarioTable, Size, Text, Whole, validation_error
from venturi.testbed.plan import ResolvedTestbed
from venturi.workload.base import OPTIONS, Workload
from venturi.workload.clients_layout import FACTORS, MAX_CLIENTS, resolve_clients

if TYPE_CHECKING:
    from venturi.plan import Plan
    from venturi.scenario import Scenario

__all__ = ["ClientGroup", "Clients"]

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
        raise validation_error(
            f"expected distinct names, one or more, found {', '.join(names) or 'none'}; write each name once"
        )
    return names


class ClientGroup(ScenarioTable):
    """Servers of one configuration, and their client hosts."""

    services: Annotated[tuple[Text, ...], AfterValidator(_some)] = Field(
        description="Proxies or HTTP servers; with one to one, the n-th is the partner of the n-th client host."
    )
    clients: Annotated[tuple[Text, ...], AfterValidator(_some)] = Field(description="Hosts of the clients.")
    labels: Annotated[dict[Name, Any], OPTIONS] = Field(
        {}, description="Labels of the group, used as factors in filters and tables."
    )


class Clients(Workload):
    """Closed-loop clients."""

    kind: Literal["clients"]
    mover: Text | None = Field(None, description="Mover that reads over HTTP; or a factor.")
    source: Text = Field(description="Storage of the object.")
    source_service: Text | None = Field(
        None, description="Service of the object for proxies. Default: the only service with the storage."
    )
    size: Size = Field(description="Size of the object.")
    group: dict[Name, ClientGroup] = Field(
        description="Groups of servers, by name; a factor can select some of them."
    )
    pairing: Literal["one to one", "all to all"] = Field(
        "all to all",
        description="Servers of a client host: its partner only, or all servers; or a factor.",
    )
    clients: Annotated[Whole, Field(ge=1, le=MAX_CLIENTS)] | None = Field(
        None, description="Clients on each client host, over all interfaces of its servers; or a factor."
    )
    clients_scale: Annotated[Number, Field(gt=0, le=1)] = Field(
        1.0, description="Factor for the number of clients; the factor values in the results stay unscaled."
    )
    duration: Duration | None = Field(None, description="End time for new fetches.")
    fetches: Annotated[Whole, Field(ge=1)] | None = Field(
        None, description="Fetches of each client, instead of duration."
    )
    ramp: Delay = Field(0.0, description="Ramp-up time that is excluded from the steady state.")
    think: Delay = Field(0.0, description="Pause of a client between two fetches.")
    repeat: Whole = Field(1, ge=1, description="Repetitions of each design point, in complete blocks.")
    order: Literal["random", "given"] = Field("random", description="Order of the design points in each block.")
    timeout: Duration = Field(
        600.0, description="Timeout of a fetch, or of all fetches of a client host that one process makes."
    )
    factors: Annotated[dict[str, Any], _VALUES] = Field({}, description="Factors: name and list of values.")
    filter: tuple[Text, ...] = Field(
        (), description="Expressions over factors and labels that must be true for a design point."
    )
    options: Annotated[dict[str, Any], OPTIONS] = Field({}, description="Fixed options of the mover.")

    def planner(
        self, scenario: Scenario, parts: ResolvedTestbed | None, problems: list[Problem]
    ) -> Callable[[], Plan] | None:
        """Check groups, factors, limits and routes between hosts."""
        from venturi.workload.clients_plan import clients_plan

        layout = None if parts is None else resolve_clients(scenario, self, parts, problems)
        return None if parts is None or layout is None else partial(clients_plan, scenario, self, layout, parts)

    @model_serializer(mode="wrap")
    def _omit_factor_values(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Omit the fixed values that factors replace."""
        written: dict[str, Any] = handler(self)
        return {key: value for key, value in written.items() if key == "group" or key not in self.factors}
