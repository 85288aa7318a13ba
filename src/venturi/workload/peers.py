"""The workload ``peers``: machines that move files with partners at random, downloads and uploads in turn.

Source: report 004, section 3.1 (the flat phase). Each machine of a site chooses a partner at random, weighted by the
bandwidth of the partner's site, downloads a file, pauses, uploads a file to a partner drawn anew, pauses, and so on. All
draws are made here, each from its own name (machine, number of the transfer, what it is for), so that a machine more or a
transfer more shifts no other. Every transfer is a trial.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, Field, PlainSerializer, PlainValidator, WithJsonSchema

from venturi.scenario.fields import (
    Duration,
    Name,
    Number,
    Part,
    Size,
    Text,
    Truth,
    Whole,
    format_duration_exact,
    refuse,
)
from venturi.scenario.words import Problem
from venturi.testbed.plan import ResolvedTestbed
from venturi.units import parse_duration
from venturi.workload.base import OPTIONS, Workload
from venturi.workload.design import MAX_TRIALS
from venturi.workload.peers_plan import lay_out, peers_plan
from venturi.workload.sites import SitePart

if TYPE_CHECKING:
    from venturi.plan import Plan
    from venturi.scenario import Scenario

__all__ = ["Background", "Peers"]

LONGEST_PAUSE_S = 86400.0


def _pause(value: Any) -> tuple[float, float]:  # noqa: ANN401 - a TOML value
    """Return the ends of a range of times; one time is its upper end, and the lower is 0."""
    given = list(value) if isinstance(value, (list, tuple)) else ["0 s", value]
    try:
        low, high = (parse_duration(text) for text in given)
    except ValueError:
        raise refuse(
            f'expected the longest pause such as "1 min", or two times ["10 s", "1 min"], found {value!r}'
        ) from None
    if not 0 <= low <= high <= LONGEST_PAUSE_S:
        raise refuse(f"expected a pause of 1 d at most, the shortest first, found {value!r}")
    return low, high


Pause = Annotated[
    tuple[float, float],
    PlainValidator(_pause),
    PlainSerializer(lambda pause: [format_duration_exact(end) for end in pause]),
    WithJsonSchema(
        {
            "description": "The longest pause, or the shortest and the longest, with units",
            "anyOf": [
                {"type": "string", "examples": ["1 min"]},
                {"type": "array", "items": {"type": "string"}, "minItems": 2, "maxItems": 2},
            ],
        }
    ),
]


def _some_sizes(sizes: tuple[int, ...]) -> tuple[int, ...]:
    if not sizes or len(set(sizes)) < len(sizes) or 0 in sizes:
        raise refuse(f"expected distinct sizes above 0, one or more, found {list(sizes)}")
    return sizes


class Background(Part):
    """What else goes on at the sites: others' traffic on the access links, others' jobs on the machines."""

    mover: Text = Field("iperf3", description="Moves bytes from memory to memory and has the option rate.")
    service: Text | None = Field(
        None, description="Its server, beyond all sites, with a port for each direction of each of them."
    )
    share: Annotated[Number, Field(ge=0, le=1)] = Field(
        0.0, description="Of each site's bandwidth, in and out by turns."
    )
    cores: Annotated[Number, Field(ge=0, le=64)] = Field(0.0, description="Kept busy on each machine, on average.")
    round: Duration = Field(60.0, description="How long one turn takes.")


class Peers(Workload):
    """Machines at sites that exchange files with partners at random."""

    kind: Literal["peers"]
    mover: Text = Field(description="The mover.")
    site: dict[Name, SitePart] = Field(description="The sites, by the name that their hosts give.")
    sizes: Annotated[tuple[Size, ...], AfterValidator(_some_sizes)] = Field(
        description="Of files; each transfer draws one."
    )
    pause: Pause = Field((0.0, 60.0), description="Between two transfers of a machine, drawn uniformly.")
    transfers: Annotated[Whole, Field(ge=1, le=MAX_TRIALS)] | None = Field(
        None, description="Of each machine, at most."
    )
    duration: Duration | None = Field(None, description="Of the run: nothing is begun from then on.")
    choice: Literal["machine", "site"] = Field(
        "machine", description="What the bandwidth of a site weighs: each of its machines, or the site as a whole."
    )
    own_site: Truth = Field(False, description="Whether partners may be of the machine's own site.")
    begin: Literal["download", "upload", "random"] = Field(
        "random", description="The direction of a machine's first transfer."
    )
    timeout: Duration = Field(3600.0, description="Of one transfer.")
    background: Background | None = Field(None, description="What else goes on at the sites.")
    options: Annotated[dict[str, Any], OPTIONS] = Field({}, description="Options of the mover.")

    def planner(
        self, scenario: Scenario, parts: ResolvedTestbed | None, problems: list[Problem]
    ) -> Callable[[], Plan] | None:
        """Check sites, machines, the ways between them and the bounds."""
        layout = None if parts is None else lay_out(scenario, self, parts, problems)
        return None if parts is None or layout is None else partial(peers_plan, scenario, self, layout, parts)
