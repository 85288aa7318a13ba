"""The figures of a report, drawn from an analysis. Each is a :class:`Picture`: a drawing, its caption, and what it shows
in words for those who cannot see it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

from venturi.analysis.result import Analysis, Curve, FactorValue, Fit, HostSeries, LoadCurve, Point, Trace
from venturi.analysis.words import RATE_UNITS, describe, factor_name, factor_value, plural
from venturi.report.theme import ACCENT, BACKGROUND, BAND, GRID, INK, MUTED, SECOND, series_colours, styled
from venturi.stats import Interval
from venturi.units import format_rate

__all__ = ["Picture", "pictures", "position_picture", "ratio_picture"]

WIDE_RANGE = 20.0
"""Ratio of the ends of an axis from which it is logarithmic."""
MOST_GROUPS = 6
"""Combinations of factors other than files and size that get figures of their own; the table has all."""
MOST_TOGETHER = 12
"""Single curves that can share one figure."""
RASTER_FROM = 1500
"""Dots from which a cloud is drawn as an image: a vector page of 10⁵ dots opens slowly everywhere."""
WIDEST_BAND = 0.6
"""Median width of a band, as a share of the curve, up to which it is drawn."""
HALF = (5.6, 3.9)
FULL = 9.2
"""Width of a figure that fills the page, in inches."""


@dataclass(frozen=True)
class Picture:
    """A drawing with its words. ``wide``: it fills the page."""

    name: str
    title: str
    caption: str
    alt: str
    figure: Figure
    wide: bool = False


def pictures(analysis: Analysis) -> dict[str, list[Picture]]:
    """Return the figures by section: ``curves``, ``loads``, ``order``, ``series``."""
    with styled():
        return {
            "curves": _curve_pictures(analysis),
            "loads": _load_pictures(analysis),
            "order": position_picture(analysis),
            "series": [_series_picture(series) for series in analysis.series if series.traces],
        }


def _curve_pictures(analysis: Analysis) -> list[Picture]:
    varied = {factor.name for factor in analysis.factors if factor.varied}
    by_point = {point.point: point for point in analysis.points}
    found = []
    kinds = _kinds(analysis.curves, varied)
    if 1 < len(kinds) <= MOST_TOGETHER and all(len({c.against for c in own}) == len(own) for own in kinds.values()):
        kinds = {(): [curve for own in kinds.values() for curve in own]}  # one curve each: they belong in one figure
    for kind in list(kinds)[:MOST_GROUPS]:
        for against in dict.fromkeys(curve.against for curve in kinds[kind]):
            own = [curve for curve in kinds[kind] if curve.against == against and curve.x]
            if own:
                found.append(_curve_picture(own, against, dict(kind), varied, by_point, analysis))
    return found


def _kinds(curves: Sequence[Curve], varied: set[str]) -> dict[tuple[tuple[str, FactorValue], ...], list[Curve]]:
    """Return the curves by the factors that are neither files nor size nor the axis: one pair of figures each."""
    groups: dict[tuple[tuple[str, FactorValue], ...], list[Curve]] = {}
    numeric = {curve.against for curve in curves} | {"files", "size_bytes"}
    for curve in curves:
        kind = tuple((k, v) for k, v in curve.others.items() if k in varied and k not in numeric)
        groups.setdefault(kind, []).append(curve)
    return groups


def _curve_picture(
    curves: Sequence[Curve], against: str, kind: Mapping[str, FactorValue], varied: set[str], points: Mapping[int, Point],
    analysis: Analysis,
) -> Picture:  # fmt: skip
    makers = [name for name in curves[0].others if name in varied and name not in kind]
    curves = sorted(curves, key=lambda curve: tuple(_order(curve.others.get(name)) for name in makers))
    figure, axes = _canvas(HALF)
    rates = [rate for curve in curves for rate in curve.y_bytes_per_s]
    scale, unit = _rate_scale(math.sqrt(max(rates) * min(rates)))
    _axis_of_factor(axes, against, sorted({x for curve in curves for x in curve.x}))
    log = _log_rates(axes, rates, scale)
    labels = []
    for curve, colour in zip(curves, series_colours(len(curves)), strict=True):
        _draw_curve(axes, curve, colour, points, scale, floor=min(rates) / scale / 3 if log else 0.0)
        labels.append((curve.x[-1], curve.y_bytes_per_s[-1] / scale, describe(curve.others, makers), colour))
    _caption_axis(axes, f"{unit} per file")
    _label_ends(figure, axes, labels)
    names = " and ".join(_plain_name(name) for name in makers)
    of = f", {describe(kind, list(kind))}" if kind else ""
    best = next((row for row in analysis.best_families if row.against == against), None)
    fits = ""
    if any(curve.best for curve in curves):
        level, wide = (
            100 * analysis.about.confidence,
            sum(curve.best is not None and not _band_tells(curve.best) for curve in curves),
        )
        fits = f" Lines: the family ranked first for each curve, with {level:g} % bands"
        fits += f" (those of {plural(wide, 'curve')} are too wide to draw)." if wide else "."
    title = f"Throughput per file against {_plain_name(against)}{of}"
    return Picture(
        name=_file_name(f"throughput-{against}", kind),
        title=title,
        caption=(f"One curve for each {names}." if names else "") + fits + " Bars: interval over whole trials.",
        alt=_curve_alt(title, curves, against, makers, best.by_criterion.family if best else None),
        figure=figure,
    )


def _draw_curve(
    axes: Axes, curve: Curve, colour: str, points: Mapping[int, Point], scale: float, *, floor: float
) -> None:
    x, y = np.array(curve.x), np.array(curve.y_bytes_per_s) / scale
    fit = curve.best
    if fit is not None and fit.draw_x:
        if _band_tells(fit):
            low = np.clip(np.array(fit.draw_low) / scale, floor, 3 * y.max())
            high = np.clip(np.array(fit.draw_high) / scale, floor, 3 * y.max())
            axes.fill_between(fit.draw_x, low, high, color=colour, alpha=0.13, linewidth=0, zorder=1)
        drawn = np.clip(np.array(fit.draw_y) / scale, floor, None)
        axes.plot(fit.draw_x, drawn, color=colour, linewidth=1.3, zorder=2, solid_capstyle="round")
    else:
        axes.plot(x, y, color=colour, linewidth=0.9, alpha=0.6, zorder=2)
    low, high = _bars([points[p] for p in curve.points], curve.error_bytes_per_s, y * scale, lambda p: p.interval)
    axes.errorbar(x, y, yerr=(low / scale, high / scale), fmt="none", ecolor=colour, elinewidth=0.9, zorder=3)
    axes.plot(x, y, "o", color=colour, markersize=4.2, markeredgecolor=BACKGROUND, markeredgewidth=0.7, zorder=4)


def _band_tells(fit: Fit) -> bool:
    """Return whether a band is narrow enough to say something; a handful of wide ones hides everything else."""
    if not fit.draw_low:
        return False
    width = np.array(fit.draw_high) - np.array(fit.draw_low)
    return bool(np.median(width / np.maximum(np.abs(fit.draw_y), 1e-300)) <= WIDEST_BAND)


def _bars(
    points: Sequence[Point], errors: Sequence[float | None], y: np.ndarray[tuple[int], np.dtype[np.float64]],
    interval_of: Callable[[Point], Interval | None],
) -> tuple[np.ndarray[tuple[int], np.dtype[np.float64]], np.ndarray[tuple[int], np.dtype[np.float64]]]:  # fmt: skip
    """Return the lengths of the bars below and above: the interval where there is one, else one standard error."""
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
    if 1 < len(groups) <= MOST_TOGETHER and all(len(own) == 1 for own in groups.values()):
        groups = {(): [load for own in groups.values() for load in own]}
    return [_load_picture(own, dict(kind), varied, by_point) for kind, own in list(groups.items())[:MOST_GROUPS]]


def _load_picture(
    loads: Sequence[LoadCurve],
    kind: Mapping[str, FactorValue],
    varied: set[str],
    points: Mapping[tuple[object, ...], Point],
) -> Picture:
    makers = [name for name in loads[0].others if name in varied and name not in kind]
    loads = sorted(loads, key=lambda load: tuple(_order(load.others.get(name)) for name in makers))
    figure, axes = _canvas(HALF)
    rates = [rate for load in loads for rate in load.together_bytes_per_s]
    scale, unit = _rate_scale(math.sqrt(max(rates) * min(rates)))
    _axis_of_factor(axes, "files", sorted({float(n) for load in loads for n in load.files}))
    _log_rates(axes, rates, scale, ratio=60.0)
    labels = []
    for load, colour in zip(loads, series_colours(len(loads)), strict=True):
        x, y = np.array(load.files, dtype=float), np.array(load.together_bytes_per_s) / scale
        own = [points[(n, *load.others.items())] for n in load.files]
        low, high = _bars(own, load.error_bytes_per_s, y * scale, lambda p: p.together_interval)
        axes.plot(x, y, color=colour, linewidth=1.2, zorder=2)
        axes.errorbar(x, y, yerr=(low / scale, high / scale), fmt="none", ecolor=colour, elinewidth=0.9, zorder=3)
        axes.plot(x, y, "o", color=colour, markersize=4.2, markeredgecolor=BACKGROUND, markeredgewidth=0.7, zorder=4)
        if load.saturation is not None and load.saturation.outcome == "reached" and load.saturation.load is not None:
            at = load.files.index(int(load.saturation.load))
            axes.plot(x[at], y[at], "o", markersize=9, fillstyle="none", color=colour, markeredgewidth=1.1, zorder=5)
        labels.append((x[-1], y[-1], describe(load.others, makers), colour))
    _caption_axis(axes, f"{unit} together")
    _label_ends(figure, axes, labels)
    of = f", {describe(kind, list(kind))}" if kind else ""
    title = f"Rate of the whole trial against parallel files{of}"
    reached = [f"{load.saturation.load:g}" for load in loads
               if load.saturation is not None and load.saturation.outcome == "reached"]  # fmt: skip
    return Picture(
        name=_file_name("total", kind),
        title=title,
        caption="All bytes over the time from the first start to the last end."
        + (" Rings: the first count within 5 % of the best." if reached else ""),
        alt=f"{title}. {plural(len(loads), 'curve')}; from {format_rate(min(rates))} to {format_rate(max(rates))}."
        + (f" Within 5 % of the best from {', '.join(dict.fromkeys(reached))} files." if reached else ""),
        figure=figure,
    )


def position_picture(analysis: Analysis) -> list[Picture]:
    """Return the rate of every trial over the mean of its point, in the order of execution; empty without repetitions."""
    trials = analysis.trials
    means = {p.point: p.throughput_bytes_per_s for p in analysis.points if p.throughput_bytes_per_s and p.trials > 1}
    if not means or len(trials.point) < 10:
        return []
    size = max(int(trials.point.max()), max(means)) + 1
    mean = np.full(size, np.nan)
    mean[list(means)] = list(means.values())
    ratio = trials.throughput_bytes_per_s / mean[trials.point]
    keep = np.isfinite(ratio)
    x, y = trials.position[keep], 100 * (ratio[keep] - 1)  # percent off the mean
    with styled():
        figure, axes = _canvas((FULL, 2.5))
        low, high = np.quantile(y, (0.002, 0.998))
        reach = 1.15 * float(max(high, -low, 2.0))
        dense = len(x) > RASTER_FROM
        alpha = float(np.clip(60 / math.sqrt(len(x)), 0.06, 0.75))
        # An image cannot follow the page's colours: this grey-blue stands out on white and on black.
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
        axes.set_xlabel("position in the order of execution")
        _caption_axis(axes, "rate over the mean of its point")
    text = ""
    if analysis.trend is not None:
        t = analysis.trend
        text = (f" Line: {_signed(100 * (t.ratio - 1))} from first to last"
                f" ({_signed(100 * (t.low - 1))} to {_signed(100 * (t.high - 1))}).")  # fmt: skip
    outside = int(np.sum(np.abs(y) > reach))
    more = (
        f" {plural(outside, 'trial')} beyond the frame {'is' if outside == 1 else 'are'} drawn on its edge."
        if outside
        else ""
    )
    return [Picture("order", "Every trial in the order of execution",
                    "A flat cloud is what a quiet machine gives." + text + more,
                    f"Rate of {len(x):,} trials over the mean of their points, by position.{text}", figure, wide=True)]  # fmt: skip


def _signed(percent: float) -> str:
    return f"{percent:+.3g} %".replace("-", "−")


def _series_picture(series: HostSeries) -> Picture:
    panels = [
        ("processor", [t for t in series.traces if t.unit == "ratio"]),
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
        _caption_axis(
            axes,
            f"{name}: " + _trace_unit(traces),
            extra=[(t.name.removeprefix(f"{name} "), colours[t.name]) for t in traces],
        )
    grid[-1].set_xlabel("time since the start of the run, s")
    highs = ", ".join(f"{t.name} up to {format_rate(float(t.high.max())) if t.unit != 'ratio' else f'{100 * float(t.high.max()):.0f} %'}"
                      for t in series.traces)  # fmt: skip
    return Picture(
        name=_file_name("counters", {"host": series.host}), title=f"What the counters of {series.host} say",
        caption="Line: mean of each bin; tint: its least and greatest value. Shaded ground: a trial was running.",
        alt=f"Rates on {series.host} in time: {highs}.", figure=figure, wide=True,
    )  # fmt: skip


def _draw_traces(axes: Axes, traces: Sequence[Trace], colours: Mapping[str, str]) -> None:
    scale = 0.01 if traces[0].unit == "ratio" else _rate_scale(max(float(t.high.max()) for t in traces))[0]
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


def _trace_unit(traces: Sequence[Trace]) -> str:
    if traces[0].unit == "ratio":
        return "% of all cores"
    return _rate_scale(max(float(trace.high.max()) for trace in traces))[1]


def ratio_picture(names: tuple[str, str], rows: Sequence[tuple[str, Interval, str]], margin: float) -> Picture:
    """Return the ratios of two runs, a line a point: (label, interval, verdict)."""
    with styled():
        figure, axes = _canvas((FULL, 0.9 + 0.21 * len(rows)))
        axes.axvspan(1 / (1 + margin), 1 + margin, color=BAND, linewidth=0, zorder=0)
        axes.axvline(1.0, color=MUTED, linewidth=0.8, zorder=1)
        colours = {"faster": ACCENT, "slower": SECOND}
        for place, (_, ratio, verdict) in enumerate(rows):
            colour = colours.get(verdict, MUTED)
            axes.plot(
                [ratio.low, ratio.high], [place, place], color=colour, linewidth=1.4, zorder=2, solid_capstyle="round"
            )
            axes.plot(
                ratio.estimate,
                place,
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
        axes.set_xlabel(f"throughput per file, {names[1]} over {names[0]}")
    return Picture("ratios", "Ratio at every matched point", f"Shaded: no more than {100 * margin:g} % apart.",
                   f"Ratios of {len(rows)} points from {low:.3g} to {high:.3g}.", figure, wide=True)  # fmt: skip


def _ratio_ticks(axes: Axes, low: float, high: float) -> None:
    choice = [m * 10.0**e for e in range(-4, 5) for m in (1, 2, 5)]
    axes.xaxis.set_major_locator(FixedLocator([v for v in choice if low / 1.2 <= v <= high * 1.2]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))


def _canvas(size: tuple[float, float]) -> tuple[Figure, Axes]:
    figure = Figure(figsize=size, layout=ConstrainedLayoutEngine(h_pad=0.03, w_pad=0.03))
    return figure, figure.add_subplot()


def _caption_axis(axes: Axes, text: str, extra: Sequence[tuple[str, str]] = ()) -> None:
    """Write the unit of the vertical axis above it, level, where it can be read without turning the head."""
    axes.set_title(text, loc="left", fontsize=8.5, color=MUTED, pad=6)
    if len(extra) > 1:
        handles = [axes.plot([], [], color=colour, linewidth=2.0, label=name)[0] for name, colour in extra]
        axes.legend(handles=handles, loc="lower right", bbox_to_anchor=(1.0, 0.99), ncols=len(extra), frameon=False, fontsize=8.0,
                    handlelength=1.1, columnspacing=1.2, borderaxespad=0.1, labelcolor=INK)  # fmt: skip


def _rate_scale(highest: float) -> tuple[float, str]:
    unit = format_rate(highest).split(" ", 1)[1]
    return RATE_UNITS[unit], unit


def _log_rates(axes: Axes, rates: Sequence[float], scale: float, ratio: float = WIDE_RANGE) -> bool:
    """Choose the scale of the rates; return whether it is logarithmic."""
    low, high = min(rates) / scale, max(rates) / scale
    if low > 0 and high / low >= ratio:
        axes.set_yscale("log")
        axes.set_ylim(low / 1.6, high * 1.6)
        axes.yaxis.set_major_locator(LogLocator(10, subs=(1.0, 2.0, 5.0) if high / low < 1500 else (1.0,)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:,.6g}"))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_minor_formatter(NullFormatter())
        return True
    axes.set_ylim(0, high * 1.12)
    axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:,.6g}"))
    return False


def _axis_of_factor(axes: Axes, name: str, values: Sequence[float]) -> None:
    low, high = values[0], values[-1]
    axes.set_xlabel(_plain_name(name))
    if low > 0 and high / low >= WIDE_RANGE:
        axes.set_xscale("log")
        axes.set_xlim(low / 1.15, high * 1.15)
        shown = _spread(values, [math.log(value) for value in values])
    else:
        span = high - low or max(abs(high), 1.0)
        axes.set_xlim(low - 0.04 * span, high + 0.04 * span)
        shown = _spread(values, values)
    axes.xaxis.set_major_locator(FixedLocator(shown))
    axes.xaxis.set_minor_locator(FixedLocator([value for value in values if value not in shown]))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_major_formatter(
        FuncFormatter(lambda v, _: factor_value(name, int(v) if float(v).is_integer() else v))
    )


def _spread(values: Sequence[float], places: Sequence[float]) -> list[float]:
    """Return the measured values that can be labelled without touching each other: the ends, then what fits."""
    gap = 0.075 * (places[-1] - places[0] or 1.0)
    kept = [0]
    for i in range(1, len(values)):
        if places[i] - places[kept[-1]] >= gap:
            kept.append(i)
    if kept[-1] != len(values) - 1:
        if len(kept) > 1 and places[-1] - places[kept[-1]] < gap:
            kept.pop()
        kept.append(len(values) - 1)
    return [values[i] for i in kept]


def _label_ends(figure: Figure, axes: Axes, labels: Sequence[tuple[float, float, str, str]]) -> None:
    """Write each curve's name at its right end, pushed apart so that no two touch."""
    if not any(text for _, _, text, _ in labels):
        return
    layout = figure.get_layout_engine()
    if layout is not None:
        layout.execute(figure)  # decides how high the axes are
    place = axes.transData.transform
    heights = np.array([place((x, y))[1] for x, y, _, _ in labels])
    box = axes.get_window_extent()
    step = min(11.2, box.height / max(len(labels), 1)) * figure.dpi / 72
    order = np.argsort(heights, kind="stable")
    placed = heights[order].copy()
    for _ in range(200):
        gaps = np.diff(placed)
        close = gaps < step - 1e-9
        if not close.any():
            break
        push = np.where(close, (step - gaps) / 2, 0.0)
        placed[:-1] -= push
        placed[1:] += push
    placed += max(0.0, float(box.y0) - placed[0]) if len(placed) else 0.0
    for rank, index in enumerate(order):
        x, _, text, colour = labels[index]
        target = float((placed[rank] - box.y0) / box.height)
        axes.annotate(
            text, xy=(x, labels[index][1]), xycoords="data", xytext=(1.045, target), textcoords=axes.transAxes, fontsize=8.0,
            color=colour, va="center", ha="left", annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.5, "alpha": 0.55, "shrinkA": 1.5, "shrinkB": 3.5},
        )  # fmt: skip


def _plain_name(name: str) -> str:
    return {"files": "number of parallel files", "size_bytes": "file size"}.get(name, factor_name(name))


def _order(value: FactorValue) -> tuple[int, float, str]:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return (0, float(value), "")
    return (1, 0.0, str(value))


def _file_name(start: str, kind: Mapping[str, FactorValue]) -> str:
    words = [start.removesuffix("_bytes"), *(str(value) for value in kind.values())]
    return "-".join("".join(c if c.isalnum() else "-" for c in word) for word in words)


def _curve_alt(title: str, curves: Sequence[Curve], against: str, makers: Sequence[str], family: str | None) -> str:
    texts = []
    for curve in curves[:12]:
        name = describe(curve.others, makers)
        ends = (
            f"{format_rate(curve.y_bytes_per_s[0])} at {factor_value(against, curve.x[0])}, "
            if len(curve.x) > 1
            else ""
        )
        texts.append(
            f"{name + ': ' if name else ''}{ends}{format_rate(curve.y_bytes_per_s[-1])} at {factor_value(against, curve.x[-1])}"
        )
    return f"{title}. {'; '.join(texts)}." + (f" Best family: {family}." if family else "")
