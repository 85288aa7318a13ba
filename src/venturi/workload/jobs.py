"""Workload ``jobs``: batches of jobs on the slots of worker nodes; each job reads its own file (report 003).

A design point is a configuration (source of the files), an application (reading and computing) and a batch size. A batch
starts after the end of the previous batch. All its jobs start together, and it ends with its last job.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, Field

from venturi.messages import Problem, quote_value
from venturi.scenario.fields import Delay, Duration, Rate, ScenarioTable, Size, Text, Whole, validation_error
from venturi.testbed.plan import ResolvedTestbed
from venturi.workload.base import OPTIONS, Workload

if TYPE_CHECKING:
    from venturi.plan import Plan
    from venturi.scenario import Scenario

__all__ = ["MAX_JOBS", "Application", "Configuration", "JobWindow", "JobsWorkload"]

MAX_JOBS = 10_000
"""Maximum number of jobs in a batch."""


def _some_distinct(values: tuple[Any, ...]) -> tuple[Any, ...]:
    if not values or len(set(values)) < len(values):
        raise validation_error(
            f"expected one or more distinct values, found {quote_value(list(values))}; change the list"
        )
    return values


Counts = Annotated[tuple[Annotated[Whole, Field(ge=1, le=MAX_JOBS)], ...], AfterValidator(_some_distinct)]
Names = Annotated[tuple[Text, ...], AfterValidator(_some_distinct)]


class Configuration(ScenarioTable):
    """Source of the files of jobs."""

    storage: Annotated[tuple[Text, ...], Field(min_length=1)] = Field(
        (),
        description="Storages of the files, used in turn; {worker} in a name is the worker of the job.",
    )
    service: Names | None = Field(None, description="Service of each storage. Default: files of the worker.")
    create_through: Names | None = Field(
        None,
        description="Storages for the creation of the files, if one file system has several names. Default: storage.",
    )


class Application(ScenarioTable):
    """Reading and computing of a job."""

    mover: Text = Field(description="Mover that reads only, or needs no file.")
    size: Size = Field(description="Size of the file of each job.")
    unique: Annotated[Whole, Field(ge=1)] | None = Field(
        None, description="Number of different files; the files of further jobs are copies."
    )
    format: Literal["random", "root"] = Field("random", description="Random bytes, or ROOT files of root-write.")
    shape: Annotated[dict[str, Any], OPTIONS] = Field(
        {}, description="Options of root-write: containers, branches, baskets."
    )
    rate: Rate | None = Field(
        None, description="Rate limit of a job, for movers with the option rate; it scales like the links."
    )
    compute: Delay = Field(0.0, description="Core-seconds of a job: option of the mover, or computed after the read.")
    options: Annotated[dict[str, Any], OPTIONS] = Field({}, description="Options of the mover.")


class JobWindow(ScenarioTable):
    """Window of adjacent workers of a batch; each further batch moves it by one worker."""

    workers: Annotated[Whole, Field(ge=1)] = Field(description="Workers of a batch.")
    positions: Annotated[Whole, Field(ge=1)] = Field(description="Positions of the window.")


class JobsWorkload(Workload):
    """Batches of jobs on worker nodes."""

    kind: Literal["jobs"]
    jobs: Counts = Field(description="Batch sizes.")
    workers: Names = Field(description="Hosts of the jobs, used in turn.")
    slots: Annotated[Whole, Field(ge=1, le=MAX_JOBS)] = Field(
        1, description="Concurrent jobs of a worker; further jobs wait."
    )
    configuration: dict[Text, Configuration] = Field(description="Sources of files, by name.")
    application: dict[Text, Application] = Field(description="Applications, by name.")
    window: JobWindow | None = Field(None, description="Use some of the workers at a time.")
    repeat: Whole = Field(1, ge=1, description="Repetitions of each design point, in complete blocks.")
    order: Literal["random", "given"] = Field("given", description="Order of the design points in each block.")
    cache: Literal["as_is", "cold"] = Field("as_is", description="Page caches before a batch.")
    timeout: Duration = Field(3600.0, description="Timeout of a job.")
    observe: Names | None = Field(
        None,
        description="Hosts whose interface counters measure the rate; {worker}: the workers. Default: the servers of the files.",
    )
    observed: Literal["sent", "received"] = Field("sent", description="Direction of the counted bytes.")
    interval: Duration = Field(5.0, description="Interval I between two counter readings in B = (Q₂ − Q₁)/I.")

    def planner(
        self, scenario: Scenario, parts: ResolvedTestbed | None, problems: list[Problem]
    ) -> Callable[[], Plan] | None:
        """Check names, movers, storages and routes."""
        from venturi.workload.jobs_layout import resolve_jobs
        from venturi.workload.jobs_plan import jobs_plan

        layout = None if parts is None else resolve_jobs(scenario, self, parts, problems)
        return None if parts is None or layout is None else partial(jobs_plan, scenario, self, layout, parts)
