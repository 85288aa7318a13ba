"""Figures of runs with servers and emulated links: fixed cost, and links over time."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FixedLocator, MaxNLocator

from venturi.analysis.format import format_factors, plural
from venturi.analysis.result import Analysis, PointResult
from venturi.analysis.result_lab import FixedCost, LinkSeries
from venturi.analysis.values import FactorValue
from venturi.report.drawing import (
    FULL,
    Picture,
    axis_of_factor,
    canvas,
    caption_axis,
    label_ends,
    log_rates,
    rate_scale,
)  # fmt: skip
from venturi.report.theme import ACCENT, BACKGROUND, BAND, GRID, INK, MUTED, SECOND, series_colours
from venturi.units import format_bit_rate, format_bytes, format_duration, format_rate

__all__ = ["fixed_pictures", "link_pictures"]

MAX_STRIPS = 40
MAX_CORRECTED = 12
LINK_COLOURS = (ACCENT, SECOND, MUTED, INK)


def fixed_pictures(analysis: Analysis) -> list[Picture]:
    """Return the times of empty files, and the throughput without them (000, Fig. 7). The list can be empty."""
    return [*_strips(analysis), *_corrected(analysis)]


def _strips(analysis: Analysis) -> list[Picture]:
    """Return the times of empty files as strips of quantiles, one row per point."""
    costs = analysis.fixed_costs[:MAX_STRIPS]
    if not costs:
        return []
    varied = [f.name for f in analysis.factors if len({str(cost.factors.get(f.name)) for cost in costs}) > 1]
    figure, axes = canvas((FULL, 0.9 + 0.24 * len(costs)))
    scale, unit = (1.0, "s") if max(cost.greatest_s for cost in costs) >= 2 else (1e3, "ms")
    for index, cost in enumerate(costs):
        _draw_strip(axes, cost, index, scale)
    axes.set_ylim(len(costs) - 0.4, -0.6)
    axes.set_xlim(left=0)
    axes.yaxis.set_major_locator(FixedLocator(list(range(len(costs)))))
    axes.set_yticklabels([format_factors(cost.factors, varied) or "empty files" for cost in costs])
    axes.grid(axis="x", color=GRID, linewidth=0.7)
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_visible(False)
    axes.set_xlabel(f"time of a transfer of an empty file, {unit}")
    low, high = min(c.least_s for c in costs), max(c.greatest_s for c in costs)
    medians = [cost.median_s for cost in costs]
    alt = (f"Times of empty files at {plural(len(costs), 'point')}: medians from {format_duration(min(medians))} to"
           f" {format_duration(max(medians))}, all between {format_duration(low)} and {format_duration(high)}.")  # fmt: skip
    omitted = len(analysis.fixed_costs) - len(costs)
    more = f" {plural(omitted, 'more point')} in the table." if omitted else ""
    return [Picture("fixed-cost", "Fixed cost per transfer",
                    f"Line: minimum to maximum; tint: 5 to 95 %; bar: quartiles; dot: median.{more}", alt, figure, wide=True)]  # fmt: skip


def _draw_strip(axes: Axes, cost: FixedCost, index: int, scale: float) -> None:
    q = np.array(cost.quantiles_s) * scale
    for low, high, width, alpha in ((0, 100, 0.8, 1.0), (5, 95, 5.5, 0.25), (25, 75, 5.5, 0.75)):
        axes.plot(
            [q[low], q[high]],
            [index, index],
            color=ACCENT,
            linewidth=width,
            alpha=alpha,
            zorder=2,
            solid_capstyle="butt",
        )
    axes.plot(
        q[50], index, "o", color=SECOND, markersize=4.6, markeredgecolor=BACKGROUND, markeredgewidth=0.7, zorder=3
    )


def _corrected(analysis: Analysis) -> list[Picture]:
    """Return throughput per file against size, minus the time of empty files, for points that have both."""
    groups: dict[tuple[tuple[str, FactorValue], ...], list[PointResult]] = {}
    for point in analysis.points:
        if point.zero_size is not None and point.zero_size.throughput_bytes_per_s and point.size_bytes:
            others = tuple((k, v) for k, v in point.factors.items() if k != "size_bytes")
            groups.setdefault(others, []).append(point)
    curves = {others: points_of_curve for others, points_of_curve in groups.items() if len(points_of_curve) > 1}
    if not curves:
        return []
    varied = [f.name for f in analysis.factors if f.varied and f.name != "size_bytes"]
    rates = [
        p.zero_size.throughput_bytes_per_s
        for points_of_curve in curves.values()
        for p in points_of_curve
        if p.zero_size
    ]
    known = [rate for rate in rates if rate]
    figure, axes = canvas((FULL, 3.6))
    scale, unit = rate_scale(math.sqrt(max(known) * min(known)))
    axis_of_factor(
        axes,
        "size_bytes",
        sorted({float(p.size_bytes or 0) for points_of_curve in curves.values() for p in points_of_curve}),
    )
    log_rates(axes, known, scale)
    labels = []
    for (others, points_of_curve), colour in zip(
        list(curves.items())[:MAX_CORRECTED], series_colours(min(len(curves), MAX_CORRECTED)), strict=True
    ):
        points_of_curve.sort(key=lambda point: point.size_bytes or 0)
        corrected = [point.zero_size for point in points_of_curve if point.zero_size]
        x = np.array([point.size_bytes for point in points_of_curve], dtype=float)
        y = np.array([zero.throughput_bytes_per_s for zero in corrected], dtype=float) / scale
        error = np.array([zero.error_bytes_per_s or 0.0 for zero in corrected]) / scale
        axes.plot(x, y, color=colour, linewidth=1.0, zorder=2)
        axes.errorbar(x, y, yerr=np.minimum(error, 0.95 * y), fmt="none", ecolor=colour, elinewidth=0.9, zorder=3)
        axes.plot(x, y, "o", color=colour, markersize=4.2, markeredgecolor=BACKGROUND, markeredgewidth=0.7, zorder=4)
        labels.append((x[-1], y[-1], format_factors(dict(others), varied), colour))
    caption_axis(axes, f"{unit} per file")
    label_ends(figure, axes, labels)
    insignificant = sum(
        p.zero_size is not None and p.zero_size.throughput_bytes_per_s is None for p in analysis.points
    )
    more = (
        f" {plural(insignificant, 'point')} {'is' if insignificant == 1 else 'are'} omitted: the difference is within the errors."
        if insignificant
        else ""
    )
    return [Picture("corrected", "Throughput per file without fixed cost",
                    f"Transfer time minus the time of empty files. Same form as figure 7 of report 000. Bars: one standard error.{more}",
                    f"Corrected throughput against size: {plural(len(curves), 'curve')} from {format_rate(min(known))} to"
                    f" {format_rate(max(known))}.", figure, wide=True)]  # fmt: skip


def link_pictures(analysis: Analysis) -> list[Picture]:
    """Return traffic, queue and drops of the busiest links over time. The list is empty without links."""
    links = [link for link in analysis.links if len(link.time_s)]
    if not links:
        return []
    panels = ["traffic", *(["queue"] if any(_some(link.queue_high_bytes) for link in links) else [])]
    panels += ["drops"] if any(_some(link.drops_per_s) for link in links) else []
    figure = Figure(
        figsize=(FULL, 0.45 + 1.45 * len(panels)),
        layout=ConstrainedLayoutEngine(h_pad=0.03, w_pad=0.03, hspace=0.06),
    )
    grid = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
    busy = analysis.series[0].busy if analysis.series else ()
    for axes, name in zip(grid, panels, strict=True):
        for start, end in busy:
            axes.axvspan(start, end, color=BAND, linewidth=0, zorder=0)
        {"traffic": _draw_traffic, "queue": _draw_queue, "drops": _draw_drops}[name](axes, links)
        axes.margins(x=0)
        axes.yaxis.set_major_locator(MaxNLocator(4))
    grid[-1].set_xlabel("time since the start of the run, s")
    highs = ", ".join(
        f"{link.link} up to {format_bit_rate(8 * float(link.high_bytes_per_s.max()))}" for link in links
    )
    return [Picture(
        "links", "Traffic on links",
        "Line: mean of each bin; tint: minimum to maximum. Dashed: configured rate. Shaded background: a trial was running.",
        f"Links over time: {highs}.", figure, wide=True,
    )]  # fmt: skip


def _some(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> bool:
    return bool(np.nansum(values) > 0)


def _legend(links: Sequence[LinkSeries]) -> list[tuple[str, str]]:
    return [(link.link, colour) for link, colour in zip(links, LINK_COLOURS, strict=False)]


def _draw_traffic(axes: Axes, links: Sequence[LinkSeries]) -> None:
    highest = 8 * max(float(link.high_bytes_per_s.max()) for link in links)
    scale, unit = rate_scale(highest)
    for link, colour in zip(links, LINK_COLOURS, strict=False):
        low, mean, high = (
            8 * y / scale for y in (link.low_bytes_per_s, link.mean_bytes_per_s, link.high_bytes_per_s)
        )
        axes.fill_between(link.time_s, low, high, color=colour, alpha=0.14, linewidth=0, zorder=1)
        axes.plot(link.time_s, mean, color=colour, linewidth=1.0, zorder=2)
    rates = {link.rate_bit_per_s for link in links if link.rate_bit_per_s}
    for rate in rates:
        if rate <= 3 * highest:
            axes.axhline(rate / scale, color=MUTED, linewidth=0.7, linestyle=(0, (4, 3)), zorder=1)
            highest = max(highest, rate)
    axes.set_ylim(0, 1.08 * highest / scale or 1.0)
    caption_axis(axes, f"traffic with headers: {unit.replace('B', 'b')}", extra=_legend(links))


def _draw_queue(axes: Axes, links: Sequence[LinkSeries]) -> None:
    highest = max(float(np.nanmax(link.queue_high_bytes)) for link in links)
    unit = format_bytes(highest).split(" ", 1)[1]
    scale = {"B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9}.get(unit, 1.0)
    for link, colour in zip(links, LINK_COLOURS, strict=False):
        axes.plot(link.time_s, link.queue_high_bytes / scale, color=colour, linewidth=1.0, zorder=2)
    axes.set_ylim(0, 1.08 * highest / scale)
    caption_axis(axes, f"maximum queue of each bin: {unit if unit in ('B', 'kB', 'MB', 'GB') else 'B'}")


def _draw_drops(axes: Axes, links: Sequence[LinkSeries]) -> None:
    for link, colour in zip(links, LINK_COLOURS, strict=False):
        axes.plot(link.time_s, link.drops_per_s, color=colour, linewidth=1.0, zorder=2)
    axes.set_ylim(bottom=0)
    caption_axis(axes, "dropped packets per second (queue, loss, outage)")
