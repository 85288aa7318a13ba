"""The workload ``jobs``: batches of jobs on the slots of worker nodes, each job a file of its own (report 003).

A point is a configuration (where jobs get their files from), an application (how they read and compute) and the size of a batch. A batch is begun
when the one before has ended, all its jobs at the same time, and is over when its last job is.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, Field

from venturi.plan.words import shown
from venturi.scenario.fields import Delay, Duration, Part, Rate, Size, Text, Whole, refuse
from venturi.scenario.words import Problem
from venturi.testbed.plan import ResolvedTestbed
from venturi.workload.base import OPTIONS, Workload
from venturi.workload.jobs_layout import lay_out
from venturi.workload.jobs_plan import jobs_plan

if TYPE_CHECKING:
    from venturi.plan import Plan
    from venturi.scenario import Scenario

__all__ = ["MAX_JOBS", "Application", "Configuration", "Jobs", "Window"]

MAX_JOBS = 10_000
"""Jobs of one batch."""


def _some_distinct(values: tuple[Any, ...]) -> tuple[Any, ...]:
    if not values or len(set(values)) < len(values):
        raise refuse(f"expected distinct values, one or more, found {shown(list(values))}")
    return values


Counts = Annotated[tuple[Annotated[Whole, Field(ge=1, le=MAX_JOBS)], ...], AfterValidator(_some_distinct)]
Names = Annotated[tuple[Text, ...], AfterValidator(_some_distinct)]


class Configuration(Part):
    """Where jobs get their files from."""

    storage: Annotated[tuple[Text, ...], Field(min_length=1)] = Field(
        (),
        description="Storages that jobs read from, in turn; {worker} in a name stands for that of the job's worker.",
    )
    service: Names | None = Field(
        None, description="The service that each of them is read through; without it, as files of the worker."
    )
    made_in: Names | None = Field(
        None,
        description="Storages by which the files come to be there, if not those: one file system seen from several hosts.",
    )


class Application(Part):
    """How a job reads and computes."""

    mover: Text = Field(description="What reads; one that only reads, or needs no file.")
    size: Size = Field(description="Of the file of each job.")
    unique: Annotated[Whole, Field(ge=1)] | None = Field(
        None, description="Contents that differ; the files of more jobs are copies under names of their own."
    )
    format: Literal["random", "root"] = Field(
        "random", description="Random bytes, or files of ROOT made by root-write."
    )
    shape: Annotated[dict[str, Any], OPTIONS] = Field(
        {}, description="Options of root-write: containers, branches, baskets."
    )
    rate: Rate | None = Field(
        None, description="At most so fast a job, if its mover has the option rate; scaled as the links are."
    )
    compute: Delay = Field(
        0.0, description="Core-seconds of a job: of its mover if that has the option, else after it has read."
    )
    options: Annotated[dict[str, Any], OPTIONS] = Field({}, description="Options of the mover.")


class Window(Part):
    """Batches that each use so many neighbouring workers, the next batch the ones shifted by one."""

    workers: Annotated[Whole, Field(ge=1)] = Field(description="How many workers a batch uses.")
    positions: Annotated[Whole, Field(ge=1)] = Field(description="How many positions the window takes.")


class Jobs(Workload):
    """Batches of jobs on worker nodes."""

    kind: Literal["jobs"]
    jobs: Counts = Field(description="Sizes of the batches.")
    workers: Names = Field(description="The hosts that jobs run on, in turn.")
    slots: Annotated[Whole, Field(ge=1, le=MAX_JOBS)] = Field(
        1, description="Jobs at the same time on a worker; others wait."
    )
    configuration: dict[Text, Configuration] = Field(description="Where files come from, by name.")
    application: dict[Text, Application] = Field(description="What jobs do, by name.")
    window: Window | None = Field(None, description="Use a part of the workers at a time.")
    repeat: Whole = Field(1, ge=1, description="Repetitions of each point; each is a complete block.")
    order: Literal["random", "given"] = Field("given", description="Of the points within each block.")
    cache: Literal["as_is", "cold"] = Field("as_is", description="State of page caches before a batch.")
    timeout: Duration = Field(3600.0, description="Of one job.")
    observe: Names | None = Field(
        None, description="The servers whose interface counters tell the rate; without it, those that jobs read from."
    )
    observed: Literal["sent", "received"] = Field("sent", description="Which bytes of their interfaces are counted.")
    interval: Duration = Field(5.0, description="Between two readings of the counters: I in B = (Q₂ − Q₁)/I.")

    def planner(
        self, scenario: Scenario, parts: ResolvedTestbed | None, problems: list[Problem]
    ) -> Callable[[], Plan] | None:
        """Check names, movers, storages and ways."""
        layout = None if parts is None else lay_out(scenario, self, parts, problems)
        return None if parts is None or layout is None else partial(jobs_plan, scenario, self, layout, parts)
