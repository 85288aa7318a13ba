"""Self-contained HTML page without external references, for light, dark and print. Its script only adds convenience."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from venturi.analysis import Analysis, RunComparison, Scenarios
from venturi.analysis.format import (
    format_factor_name,
    format_factor_value,
    format_factors,
    format_interval_ends,
    format_rate_range,
    format_rate_with_interval,
    plural,
    varied_factors,
)
from venturi.analysis.quantity import column_is_text, format_quantity
from venturi.analysis.result import FactorValue, FitResult, FittedCurves, PointResult
from venturi.report.figures import Picture, pictures, ratio_picture
from venturi.report.rows import storage_rows, value_name
from venturi.report.svg import css_variables, inline_svg
from venturi.report.toml import as_toml
from venturi.stats import Interval
from venturi.study import studies
from venturi.units import format_bit_rate, format_bytes, format_duration, format_rate, format_rate_triple

__all__ = ["environment", "html"]

_TEMPLATES = Path(__file__).parent / "templates"
MAX_RATIOS = 80
"""Maximum rows in the figure of ratios. The table has all."""


def html(result: Analysis | RunComparison | Scenarios) -> str:
    """Return the page of a result.

    The page contains its style and script, figures (SVG with text and a value for each point) and tables. Names and messages of the run are escaped.

    Examples
    --------
    >>> Path("report.html").write_text(html(analyse(run)), encoding="utf-8")  # doctest: +SKIP
    """
    if isinstance(result, Analysis):
        return environment().get_template("analysis.html").render(_analysis_context(result))
    if isinstance(result, Scenarios):
        return environment().get_template("scenarios.html").render(s=result)
    return environment().get_template("comparison.html").render(_comparison_context(result))


@cache
def environment() -> jinja2.Environment:
    """Return the template environment."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    filters: dict[str, Callable[..., object]] = {
        "rate": _or_dash(format_rate), "size": _or_dash(format_bytes), "duration": _or_dash(format_duration),
        "number": _or_dash(lambda value: f"{value:,.4g}"), "percent": _or_dash(lambda value: f"{100 * value:.3g} %"),
        "r2": _or_dash(lambda value: f"{value:.3f}".replace("-0.000", "0.000").replace("-", "−")), "tie": _tie, "whole": _or_dash(lambda value: f"{value:,.0f}"),
        "ratio": _or_dash(lambda value: f"{value:.3g}"), "change": _or_dash(lambda value: f"{100 * (value - 1):+.1f} %"),
        "interval": _interval, "figure": _figure, "plural": plural, "factor_name": format_factor_name,
        "bit_rate": _or_dash(format_bit_rate), "exact_percent": _or_dash(lambda value: f"{100 * value:.5g} %"),
        "cpu": _or_dash(lambda value: f"{value * 1e9:.3g}"), "formula": _formula,
    }  # fmt: skip
    environment.filters.update(filters)
    environment.globals.update(
        style=Markup((_TEMPLATES / "style.css").read_text(encoding="utf-8")),
        script=Markup((_TEMPLATES / "report.js").read_text(encoding="utf-8")),
        light=Markup(css_variables(dark=False)), dark=Markup(css_variables(dark=True)),
        format_factor_value=format_factor_value, format_factors=format_factors, format_rate_with_interval=format_rate_with_interval, format_rate_range=format_rate_range, triple=format_rate_triple,
    )  # fmt: skip
    return environment


def _or_dash(form: Callable[[Any], str]) -> Callable[[Any], str | Markup]:
    def filtered(value: object) -> str | Markup:
        return Markup('<span class="none" title="not measured">–</span>') if value is None else form(value)

    return filtered


def _interval(interval: Interval | None) -> str | Markup:
    if interval is None:
        return Markup('<span class="none" title="fewer than three trials">–</span>')
    unit = format_rate(interval.estimate).split(" ", 1)[1]
    return f"{' – '.join(format_interval_ends(interval, unit))} {unit}"


