"""Workload ``tiers``: distributed production, replication to the upper tier, and analysis jobs.

Source: report 004, section 3.2 (the multi-tier phase). Sites produce fractions of the events. Sites of tier 2 send all
their events to tier 1, one file per event. After the arrival of a fraction of the files, hosts of tier 3 submit jobs: an
upload, a wait and a download. The model ``flat`` moves the same files and runs the same jobs, with random partners as in
:mod:`venturi.workload.peers`. Every batch of production, every file and every job is a trial.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, Field

from venturi.messages import Problem
from venturi.scenario.fields import Delay, Duration, Name, Number, ScenarioTable, Size, Text, Whole, validation_error
from venturi.testbed.plan import ResolvedTestbed
from venturi.workload.base import OPTIONS, Workload
from venturi.workload.sites import SiteTable

if TYPE_CHECKING:
    from venturi.plan import Plan
    from venturi.scenario import Scenario

__all__ = ["Production", "TierJobs", "TierSite", "Tiers"]


class TierSite(SiteTable):
    """A site with its tier and its fraction of the events."""

    tier: Annotated[Whole, Field(ge=1, le=3)] = Field(
        3, description="Tier: 1 receives all events, 2 sends events, 3 submits jobs."
    )
    share: Annotated[Number, Field(ge=0, le=1)] = Field(
        0.0, description="Fraction of all events that the site produces."
    )


class Production(ScenarioTable):
    """Production of events."""

    batch: Annotated[Whole, Field(ge=1)] = Field(10, description="Events of one trial of a host.")
    compute: Delay = Field(0.0, description="CPU time of an event.")


class TierJobs(ScenarioTable):
    """Analysis jobs."""

    count: Annotated[Whole, Field(ge=1)] = Field(description="Jobs of each submitting host.")
    parallel: Annotated[Whole, Field(ge=1, le=1000)] = Field(1, description="Concurrent jobs of a host.")
    upload: Size = Field(description="Upload size of a job.")
    download: Size = Field(description="Download size of a job.")
    wait_tier1: Delay = Field(description="Duration of a job at tier 1.")
    wait_tier2: Delay = Field(description="Duration of a job at other sites.")
    to: Literal["data", "sites"] = Field(
        "data",
        description="Selection of sites of tier 1 and 2: in proportion to their events (data), or equal (sites).",
    )


def _distinct(models: tuple[str, ...]) -> tuple[str, ...]:
    if not models or len(set(models)) < len(models):
        raise validation_error(f"expected one or more distinct models, found {list(models)}; change the list")
    return models


class Tiers(Workload):
    """Production, replication and analysis, in tiers or flat."""

    kind: Literal["tiers"]
    mover: Text = Field(description="The mover.")
    site: dict[Name, TierSite] = Field(description="Sites, by the key site of their hosts.")
    models: Annotated[tuple[Literal["multi-tier", "flat"], ...], AfterValidator(_distinct)] = Field(
        ("multi-tier",), description="Models of the transfer pattern, run one after the other."
    )
    events: Annotated[Whole, Field(ge=1)] = Field(description="Total number of events.")
    event_size: Size = Field(description="Size of an event (one file).")
    parallel: Annotated[Whole, Field(ge=1, le=1000)] = Field(1, description="Concurrent files of a host of tier 2.")
    threshold: Annotated[Number, Field(ge=0, le=1)] = Field(
        0.8, description="Fraction of received files that starts the analysis."
    )
    threshold_of: Literal["all", "each site"] = Field(
        "all", description="Scope of the threshold: all files, or the files of each site."
    )
    choice: Literal["machine", "site"] = Field(
        "machine", description="Weight of a partner in the model flat, for each machine or for the whole site."
    )
    production: Production = Field(Production(), description="Production of events.")
    jobs: TierJobs = Field(description="Analysis jobs.")
    timeout: Duration = Field(3600.0, description="Timeout of a transfer.")
    options: Annotated[dict[str, Any], OPTIONS] = Field({}, description="Options of the mover.")

    def planner(
        self, scenario: Scenario, parts: ResolvedTestbed | None, problems: list[Problem]
    ) -> Callable[[], Plan] | None:
        """Check sites, fractions, hosts and routes."""
        from venturi.workload.tiers_layout import resolve_tiers
        from venturi.workload.tiers_plan import tiers_plan

        layout = None if parts is None else resolve_tiers(scenario, self, parts, problems)
        return None if parts is None or layout is None else partial(tiers_plan, scenario, self, layout, parts)
