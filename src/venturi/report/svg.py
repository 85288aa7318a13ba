"""Figure as inline SVG with real text, CSS variables for colours, and unique ids."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from html import escape

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.container import BarContainer
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FixedLocator

from venturi.report.figures import Picture
from venturi.report.svg_paths import short_paths
from venturi.report.theme import VARIABLES, styled

__all__ = ["css_variables", "inline_svg"]

MAX_VALUES = 200
"""Maximum points of a line with a value on hover. A value takes about 60 bytes."""
_COLOURS = {swatch.light: f"var(--{swatch.variable})" for swatch in VARIABLES}
_COLOUR = re.compile("|".join(_COLOURS))
_MARKER = re.compile(r"(<use [^>]*?)\s*/>")
_FONT = re.compile(r"font-family:[^;\"]*;?|font: (?P<size>[\d.]+px) [^;\"]*")


def css_variables(*, dark: bool) -> str:
    """Return the CSS declarations of all colours, for a light or dark background."""
    return " ".join(f"--{swatch.variable}: {swatch.dark if dark else swatch.light};" for swatch in VARIABLES)


def inline_svg(picture: Picture) -> str:
    """Return an ``<svg>`` element with title and description, for a page that declares the colours.

    Each marker and bar has a ``<title>`` with its value, which browsers show on hover.
    """
    values = _mark_points(picture.figure)
    stream = io.StringIO()
    with styled(), mpl.rc_context({"svg.hashsalt": picture.name}):
        picture.figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None}, dpi=150)
    text = stream.getvalue()
    text = text[text.index("<svg") :]
    head, body = text.split(">", 1)
    box = re.search(r'viewBox="([^"]+)"', head)
    body = re.sub(r"\s*<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = re.sub(r"\s*<defs>\s*<style.*?</style>\s*</defs>", "", body, count=1, flags=re.DOTALL)
    body = _with_values(body, values)
    body = _COLOUR.sub(lambda match: _COLOURS[match.group()], body)
    body = _FONT.sub(lambda match: f"font-size: {match['size']}" if match["size"] else "", body)
    body = _prefix_ids(body, picture.name)
    body = re.sub(r"\n\s*", "\n", short_paths(body))
    title, about = f"t-{picture.name}", f"d-{picture.name}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{box[1] if box else "0 0 400 280"}" role="img"'
        f' aria-labelledby="{title} {about}"><title id="{title}">{escape(picture.title)}</title>'
        f'<desc id="{about}">{escape(picture.alt)}</desc>{body}'
    )


def _mark_points(figure: Figure) -> dict[str, list[str]]:
    """Give an id to lines with markers and to bars, and return the texts of their points by id."""
    found: dict[str, list[str]] = {}
    for axes in figure.axes:
        if not axes.get_title(loc="left") and not (axes.get_xlabel() and _has_categories(axes.yaxis)):
            continue  # a diagram
        for line in axes.lines:
            x, y = (np.asarray(values, dtype=float) for values in (line.get_xdata(), line.get_ydata()))
            finite = np.isfinite(x) & np.isfinite(y)
            if line.get_marker() in ("o", "D") and 0 < finite.sum() <= MAX_VALUES and not line.get_rasterized():
                line.set_gid(f"value-{len(found)}")
                texts = [_value_text(axes, *point) for point in zip(x[finite], y[finite], strict=True)]
                found[f"value-{len(found)}"] = _named(line.get_label(), texts)
        for bars in axes.containers:
            if isinstance(bars, BarContainer) and len(bars) <= MAX_VALUES:
                for bar in bars:
                    bar.set_gid(f"value-{len(found)}")
                    text = _value_text(axes, _bar_position(axes, bar), bar.get_height())
                    found[f"value-{len(found)}"] = _named(bars.get_label(), [text])
    return found


def _value_text(axes: Axes, x: float, y: float) -> str:
    """Return a point as text, with the labels of its axes."""
    unit = axes.get_title(loc="left").rpartition("\n")[2]
    if not unit:  # one row per category
        return f"{_tick_text(axes.yaxis, y)}\n{axes.get_xlabel()}: {x:,.4g}"
    return f"{unit}: {_tick_text(axes.yaxis, y)}\n{axes.get_xlabel()}: {_tick_text(axes.xaxis, x)}"


def _tick_text(axis: Axis, value: float) -> str:
    """Return a value with four digits, in the form of the ticks of an axis if it defines one."""
    rounded = float(f"{value:.4g}")
    return axis.get_major_formatter()(rounded, None) or f"{rounded:,.10g}"


def _has_categories(axis: Axis) -> bool:
    """Return whether the ticks of an axis are the positions 0, 1, 2 and so on."""
    locator = axis.get_major_locator()
    return isinstance(locator, FixedLocator) and [*locator.tick_values(0, 0)] == [
        *range(len(locator.tick_values(0, 0)))
    ]


def _bar_position(axes: Axes, bar: Rectangle) -> float:
    """Return the horizontal position of a bar. Bars of several series are next to the position of their category."""
    centre = bar.get_x() + bar.get_width() / 2
    return round(centre) if _has_categories(axes.xaxis) else centre


def _named(label: object, texts: list[str]) -> list[str]:
    """Return the texts with the name of their series. Matplotlib gives names with an underscore to the others."""
    name = str(label)
    return texts if not name or name.startswith("_") else [f"{name}\n{text}" for text in texts]


def _with_values(body: str, values: Mapping[str, list[str]]) -> str:
    """Return the SVG text with a ``<title>`` in each marker and bar that has a value."""
    for name, texts in values.items():
        before, mark, after = body.partition(f'<g id="{name}">')
        if not mark:
            continue
        own, rest = _until_next_group(after)
        titles = [f"<title>{escape(text)}</title>" for text in texts]
        if own.count("<use ") == len(titles):
            parts = _MARKER.split(own)  # text, marker, text, …, marker, text
            parts[1::2] = [f"{marker}>{title}</use>" for marker, title in zip(parts[1::2], titles, strict=True)]
            own = "".join(parts)
        elif len(titles) == 1:
            own = titles[0] + own
        body = before + mark + own + rest
    return body


def _until_next_group(text: str) -> tuple[str, str]:
    """Return the SVG text before and from the next group with an id."""
    end = text.find('<g id="')
    return (text, "") if end < 0 else (text[:end], text[end:])


def _prefix_ids(body: str, prefix: str) -> str:
    """Prefix referenced ids with the name of the figure, and remove the others."""
    used = set(re.findall(r'(?:url\(#|href="#)([^)"]+)', body))
    body = re.sub(r' id="([^"]+)"', lambda m: f' id="{prefix}-{m[1]}"' if m[1] in used else "", body)
    return re.sub(r'(url\(#|href="#)([^)"]+)', lambda m: f"{m[1]}{prefix}-{m[2]}", body).replace("xlink:href", "href")
