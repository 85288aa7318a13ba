"""Terminal report: readable at 80 columns and without colour."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from venturi.analysis import Analysis, RunComparison, Scenarios
from venturi.analysis.format import (
    format_factor_name,
    format_factor_value,
    format_factors,
    format_rate_range,
    format_rate_with_interval,
    plural,
    varied_factors,
)  # fmt: skip
from venturi.analysis.result import FindingSummary
from venturi.report.terminal_lab import lab_parts, published_table_parts
from venturi.report.terminal_section import section_parts
from venturi.report.terminal_summary import Screen
from venturi.report.terminal_table import MAX_ROWS, SHORT_NAMES, new_table
from venturi.stats import Interval
from venturi.units import format_rate, format_rate_triple

__all__ = ["terminal"]

_STYLES = {"agrees": "green", "disagrees": "red", "faster": "green", "slower": "red"}


def terminal(result: Analysis | RunComparison | Scenarios, *, full: bool = False) -> Group:
    """Return a renderable for :meth:`rich.console.Console.print`. Colours only repeat the text.

    An analysis fits one screen of 24 lines and 80 columns. With ``full``, all sections follow.

    Examples
    --------
    >>> rich.console.Console().print(terminal(analyse(run)))  # doctest: +SKIP
    """
    match result:
        case Analysis():
            return Group(*_analysis(result)) if full else Group(Screen(result))
        case RunComparison():
            return Group(*_comparison(result))
        case Scenarios():
            return Group(*_scenarios(result))


def _analysis(a: Analysis) -> list[RenderableType]:
    texts = [text for text in (a.conclusion, a.setting, a.caveat) if text and text != a.headline.text]
    parts: list[RenderableType] = [Text(a.headline.text, style="bold"), Text(" ".join(texts)), Text()]
    parts += _findings(a.findings)
    parts += [Text(f"next, {a.next_step.reason}:"), Text(f"  {a.next_step.command}"), Text()]
    if a.headline.bytes_per_s is not None:
        names = [n for n in a.headline.factors if n in (*varied_factors(a.factors), "files", "size_bytes")]
        where = format_factors(a.headline.factors, names)
        parts += [
            Text(f"{format_rate_triple(a.headline.bytes_per_s)}\nhighest throughput of a whole trial: {where}"),
            Text(),
        ]
    parts += [part for section in a.shown_sections for part in section_parts(section)]
    if a.points:
        parts += [_points(a), Text()]
    if a.best_families:
        parts += [_families(a), Text()]
    if a.totals or a.published_totals:
        parts += [_totals(a), Text()]
    if a.published_rates:
        parts += [_published_rates(a), Text()]
    parts += published_table_parts(a)
    if a.claims:
        parts += _claims(a)
    parts += lab_parts(a)
    if a.failures:
        parts += [_failures(a), Text()]
    parts += [Text("Not tested in this run", style="bold"), *(Text(f"- {text}") for text in a.not_tested)]
    return parts


def _findings(findings: Sequence[FindingSummary]) -> list[RenderableType]:
    parts: list[RenderableType] = []
    for finding in findings:
        mark = "!" if finding.severity == "warning" else "-"
        count = f" ({finding.count:,} times)" if finding.count > 1 else ""
        parts.append(Text(f"{mark} {finding.code}{count}: {finding.evidence}", style="yellow" if mark == "!" else ""))
        parts.append(Text(f"  {finding.advice}", style="dim"))
    return [*parts, Text()] if parts else []


def _points(a: Analysis) -> Table:
    table = new_table("Points")
    names = varied_factors(a.factors) or tuple(
        factor.name for factor in a.factors if factor.name in ("files", "size_bytes")
    )
    for name in names:
        table.add_column(SHORT_NAMES.get(name, format_factor_name(name)), justify="right", overflow="fold")
    for head in ("trials", "per file", "interval", "total", "failed"):
        table.add_column(head, justify="right", overflow="fold")
    visible = a.points if len(a.points) <= MAX_ROWS else a.points[:MAX_ROWS]
    for p in visible:
        table.add_row(
            *(format_factor_value(name, p.factors[name]) for name in names), str(p.trials), _rate(p.throughput_bytes_per_s),
            _interval(p.interval), _rate(p.together_bytes_per_s), str(p.transfers_failed or ""),
        )  # fmt: skip
    if len(visible) < len(a.points):
        table.caption = f"{plural(len(a.points) - len(visible), 'more point')} in the HTML page and the CSV tables"
    return table


def _families(a: Analysis) -> Table:
    table = new_table("Best functions for throughput per file (form of table III)")
    for head in ("against", "by mean R²", "R²", f"by {a.about.criterion}", "first for"):
        table.add_column(head, justify="right" if head in ("R²", "first for") else "left", overflow="fold")
    for row in a.best_families:
        against = {"files": "files", "size_bytes": "size"}.get(row.against, format_factor_name(row.against))
        r2 = "-" if row.by_mean_r2.mean_r2 is None else f"{row.by_mean_r2.mean_r2:.3f}"
        table.add_row(
            against, row.by_mean_r2.family, r2, row.by_criterion.family, f"{row.by_criterion.first} of {row.curves}"
        )
    for fit in a.published_fits:
        r2 = " or ".join(f"{value:g}" for value in (fit.mean_r2_table, fit.mean_r2_text) if value is not None)
        table.add_row(
            f"{fit.against}, published{'' if fit.files_max is None else f', files ≤ {fit.files_max}'}",
            fit.family,
            r2 or "-",
            "",
            "",
        )
    return table


def _totals(a: Analysis) -> Table:
    table = new_table("Mean totals: files × throughput per file (form of table IV)")
    for head in ("total", "files", "this run", "published"):
        table.add_column(head, justify="left" if head == "total" else "right", overflow="fold")
    for total in a.totals:
        table.add_row(total.name, f"{total.files_low} to {total.files_high}", format_rate(total.mean_bytes_per_s), "")
    for total in a.common_totals:
        table.add_row(
            f"{total.name}, common points",
            f"{total.files_low} to {total.files_high}",
            format_rate(total.mean_bytes_per_s),
            "",
        )
    for row in a.published_totals:
        ours = "-" if row.ours is None else format_rate(row.ours.mean_bytes_per_s)
        published = f"{format_rate(row.total_bytes_per_s)}{_times(row.scale)}"
        table.add_row(row.name, f"{row.files_min} to {row.files_max}", ours, published)
    return table


def _published_rates(a: Analysis) -> Table:
    table = new_table("Rates of whole trials: published and this run")
    for head in ("rate", "files", "published", "this run", "ratio"):
        table.add_column(head, justify="left" if head == "rate" else "right", overflow="fold")
    for row in a.published_rates:
        files = f"{row.files_min}" + (f" to {row.files_max}" if row.files_max != row.files_min else "")
        published = f"{row.qualifier} {format_rate_range(row.low_bytes_per_s, row.high_bytes_per_s)}{_times(row.scale)}".strip()
        ours = format_rate_range(row.ours_low_bytes_per_s, row.ours_high_bytes_per_s)
        table.add_row(row.name, files, published, ours, "-" if row.ratio is None else f"{row.ratio:.3g}")
    return table


def _times(scale: float) -> str:
    """Return the factor of published rates if links are scaled, otherwise an empty text."""
    return "" if scale == 1 else f" × {scale:g}"


def _claims(a: Analysis) -> list[RenderableType]:
    parts: list[RenderableType] = [Text(f"Claims of study {a.about.study}", style="bold")]
    for claim in a.claims:
        line = Text("- ")
        line.append(claim.verdict, style=_STYLES.get(claim.verdict, ""))
        errata = f" ({', '.join(claim.errata)})" if claim.errata else ""
        parts += [line.append(f": {claim.text}{errata}"), Text(f"  {claim.evidence}", style="dim")]
        if claim.published is not None:
            text = f"  tables of the report: {claim.published.verdict}: {claim.published.evidence}"
            parts.append(Text(text, style="dim"))
    return [*parts, Text()]


def _failures(a: Analysis) -> Table:
    table = new_table(f"Failures: {a.counts.transfers_failed:,} of {plural(a.counts.transfers, 'transfer')}")
    for head in ("outcome", "call", "reason", "transfers"):
        table.add_column(head, justify="right" if head == "transfers" else "left", overflow="fold")
    for failure in a.failures[:10]:
        table.add_row(failure.outcome, failure.call, failure.error or "no reason recorded", f"{failure.count:,}")
    return table


def _comparison(c: RunComparison) -> list[RenderableType]:
    parts: list[RenderableType] = [Text(c.sentence, style="bold"), Text()]
    if c.total is not None:
        error = "" if c.total.error is None else f" ± {c.total.error:.2g}"
        parts += [Text(f"mean total over {plural(c.total.points, 'common point')}: {format_rate(c.total.first_bytes_per_s)} → "
                       f"{format_rate(c.total.second_bytes_per_s)}, ratio {c.total.ratio:.3g}{error}"), Text()]  # fmt: skip
    if c.points:
        parts += [_ratios(c), Text()]
    if any(c.unmatched):
        parts += [Text(f"{c.unmatched[0]} points only in the first run, {c.unmatched[1]} only in the second"), Text()]
    if c.differences:
        parts.append(Text("Other differences", style="bold"))
        parts += [Text(f"- {d.where}: {d.first or '-'} → {d.second or '-'}") for d in c.differences[:20]]
        if len(c.differences) > 20:
            parts.append(Text(f"- and {len(c.differences) - 20} more"))
    return parts


def _ratios(c: RunComparison) -> Table:
    table = new_table(
        f"Second run / first run, throughput per file ({100 * c.level:g} % intervals, margin {100 * c.margin:g} %)"
    )
    names = list(dict.fromkeys(name for point in c.points for name in point.factors))
    visible = [n for n in names if len({str(p.factors.get(n)) for p in c.points}) > 1] or names[:2]
    for name in visible:
        table.add_column(
            {"files": "files", "size_bytes": "size"}.get(name, format_factor_name(name)),
            justify="right",
            overflow="fold",
        )
    for head in ("first", "second", "ratio", "interval"):
        table.add_column(head, justify="right", overflow="fold")
    table.add_column("verdict", overflow="fold")
    for p in c.points[:MAX_ROWS]:
        ratio = p.throughput.ratio if p.throughput else None
        verdict = p.throughput.verdict if p.throughput else "cannot tell"
        table.add_row(
            *(format_factor_value(name, p.factors.get(name)) for name in visible), _rate(p.first_bytes_per_s), _rate(p.second_bytes_per_s),
            "-" if ratio is None else f"{ratio.estimate:.3g}", "-" if ratio is None else f"{ratio.low:.3g}–{ratio.high:.3g}",
            Text(verdict, style=_STYLES.get(verdict, "")),
        )  # fmt: skip
    if len(c.points) > MAX_ROWS:
        table.caption = f"{plural(len(c.points) - MAX_ROWS, 'more point')} in the HTML page and the CSV tables"
    return table


def _scenarios(s: Scenarios) -> list[RenderableType]:
    table = new_table(f"Totals: files × throughput per file, over {plural(s.common_points, 'common point')}")
    table.add_column("scenario", overflow="fold")
    for head in ("all points", "common points", "ratio to first", "published"):
        table.add_column(head, justify="right", overflow="fold")
    for row in s.rows:
        error = "" if row.of_first_error is None else f" ± {row.of_first_error:.2g}"
        table.add_row(
            f"{row.run}, {row.whole.name}",
            _rate(row.whole.mean_bytes_per_s),
            _rate(row.common.mean_bytes_per_s if row.common else None),
            "-" if row.of_first is None else f"{row.of_first:.3g}{error}",
            _rate(row.published.total_bytes_per_s if row.published else None),
        )
    return [Text(s.sentence, style="bold"), Text(), table]


def _rate(value: float | None) -> str:
    return "-" if value is None else format_rate(value)


def _interval(interval: Interval | None) -> str:
    """Return both limits, in the unit of the estimate in the previous column."""
    if interval is None:
        return "-"
    return format_rate_with_interval(interval.estimate, interval).partition("(")[2].rstrip(")")
