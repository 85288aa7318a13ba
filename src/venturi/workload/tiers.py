"""The workload ``tiers``: distributed production, replication to the upper tier, and analysis jobs once enough is there.

Source: report 004, section 3.2 (the multi-tier phase). Sites produce events by their shares; those of tier 2 send all of
theirs to tier 1, a file an event; when a fraction of these has arrived, machines of tier 3 submit jobs, each an upload, a wait and a
download. The model ``flat`` moves the same files and does as many jobs, with partners at random as in :mod:`venturi.workload.peers`.
Every batch of production, every file and every job is a trial.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, Field

from venturi.scenario.fields import Delay, Duration, Name, Number, Part, Size, Text, Whole, refuse
from venturi.scenario.words import Problem
from venturi.testbed.plan import ResolvedTestbed
from venturi.workload.base import OPTIONS, Workload
from venturi.workload.sites import SitePart
from venturi.workload.tiers_layout import lay_out
from venturi.workload.tiers_plan import tiers_plan

if TYPE_CHECKING:
    from venturi.plan import Plan
    from venturi.scenario import Scenario

__all__ = ["Jobs", "Production", "TierSite", "Tiers"]


class TierSite(SitePart):
    """A site with its tier and what it produces."""

    tier: Annotated[Whole, Field(ge=1, le=3)] = Field(
        3, description="1: all is replicated to it; 2: sends; 3: submits."
    )
    share: Annotated[Number, Field(ge=0, le=1)] = Field(0.0, description="Of the events that it produces.")


class Production(Part):
    """How events come to be."""

    batch: Annotated[Whole, Field(ge=1)] = Field(10, description="Events that a machine makes at a time: one trial.")
    compute: Delay = Field(0.0, description="Processor time of one event.")


class Jobs(Part):
    """Analysis jobs."""

    count: Annotated[Whole, Field(ge=1)] = Field(description="Of each submitting machine.")
    parallel: Annotated[Whole, Field(ge=1, le=1000)] = Field(1, description="Jobs of a machine at the same time.")
    upload: Size = Field(description="What a job sends.")
    download: Size = Field(description="What it fetches when it is done.")
    wait_tier1: Delay = Field(description="How long it takes at tier 1.")
    wait_tier2: Delay = Field(description="How long it takes elsewhere.")
    to: Literal["data", "sites"] = Field(
        "data", description="To sites of tier 1 and 2 by their share of the events, or to each alike."
    )


def _distinct(models: tuple[str, ...]) -> tuple[str, ...]:
    if not models or len(set(models)) < len(models):
        raise refuse(f"expected each model once, and one or more, found {list(models)}")
    return models


class Tiers(Workload):
    """Production, replication and analysis, in tiers or flat."""

    kind: Literal["tiers"]
    mover: Text = Field(description="The mover.")
    site: dict[Name, TierSite] = Field(description="The sites, by the name that their hosts give.")
    models: Annotated[tuple[Literal["multi-tier", "flat"], ...], AfterValidator(_distinct)] = Field(
        ("multi-tier",), description="Who sends to whom, one model after the other."
    )
    events: Annotated[Whole, Field(ge=1)] = Field(description="Produced in all.")
    event_size: Size = Field(description="Of an event, which is a file.")
    parallel: Annotated[Whole, Field(ge=1, le=1000)] = Field(
        1, description="Files that a machine of tier 2 sends at the same time."
    )
    threshold: Annotated[Number, Field(ge=0, le=1)] = Field(
        0.8, description="Fraction of the files at whose arrival analysis begins."
    )
    threshold_of: Literal["all", "each site"] = Field(
        "all", description="Of all files to be sent, or of those of each site."
    )
    choice: Literal["machine", "site"] = Field("machine", description="What bandwidth weighs in the model flat.")
    production: Production = Field(Production(), description="How events come to be.")
    jobs: Jobs = Field(description="Analysis jobs.")
    timeout: Duration = Field(3600.0, description="Of one transfer.")
    options: Annotated[dict[str, Any], OPTIONS] = Field({}, description="Options of the mover.")

    def planner(
        self, scenario: Scenario, parts: ResolvedTestbed | None, problems: list[Problem]
    ) -> Callable[[], Plan] | None:
        """Check sites, shares, machines and the ways between them."""
        layout = None if parts is None else lay_out(scenario, self, parts, problems)
        return None if parts is None or layout is None else partial(tiers_plan, scenario, self, layout, parts)
