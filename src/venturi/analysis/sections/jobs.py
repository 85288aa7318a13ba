"""Batches of jobs: rates of whole batches and of their steady parts, steps, wall times, spreads and limits.

Reproduces chapters 5 and 6 of report 003.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from venturi.analysis.batches import JobBatchResult, batches, is_about_jobs
from venturi.analysis.format import format_sentences
from venturi.analysis.result import About
from venturi.analysis.section import Column, ReportSection, Scalar, Table
from venturi.analysis.sections.jobs_curves import JobCurve, curves_of
from venturi.analysis.sections.jobs_figures import figures
from venturi.analysis.sections.jobs_inputs import inputs_of, inputs_sentence, inputs_table
from venturi.analysis.sections.jobs_limits import limits_table
from venturi.run import Run
from venturi.stats import batch_spread
from venturi.units import format_bit_rate, format_bit_rate_ends

__all__ = ["jobs_section"]


def jobs_section(run: Run, about: About) -> ReportSection | None:
    """Return the section about batches of jobs, or None if the run has none or if they are groups of workers."""
    if not is_about_jobs(run):
        return None
    found = batches(run)
    if not found or found[0].first_worker is not None:
        return None
    curves = curves_of(found, about)
    limits = limits_table(run, found)
    inputs = inputs_of(about)
    put_in = inputs_table(inputs)
    return ReportSection(
        name="jobs",
        title="Batches of jobs",
        sentence=_sentence(curves, found) + _limits(limits),
        note=inputs_sentence(inputs),
        tables=(
            *(_rates(name, curves) for name in dict.fromkeys(curve.application for curve in curves)),
            _walls(curves),
            _spreads(curves),
            *([limits] if limits else []),
            *([put_in] if put_in else []),
            *_lost(found),
        ),
        figures=figures(curves, found),
        headline=_headline(curves),
    )


def _sentence(curves: Sequence[JobCurve], found: Sequence[JobBatchResult]) -> str:
    parts = []
    for application in dict.fromkeys(curve.application for curve in curves):
        own = [(curve, peak) for curve in curves if curve.application == application and (peak := curve.peak)]
        if own:
            named = ", ".join(
                f"{curve.configuration} {format_bit_rate(peak.mean_bit_per_s)} ({peak.jobs} jobs)"
                for curve, peak in sorted(own, key=lambda pair: -pair[1].mean_bit_per_s)
            )
            parts.append(f"highest mean rate of a batch at the servers, {application}: {named}")
    lost = sum(batch.failed > 0 or batch.split for batch in found)
    omitted = f"{lost} of {len(found)} batches are incomplete and are excluded" if lost else ""
    return format_sentences([*(parts or ["no batch is complete"]), omitted])


def _headline(curves: Sequence[JobCurve]) -> str:
    peaks = sorted(
        ((curve, peak) for curve in curves if (peak := curve.peak)), key=lambda pair: pair[1].mean_bit_per_s
    )
    if not peaks:
        return "No batch of jobs is complete"
    curve, peak = peaks[-1]
    rates = format_bit_rate_ends(peaks[0][1].mean_bit_per_s, peak.mean_bit_per_s)
    most = f"; most for {curve.application} by {curve.configuration} with {peak.jobs} jobs"
    return f"{rates} at the servers in the fastest batches{most}"


def _limits(table: Table | None) -> str:
    """Return sentences with the bottlenecks of the largest batches, grouped by bottleneck."""
    if table is None:
        return ""
    names = [column.name for column in table.columns]
    storages = [names.index(name) for name in ("limit", "application", "configuration")]
    by_limit: dict[str, list[str]] = {}
    for row in table.rows:
        limit, application, configuration = (str(row[storage]) for storage in storages)
        by_limit.setdefault(limit, []).append(f"{application} with {configuration}")
    return " " + format_sentences(
        f"bottleneck of the largest batches of {'; '.join(batches)}: {_format_limit(limit)}"
        for limit, batches in by_limit.items()
    )


def _format_limit(limit: str) -> str:
    candidates = limit.removeprefix("one of: ")
    return limit if candidates == limit else f"{' or '.join(candidates.split(', '))} (by elimination)"


def _rates(application: str, curves: Sequence[JobCurve]) -> Table:
    """Return tables 6.1 and 6.2 as one table, distinguished by the column ``part``."""
    own = [curve for curve in curves if curve.application == application]
    name = own[0].table
    rules = {point.rule for curve in own for point in curve.steady if point.rule}
    columns = (
        Column("part", "Part"),
        Column("configuration", "Configuration"),
        Column("jobs", "Jobs"),
        Column("mean_bit_per_s", "Mean"),
        Column("std_bit_per_s", "Deviation"),
        Column("std_ratio", "Deviation ÷ mean"),
        Column("readings", "Readings"),
        Column("step_ratio", "Ratio to the previous batch"),
        Column("linear_ratio", "Growth in proportion to the jobs"),
        Column("mean_published_bit_per_s", "Mean", published=True),
        Column("std_published_bit_per_s", "Deviation", published=True),
        Column("std_published_ratio", "Deviation ÷ mean", published=True),
        Column("step_published_ratio", "Ratio to the previous batch", published=True),
        Column("full_size_of_published_ratio", "Rate at full size ÷ published"),
    )
    rows = [row for part in ("whole", "steady") for curve in own for row in _rate_rows(curve, part)]
    note = "B = (Q₂ − Q₁)/I at the interfaces of the servers. Deviation: standard deviation of the readings within a batch."
    note += " Steady part: " + "; ".join(sorted(rules)) + "." if rules else ""
    return Table(name, f"Rate of {application} (tables 6.1 and 6.2 of report 003)", columns, tuple(rows), note)


def _rate_rows(curve: JobCurve, part: str) -> Iterator[tuple[Scalar, ...]]:
    points = curve.whole if part == "whole" else curve.steady
    steps = curve.steps(part)
    for point in points:
        published_row = curve.published(part, point.jobs)
        published = published_row.get("mean_bit_per_s")
        full = point.mean_bit_per_s / curve.scale
        step = steps.get(point.jobs)
        yield (
            *(part, curve.configuration, point.jobs, point.mean_bit_per_s, point.std_bit_per_s),
            point.std_bit_per_s / point.mean_bit_per_s
            if point.std_bit_per_s is not None and point.mean_bit_per_s
            else None,
            point.readings,
            *((None, None) if step is None else (step.ratio, step.linear)),
            *(
                published,
                published_row.get("std_bit_per_s"),
                published_row.get("std_ratio"),
                published_row.get("step_ratio"),
            ),
            full / float(published) if isinstance(published, int | float) and published else None,
        )


def _walls(curves: Sequence[JobCurve]) -> Table:
    columns = (
        Column("application", "Application"),
        Column("configuration", "Configuration"),
        Column("jobs", "Jobs"),
        Column("wall_s", "Wall time"),
        Column("goodput_bit_per_s", "Read by the jobs"),
        Column("counted_of_read_ratio", "Bytes at the servers ÷ bytes read"),
    )
    rows = tuple(
        (
            curve.application,
            curve.configuration,
            point.jobs,
            point.wall_s,
            point.goodput_bit_per_s,
            point.counted_ratio,
        )
        for curve in curves
        for point in curve.whole
    )
    note = "From the release of the first job to the end of the last. A cache between jobs and servers changes the rate at the servers, but not this time."
    return Table("jobs-walls", "Wall times (figures 5-3 and 5-6 of report 003)", columns, rows, note)


def _spreads(curves: Sequence[JobCurve]) -> Table:
    columns = (
        Column("application", "Application"),
        Column("configuration", "Configuration"),
        Column("batches", "Batches"),
        Column("mean_of_means_bit_per_s", "Mean of the means"),
        Column("between_bit_per_s", "Between batches (n)"),
        Column("between_sample_bit_per_s", "Between batches (n − 1)"),
        Column("within_bit_per_s", "Within a batch, mean"),
        Column("mean_of_means_published_bit_per_s", "Mean of the means", published=True),
        Column("between_published_bit_per_s", "Between batches (n)", published=True),
        Column("within_published_bit_per_s", "Within a batch, mean", published=True),
    )
    rows = tuple(
        row for curve in curves if curve.application_batches for row in [_spread_row(curve)] if row is not None
    )
    note = ("The report defines volatility as the deviation within a batch. Its text uses the word for the deviation of the means of six batches, "
            "divided by n (003-E04). Published: from its table 6.1.")  # fmt: skip
    return Table("jobs-spread", "Deviation between batches and within a batch", columns, rows, note)


def _spread_row(curve: JobCurve) -> tuple[Scalar, ...] | None:
    spread = batch_spread([batch.rate_bit_per_s for batch in curve.application_batches])
    published_row = [curve.published("whole", point.jobs) for point in curve.whole]
    means = [float(row["mean_bit_per_s"] or 0) for row in published_row if row.get("mean_bit_per_s")]
    deviations = [float(row["std_bit_per_s"] or 0) for row in published_row if row.get("std_bit_per_s")]
    published = batch_spread([[mean] for mean in means]) if means else None
    return (
        *(curve.application, curve.configuration, spread.n_batches, spread.mean_of_means, spread.between_population),
        *(spread.between, spread.within),
        *((published.mean_of_means, published.between_population) if published else (None, None)),
        sum(deviations) / len(deviations) if deviations else None,
    )


def _lost(found: Sequence[JobBatchResult]) -> Iterator[Table]:
    rows = tuple(
        (batch.application, batch.configuration, batch.jobs, batch.repetition, batch.failed, batch.split)
        for batch in found
        if batch.failed or batch.split
    )
    if rows:
        columns = (
            Column("application", "Application"),
            Column("configuration", "Configuration"),
            Column("jobs", "Jobs"),
            Column("repetition", "Repetition"),
            Column("failed", "Failed jobs"),
            Column("split", "Run in several sessions"),
        )
        yield Table("jobs-lost", "Incomplete batches (excluded)", columns, rows)
