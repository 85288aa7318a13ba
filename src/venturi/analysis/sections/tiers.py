"""Production, replication and analysis in tiers: phases, threshold, traffic per tier, and comparison with a flat model."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from venturi.analysis.quantity import format_quantity
from venturi.analysis.result import About
from venturi.analysis.section import Band, Column, Figure, Panel, ReportSection, Scalar, Series, Table
from venturi.analysis.sections.peers import traffic_panel
from venturi.analysis.site_traffic import Traffic, TrafficSite, sites_of, traffic_of
from venturi.analysis.totals import failure_text
from venturi.run import Run
from venturi.study import library

__all__ = ["tiers_section"]


@dataclass(frozen=True)
class _Phase:
    """Trials, received bytes and times of a phase."""

    model: str
    name: str
    low_s: float
    high_s: float
    trials: int
    failed: int
    bytes: int


_Traffic = Mapping[str, tuple[Traffic, Traffic]]


def tiers_section(run: Run, about: About) -> ReportSection | None:
    """Return the section of the workload ``tiers``, or ``None`` for another workload."""
    workload = about.scenario.get("workload") or {}
    if workload.get("kind") != "tiers":
        return None
    title = "Production, replication and analysis"
    phases = _phases(run)
    if not phases:
        return ReportSection("tiers", title, "No trial has finished yet.")
    sites = sites_of(about.scenario, run)
    level = {name: int(site.get("tier", 3)) for name, site in workload["site"].items()}
    traffic = traffic_of(run, sites)
    sent = _sent(run)
    thresholds = _threshold_table(workload, level, sent, phases)
    loads = _tier_table(sites, level, traffic, phases)
    tables = (
        _phase_table(phases), _production_table(run, workload, about), thresholds, loads, _site_table(sites, level, traffic, phases),
        _comparison_table(loads, phases), _jobs_table(run),
    )  # fmt: skip
    figures = _figures(sites, level, traffic, phases, loads, sent, workload, about)
    return ReportSection(
        "tiers",
        title,
        _sentence(run, phases, thresholds, loads),
        tuple(table for table in tables if table.rows),
        figures,
        headline=_headline(phases, thresholds),
    )


def _phases(run: Run) -> tuple[_Phase, ...]:
    if "phase" not in run.factors:
        return ()
    model = "factor_model" if "model" in run.factors else "NULL"
    rows = run.query(
        f"""WITH arrived AS (SELECT trial, sum(received_bytes) AS bytes FROM transfers WHERE outcome = 'ok' GROUP BY trial)
            SELECT coalesce({model}, '') AS model, factor_phase AS phase, min(start_s) AS low, max(end_s) AS high, count(*) AS trials,
                   count(*) FILTER (outcome <> 'ok') AS failed, coalesce(sum(bytes), 0)::BIGINT AS bytes
            FROM trials LEFT JOIN arrived USING (trial) WHERE factor_phase IS NOT NULL GROUP BY ALL ORDER BY low"""
    )
    return tuple(
        _Phase(str(m), str(p), float(low), float(high), int(n), int(bad), int(size))
        for m, p, low, high, n, bad, size in zip(*rows.values(), strict=True)
    )


def _phase_table(phases: Sequence[_Phase]) -> Table:
    columns = (
        Column("model", "Model"), Column("phase", "Phase"), Column("begin_s", "Start"), Column("end_s", "End"),
        Column("trials", "Batches, files or jobs"), Column("failed", "Failed"), Column("arrived_bytes", "Arrived"),
    )  # fmt: skip
    rows = tuple((p.model or "both", p.name, p.low_s, p.high_s, p.trials, p.failed, p.bytes) for p in phases)
    return Table("tier-phases", "Phases", columns, rows, "Times since the start of the run.")


def _production_table(run: Run, workload: Mapping[str, Any], about: About) -> Table:
    """Return events by centre with the fractions that the report prints, if any."""
    made: dict[str, float] = {}
    if "events" in run.factors:
        rows = run.query(
            "SELECT factor_site AS site, sum(factor_events) AS n FROM trials WHERE factor_phase = 'production' AND outcome = 'ok' GROUP BY site"
        )
        made = {str(site): float(n) for site, n in zip(rows["site"], rows["n"], strict=True)}
    total = sum(made.values())
    size = next((float(d["size_bytes"]) for n, d in run.header["datasets"].items() if n.startswith("events-")), 0.0)
    table = library().tables.get("004-production") if (about.study or "").startswith("alice/") else None
    printed_loads: dict[tuple[str, ...], tuple[Scalar, Scalar]] = {
        tuple(str(row["centres"]).split(" and ")): (row["share_printed_ratio"], row["share_corrected_ratio"])
        for row in (table.rows if table else ())
    }
    groups = list(printed_loads) or [(name,) for name, site in workload["site"].items() if site.get("share")]
    found = []
    for names in groups:
        events = sum(made.get(name, 0.0) for name in names)
        printed = printed_loads.get(names, (None, None))
        found.append((" and ".join(names), events, events / total if total else None, *printed, events * size))
    columns = (
        Column("centres", "Centres"), Column("events", "Events"), Column("share_ratio", "Fraction"),
        Column("share_printed_ratio", "Fraction, printed", published=True),
        Column("share_corrected_ratio", "Fraction, corrected", published=True), Column("events_bytes", "Volume"),
    )  # fmt: skip
    return Table("tier-production", "Production", columns, tuple(found) if total else ())


@dataclass(frozen=True)
class _Sent:
    """Files that arrived, by model: arrival times in order, and source sites."""

    end_s: Any
    site: Any


def _sent(run: Run) -> dict[str, _Sent]:
    if not {"model", "phase", "site"} <= set(run.factors):
        return {}
    rows = run.query(
        "SELECT factor_model AS model, factor_site AS site, end_s, outcome = 'ok' AS arrived FROM transfers "
        "WHERE factor_phase = 'replication' ORDER BY end_s"
    )
    found = {}
    for model in dict.fromkeys(rows["model"]):
        own = rows["arrived"] & (rows["model"] == model)
        found[str(model)] = _Sent(rows["end_s"][own], rows["site"][own])
    return found


def _to_send(workload: Mapping[str, Any], level: Mapping[str, int]) -> dict[str, int]:
    return {n: round(workload["site"][n].get("share", 0.0) * workload["events"]) for n, t in level.items() if t == 2}


def _threshold_table(
    workload: Mapping[str, Any], level: Mapping[str, int], sent: Mapping[str, _Sent], phases: Sequence[_Phase]
) -> Table:
    """Return when the threshold fraction of the files had arrived, in total and by site, counted from the first transfer."""
    fraction = float(workload.get("threshold", 0.8))
    files = _to_send(workload, level)
    rows: list[tuple[Scalar, ...]] = []
    for model, arrived in sent.items():
        start_s = next(p.low_s for p in phases if (p.model, p.name) == (model, "replication"))
        jobs = next((p.low_s for p in phases if (p.model, p.name) == (model, "analysis")), None)
        for of, count in (("all", sum(files.values())), *files.items()):
            own = arrived.end_s if of == "all" else arrived.end_s[arrived.site == of]
            enough = math.ceil(round(fraction * count, 6))
            reached = float(own[enough - 1]) - start_s if 0 < enough <= len(own) else None
            whole = float(own[-1]) - start_s if len(own) == count else None
            rows.append(
                (
                    model,
                    of,
                    count,
                    enough,
                    reached,
                    whole,
                    jobs - start_s if jobs is not None and of == "all" else None,
                )
            )
    columns = (
        Column("model", "Model"), Column("of", "Files of"), Column("files", "Files to send"), Column("enough", "Threshold"),
        Column("reached_s", "Threshold reached after"), Column("complete_s", "All arrived after"),
        Column("first_job_s", "First job after"),
    )  # fmt: skip
    note = f"Times since the first transfer of the model. Threshold: {100 * fraction:g} % (threshold_of = {workload.get('threshold_of', 'all')!r})."
    return Table("tier-threshold", "Start of the analysis", columns, tuple(rows), note)


def _windows(phases: Sequence[_Phase]) -> dict[str, tuple[float, float]]:
    """Return model → times of its first and last transfer."""
    found: dict[str, tuple[float, float]] = {}
    for phase in phases:
        if phase.model:
            low, high = found.get(phase.model, (phase.low_s, phase.high_s))
            found[phase.model] = min(low, phase.low_s), max(high, phase.high_s)
    return found


def _tier_table(
    sites: Sequence[TrafficSite], level: Mapping[str, int], traffic: _Traffic, phases: Sequence[_Phase]
) -> Table:
    rows: list[tuple[Scalar, ...]] = []
    for model, (low, high) in _windows(phases).items():
        for tier in (1, 2, 3):
            here = [site for site in sites if level[site.name] == tier and site.name in traffic]
            if not here:
                continue
            bits = [
                sum(traffic[site.name][direction].bits_within(low, high) for site in here) for direction in (1, 0)
            ]
            uses = [use for site in here if (use := _busy(site, traffic[site.name], low, high)) is not None]
            mean = float(np.mean([use for use, _ in uses])) if uses else None
            busiest = max((busy for _, busy in uses), default=None)
            rows.append((model, tier, len(here), bits[0] / 8, bits[1] / 8, sum(bits) / (high - low), mean, busiest))
    columns = (
        Column("model", "Model"), Column("tier", "Tier"), Column("sites", "Sites"), Column("in_bytes", "In"),
        Column("out_bytes", "Out"), Column("traffic_bit_per_s", "In and out"), Column("mean_use_ratio", "Use of the links, mean of sites"),
        Column("busy_use_ratio", "Highest use while busy"),
    )  # fmt: skip
    note = "From the first transfer of the model to the last. Use: of the busier direction of a link. While busy: 90th percentile of the sampling intervals."
    return Table("tier-traffic", "Traffic per tier", columns, tuple(rows), note)


def _comparison_table(loads: Table, phases: Sequence[_Phase]) -> Table:
    """Return the comparison of the tiers of the first model with every other model; no rows for a single model."""
    first, *others = dict.fromkeys(phase.model for phase in phases if phase.model) or [""]
    lasted = {model: high - low for model, (low, high) in _windows(phases).items()}
    of = {(row[0], row[1]): row for row in loads.rows}
    rows: list[tuple[Scalar, ...]] = []
    for other in others:
        for tier in (1, 2, 3):
            one, two = of.get((first, tier)), of.get((other, tier))
            if one is None or two is None:
                continue
            moved, instead = (
                sum(float(cell) for cell in row[3:5] if isinstance(cell, int | float)) for row in (one, two)
            )
            rows.append(
                (tier, f"{other} and {first}", moved, instead, instead / moved if moved else None, one[6], two[6], one[7], two[7],
                 lasted[other] / lasted[first] if lasted[first] else None)
            )  # fmt: skip
    columns = (
        Column("tier", "Tier"), Column("models", "Models"), Column("first_bytes", "In and out, first"), Column("other_bytes", "In and out, other"),
        Column("traffic_ratio", "In and out, other ÷ first"), Column("first_use_ratio", "Use of the links, first"), Column("other_use_ratio", "Use of the links, other"),
        Column("first_busy_ratio", "Use while busy, first"), Column("other_busy_ratio", "Use while busy, other"), Column("time_ratio", "Time, other ÷ first"),
    )  # fmt: skip
    note = f"The same files and jobs. First: {first}. Use: as in the table of traffic per tier. Time: from the first transfer to the last."
    return Table("tier-comparison", "Comparison of the models", columns, tuple(rows), note)


def _busy(
    site: TrafficSite, both: tuple[Traffic, Traffic], low_s: float, high_s: float
) -> tuple[float, float] | None:
    capacity = site.capacity_bit_per_s(low_s)
    if capacity is None:
        return None
    means = [(t.rate_bit_per_s(low_s, high_s) or 0.0) / most for t, most in zip(both, capacity, strict=True)]
    highs = [(t.high_bit_per_s(low_s, high_s) or 0.0) / most for t, most in zip(both, capacity, strict=True)]
    return max(means), max(highs)


def _site_table(
    sites: Sequence[TrafficSite], level: Mapping[str, int], traffic: _Traffic, phases: Sequence[_Phase]
) -> Table:
    rows: list[tuple[Scalar, ...]] = []
    for model, (low, high) in _windows(phases).items():
        for site in sorted(sites, key=lambda one: level[one.name]):
            if site.name in traffic:
                out, back = (t.rate_bit_per_s(low, high) for t in traffic[site.name])
                use = _busy(site, traffic[site.name], low, high) or (None, None)
                capacity = site.capacity_bit_per_s(low)
                rows.append(
                    (model, site.name, level[site.name], max(capacity) if capacity else None, back, out, *use)
                )
    columns = (
        Column("model", "Model"), Column("site", "Site"), Column("tier", "Tier"), Column("link_bit_per_s", "Link"),
        Column("in_bit_per_s", "In"), Column("out_bit_per_s", "Out"), Column("mean_use_ratio", "Use of the link, mean"),
        Column("busy_use_ratio", "Use while busy"),
    )  # fmt: skip
    return Table("tier-sites", "Traffic of the sites", columns, tuple(rows))


def _jobs_table(run: Run) -> Table:
    columns = (
        Column("model", "Model"), Column("centre_tier", "Tier of the centre"), Column("jobs", "Jobs"), Column("failed", "Failed"),
        Column("upload_s", "Upload, median"), Column("download_s", "Download, median"), Column("whole_s", "Whole job, median"),
    )  # fmt: skip
    if "centre_tier" not in run.factors:
        return Table("tier-jobs", "Analysis jobs", columns, ())
    rows = run.query(
        """SELECT t.factor_model AS model, t.factor_centre_tier AS tier, count(*) AS jobs, count(*) FILTER (t.outcome <> 'ok') AS failed,
                  median(up.duration_s) AS up, median(down.duration_s) AS down, median(t.end_s - t.start_s) FILTER (t.outcome = 'ok') AS whole
           FROM trials t
           LEFT JOIN transfers up ON up.trial = t.trial AND up.labels->>'part' = 'upload' AND up.outcome = 'ok'
           LEFT JOIN transfers down ON down.trial = t.trial AND down.labels->>'part' = 'download' AND down.outcome = 'ok'
           WHERE t.factor_phase = 'analysis' GROUP BY ALL ORDER BY ALL"""
    )
    found = [
        (
            str(model),
            int(tier),
            int(jobs),
            int(failed),
            *(None if np.isnan(value) else float(value) for value in times),
        )
        for model, tier, jobs, failed, *times in zip(*rows.values(), strict=True)
    ]
    return Table("tier-jobs", "Analysis jobs", columns, tuple(found))


def _figures(
    sites: Sequence[TrafficSite], level: Mapping[str, int], traffic: _Traffic, phases: Sequence[_Phase], loads: Table,
    sent: Mapping[str, _Sent], workload: Mapping[str, Any], about: About,
) -> tuple[Figure, ...]:  # fmt: skip
    low, high = phases[0].low_s, max(phase.high_s for phase in phases)
    bands = tuple(Band(p.low_s, p.high_s, f"{p.name}, {p.model}" if p.model else p.name) for p in phases)
    centres = [site for site in sites if level[site.name] < 3 and site.name in traffic]
    found = []
    if centres:
        panels = tuple(traffic_panel(site, traffic[site.name], low, high, bands) for site in centres)
        source = "004, figure 7" if (about.study or "").startswith("alice/") else ""
        caption = "Traffic in and out of the centres, counted by their routers. The analysis overlaps the end of replication."
        found.append(Figure("tier-centres", "Traffic through the routers of the centres", panels, caption, source))
    if loads.rows:
        found.append(_model_figure(loads))
    if sent:
        found.append(_progress_figure(sent, phases, workload, level))
    return tuple(found)


def _model_figure(loads: Table) -> Figure:
    models = list(dict.fromkeys(str(row[0]) for row in loads.rows))
    panels = []
    for title, y, column in (("Traffic", "traffic_bit_per_s", 5), ("Links", "mean_use_ratio", 6)):
        series = []
        for model in models:
            rows = [row for row in loads.rows if row[0] == model]
            values = tuple(float(value) if isinstance(value := row[column], float) else None for row in rows)
            series.append(Series(model, tuple(f"tier {row[1]}" for row in rows), values, style="bars"))
        panels.append(Panel(title, "tier", y, tuple(series)))
    caption = "Sum of traffic in and out, and mean use of the links of the sites, from the first transfer of a model to the last."
    return Figure("tier-models", "Files and jobs in tiers and in the flat model", tuple(panels), caption)


def _progress_figure(
    sent: Mapping[str, _Sent], phases: Sequence[_Phase], workload: Mapping[str, Any], level: Mapping[str, int]
) -> Figure:
    total = sum(_to_send(workload, level).values())
    series = []
    longest = 0.0
    for model, arrived in sent.items():
        start_s = next(p.low_s for p in phases if (p.model, p.name) == (model, "replication"))
        times = tuple(float(end) - start_s for end in arrived.end_s)
        longest = max((longest, *times))
        series.append(Series(model, (0.0, *times), tuple(i / total for i in range(len(times) + 1)), style="steps"))
    threshold = float(workload.get("threshold", 0.8))
    series.append(Series("threshold", (0.0, longest), (threshold, threshold), published=True))
    panel = Panel("Files that have arrived", "time_s", "arrived_ratio", tuple(series))
    caption = "Time since the first transfer of the model. The analysis starts at the threshold."
    return Figure("tier-progress", "Replication", (panel,), caption)


def _headline(phases: Sequence[_Phase], thresholds: Table) -> str:
    reached: dict[str, list[str]] = {}
    for model, of, count, enough, after_s, *_ in thresholds.rows:
        if of == "all":
            when = f"after {format_quantity('s_s', after_s)}" if isinstance(after_s, float) else "not in time"
            reached.setdefault(f"{enough} of {count} files arrived", []).append(f"{when} ({model})")
    parts = [f"{what} {', '.join(times)}" for what, times in reached.items()]
    return "; ".join(parts) or f"{len(phases)} phases without a threshold of replicated files"


def _sentence(run: Run, phases: Sequence[_Phase], thresholds: Table, loads: Table) -> str:
    parts = []
    for row in thresholds.rows:
        model, of, count, enough, reached, whole, jobs_start_s = row
        if of == "all" and isinstance(reached, float):
            all_ = f", all after {format_quantity('s_s', whole)}" if isinstance(whole, float) else ""
            parts.append(
                f"{model}: {enough} of {count} files had arrived after {format_quantity('s_s', reached)}{all_}."
            )
        elif of == "all" and isinstance(jobs_start_s, float):
            parts.append(
                f"{model}: fewer than {enough} of {count} files arrived; jobs started after all transfers had been attempted, after {format_quantity('s_s', jobs_start_s)}."
            )
    means = {(row[0], row[1]): row[6] for row in loads.rows if isinstance(row[6], float)}
    for model in dict.fromkeys(model for model, _ in means):
        words = [f"tier {tier} {100 * means[model, tier]:.3g} %" for tier in (1, 2, 3) if (model, tier) in means]
        parts.append(f"Mean use of the links, {model}: {', '.join(words)}.")
    failed = sum(phase.failed for phase in phases)
    text = failure_text(run, failed, "batches, files or jobs")
    parts.append("No batch, file or job failed." if text == "none failed" else f"{text[0].upper()}{text[1:]}.")
    return " ".join(parts)
