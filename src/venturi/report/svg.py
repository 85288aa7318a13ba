"""Figure as inline SVG with real text, CSS variables for colours, and unique ids."""

from __future__ import annotations

import io
import re
from html import escape

import matplotlib as mpl

from venturi.report.figures import Picture
from venturi.report.svg_paths import short_paths
from venturi.report.theme import VARIABLES, styled

__all__ = ["css_variables", "inline_svg"]

_COLOURS = {swatch.light: f"var(--{swatch.variable})" for swatch in VARIABLES}
_COLOUR = re.compile("|".join(_COLOURS))
_FONT = re.compile(r"font-family:[^;\"]*;?|font: (?P<size>[\d.]+px) [^;\"]*")


def css_variables(*, dark: bool) -> str:
    """Return the CSS declarations of all colours, for a light or dark background."""
    return " ".join(f"--{swatch.variable}: {swatch.dark if dark else swatch.light};" for swatch in VARIABLES)


def inline_svg(picture: Picture) -> str:
    """Return an ``<svg>`` element with title and description, for a page that declares the colours."""
    stream = io.StringIO()
    with styled(), mpl.rc_context({"svg.hashsalt": picture.name}):
        picture.figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None}, dpi=150)
    text = stream.getvalue()
    text = text[text.index("<svg") :]
    head, body = text.split(">", 1)
    box = re.search(r'viewBox="([^"]+)"', head)
    body = re.sub(r"\s*<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = re.sub(r"\s*<defs>\s*<style.*?</style>\s*</defs>", "", body, count=1, flags=re.DOTALL)
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


def _prefix_ids(body: str, prefix: str) -> str:
    """Prefix referenced ids with the name of the figure, and remove the others."""
    used = set(re.findall(r'(?:url\(#|href="#)([^)"]+)', body))
    body = re.sub(r' id="([^"]+)"', lambda m: f' id="{prefix}-{m[1]}"' if m[1] in used else "", body)
    return re.sub(r'(url\(#|href="#)([^)"]+)', lambda m: f"{m[1]}{prefix}-{m[2]}", body).replace("xlink:href", "href")
