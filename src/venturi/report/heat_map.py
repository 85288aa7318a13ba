"""Heat map of ratios: rows of sources, columns of destinations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FixedLocator

from venturi.report.drawing import FULL, Picture
from venturi.report.theme import BAND, INK, series_colours, styled

__all__ = ["heat_map"]

STEPS = 8
"""Number of colours below 100 %."""
REACHED = 0.9995
"""Smallest ratio that is drawn as 100 %: the rounding of the texts."""
MAX_LABELS = 50
"""Maximum names on an axis. With more, every second, third, … has a name."""
MAX_TEXTS = 12
"""Maximum sites with the ratio as text in each cell."""
CELL = 0.16
"""Side of a cell in inches, if all cells fit."""


def heat_map(
    name: str, title: str, caption: str, values: Mapping[tuple[str, str], float], rows: Sequence[str], columns: Sequence[str]
) -> Picture:  # fmt: skip
    """Return a heat map of ratios from 0 to 1.

    Parameters
    ----------
    values
        Row and column → ratio. Missing pairs have no colour.
    rows, columns
        Names in the order of the axes.
    """
    cells = np.array([[values.get((row, column), np.nan) for column in columns] for row in rows])
    height = min(9.0, max(2.4, 1.3 + CELL * len(rows) * (2.2 if len(rows) <= MAX_TEXTS else 1.0)))
    with styled():
        canvas = Figure(figsize=(FULL, height), layout=ConstrainedLayoutEngine(h_pad=0.03, w_pad=0.03))
        axes = canvas.add_subplot()
        bounds = [*np.linspace(0, 1, STEPS + 1)[:-1], REACHED, 1.0 + 1e-6]
        colours = ListedColormap([*series_colours(STEPS), BAND])
        mesh = axes.pcolormesh(
            np.minimum(cells, 1.0), cmap=colours, norm=BoundaryNorm(bounds, STEPS + 1), rasterized=cells.size > 400
        )
        axes.grid(visible=False)
        axes.set_ylim(len(rows), 0)
        _label(axes, "x", columns)
        _label(axes, "y", rows)
        axes.set_xlabel("to")
        axes.set_ylabel("from")
        bar = canvas.colorbar(mesh, ax=axes, fraction=0.04, pad=0.01, spacing="uniform")
        bar.set_ticks(bounds[:-1], labels=[*(f"{100 * bound:.0f} %" for bound in bounds[:-2]), "100 %"])
        bar.outline.set_visible(False)
        if max(cells.shape) <= MAX_TEXTS:
            _write_ratios(axes, cells)
    found = cells[np.isfinite(cells)]
    alt = f"{title}. {len(found)} pairs, from {100 * found.min(initial=1.0):.3g} % to {100 * found.max(initial=0.0):.3g} %."
    return Picture(name=name, title=title, caption=caption, alt=alt, figure=canvas, wide=True)


def _label(axes: Axes, side: str, names: Sequence[str]) -> None:
    axis = getattr(axes, f"{side}axis")
    step = -(-len(names) // MAX_LABELS)
    axis.set_major_locator(FixedLocator([index + 0.5 for index in range(0, len(names), step)]))
    longest = max(map(len, names), default=0)
    turned = {"rotation": 90} if side == "x" and longest * len(names) > 90 else {}
    axis.set_ticklabels(list(names[::step]), fontsize=6.0 if len(names) > 24 else 8.0, **turned)


def _write_ratios(axes: Axes, cells: np.ndarray[tuple[int, int], np.dtype[np.float64]]) -> None:
    for (row, column), value in np.ndenumerate(cells):
        if np.isfinite(value):
            ink = INK if value >= REACHED else "#ffffff"
            axes.text(
                column + 0.5, row + 0.5, f"{100 * value:.3g} %", ha="center", va="center", fontsize=7.5, color=ink
            )