def _tie(text: str) -> str:
    """Keep a number and its unit on one line."""
    return re.sub(r"(\d) (?=(?:[kMGTP]?(?:B|b)(?:/[sh])?|%|m?s|min|h|files?)\b|%)", "\\1\u00a0", text)


def _figure(picture: Picture) -> Markup:
    """Return the drawing as inline SVG. :func:`inline_svg` escapes its text."""
    return Markup(inline_svg(picture))


def _formula(text: str) -> Markup:
    """Return a formula with superscript exponents. After ``^`` comes a word or a term in balanced brackets."""
    found, rest = "", text
    while "^" in rest:
        before, _, rest = rest.partition("^")
        exponent, rest = _exponent(rest)
        found += f"{Markup.escape(before)}<sup>{Markup.escape(exponent)}</sup>"
    return Markup(f'<span class="formula">{found}{Markup.escape(rest)}</span>')


def _exponent(text: str) -> tuple[str, str]:
    """Return the exponent at the start of ``text``, without brackets, and the rest."""
    if not text.startswith("("):
        word = re.match(r"-?\w*", text)
        end = word.end() if word else 0
        return text[:end], text[end:]
    depth = 0
    for index, letter in enumerate(text):
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if depth == 0:
            return text[1:index], text[index + 1 :]
    return text[1:], ""


def _analysis_context(analysis: Analysis) -> dict[str, object]:
    drawn = pictures(analysis)
    found = _main_picture(analysis, drawn)
    drawn = {name: [picture for picture in group if picture is not found] for name, group in drawn.items()}
    varied = varied_factors(analysis.factors)
    return {
        "a": analysis,
        "pictures": drawn,
        "main_picture": found,
        "varied": varied,
        "created": datetime.fromtimestamp(analysis.about.created_unix_ns / 1e9, tz=UTC).strftime(
            "%d %B %Y, %H:%M UTC"
        ),
        "triple_parts": _triple(analysis),
        "warnings": [finding for finding in analysis.findings if finding.severity == "warning"],
        "notes": [finding for finding in analysis.findings if finding.severity == "note"],
        "point_text": lambda point: _point_text(point, varied),
        "curve_text": lambda curve: format_factors(curve.others, [n for n in curve.others if n in varied]) or "all",
        "fitted": [curve for curve in analysis.curves if curve.best],
        "fit_parameters": _parameters,
        "second_best": _second_best,
        "source_report": studies()[analysis.about.study].report if analysis.about.study in studies() else None,
        "errata": {erratum.id: erratum for erratum in analysis.errata},
        "has_zero": any(point.zero_size for point in analysis.points),
        "has_parts": any(point.parts for point in analysis.points),
        "scenario_toml": as_toml(analysis.about.scenario),
        "environments": _environments(analysis.about.environment),
        "against_name": lambda name: {"files": "parallel files", "size_bytes": "file size", "size": "file size"}.get(
            name, format_factor_name(name)
        ),
        "axis_value": lambda name, value: format_factor_value(
            name, int(value) if float(value).is_integer() else value
        ),
        "sections": _sections(analysis, drawn),
        "storage_rows": storage_rows(analysis),
        "fixed_varied": [n for n in varied if len({str(c.factors[n]) for c in analysis.fixed_costs}) > 1],
        "rates_scale": analysis.testbed.rates_scale if analysis.testbed else 1.0,
        "value_name": value_name,
        "format_quantity": format_quantity,
        "text_columns": lambda table: [
            column_is_text(column, [row[index] for row in table.rows]) for index, column in enumerate(table.columns)
        ],
    }


def _main_picture(analysis: Analysis, drawn: Mapping[str, list[Picture]]) -> Picture | None:
    """Return the figure below the headline: the rate against the main factor, or the first figure of the workload."""
    own = [f"section-{section.name}" for section in analysis.sections if section.headline]
    # Total rates belong to the headline. Against the size, only rates per file have a figure.
    order = ("loads", "curves") if analysis.about.sweep else (*own, "links", "series")
    return next((drawn[name][0] for name in order if drawn.get(name)), None)


