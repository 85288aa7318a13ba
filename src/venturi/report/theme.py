"""Common style of all figures, with colours for light and dark pages.

Figures use the light colours below. In the page, each colour becomes a CSS variable, so that one drawing serves light
and dark pages. PNG files keep the light colours. Each colour is therefore unique and has one purpose.
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
    """A colour for light and dark backgrounds, and its CSS variable."""

    variable: str
    light: str
    dark: str


_INK = Swatch("ink", "#1d2430", "#e6e9ee")
_MUTED = Swatch("muted", "#5d6675", "#9aa4b2")
_GRID = Swatch("grid", "#e3e6ea", "#2b323c")
_BACKGROUND = Swatch("paper", "#fffffe", "#14181e")
_ACCENT = Swatch("accent", "#0b6e6e", "#4fc4c0")
_SECOND = Swatch("second", "#a94c15", "#f0a06a")
_BAND = Swatch("band", "#eef3f2", "#1d2629")
INK, MUTED, GRID, BACKGROUND = _INK.light, _MUTED.light, _GRID.light, _BACKGROUND.light
ACCENT, SECOND, BAND = _ACCENT.light, _SECOND.light, _BAND.light

MAX_SERIES = 16
"""Number of colours for ordered curves. More curves share neighbouring colours."""


def _series() -> tuple[Swatch, ...]:
    scale = colormaps["viridis"]
    found = []
    for index in range(MAX_SERIES):
        fraction = index / (MAX_SERIES - 1)
        # Viridis is ordered for all kinds of colour vision. Its yellow end is invisible on white, its violet on black.
        found.append(
            Swatch(f"c{index}", to_hex(scale(0.02 + 0.70 * fraction)), to_hex(scale(0.34 + 0.62 * fraction)))
        )
    return tuple(found)


SERIES = _series()

VARIABLES: tuple[Swatch, ...] = (_INK, _MUTED, _GRID, _BACKGROUND, _ACCENT, _SECOND, _BAND, *SERIES)
"""All colours of figures."""


def series_colours(count: int) -> list[str]:
    """Return colours for ``count`` ordered curves, with maximum distance on the scale.

    Examples
    --------
    >>> len(series_colours(11)), series_colours(1) == [ACCENT]
    (11, True)
    """
    if count == 1:
        return [ACCENT]
    return [SERIES[round(index * (MAX_SERIES - 1) / (count - 1))].light for index in range(count)]


@contextmanager
def styled() -> Iterator[None]:
    """Apply the style of the reports, independent of the settings of the user."""
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
                "text.parse_math": False,  # dollar signs in names are text
                "path.simplify": True,
                "path.simplify_threshold": 0.5,
            }
        )
        yield
