"""Figures of a report. Each :class:`Picture` has a drawing, its caption, and a text description."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from venturi.analysis.format import format_factor_value, format_factors, plural
from venturi.analysis.result import (
    Analysis,
    FactorValue,
    FitResult,
    FittedCurves,
    HostSeries,
    LoadCurve,
    PointResult,
    RateTrace,
)
from venturi.report.drawing import (
    FULL,
    HALF,
    Picture,
    axis_label,
    axis_of_factor,
    canvas,
    caption_axis,
    file_name,
    label_ends,
    log_rates,
    rate_scale,
    sort_key,
)  # fmt: skip
from venturi.report.figures_lab import fixed_pictures, link_pictures
from venturi.report.figures_section import Floats, section_pictures
from venturi.report.testbed_drawing import diagram_pictures
from venturi.report.theme import ACCENT, BACKGROUND, BAND, GRID, MUTED, SECOND, series_colours, styled
from venturi.stats import Interval
from venturi.units import format_rate

__all__ = ["Picture", "pictures", "position_picture", "ratio_picture"]

MAX_GROUPS = 6
"""Maximum combinations of other factors with separate figures. The table has all."""
MAX_SHARED_CURVES = 12
"""Maximum curves in a shared figure."""
MAX_HOSTS = 6
"""Maximum hosts with a figure of counters. Hosts with the most bytes come first. A figure takes 30 kB."""
RASTER_FROM = 1500
"""Number of points above which a scatter plot is a raster image. Pages with 10⁵ vector points open slowly."""
MAX_BAND_WIDTH = 0.6
"""Maximum median width of a drawn band, relative to the curve."""


def pictures(analysis: Analysis) -> dict[str, list[Picture]]:
    """Return the figures by section of the page.

    The keys are ``curves``, ``loads``, ``fixed``, ``testbed``, ``order``, ``links`` and ``series``. Report sections
    have the key ``section-NAME``.
    """
    with styled():
        return {
            **{f"section-{section.name}": section_pictures(section) for section in analysis.shown_sections},
            "curves": _curve_pictures(analysis),
            "loads": _load_pictures(analysis),
            "fixed": fixed_pictures(analysis),
            "testbed": diagram_pictures(analysis),
            "order": position_picture(analysis),
            "links": link_pictures(analysis),
            "series": _series_pictures(analysis.series),
        }


def _curve_pictures(analysis: Analysis) -> list[Picture]:
    varied = {factor.name for factor in analysis.factors if factor.varied}
    by_point = {point.point: point for point in analysis.points}
    found = []
    kinds = _kinds(analysis.curves, varied)
    if 1 < len(kinds) <= MAX_SHARED_CURVES and all(
        len({c.against for c in group}) == len(group) for group in kinds.values()
    ):
        kinds = {
            (): [curve for group in kinds.values() for curve in group]
        }  # one curve per group: draw all in one figure
    for kind in list(kinds)[:MAX_GROUPS]:
        for against in dict.fromkeys(curve.against for curve in kinds[kind]):
            group = [curve for curve in kinds[kind] if curve.against == against and curve.x]
            if group:
                found.append(_curve_picture(group, against, dict(kind), varied, by_point, analysis))
    return found


def _kinds(
    curves: Sequence[FittedCurves], varied: set[str]
) -> dict[tuple[tuple[str, FactorValue], ...], list[FittedCurves]]:
    """Return the curves by factors other than files, size and the axis. Each group has its own figures."""
    groups: dict[tuple[tuple[str, FactorValue], ...], list[FittedCurves]] = {}
    numeric = {curve.against for curve in curves} | {"files", "size_bytes"}
    for curve in curves:
        kind = tuple((k, v) for k, v in curve.others.items() if k in varied and k not in numeric)
        groups.setdefault(kind, []).append(curve)
    return groups


def _curve_picture(
    curves: Sequence[FittedCurves], against: str, kind: Mapping[str, FactorValue], varied: set[str], points: Mapping[int, PointResult],
    analysis: Analysis,
) -> Picture:  # fmt: skip
    curve_factors = [name for name in curves[0].others if name in varied and name not in kind]
    curves = sorted(curves, key=lambda curve: tuple(sort_key(curve.others.get(name)) for name in curve_factors))
    figure, axes = canvas(HALF)
    rates = [rate for curve in curves for rate in curve.y_bytes_per_s]
    scale, unit = rate_scale(math.sqrt(max(rates) * min(rates)))
    axis_of_factor(axes, against, sorted({x for curve in curves for x in curve.x}))
    log = log_rates(axes, rates, scale)
    labels = []
    for curve, colour in zip(curves, series_colours(len(curves)), strict=True):
        name = format_factors(curve.others, curve_factors)
        _draw_curve(axes, curve, name, colour, points, scale, floor=min(rates) / scale / 3 if log else 0.0)
        labels.append((curve.x[-1], curve.y_bytes_per_s[-1] / scale, name, colour))
    caption_axis(axes, f"{unit} per file")
    label_ends(figure, axes, labels)
    names = " and ".join(axis_label(name) for name in curve_factors)
    of = f", {format_factors(kind, list(kind))}" if kind else ""
    best = next((row for row in analysis.best_families if row.against == against), None)
    fits = ""
    if any(curve.best for curve in curves):
        level, wide = (
            100 * analysis.about.confidence,
            sum(curve.best is not None and not _is_band_narrow(curve.best) for curve in curves),
        )
        fits = f" Lines: best family for each curve, with {level:g} % confidence bands"
        fits += f" ({plural(wide, 'curve')} without a band, which would be too wide)." if wide else "."
    title = f"Throughput per file against {axis_label(against)}{of}"
    return Picture(
        name=file_name(f"throughput-{against}", kind),
        title=title,
        caption=(f"One curve for each {names}." if names else "")
        + fits
        + " Bars: confidence interval over whole trials.",
        alt=_curve_alt(title, curves, against, curve_factors, best.by_criterion.family if best else None),
        figure=figure,
    )


def _draw_curve(
    axes: Axes,
    curve: FittedCurves,
    name: str,
    colour: str,
    points: Mapping[int, PointResult],
    scale: float,
    *,
    floor: float,
) -> None:
    x, y = np.array(curve.x), np.array(curve.y_bytes_per_s) / scale
    fit = curve.best
    if fit is not None and fit.draw_x:
        if _is_band_narrow(fit):
            low = np.clip(np.array(fit.draw_low) / scale, floor, 3 * y.max())
            high = np.clip(np.array(fit.draw_high) / scale, floor, 3 * y.max())
            axes.fill_between(fit.draw_x, low, high, color=colour, alpha=0.13, linewidth=0, zorder=1)
        drawn = np.clip(np.array(fit.draw_y) / scale, floor, None)
        axes.plot(fit.draw_x, drawn, color=colour, linewidth=1.3, zorder=2, solid_capstyle="round")
    else:
        axes.plot(x, y, color=colour, linewidth=0.9, alpha=0.6, zorder=2)
    low, high = _bars([points[p] for p in curve.points], curve.error_bytes_per_s, y * scale, lambda p: p.interval)
    axes.errorbar(x, y, yerr=(low / scale, high / scale), fmt="none", ecolor=colour, elinewidth=0.9, zorder=3)
    _draw_points(axes, x, y, name, colour)


def _draw_points(axes: Axes, x: Floats, y: Floats, name: str, colour: str) -> None:
    """Draw the points of a series; they show its name and their values on hover."""
    axes.plot(
        x, y, "o", color=colour, markersize=4.2, markeredgecolor=BACKGROUND, markeredgewidth=0.7, zorder=4, label=name
    )


def _is_band_narrow(fit: FitResult) -> bool:
    """Return whether a band is narrow enough to draw. Wide bands hide other curves."""
    if not fit.draw_low:
        return False
    width = np.array(fit.draw_high) - np.array(fit.draw_low)
    return bool(np.median(width / np.maximum(np.abs(fit.draw_y), 1e-300)) <= MAX_BAND_WIDTH)


def _bars(
    points: Sequence[PointResult], errors: Sequence[float | None], y: np.ndarray[tuple[int], np.dtype[np.float64]],
    interval_of: Callable[[PointResult], Interval | None],
) -> tuple[np.ndarray[tuple[int], np.dtype[np.float64]], np.ndarray[tuple[int], np.dtype[np.float64]]]:  # fmt: skip
    """Return the lengths of the error bars below and above: the interval, or one standard error."""
    low, high = np.zeros(len(y)), np.zeros(len(y))
    for i, (point, error) in enumerate(zip(points, errors, strict=True)):
        interval = interval_of(point)
        if interval is not None:
            low[i], high[i] = max(y[i] - interval.low, 0.0), max(interval.high - y[i], 0.0)
        elif error is not None:
            low[i] = high[i] = error
    return np.minimum(low, 0.95 * y), high


def _load_pictures(analysis: Analysis) -> list[Picture]:
    varied = {factor.name for factor in analysis.factors if factor.varied}
    by_point = {(p.files, *((k, v) for k, v in p.factors.items() if k != "files")): p for p in analysis.points}
    groups: dict[tuple[tuple[str, FactorValue], ...], list[LoadCurve]] = {}
    for load in analysis.loads:
        kind = tuple((k, v) for k, v in load.others.items() if k in varied and k != "size_bytes")
        groups.setdefault(kind, []).append(load)
    if 1 < len(groups) <= MAX_SHARED_CURVES and all(len(group) == 1 for group in groups.values()):
        groups = {(): [load for group in groups.values() for load in group]}
    return [_load_picture(group, dict(kind), varied, by_point) for kind, group in list(groups.items())[:MAX_GROUPS]]


def _load_picture(
    loads: Sequence[LoadCurve],
    kind: Mapping[str, FactorValue],
    varied: set[str],
    points: Mapping[tuple[object, ...], PointResult],
) -> Picture:
    curve_factors = [name for name in loads[0].others if name in varied and name not in kind]
    loads = sorted(loads, key=lambda load: tuple(sort_key(load.others.get(name)) for name in curve_factors))
    figure, axes = canvas(HALF)
    rates = [rate for load in loads for rate in load.together_bytes_per_s]
    scale, unit = rate_scale(math.sqrt(max(rates) * min(rates)))
    axis_of_factor(axes, "files", sorted({float(n) for load in loads for n in load.files}))
    log_rates(axes, rates, scale, ratio=60.0)
    labels = []
    for load, colour in zip(loads, series_colours(len(loads)), strict=True):
        x, y = np.array(load.files, dtype=float), np.array(load.together_bytes_per_s) / scale
        group = [points[(n, *load.others.items())] for n in load.files]
        low, high = _bars(group, load.error_bytes_per_s, y * scale, lambda p: p.together_interval)
        axes.plot(x, y, color=colour, linewidth=1.2, zorder=2)
        axes.errorbar(x, y, yerr=(low / scale, high / scale), fmt="none", ecolor=colour, elinewidth=0.9, zorder=3)
        name = format_factors(load.others, curve_factors)
        _draw_points(axes, x, y, name, colour)
        if load.saturation is not None and load.saturation.outcome == "reached" and load.saturation.load is not None:
            at = load.files.index(int(load.saturation.load))
            axes.plot(
                x[at],
                y[at],
                "o",
                markersize=9,
                fillstyle="none",
                color=colour,
                markeredgewidth=1.1,
                zorder=5,
                label=name,
            )
        labels.append((x[-1], y[-1], name, colour))
    caption_axis(axes, f"{unit} in total")
    label_ends(figure, axes, labels)
    of = f", {format_factors(kind, list(kind))}" if kind else ""
    title = f"Total throughput against number of parallel files{of}"
    reached = [f"{load.saturation.load:g}" for load in loads
               if load.saturation is not None and load.saturation.outcome == "reached"]  # fmt: skip
    return Picture(
        name=file_name("total", kind),
        title=title,
        caption="All bytes, divided by the time from the first start to the last end."
        + (" Rings: smallest number within 5 % of the best." if reached else ""),
        alt=f"{title}. {plural(len(loads), 'curve')}; from {format_rate(min(rates))} to {format_rate(max(rates))}."
        + (f" Within 5 % of the best from {', '.join(dict.fromkeys(reached))} files." if reached else ""),
        figure=figure,
    )


def position_picture(analysis: Analysis) -> list[Picture]:
    """Return the throughput of each trial relative to its point, in execution order, or nothing without repetitions."""
    trials = analysis.trials
    means = {p.point: p.throughput_bytes_per_s for p in analysis.points if p.throughput_bytes_per_s and p.trials > 1}
    if not means or len(trials.point) < 10:
        return []
    size = max(int(trials.point.max()), max(means)) + 1
    mean = np.full(size, np.nan)
    mean[list(means)] = list(means.values())
    ratio = trials.throughput_bytes_per_s / mean[trials.point]
    keep = np.isfinite(ratio)
    x, y = trials.position[keep], 100 * (ratio[keep] - 1)  # deviation from the mean in percent
    with styled():
        figure, axes = canvas((FULL, 2.5))
        low, high = np.quantile(y, (0.002, 0.998))
        reach = 1.15 * float(max(high, -low, 2.0))
        dense = len(x) > RASTER_FROM
        alpha = float(np.clip(60 / math.sqrt(len(x)), 0.06, 0.75))
        # A raster image cannot use the colours of the page. This grey-blue is visible on white and on black.
        colour = "#5b8db8" if dense else ACCENT
        axes.plot(x, np.clip(y, -reach, reach), "o", color=colour, markersize=2.2 if dense else 3, alpha=alpha,
                  markeredgewidth=0, rasterized=dense, zorder=2)  # fmt: skip
        axes.axhline(0.0, color=MUTED, linewidth=0.7, zorder=1)
        if analysis.trend is not None:
            change = 100 * (analysis.trend.ratio - 1) / (analysis.trend.ratio + 1)
            axes.plot([x.min(), x.max()], [-change, change], color=SECOND, linewidth=1.4, zorder=3)
        axes.set_ylim(-reach, reach)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda v, _: _signed(v) if abs(v) > 1e-9 else "mean"))
        axes.yaxis.set_major_locator(MaxNLocator(5))
        axes.set_xlabel("position in execution order")
        caption_axis(axes, "throughput relative to the mean of the point")
    text = ""
    if analysis.trend is not None:
        t = analysis.trend
        text = (f" Line: {_signed(100 * (t.ratio - 1))} from first to last"
                f" ({_signed(100 * (t.low - 1))} to {_signed(100 * (t.high - 1))}).")  # fmt: skip
    outside = int(np.sum(np.abs(y) > reach))
    more = (
        f" {plural(outside, 'trial')} outside the frame {'is' if outside == 1 else 'are'} drawn at its border."
        if outside
        else ""
    )
    return [Picture("order", "Trials in execution order",
                    "On an idle machine, the points scatter around a horizontal line." + text + more,
                    f"Throughput of {len(x):,} trials relative to the mean of their points, by position.{text}", figure, wide=True)]  # fmt: skip


def _signed(percent: float) -> str:
    return f"{percent:+.3g} %".replace("-", "−")


def _series_pictures(series: Sequence[HostSeries]) -> list[Picture]:
    known = [one for one in series if one.traces]
    busiest = {one.host for one in sorted(known, key=_moved, reverse=True)[:MAX_HOSTS]}
    of = (
        f" The figures show the {len(busiest)} of {len(known)} hosts that moved most."
        if len(known) > len(busiest)
        else ""
    )
    return [_series_picture(one, of) for one in known if one.host in busiest]


def _moved(series: HostSeries) -> float:
    """Return the sum of the mean rates of disks and networks, in bytes/s."""
    return sum(
        float(np.nansum(trace.mean)) / trace.mean.size for trace in series.traces if trace.unit == "bytes_per_s"
    )


def _series_picture(series: HostSeries, of: str) -> Picture:
    panels = [
        ("CPU", [t for t in series.traces if t.unit == "ratio"]),
        ("disk", [t for t in series.traces if t.name.startswith("disk")]),
        ("network", [t for t in series.traces if t.name.startswith("network") or t.name == "loopback"]),
    ]
    panels = [(name, traces) for name, traces in panels if traces]
    layout = ConstrainedLayoutEngine(h_pad=0.03, w_pad=0.03, hspace=0.06)
    figure = Figure(figsize=(FULL, 0.45 + 1.45 * len(panels)), layout=layout)
    grid = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
    for axes, (name, traces) in zip(grid, panels, strict=True):
        for start, end in series.busy:
            axes.axvspan(start, end, color=BAND, linewidth=0, zorder=0)
        colours = dict(zip((trace.name for trace in traces), (ACCENT, SECOND, MUTED), strict=False))
        _draw_traces(axes, traces, colours)
        caption_axis(
            axes,
            f"{name}: " + _trace_unit(traces),
            extra=[(t.name.removeprefix(f"{name} "), colours[t.name]) for t in traces],
        )
    grid[-1].set_xlabel("time since the start of the run, s")
    highs = ", ".join(f"{t.name} up to {format_rate(float(t.high.max())) if t.unit != 'ratio' else f'{100 * float(t.high.max()):.0f} %'}"
                      for t in series.traces)  # fmt: skip
    return Picture(
        name=file_name("counters", {"host": series.host}), title=f"Counters of {series.host}",
        caption="Line: mean of each bin; tint: minimum to maximum. Shaded background: a trial was running." + of,
        alt=f"Rates on {series.host} in time: {highs}.", figure=figure, wide=True,
    )  # fmt: skip


def _draw_traces(axes: Axes, traces: Sequence[RateTrace], colours: Mapping[str, str]) -> None:
    scale = 0.01 if traces[0].unit == "ratio" else rate_scale(max(float(t.high.max()) for t in traces))[0]
    for trace in traces:
        colour = colours[trace.name]
        axes.fill_between(
            trace.time_s, trace.low / scale, trace.high / scale, color=colour, alpha=0.16, linewidth=0, zorder=1
        )
        axes.plot(trace.time_s, trace.mean / scale, color=colour, linewidth=1.0, zorder=2)
    highest = max(float(trace.high.max()) for trace in traces) / scale
    axes.set_ylim(0, 100 if traces[0].unit == "ratio" else (1.08 * highest or 1.0))
    axes.margins(x=0)
    axes.yaxis.set_major_locator(MaxNLocator(4, integer=False))


def _trace_unit(traces: Sequence[RateTrace]) -> str:
    if traces[0].unit == "ratio":
        return "% of all cores"
    return rate_scale(max(float(trace.high.max()) for trace in traces))[1]


def ratio_picture(names: tuple[str, str], rows: Sequence[tuple[str, Interval, str]], margin: float) -> Picture:
    """Return the ratios of two runs, one row per point: (label, interval, verdict)."""
    with styled():
        figure, axes = canvas((FULL, 0.9 + 0.21 * len(rows)))
        axes.axvspan(1 / (1 + margin), 1 + margin, color=BAND, linewidth=0, zorder=0)
        axes.axvline(1.0, color=MUTED, linewidth=0.8, zorder=1)
        colours = {"faster": ACCENT, "slower": SECOND}
        for index, (_, ratio, verdict) in enumerate(rows):
            colour = colours.get(verdict, MUTED)
            axes.plot(
                [ratio.low, ratio.high], [index, index], color=colour, linewidth=1.4, zorder=2, solid_capstyle="round"
            )
            axes.plot(
                ratio.estimate,
                index,
                "o",
                color=colour,
                markersize=4.6,
                markeredgecolor=BACKGROUND,
                markeredgewidth=0.7,
                zorder=3,
            )
        low, high = min(r.low for _, r, _ in rows), max(r.high for _, r, _ in rows)
        if high / max(low, 1e-12) > 3:
            axes.set_xscale("log")
            _ratio_ticks(axes, low, high)
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.yaxis.set_major_locator(FixedLocator(list(range(len(rows)))))
        axes.set_yticklabels([label for label, _, _ in rows])
        axes.grid(axis="x", color=GRID, linewidth=0.7)
        axes.grid(visible=False, axis="y")
        axes.spines["left"].set_visible(False)
        axes.set_xlabel(f"throughput per file, {names[1]} / {names[0]}")
    return Picture("ratios", "Ratios of matched points", f"Shaded: difference of at most {100 * margin:g} %.",
                   f"Ratios of {len(rows)} points from {low:.3g} to {high:.3g}.", figure, wide=True)  # fmt: skip


def _ratio_ticks(axes: Axes, low: float, high: float) -> None:
    choice = [m * 10.0**e for e in range(-4, 5) for m in (1, 2, 5)]
    axes.xaxis.set_major_locator(FixedLocator([v for v in choice if low / 1.2 <= v <= high * 1.2]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))


def _curve_alt(
    title: str, curves: Sequence[FittedCurves], against: str, curve_factors: Sequence[str], family: str | None
) -> str:
    texts = []
    for curve in curves[:12]:
        name = format_factors(curve.others, curve_factors)
        ends = (
            f"{format_rate(curve.y_bytes_per_s[0])} at {format_factor_value(against, curve.x[0])}, "
            if len(curve.x) > 1
            else ""
        )
        texts.append(
            f"{name + ': ' if name else ''}{ends}{format_rate(curve.y_bytes_per_s[-1])} at {format_factor_value(against, curve.x[-1])}"
        )
    return f"{title}. {'; '.join(texts)}." + (f" Best family: {family}." if family else "")
