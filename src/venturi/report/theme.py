"""One look for every figure: few lines, quiet axes, colours that also work on a dark page.

A figure is drawn in the light colours below. In the page each of these becomes a CSS variable, so that one drawing
serves light and dark; as PNG it stays as drawn. Every colour here is therefore unique and used for one thing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import matplotlib as mpl
from matplotlib import colormaps
from matplotlib.colors import to_hex

__all__ = [
    "ACCENT",
    "BACKGROUND",
    "BAND",
    "GRID",
    "INK",
    "MUTED",
    "SECOND",
    "VARIABLES",
    "Swatch",
    "series_colours",
    "styled",
]


@dataclass(frozen=True, slots=True)
class Swatch:
    """A colour on light and on dark ground, and the CSS variable that chooses."""

    variable: str
    light: str
    dark: str


_INK = Swatch("ink", "#1d2430", "#e6e9ee")
_MUTED = Swatch("muted", "#5d6675", "#9aa4b2")
_GRID = Swatch("grid", "#e3e6ea", "#2b323c")
_BACKGROUND = Swatch("paper", "#fffffe", "#14181e")
_ACCENT = Swatch("accent", "#0b6e6e", "#4fc4c0")
_SECOND = Swatch("second", "#b4531a", "#f0a06a")
_BAND = Swatch("band", "#eef3f2", "#1d2629")
INK, MUTED, GRID, BACKGROUND = _INK.light, _MUTED.light, _GRID.light, _BACKGROUND.light
ACCENT, SECOND, BAND = _ACCENT.light, _SECOND.light, _BAND.light

MOST_SERIES = 16
"""Steps of the scale for ordered curves; more curves than that share neighbouring colours."""


def _series() -> tuple[Swatch, ...]:
    scale = colormaps["viridis"]
    found = []
    for index in range(MOST_SERIES):
        place = index / (MOST_SERIES - 1)
        # Viridis is ordered for every kind of eyesight; its yellow end is lost on white, its violet end on black.
        found.append(Swatch(f"c{index}", to_hex(scale(0.02 + 0.70 * place)), to_hex(scale(0.34 + 0.62 * place))))
    return tuple(found)


SERIES = _series()

VARIABLES: tuple[Swatch, ...] = (_INK, _MUTED, _GRID, _BACKGROUND, _ACCENT, _SECOND, _BAND, *SERIES)
"""All colours that a figure may hold."""


def series_colours(count: int) -> list[str]:
    """Return colours for ``count`` curves in order, as far apart as the scale allows.

    Examples
    --------
    >>> len(series_colours(11)), series_colours(1) == [ACCENT]
    (11, True)
    """
    if count == 1:
        return [ACCENT]
    return [SERIES[round(index * (MOST_SERIES - 1) / (count - 1))].light for index in range(count)]


@contextmanager
def styled() -> Iterator[None]:
    """Draw in the look of the reports, whatever the user's own settings are."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(
            {
                "font.family": "sans-serif",
                "font.sans-serif": ["DejaVu Sans"],
                "font.size": 8.5,
                "axes.labelsize": 8.5,
                "axes.labelcolor": MUTED,
                "axes.edgecolor": MUTED,
                "axes.linewidth": 0.6,
                "axes.facecolor": "none",
                "axes.spines.top": False,
                "axes.spines.right": False,
                "axes.grid": True,
                "axes.grid.axis": "y",
                "axes.axisbelow": True,
                "grid.color": GRID,
                "grid.linewidth": 0.7,
                "xtick.color": MUTED,
                "ytick.color": MUTED,
                "xtick.labelcolor": MUTED,
                "ytick.labelcolor": MUTED,
                "xtick.labelsize": 8.0,
                "ytick.labelsize": 8.0,
                "xtick.major.width": 0.6,
                "ytick.major.width": 0.0,
                "xtick.minor.width": 0.4,
                "ytick.minor.width": 0.0,
                "xtick.major.size": 3.5,
                "xtick.minor.size": 2.0,
                "ytick.major.size": 0.0,
                "ytick.minor.size": 0.0,
                "text.color": INK,
                "figure.facecolor": "none",
                "savefig.facecolor": "none",
                "svg.fonttype": "none",
                "text.parse_math": False,  # a name with dollars in it is a name
                "path.simplify": True,
                "path.simplify_threshold": 0.5,
            }
        )
        yield
