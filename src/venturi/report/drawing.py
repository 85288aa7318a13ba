"""Common parts of all figures: canvas, axes and non-overlapping labels."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

from venturi.analysis.format import RATE_UNITS, format_factor_name, format_factor_value
from venturi.analysis.result import FactorValue
from venturi.report.theme import INK, MUTED
from venturi.units import format_rate

__all__ = [
    "FULL",
    "HALF",
    "Picture",
    "axis_label",
    "axis_of_factor",
    "canvas",
    "caption_axis",
    "file_name",
    "label_ends",
    "log_rates",
    "rate_scale",
    "sort_key",
]

WIDE_RANGE = 20.0
"""Minimum ratio of the limits of a logarithmic axis."""
HALF = (5.6, 3.9)
FULL = 9.2
"""Width of a figure that fills the page, in inches."""


@dataclass(frozen=True)
class Picture:
    """Figure with its title, caption and description. If ``wide``, it fills the page."""

    name: str
    title: str
    caption: str
    alt: str
    figure: Figure
    wide: bool = False


def canvas(size: tuple[float, float]) -> tuple[Figure, Axes]:
    """Return a figure of this size in inches, with one pair of axes."""
    figure = Figure(figsize=size, layout=ConstrainedLayoutEngine(h_pad=0.03, w_pad=0.03))
    return figure, figure.add_subplot()


def caption_axis(axes: Axes, text: str, extra: Sequence[tuple[str, str]] = ()) -> None:
    """Write the unit of the vertical axis horizontally above the axis."""
    axes.set_title(text, loc="left", fontsize=8.5, color=MUTED, pad=6)
    if len(extra) > 1:
        handles = [axes.plot([], [], color=colour, linewidth=2.0, label=name)[0] for name, colour in extra]
        axes.legend(handles=handles, loc="lower right", bbox_to_anchor=(1.0, 0.99), ncols=len(extra), frameon=False, fontsize=8.0,
                    handlelength=1.1, columnspacing=1.2, borderaxespad=0.1, labelcolor=INK)  # fmt: skip


def rate_scale(highest: float) -> tuple[float, str]:
    """Return the unit for rates up to ``highest``, as bytes/s and as text."""
    unit = format_rate(highest).split(" ", 1)[1]
    return RATE_UNITS[unit], unit


def log_rates(axes: Axes, rates: Sequence[float], scale: float, ratio: float = WIDE_RANGE) -> bool:
    """Choose the scale of the rates, and return whether it is logarithmic."""
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


def axis_of_factor(axes: Axes, name: str, values: Sequence[float]) -> None:
    """Set the horizontal axis to a factor, with the measured values as ticks."""
    low, high = values[0], values[-1]
    axes.set_xlabel(axis_label(name))
    if low > 0 and high / low >= WIDE_RANGE:
        axes.set_xscale("log")
        axes.set_xlim(low / 1.15, high * 1.15)
        ticks = spread(values, [math.log(value) for value in values])
    else:
        span = high - low or max(abs(high), 1.0)
        axes.set_xlim(low - 0.04 * span, high + 0.04 * span)
        ticks = spread(values, values)
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(FixedLocator([value for value in values if value not in ticks]))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_major_formatter(
        FuncFormatter(lambda v, _: format_factor_value(name, int(v) if float(v).is_integer() else v))
    )


def spread(values: Sequence[float], positions: Sequence[float]) -> list[float]:
    """Return the measured values to label without overlap: both limits, and the fitting values between."""
    gap = 0.075 * (positions[-1] - positions[0] or 1.0)
    kept = [0]
    for i in range(1, len(values)):
        if positions[i] - positions[kept[-1]] >= gap:
            kept.append(i)
    if kept[-1] != len(values) - 1:
        if len(kept) > 1 and positions[-1] - positions[kept[-1]] < gap:
            kept.pop()
        kept.append(len(values) - 1)
    return [values[i] for i in kept]


def label_ends(figure: Figure, axes: Axes, labels: Sequence[tuple[float, float, str, str]]) -> None:
    """Write the name of each curve at its right end, without overlap."""
    if not any(text for _, _, text, _ in labels):
        return
    layout = figure.get_layout_engine()
    if layout is not None:
        layout.execute(figure)  # sets the height of the axes
    to_pixels = axes.transData.transform
    heights = np.array([to_pixels((x, y))[1] for x, y, _, _ in labels])
    box = axes.get_window_extent()
    step = min(11.2, box.height / max(len(labels), 1)) * figure.dpi / 72
    order = np.argsort(heights, kind="stable")
    shifted = heights[order].copy()
    for _ in range(200):
        gaps = np.diff(shifted)
        close = gaps < step - 1e-9
        if not close.any():
            break
        push = np.where(close, (step - gaps) / 2, 0.0)
        shifted[:-1] -= push
        shifted[1:] += push
    shifted += max(0.0, float(box.y0) - shifted[0]) if len(shifted) else 0.0
    for rank, index in enumerate(order):
        x, _, text, colour = labels[index]
        target = float((shifted[rank] - box.y0) / box.height)
        axes.annotate(
            text, xy=(x, labels[index][1]), xycoords="data", xytext=(1.045, target), textcoords=axes.transAxes, fontsize=8.0,
            color=colour, va="center", ha="left", annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.5, "alpha": 0.55, "shrinkA": 1.5, "shrinkB": 3.5},
        )  # fmt: skip


def axis_label(name: str) -> str:
    """Return the axis label of a factor."""
    return {"files": "number of parallel files", "size_bytes": "file size"}.get(name, format_factor_name(name))


def sort_key(value: FactorValue) -> tuple[int, float, str]:
    """Return the sort key of a factor value: numbers by size, then names."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return (0, float(value), "")
    return (1, 0.0, str(value))


def file_name(start: str, kind: Mapping[str, FactorValue]) -> str:
    """Return a name that is safe as a file name and as an HTML id."""
    parts = [start.removesuffix("_bytes"), *(str(value) for value in kind.values())]
    return "-".join("".join(c if c.isalnum() else "-" for c in word) for word in parts)
