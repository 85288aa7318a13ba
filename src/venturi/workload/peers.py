"""Workload ``peers``: hosts that alternate downloads and uploads with random partners.

Source: report 004, section 3.1 (the flat phase). Each host of a site selects a random partner, weighted by the bandwidth
of its site, downloads a file, pauses, uploads a file to another random partner, pauses, and so on. Each random number has
its own stream (host, number of the transfer, purpose), so an additional host or transfer does not change the others.
Every transfer is a trial.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, Field, PlainSerializer, PlainValidator, WithJsonSchema

from venturi.messages import Problem
from venturi.scenario.fields import (
    Duration,
    Name,
    Number,
    ScenarioTable,
    Size,
    Text,
    Truth,
    Whole,
    format_duration_exact,
    validation_error,
)
from venturi.testbed.plan import ResolvedTestbed
from venturi.units import parse_duration
from venturi.workload.base import OPTIONS, Workload
from venturi.workload.design import MAX_TRIALS
from venturi.workload.sites import SiteTable

if TYPE_CHECKING:
    from venturi.plan import Plan
    from venturi.scenario import Scenario

__all__ = ["Background", "Peers"]

MAX_PAUSE_S = 86400.0


def _pause(value: Any) -> tuple[float, float]:  # noqa: ANN401 - a TOML value
    """Return minimum and maximum of a range of times; a single time is the maximum, with minimum 0."""
    bounds = list(value) if isinstance(value, (list, tuple)) else ["0 s", value]
    try:
        low, high = (parse_duration(text) for text in bounds)
    except ValueError:
        raise validation_error(
            f'expected a maximum pause such as "1 min", or a range ["10 s", "1 min"], found {value!r}; use one form'
        ) from None
    if not 0 <= low <= high <= MAX_PAUSE_S:
        raise validation_error(f"expected an ascending range of pauses up to 1 d, found {value!r}; change the times")
    return low, high


Pause = Annotated[
    tuple[float, float],
    PlainValidator(_pause),
    PlainSerializer(lambda pause: [format_duration_exact(end) for end in pause]),
    WithJsonSchema(
        {
            "description": "Maximum pause, or minimum and maximum, with units",
            "anyOf": [
                {"type": "string", "examples": ["1 min"]},
                {"type": "array", "items": {"type": "string"}, "minItems": 2, "maxItems": 2},
            ],
        }
    ),
]


def _some_sizes(sizes: tuple[int, ...]) -> tuple[int, ...]:
    if not sizes or len(set(sizes)) < len(sizes) or 0 in sizes:
        raise validation_error(f"expected one or more distinct sizes above 0, found {list(sizes)}; change the list")
    return sizes


class Background(ScenarioTable):
    """Background load of the sites: traffic on the access links and CPU work on the hosts."""

    mover: Text = Field("iperf3", description="Memory-to-memory mover with the option rate.")
    service: Text | None = Field(
        None, description="Service of the mover outside all sites, with one port for each direction of each site."
    )
    share: Annotated[Number, Field(ge=0, le=1)] = Field(
        0.0, description="Fraction of the bandwidth of each site, alternately in and out."
    )
    cores: Annotated[Number, Field(ge=0, le=64)] = Field(0.0, description="Mean number of busy cores on each host.")
    round: Duration = Field(60.0, description="Duration of one turn.")


class Peers(Workload):
    """Hosts at sites that exchange files with random partners."""

    kind: Literal["peers"]
    mover: Text = Field(description="The mover.")
    site: dict[Name, SiteTable] = Field(description="Sites, by the key site of their hosts.")
    sizes: Annotated[tuple[Size, ...], AfterValidator(_some_sizes)] = Field(
        description="File sizes; each transfer draws one."
    )
    pause: Pause = Field((0.0, 60.0), description="Pause between two transfers of a host, drawn uniformly.")
    transfers: Annotated[Whole, Field(ge=1, le=MAX_TRIALS)] | None = Field(
        None, description="Maximum number of transfers of each host."
    )
    duration: Duration | None = Field(None, description="End time for new transfers.")
    choice: Literal["machine", "site"] = Field(
        "machine",
        description="Weight of a partner: the bandwidth of its site, for each machine or for the whole site.",
    )
    include_own_site: Truth = Field(False, description="Allow partners in the same site.")
    first_direction: Literal["download", "upload", "random"] = Field(
        "random", description="Direction of the first transfer of a host."
    )
    timeout: Duration = Field(3600.0, description="Timeout of a transfer.")
    background: Background | None = Field(None, description="Background load of the sites.")
    options: Annotated[dict[str, Any], OPTIONS] = Field({}, description="Options of the mover.")

    def planner(
        self, scenario: Scenario, parts: ResolvedTestbed | None, problems: list[Problem]
    ) -> Callable[[], Plan] | None:
        """Check sites, hosts, routes and limits."""
        from venturi.workload.peers_plan import peers_plan, resolve_peers

        layout = None if parts is None else resolve_peers(scenario, self, parts, problems)
        return None if parts is None or layout is None else partial(peers_plan, scenario, self, layout, parts)
