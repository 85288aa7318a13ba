"""Curves of one configuration and application against the batch size, over all repetitions, with the published rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from venturi.analysis.batches import RUNNING, JobBatchResult
from venturi.analysis.result import About
from venturi.errors import ScenarioError
from venturi.stats import StepRatio, Summary, step_ratios
from venturi.study import PublishedTable, study
from venturi.units import BITS_PER_BYTE

__all__ = ["JobCurve", "JobCurvePoint", "Row", "curves_of", "published_table"]

Row: TypeAlias = Mapping[str, str | int | float | None]

_ID = "{document}-{application}"


@dataclass(frozen=True, slots=True)
class JobCurvePoint:
    """Batches of one size, as means over their repetitions.

    ``std_bit_per_s`` is the standard deviation of the readings within a batch. ``counted_ratio`` is the bytes that the
    servers sent over the bytes that the jobs read.
    """

    jobs: int
    mean_bit_per_s: float
    std_bit_per_s: float | None
    readings: int
    rule: str
    wall_s: float
    goodput_bit_per_s: float
    counted_ratio: float


@dataclass(frozen=True)
class JobCurve:
    """Batches of one configuration and one application.

    Attributes
    ----------
    table
        Name of the table of the application. It is the id of the published table if the study has one.
    whole, steady
        Points of the whole batches and of their steady parts, by ascending size.
    """

    configuration: str
    application: str
    table: str
    scale: float
    whole: tuple[JobCurvePoint, ...]
    steady: tuple[JobCurvePoint, ...]
    application_batches: tuple[JobBatchResult, ...]
    published_rows: tuple[Row, ...]

    @property
    def peak(self) -> JobCurvePoint | None:
        """Size with the highest mean rate of a batch."""
        return max(self.whole, key=lambda point: point.mean_bit_per_s, default=None)

    def published(self, part: str, jobs: int) -> Row:
        """Return the published row, or an empty one."""
        return next((row for row in self.published_rows if (row["part"], row["jobs"]) == (part, jobs)), {})

    def steps(self, part: str) -> dict[int, StepRatio]:
        """Return the step to each size except the first, by size; empty if a rate is zero."""
        points = self.whole if part == "whole" else self.steady
        if len(points) < 2 or min(point.mean_bit_per_s for point in points) <= 0:
            return {}
        steps = step_ratios([point.jobs for point in points], [point.mean_bit_per_s for point in points])
        return {int(step.load_to): step for step in steps}


def curves_of(found: Sequence[JobBatchResult], about: About) -> tuple[JobCurve, ...]:
    """Return the curves of all complete batches, in the order of their first batch."""
    counted = [batch for batch in found if batch.slice is not None and batch.wall_s]
    curves = []
    for application, configuration in dict.fromkeys((batch.application, batch.configuration) for batch in counted):
        own = tuple(b for b in counted if (b.application, b.configuration) == (application, configuration))
        document = (about.study and study_document(about.study)) or ""
        id_ = _ID.format(document=document, application=application)
        table = published_table(about, id_)
        published = (
            () if table is None else tuple(row for row in table.rows if row.get("configuration") == configuration)
        )
        sizes = sorted({batch.jobs for batch in own})
        groups = [[batch for batch in own if batch.jobs == size] for size in sizes]
        curves.append(
            JobCurve(
                configuration, application, id_ if table else f"jobs-{application}", about.scale,
                tuple(_point(group, steady=False) for group in groups), tuple(_point(group, steady=True) for group in groups),
                own, published,
            )
        )  # fmt: skip
    return tuple(curves)


def study_document(name: str) -> str | None:
    """Return the report of a study, or None if this version has no study of that name."""
    try:
        return study(name).document
    except ScenarioError:
        return None


def published_table(about: About, id_: str) -> PublishedTable | None:
    """Return a published table of the run's study by its id, or None if the study has no such table."""
    if not about.study:
        return None
    try:
        return study(about.study).published.table(id_)
    except (KeyError, ScenarioError):
        return None


def _point(group: Sequence[JobBatchResult], *, steady: bool) -> JobCurvePoint:
    summaries = [_numbers(batch, steady=steady) for batch in group]
    walls = [batch.wall_s or np.nan for batch in group]
    mean = float(np.mean([summary.mean for summary in summaries]))
    deviations = [summary.std for summary in summaries if summary.std is not None]
    goodput = float(
        np.mean([BITS_PER_BYTE * batch.moved_bytes / wall for batch, wall in zip(group, walls, strict=True)])
    )
    whole = float(np.mean([_numbers(batch, steady=False).mean for batch in group]))
    return JobCurvePoint(
        jobs=group[0].jobs,
        mean_bit_per_s=mean,
        std_bit_per_s=float(np.mean(deviations)) if deviations else None,
        readings=sum(summary.n for summary in summaries),
        rule="; ".join(dict.fromkeys(_rule(batch) for batch in group)) if steady else "",
        wall_s=float(np.mean(walls)),
        goodput_bit_per_s=goodput,
        counted_ratio=whole / goodput if goodput else float("nan"),
    )


def _numbers(batch: JobBatchResult, *, steady: bool) -> Summary:
    assert batch.slice is not None
    # Without a steady part, the whole batch is used. The column `rule` states this.
    return batch.slice.steady if steady and batch.slice.steady is not None else batch.slice.whole


def _rule(batch: JobBatchResult) -> str:
    assert batch.slice is not None
    if batch.slice.steady is None:
        return "none found; the whole batch is used"
    return f"while at least {100 * RUNNING:.0f} % of the jobs were running"