def _environments(hosts: Mapping[str, Mapping[str, str]]) -> list[tuple[str, Mapping[str, str]]]:
    """Return the metadata of hosts, each with a title. Values common to all hosts come first, once."""
    values: dict[str, list[str]] = {}
    for metadata in hosts.values():
        for key, value in metadata.items():
            values.setdefault(key, []).append(value)
    shared = {key: found[0] for key, found in values.items() if len(found) > 1 and len(set(found)) == 1}
    if len(hosts) < 3 or not shared:
        return list(hosts.items())
    selected = [
        (host, {key: value for key, value in metadata.items() if key not in shared})
        for host, metadata in hosts.items()
    ]
    return [("all hosts, common values", shared), *selected]


def _triple(analysis: Analysis) -> list[tuple[str, str]]:
    """Return the highest rate in three units, as in the scorecard of ESnet."""
    if analysis.headline.bytes_per_s is None:
        return []
    parts = format_rate_triple(analysis.headline.bytes_per_s).split(" = ")
    return list(zip(parts, ("volume per hour", "network", "storage"), strict=True))


def _point_text(point: PointResult | Mapping[str, FactorValue], varied: tuple[str, ...]) -> str:
    factors = point.factors if isinstance(point, PointResult) else point
    return format_factors(factors, [name for name in factors if name in varied or name in ("files", "size_bytes")])


def _parameters(fit: FitResult) -> list[tuple[str, str, str | None]]:
    return [
        (name, f"{value:.4g}", None if fit.errors.get(name) is None else f"{fit.errors[name]:.2g}")
        for name, value in fit.parameters.items()
    ]


def _second_best(curve: FittedCurves) -> FitResult | None:
    return curve.fits[1] if len(curve.fits) > 1 else None


def _sections(analysis: Analysis, drawn: Mapping[str, list[Picture]]) -> list[tuple[str, str]]:
    candidates = [
        ("failures", "Failures", bool(analysis.failures)),
        *((f"section-{section.name}", section.title, True) for section in analysis.shown_sections if section.name != "gridftp"),
        ("curves", "Throughput per file", bool(drawn["curves"])),
        ("loads", "Total throughput", bool(analysis.loads)),
        ("storages", "Storage throughput", bool(storage_rows(analysis))),
        ("fixed", "Fixed cost", bool(analysis.fixed_costs)),
        ("models", "Fitted functions", bool(analysis.families)),
        ("published", "Comparison", bool(analysis.published_fits or analysis.published_totals or analysis.published_rates or analysis.published_tables or analysis.claims)),
        ("points", "Points", bool(analysis.points)),
        ("testbed", "Testbed", analysis.testbed is not None),
        ("checks", "Checks", True),
        ("series", "Time series", bool(drawn["series"] or drawn["order"] or drawn["links"] or analysis.sockets or analysis.link_use or analysis.sessions)),
        *((f"section-{section.name}", section.title, True) for section in analysis.shown_sections if section.name == "gridftp"),
        ("not-tested", "Not tested", True),
        ("repeat", "Repeat", True),
    ]  # fmt: skip
    return [(name, title) for name, title, present in candidates if present]


def _comparison_context(comparison: RunComparison) -> dict[str, object]:
    names = list(dict.fromkeys(name for point in comparison.points for name in point.factors))
    varying_names = [n for n in names if len({str(p.factors.get(n)) for p in comparison.points}) > 1] or names[:2]
    rows = [
        (format_factors(p.factors, varying_names) or "all", p.throughput.ratio, p.throughput.verdict)
        for p in comparison.points
        if p.throughput
    ]
    return {
        "c": comparison,
        "names": names,
        "picture": ratio_picture((comparison.first, comparison.second), rows[:MAX_RATIOS], comparison.margin)
        if rows
        else None,
        "left_out": max(0, len(rows) - MAX_RATIOS),
    }
