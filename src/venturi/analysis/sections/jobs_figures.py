"""Figures 5-1 to 5-6 and 6-1 of report 003, from the batches of a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from venturi.analysis.batches import JobBatchResult
from venturi.analysis.section import Band, Figure, Panel, Series
from venturi.analysis.sections.jobs_curves import JobCurve

__all__ = ["figures"]

_SHOWN_JOBS = 96
"""Batch size in figure 6-1 of the report. The nearest measured size is drawn."""

_Maker = Callable[[Sequence[JobCurve]], tuple[Series, ...]]


def figures(curves: Sequence[JobCurve], found: Sequence[JobBatchResult]) -> tuple[Figure, ...]:
    """Return the figures, with one panel for each application."""
    if not curves:
        return ()
    return (
        _figure(
            curves, "jobs-rates", "Rate against the size of the batch", "rate_bit_per_s", _rates,
            "Mean of the readings of a batch. Bars: standard deviation of the readings. Published values are multiplied by the scale.",
            "003, figures 5-1 and 5-4",
        ),
        _figure(
            curves, "jobs-steps", "Ratio to the previous batch", "ratio", _steps,
            "Dashed: growth in proportion to the number of jobs: 2, 1.5, 1.333 … (003-E11).",
            "003, figures 5-2 and 5-5",
        ),
        _figure(
            curves, "jobs-walls", "Wall time against the size of the batch", "wall_s", _walls,
            "From the release of the first job to the end of the last.", "003, figures 5-3 and 5-6",
        ),
        *_in_time(found),
    )  # fmt: skip


def _figure(
    curves: Sequence[JobCurve], name: str, title: str, y: str, make: _Maker, caption: str, source: str
) -> Figure:
    applications = dict.fromkeys(curve.application for curve in curves)
    panels = tuple(
        Panel(application, "jobs", y, make([curve for curve in curves if curve.application == application]))
        for application in applications
    )
    return Figure(name, title, panels, caption, source)


def _rates(curves: Sequence[JobCurve]) -> tuple[Series, ...]:
    found = []
    for curve in curves:
        x = tuple(float(point.jobs) for point in curve.whole)
        y = tuple(point.mean_bit_per_s for point in curve.whole)
        low, high = (
            tuple(point.mean_bit_per_s + sign * (point.std_bit_per_s or 0.0) for point in curve.whole)
            for sign in (-1, 1)
        )
        found.append(Series(curve.configuration, x, y, low, high))
    for curve in curves:
        published_means = [curve.published("whole", point.jobs).get("mean_bit_per_s") for point in curve.whole]
        values = tuple(
            float(value) * curve.scale if isinstance(value, int | float) else None for value in published_means
        )
        if any(value is not None for value in values):
            x = tuple(float(point.jobs) for point in curve.whole)
            found.append(Series(curve.configuration, x, values, style="points", published=True))
    return tuple(found)


def _steps(curves: Sequence[JobCurve]) -> tuple[Series, ...]:
    found = []
    linear: dict[float, float] = {}
    for curve in curves:
        steps = curve.steps("whole")
        if steps:
            linear |= {float(jobs): step.linear for jobs, step in steps.items()}
            found.append(
                Series(curve.configuration, tuple(map(float, steps)), tuple(step.ratio for step in steps.values()))
            )
    if linear:
        x = tuple(sorted(linear))
        found.append(Series("growth in proportion to the jobs", x, tuple(linear[jobs] for jobs in x), style="steps"))
    return tuple(found)


def _walls(curves: Sequence[JobCurve]) -> tuple[Series, ...]:
    return tuple(
        Series(
            curve.configuration,
            tuple(float(point.jobs) for point in curve.whole),
            tuple(point.wall_s for point in curve.whole),
        )
        for curve in curves
    )


def _in_time(found: Sequence[JobBatchResult]) -> tuple[Figure, ...]:
    """Return the rate against time of the batches nearest to figure 6-1, with the steady parts marked.

    The batches are those of the last application.
    """
    shown = [batch for batch in found if batch.slice is not None and batch.wall_s and batch.repetition == 0]
    if not shown:
        return ()
    application = shown[-1].application
    own = [batch for batch in shown if batch.application == application]
    jobs = min({batch.jobs for batch in own}, key=lambda count: (abs(count - _SHOWN_JOBS), count))
    panels = tuple(_panel(batch) for batch in own if batch.jobs == jobs)
    return (
        Figure(
            "jobs-in-time",
            f"Rate within a batch of {jobs} jobs of {application}",
            panels,
            "Readings of the servers' interfaces. Marked: the steady part.",
            "003, figure 6-1",
        ),
    )


def _panel(batch: JobBatchResult) -> Panel:
    assert batch.slice is not None
    bands: tuple[Band, ...] = ()
    if batch.slice.start_s is not None and batch.slice.end_s is not None:
        bands = (Band(batch.slice.start_s, batch.slice.end_s, "steady"),)
    series = Series("rate", tuple(batch.time_s.tolist()), tuple(batch.rate_bit_per_s.tolist()), style="steps")
    return Panel(batch.configuration, "time_s", "rate_bit_per_s", (series,), bands=bands)
