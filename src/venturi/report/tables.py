"""Results as CSV tables. Column names contain base units, and empty cells are missing measurements."""

from __future__ import annotations

import csv as _csv
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from venturi.analysis import Analysis, RunComparison
from venturi.analysis.published import published_rows
from venturi.report.tables_lab import factors, lab_tables
from venturi.report.tables_section import write_sections
from venturi.stats import Interval

__all__ = ["csv"]

Row = Mapping[str, object]


def csv(result: Analysis | RunComparison, directory: Path | str) -> list[Path]:
    """Write the tables of a result into a directory, and return the paths.

    The directory is created if necessary. Tables without rows are omitted, except the tables of report sections.

    An analysis gives these files:

    - ``points.csv``, ``fits.csv``, ``families.csv``, ``totals.csv``, ``steps.csv``
    - ``claims.csv``, ``published.csv``, ``findings.csv``, ``failures.csv``
    - with storages and empty files: ``storages.csv``, ``fixed_costs.csv``, ``fixed_cost_ratios.csv``
    - with links, servers and sockets: ``links.csv``, ``link_use.csv``, ``sockets.csv``, ``sessions.csv``,
      ``byte_accounts.csv``
    - one file per table of a report section

    A comparison gives ``comparison.csv`` and ``differences.csv``.
    """
    home = Path(directory)
    home.mkdir(parents=True, exist_ok=True)
    tables = _analysis(result) if isinstance(result, Analysis) else _comparison(result)
    written = []
    for name, rows in tables.items():
        found = list(rows)
        if found:
            written.append(_write(home / f"{name}.csv", found))
    if isinstance(result, Analysis):
        written += write_sections(result.all_sections, home, taken=tables)
    return written


