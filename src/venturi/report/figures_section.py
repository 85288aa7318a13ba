"""Figures of report sections: one or more panels."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.container import BarContainer
from matplotlib.figure import Figure as Canvas
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

from venturi.analysis.format import plural
from venturi.analysis.quantity import Scale, axis_scale, format_axis, format_quantity
from venturi.analysis.section import Figure, HeatMap, Panel, ReportSection, Series
from venturi.report.drawing import FULL, HALF, Picture, caption_axis, file_name, spread
from venturi.report.heat_map import heat_map
from venturi.report.sequence import sequence_picture
from venturi.report.theme import BACKGROUND, BAND, INK, MUTED, SECOND, series_colours

__all__ = ["section_pictures"]

MAX_COLUMNS = 3
MAX_CATEGORIES = 24
"""Maximum bars with a label each. If there are more bars, numbers get a numeric axis."""
MAX_SERIES = 24
"""Maximum series of a figure. More series are hard to distinguish, but the tables have them."""
RASTER_FROM = 1500
MAX_LABEL_LEN = 14
MAX_MARKERS = 30
"""Maximum points of a line with markers and error bars. Longer lines have a tinted interval."""

Floats = np.ndarray[tuple[int], np.dtype[np.float64]]


def section_pictures(section: ReportSection) -> list[Picture]:
    """Return the figures, heat maps and message sequences of a section, without empty ones."""
    drawn = [_picture(section, figure) for figure in section.figures if any(_has_values(p) for p in figure.panels)]
    drawn += [_heat_picture(section, one) for one in section.heat_maps if one.values]
    return drawn + [sequence_picture(section.name, sequence) for sequence in section.sequences if sequence.messages]


def _heat_picture(section: ReportSection, one: HeatMap) -> Picture:
    values = {(row, column): ratio for row, column, ratio in one.values}
    name = file_name(section.name, {"figure": one.name})
    return heat_map(name, one.title, one.caption, values, one.rows, one.columns)


def _has_values(panel: Panel) -> bool:
    return any(value is not None and math.isfinite(value) for series in panel.series for value in series.y)


def _picture(section: ReportSection, figure: Figure) -> Picture:
    panels = [panel for panel in figure.panels if _has_values(panel)]
    names = list(dict.fromkeys((s.name, s.published) for panel in panels for s in panel.series))
    colours = _colours(names[:MAX_SERIES])
    columns = min(len(panels), MAX_COLUMNS if len(panels) != 4 else 2)
    rows = math.ceil(len(panels) / columns)
    legend = len(colours) > 1 or any(published for _, published in colours)
    width, height = (HALF[0] if len(panels) == 1 else FULL), (HALF[1] if columns < 3 else 3.1)
    canvas = Canvas(
        figsize=(width, rows * height + (0.22 * math.ceil(len(colours) / 4) if legend else 0.0)),
        layout=ConstrainedLayoutEngine(h_pad=0.03, w_pad=0.03),
    )
    handles: dict[tuple[str, bool], Any] = {}
    for index, panel in enumerate(panels):
        axes = canvas.add_subplot(rows, columns, index + 1)
        handles |= _draw_panel(axes, panel, colours, titled=len(panels) > 1)
    if legend:
        canvas.legend(
            list(handles.values()), [_label(*key) for key in handles], loc="outside lower left", frameon=False, fontsize=8.0,
            ncols=max(1, min(len(handles), int(width / (0.55 + 0.075 * max(len(_label(*key)) for key in handles))))),
            handlelength=1.6, columnspacing=1.4, borderaxespad=0.1, labelcolor=INK,
        )  # fmt: skip
    source = f" Source: {figure.source}." if figure.source else ""
    more = f" {plural(len(names) - MAX_SERIES, 'more curve')} in the tables." if len(names) > MAX_SERIES else ""
    return Picture(
        name=file_name(section.name, {"figure": figure.name}), title=figure.title, caption=f"{figure.caption}{source}{more}",
        alt=_alt(figure.title, panels), figure=canvas, wide=len(panels) > 1,
    )  # fmt: skip


def _label(name: str, published: bool) -> str:
    return f"{name} (published)" if published and "publish" not in name.lower() else name


def _colours(names: Sequence[tuple[str, bool]]) -> dict[tuple[str, bool], str]:
    """Return a colour for each series. A published series has the colour of its measured counterpart."""
    ours = [name for name, published in names if not published]
    found = dict(zip(((name, False) for name in ours), series_colours(max(len(ours), 1)), strict=False))
    alone = [name for name, published in names if published and (name, False) not in found]
    published_colours = [SECOND, MUTED] if len(alone) <= 2 else series_colours(len(alone))
    for name, published in names:
        if published:
            found[name, True] = found[name, False] if (name, False) in found else published_colours[alone.index(name)]
    return found


def _draw_panel(
    axes: Axes, panel: Panel, colours: Mapping[tuple[str, bool], str], *, titled: bool
) -> dict[tuple[str, bool], Any]:
    series = [one for one in panel.series if (one.name, one.published) in colours and len(one.y)]
    known = [abs(v) for s in series for v in (*s.y, *s.high) if v is not None and math.isfinite(v)]
    highest = max(known, default=0.0)
    positive = [v for v in known if v > 0]
    middle = math.sqrt(highest * min(positive)) if panel.y_log and positive else highest
    y_scale = axis_scale(panel.y, middle)
    positions, x_scale = _x_axis(axes, panel, series)
    found = {}
    bars = [s for s in series if s.style == "bars"]
    width = _bar_width(positions, bars)
    for one in series:
        x = np.array([positions(v) for v in one.x], dtype=float)
        if one in bars:
            x = x + (bars.index(one) - (len(bars) - 1) / 2) * width
        colour = colours[one.name, one.published]
        found[one.name, one.published] = _draw_series(axes, one, x, y_scale, colour, 0.92 * width)
    _y_axis(axes, panel, series, y_scale, positive, highest)
    _draw_bands(axes, panel, x_scale)
    caption_axis(axes, format_axis(panel.y, y_scale.unit))
    if titled:
        axes.set_title(
            f"{panel.title}\n{format_axis(panel.y, y_scale.unit)}", loc="left", fontsize=8.5, color=MUTED, pad=6
        )
    return found


class _AxisPositions:
    """Positions of x values: numeric in the unit of the axis, or categories in order of appearance."""

    def __init__(self, scale: Scale, labels: Sequence[float | str] = ()) -> None:
        self.scale = scale
        self.labels = list(labels)

    def __call__(self, value: float | str) -> float:
        if self.labels:
            return float(self.labels.index(value))
        return float(value) / self.scale.divisor


def _x_axis(axes: Axes, panel: Panel, series: Sequence[Series]) -> tuple[_AxisPositions, Scale]:
    values = list(dict.fromkeys(v for s in series for v in s.x))
    numeric = all(isinstance(v, int | float) for v in values)
    if not numeric or (len(values) <= MAX_CATEGORIES and all(s.style == "bars" for s in series)):
        labels = sorted(values, key=float) if numeric else values
        texts = [format_quantity(panel.x, v) for v in labels]
        axes.xaxis.set_major_locator(FixedLocator(list(range(len(labels)))))
        long = sum(map(len, texts)) > 42 or max(map(len, texts), default=0) > MAX_LABEL_LEN
        axes.set_xticklabels(texts, rotation=45 if long else 0, ha="right" if long else "center", rotation_mode="anchor")  # fmt: skip
        axes.set_xlim(-0.6, len(labels) - 0.4)
        axes.set_xlabel(format_axis(panel.x, ""))
        return _AxisPositions(Scale(1.0, ""), labels), Scale(1.0, "")
    numbers = sorted(float(v) for v in values)
    scale = axis_scale(panel.x, max(abs(v) for v in numbers))
    axes.set_xlabel(format_axis(panel.x, scale.unit))
    if panel.x_log and numbers[0] > 0:
        axes.set_xscale("log")
        axes.set_xlim(numbers[0] / scale.divisor / 1.15, numbers[-1] / scale.divisor * 1.15)
        ticks = spread(numbers, [math.log(v) for v in numbers])
        at_values = FixedLocator([v / scale.divisor for v in ticks])
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)) if panel.round_x else at_values)
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:,.4g}"))
    else:
        axes.margins(x=0.02)
        if len(numbers) <= MAX_MARKERS and not panel.round_x:
            axes.xaxis.set_major_locator(FixedLocator([v / scale.divisor for v in spread(numbers, numbers)]))
    return _AxisPositions(scale), scale


def _bar_width(positions: _AxisPositions, bars: Sequence[Series]) -> float:
    """Return the width of one bar. All bars at a position use four fifths of the minimum distance."""
    if not bars:
        return 0.0
    x = sorted({positions(v) for s in bars for v in s.x})
    gap = min((b - a for a, b in itertools.pairwise(x)), default=1.0)
    return 0.8 * gap / len(bars)


def _draw_series(axes: Axes, one: Series, x: Floats, scale: Scale, colour: str, width: float) -> Any:  # noqa: ANN401 - three kinds of artist
    y = _column(one.y) / scale.divisor
    line = (0, (4, 2)) if one.published or one.style == "dashes" else "-"
    dense = len(x) > RASTER_FROM
    if one.style == "bars":
        handle: Any = _draw_bars(axes, one, x, y, colour, width)
    elif one.style == "points":
        face = "none" if one.published else colour
        alpha = float(np.clip(60 / math.sqrt(len(x)), 0.06, 0.75)) if dense else 1.0
        (handle,) = axes.plot(x, y, "D" if one.published else "o", color=colour, markersize=4.2 if not dense else 2.2, alpha=alpha,
                              markerfacecolor=face, markeredgewidth=0.9 if one.published else 0.0, rasterized=dense, zorder=4, label=one.name)  # fmt: skip
    elif one.style == "steps":
        (handle,) = axes.step(x, y, where="post", color=colour, linewidth=1.2, linestyle=line, zorder=3)
    else:
        (handle,) = axes.plot(
            x, y, color=colour, linewidth=1.2, linestyle=line, zorder=3, label=one.name, **_marks(one, colour)
        )
    if one.low and one.high:
        _draw_interval(axes, one, x, y, scale, colour)
    return handle


def _marks(one: Series, colour: str) -> dict[str, Any]:
    """Return the marker style of a line. Long and dashed lines have no markers."""
    if len(one.x) > MAX_MARKERS or one.style == "dashes":
        return {}
    edge, face = (colour, BACKGROUND) if one.published else (BACKGROUND, colour)
    return {"marker": "D" if one.published else "o", "markersize": 4.2, "markeredgewidth": 0.7, "markeredgecolor": edge,
            "markerfacecolor": face}  # fmt: skip


def _draw_bars(axes: Axes, one: Series, x: Floats, y: Floats, colour: str, width: float) -> BarContainer:
    """Draw bars, as outlines for published values. Missing values have no bar."""
    finite = np.isfinite(y)
    if one.published:
        return axes.bar(x[finite], y[finite], width, facecolor="none", edgecolor=colour, linewidth=1.0, hatch="////", zorder=2, label=one.name)  # fmt: skip
    return axes.bar(x[finite], y[finite], width, color=colour, linewidth=0, zorder=2, label=one.name)


def _draw_interval(axes: Axes, one: Series, x: Floats, y: Floats, scale: Scale, colour: str) -> None:
    low, high = _column(one.low) / scale.divisor, _column(one.high) / scale.divisor
    if one.style in ("line", "dashes", "steps") and len(x) > MAX_MARKERS:
        axes.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0, zorder=1)
        return
    finite = np.isfinite(y) & np.isfinite(low) & np.isfinite(high)
    below, above = np.maximum(y - low, 0.0)[finite], np.maximum(high - y, 0.0)[finite]
    ink = INK if one.style == "bars" else colour
    axes.errorbar(x[finite], y[finite], yerr=(below, above), fmt="none", ecolor=ink, elinewidth=0.9, zorder=5)


def _column(values: Sequence[float | None]) -> Floats:
    return np.array([np.nan if value is None else value for value in values], dtype=float)


def _y_axis(
    axes: Axes, panel: Panel, series: Sequence[Series], scale: Scale, positive: Sequence[float], highest: float
) -> None:
    if panel.y_log and positive:
        low, high = min(positive) / scale.divisor, highest / scale.divisor
        axes.set_yscale("log")
        axes.set_ylim(low / 1.6, high * 1.6)
        axes.yaxis.set_major_locator(LogLocator(10, subs=(1.0, 2.0, 5.0) if high / low < 1500 else (1.0,)))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_minor_formatter(NullFormatter())
    else:
        lowest = min((v for s in series for v in (*s.y, *s.low) if v is not None and math.isfinite(v)), default=0.0)
        axes.set_ylim(1.12 * lowest / scale.divisor if lowest < 0 else 0.0, (1.12 * highest / scale.divisor) or 1.0)
        axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:,.6g}"))


def _draw_bands(axes: Axes, panel: Panel, scale: Scale) -> None:
    for band in panel.bands:
        low, high = band.low / scale.divisor, band.high / scale.divisor
        axes.axvspan(low, high, color=BAND, linewidth=0, zorder=0)
        axes.annotate(band.text, ((low + high) / 2, 1.0), xycoords=("data", "axes fraction"), xytext=(0, -2),
                      textcoords="offset points", ha="center", va="top", fontsize=7.5, color=MUTED)  # fmt: skip


def _alt(title: str, panels: Sequence[Panel]) -> str:
    """Return a text description of the figure: number of series and ranges."""
    texts = []
    for panel in panels:
        known = [v for s in panel.series for v in s.y if v is not None and math.isfinite(v)]
        ends = f"{format_quantity(panel.y, min(known))} to {format_quantity(panel.y, max(known))}"
        texts.append(f"{panel.title}: {len(panel.series)} series against {format_axis(panel.x, '')}, from {ends}")
    return f"{title}. {'; '.join(texts)}."
