"""Batches of jobs: rates of whole batches and of their steady parts, steps, wall times, spreads, and what limits (report 003, chapters 5 and 6)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from venturi.analysis.batches import Batch, batches, is_about_jobs
from venturi.analysis.chapter import Chapter, Column, Scalar, Table
from venturi.analysis.chapters.jobs_curves import Curve, curves_of
from venturi.analysis.chapters.jobs_figures import figures
from venturi.analysis.chapters.jobs_inputs import inputs_of, inputs_sentence, inputs_table
from venturi.analysis.chapters.jobs_limits import limits_table
from venturi.analysis.result import About
from venturi.analysis.words import bit_rate
from venturi.run import Run
from venturi.stats import batch_spread

__all__ = ["jobs_chapter"]


def jobs_chapter(run: Run, about: About) -> Chapter | None:
    """Return the chapter about batches of jobs; None if the run has none, or they are groups of workers."""
    if not is_about_jobs(run):
        return None
    found = batches(run)
    if not found or found[0].first_worker is not None:
        return None
    curves = curves_of(found, about)
    limits = limits_table(run, found)
    inputs = inputs_of(about)
    put_in = inputs_table(inputs)
    return Chapter(
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
    )


def _sentence(curves: Sequence[Curve], found: Sequence[Batch]) -> str:
    parts = []
    for application in dict.fromkeys(curve.application for curve in curves):
        own = [(curve, peak) for curve in curves if curve.application == application and (peak := curve.peak)]
        if own:
            named = ", ".join(
                f"{curve.configuration} {bit_rate(peak.mean_bit_per_s)} ({peak.jobs} jobs)"
                for curve, peak in sorted(own, key=lambda pair: -pair[1].mean_bit_per_s)
            )
            parts.append(f"{application}: {named}")
    lost = sum(batch.failed > 0 or batch.split for batch in found)
    text = (
        "Most at the servers, by mean over a batch: " + "; ".join(parts)
        if parts
        else "No batch was carried out whole"
    )
    return text + (f". {lost} of {len(found)} batches are not whole and count nowhere." if lost else ".")


def _limits(table: Table | None) -> str:
    """Return what limits the largest batches in words, configurations with the same limit together."""
    if table is None:
        return ""
    names = [column.name for column in table.columns]
    places = [names.index(name) for name in ("limit", "application", "configuration")]
    by_limit: dict[str, list[str]] = {}
    for row in table.rows:
        limit, application, configuration = (str(row[place]) for place in places)
        by_limit.setdefault(limit, []).append(f"{application} by {configuration}")
    return (
        " What limits the largest batches: " + "; ".join(f"{k} ({', '.join(v)})" for k, v in by_limit.items()) + "."
    )


def _rates(application: str, curves: Sequence[Curve]) -> Table:
    """Return tables 6.1 and 6.2 in one: ``part`` tells them apart."""
    own = [curve for curve in curves if curve.application == application]
    name = own[0].table
    rules = {point.rule for curve in own for point in curve.steady if point.rule}
    columns = (
        Column("part", "Part"),
        Column("configuration", "Configuration"),
        Column("jobs", "Jobs"),
        Column("mean_bit_per_s", "Mean"),
        Column("std_bit_per_s", "Deviation"),
        Column("std_ratio", "Deviation of the mean"),
        Column("readings", "Readings"),
        Column("step_ratio", "To the batch before"),
        Column("linear_ratio", "If it grew with the jobs"),
        Column("mean_published_bit_per_s", "Mean", published=True),
        Column("std_published_bit_per_s", "Deviation", published=True),
        Column("std_published_ratio", "Deviation of the mean", published=True),
        Column("step_published_ratio", "To the batch before", published=True),
        Column("full_size_of_published_ratio", "Ours at full size, of the published"),
    )
    rows = [row for part in ("whole", "steady") for curve in own for row in _rate_rows(curve, part)]
    note = "B = (Q₂ − Q₁)/I at the interfaces of the servers; the deviation is that of the readings within a batch."
    note += " Steady part: " + "; ".join(sorted(rules)) + "." if rules else ""
    return Table(name, f"Rate of {application} (tables 6.1 and 6.2 of report 003)", columns, tuple(rows), note)


def _rate_rows(curve: Curve, part: str) -> Iterator[tuple[Scalar, ...]]:
    points = curve.whole if part == "whole" else curve.steady
    steps = curve.steps(part)
    for point in points:
        told = curve.published(part, point.jobs)
        published = told.get("mean_bit_per_s")
        full = point.mean_bit_per_s / curve.scale
        step = steps.get(point.jobs)
        yield (
            *(part, curve.configuration, point.jobs, point.mean_bit_per_s, point.std_bit_per_s),
            None if point.std_bit_per_s is None else point.std_bit_per_s / point.mean_bit_per_s,
            point.readings,
            *((None, None) if step is None else (step.ratio, step.linear)),
            *(published, told.get("std_bit_per_s"), told.get("std_ratio"), told.get("step_ratio")),
            full / float(published) if isinstance(published, int | float) and published else None,
        )


def _walls(curves: Sequence[Curve]) -> Table:
    columns = (
        Column("application", "Application"),
        Column("configuration", "Configuration"),
        Column("jobs", "Jobs"),
        Column("wall_s", "Wall time"),
        Column("goodput_bit_per_s", "Read by the jobs"),
        Column("counted_of_read_ratio", "Counted at the servers, of what was read"),
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
    note = "From the release of the first job to the end of the last. A cache between changes the rate at the servers, not this."
    return Table("jobs-walls", "Wall times (figures 5-3 and 5-6 of report 003)", columns, rows, note)


def _spreads(curves: Sequence[Curve]) -> Table:
    columns = (
        Column("application", "Application"),
        Column("configuration", "Configuration"),
        Column("batches", "Batches"),
        Column("mean_of_means_bit_per_s", "Mean of the means"),
        Column("between_bit_per_s", "Between batches (n)"),
        Column("between_sample_bit_per_s", "Between batches (n − 1)"),
        Column("within_bit_per_s", "Within, in the mean"),
        Column("mean_of_means_published_bit_per_s", "Mean of the means", published=True),
        Column("between_published_bit_per_s", "Between batches (n)", published=True),
        Column("within_published_bit_per_s", "Within, in the mean", published=True),
    )
    rows = tuple(
        row for curve in curves if curve.application_batches for row in [_spread_row(curve)] if row is not None
    )
    note = ("What the report calls volatility in its text is the deviation of the means of six batches, divided by n (003-E04); what it defines "
            "as such is the deviation within a batch. Published: from its table 6.1.")  # fmt: skip
    return Table("jobs-spread", "Spread between the batches, and within them", columns, rows, note)


def _spread_row(curve: Curve) -> tuple[Scalar, ...] | None:
    spread = batch_spread([batch.rate_bit_per_s for batch in curve.application_batches])
    told = [curve.published("whole", point.jobs) for point in curve.whole]
    means = [float(row["mean_bit_per_s"] or 0) for row in told if row.get("mean_bit_per_s")]
    deviations = [float(row["std_bit_per_s"] or 0) for row in told if row.get("std_bit_per_s")]
    published = batch_spread([[mean] for mean in means]) if means else None
    return (
        *(curve.application, curve.configuration, spread.n_batches, spread.mean_of_means, spread.between_population),
        *(spread.between, spread.within),
        *((published.mean_of_means, published.between_population) if published else (None, None)),
        sum(deviations) / len(deviations) if deviations else None,
    )


def _lost(found: Sequence[Batch]) -> Iterator[Table]:
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
            Column("failed", "Jobs that failed"),
            Column("split", "Carried out in several sessions"),
        )
        yield Table("jobs-lost", "Batches that are not whole, and count nowhere", columns, rows)