def _write(path: Path, rows: Sequence[Row]) -> Path:
    names = list(dict.fromkeys(name for row in rows for name in row))
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = _csv.DictWriter(stream, names, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return path


def _analysis(analysis: Analysis) -> dict[str, Iterable[Row]]:
    return {
        "points": _points(analysis),
        "fits": _fits(analysis),
        "families": (
            {"against": f.against, "family": f.family, "formula": f.formula, "curves": f.curves, "mean_r2": f.mean_r2,
             "mean_adjusted_r2": f.mean_adjusted_r2, "mean_delta_aicc": f.mean_delta_aicc, "ranked_first": f.first}
            for f in analysis.families
        ),
        "totals": (
            {"range": kind, "name": t.name, "files_min": t.files_low, "files_max": t.files_high, "points": t.points,
             "total_bytes_per_s": t.mean_bytes_per_s, "error_bytes_per_s": t.error_bytes_per_s, "complete_grid": t.complete}
            for kind, totals in (("whole", analysis.totals), ("common", analysis.common_totals)) for t in totals
        ),
        "steps": (
            {**factors(load.others), "files_from": s.load_from, "files_to": s.load_to, "ratio": s.ratio, "error": s.error,
             "linear": s.linear}
            for load in analysis.loads for s in load.steps
        ),
        "claims": (
            {"id": c.id, "verdict": c.verdict, "text": c.text, "check": c.check, "evidence": c.evidence,
             "published_verdict": c.published.verdict if c.published else None,
             "published_evidence": c.published.evidence if c.published else None, "errata": " ".join(c.errata)}
            for c in analysis.claims
        ),
        "published": published_rows(analysis),
        "findings": (
            {"severity": n.severity, "code": n.code, "subject": n.subject, "count": n.count, "evidence": n.evidence,
             "advice": n.advice, "example": n.example}
            for n in analysis.findings
        ),
        "failures": (
            {"outcome": f.outcome, "call": f.call, "error": f.error, "count": f.count, "points": f.points, "first_trial": f.example}
            for f in analysis.failures
        ),
        **lab_tables(analysis),
    }  # fmt: skip


def _points(analysis: Analysis) -> Iterable[Row]:
    for p in analysis.points:
        yield {
            "point": p.point, **factors(p.factors), "trials": p.trials, "trials_planned": p.trials_planned,
            "transfers_ok": p.transfers_ok, "transfers_failed": p.transfers_failed, "mean_time_s": p.mean_time_s,
            "error_time_s": p.error_time_s, "throughput_bytes_per_s": p.throughput_bytes_per_s,
            "error_bytes_per_s": p.error_bytes_per_s, "error_kind": p.error_kind,
            **_interval("throughput", p.interval),
            "plain_mean_bytes_per_s": p.plain_mean_bytes_per_s, "weighted_mean_bytes_per_s": p.weighted_mean_bytes_per_s,
            "error_printed_bytes_per_s": p.error_printed_bytes_per_s,
            "error_internal_bytes_per_s": p.error_internal_bytes_per_s,
            "error_external_bytes_per_s": p.error_external_bytes_per_s, "error_trial_bytes_per_s": p.error_trial_bytes_per_s,
            "together_bytes_per_s": p.together_bytes_per_s, **_interval("together", p.together_interval),
            "files_times_bytes_per_s": p.files_times_bytes_per_s, "tail_s": p.tail_s, "start_spread_s": p.start_spread_s,
            "span_s": p.span_s, "cpu_s_per_byte": p.cpu_s_per_byte, "read_disk_ratio": p.read_disk_ratio,
            "trend_ratio": p.trend_ratio, "outliers": p.outliers,
            "throughput_without_outliers_bytes_per_s": p.throughput_without_outliers_bytes_per_s,
            "zero_size_corrected_bytes_per_s": p.zero_size.throughput_bytes_per_s if p.zero_size else None,
            "zero_size_outcome": p.zero_size.outcome if p.zero_size else None,
        }  # fmt: skip


def _interval(name: str, interval: Interval | None) -> dict[str, object]:
    return {
        f"{name}_low_bytes_per_s": interval.low if interval else None,
        f"{name}_high_bytes_per_s": interval.high if interval else None,
        f"{name}_interval_method": interval.method if interval else None,
        f"{name}_interval_level": interval.level if interval else None,
    }


def _fits(analysis: Analysis) -> Iterable[Row]:
    for number, curve in enumerate(analysis.curves):
        for fit in curve.fits:
            for name, value in fit.parameters.items():
                yield {
                    "curve": number, "against": curve.against, **factors(curve.others), "rank": fit.rank, "family": fit.family,
                    "formula": fit.formula, "r2": fit.r2, "adjusted_r2": fit.adjusted_r2, "aicc": fit.aicc,
                    "delta_aicc": fit.delta_aicc, "cross_validation_bytes_per_s": fit.cross_validation, "parameter": name,
                    "value": value, "error": fit.errors.get(name), "warnings": "; ".join(fit.warnings),
                }  # fmt: skip


def _comparison(comparison: RunComparison) -> dict[str, Iterable[Row]]:
    return {
        "comparison": (
            {
                **factors(p.factors), "first_bytes_per_s": p.first_bytes_per_s, "second_bytes_per_s": p.second_bytes_per_s,
                "ratio": p.throughput.ratio.estimate if p.throughput else None,
                "ratio_low": p.throughput.ratio.low if p.throughput else None,
                "ratio_high": p.throughput.ratio.high if p.throughput else None,
                "verdict": p.throughput.verdict if p.throughput else "cannot tell",
                "method": p.throughput.ratio.method if p.throughput else None,
                "together_ratio": p.together.ratio.estimate if p.together else None,
                "together_ratio_low": p.together.ratio.low if p.together else None,
                "together_ratio_high": p.together.ratio.high if p.together else None,
            }
            for p in comparison.points
        ),
        "differences": ({"where": d.where, "first": d.first, "second": d.second} for d in comparison.differences),
    }  # fmt: skip
