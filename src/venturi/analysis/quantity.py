"""Formatting of values for readers by the name of their column, whose last part is the unit."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from venturi.analysis.section import Column, Scalar
from venturi.units import format_bit_rate, format_bytes, format_duration, format_rate

__all__ = ["Scale", "axis_scale", "column_is_text", "format_axis", "format_quantity"]

_FORMS: tuple[tuple[str, Callable[[float], str]], ...] = (
    ("_bit_per_s", format_bit_rate),
    ("_bytes_per_s", format_rate),
    ("_per_s", lambda value: f"{value:,.4g} /s"),
    ("_bytes", format_bytes),
    ("_bit", lambda value: format_bytes(value).replace("B", "b")),
    ("_s", format_duration),
    ("_ratio", lambda value: f"{100 * value:.3g} %" if value < 9.995 else f"{100 * value:,.0f} %"),
)
"""Last part of a name → formatter of its values. Longer suffixes come first."""
_PREFIXES = (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3), ("", 1.0))
_PREFIXED = {"_bit_per_s": "b/s", "_bytes_per_s": "B/s", "_bytes": "B", "_bit": "b"}
_TIMES = (("h", 3600.0, 3 * 3600.0), ("min", 60.0, 600.0), ("s", 1.0, 1.0), ("ms", 1e-3, 1e-3), ("µs", 1e-6, 0.0))
"""Unit of a time axis, its seconds, and the lowest maximum value that uses it."""
COMMAS_FROM = 10_000
"""Whole numbers below this can be years, ports or numbers of trials, and have no thousands separators."""


class Scale(NamedTuple):
    """Divisor of the values of an axis, and the unit of the scaled values (empty: a count)."""

    divisor: float
    unit: str


def format_quantity(name: str, value: Scalar) -> str:
    """Return a value with its unit, or a dash for a missing value.

    Examples
    --------
    >>> format_quantity("rate_bit_per_s", 2.5e9), format_quantity("rate_bytes_per_s", 1.25e8), format_quantity("wall_s", 0.0123)
    ('2.5 Gb/s', '125 MB/s', '12.3 ms')
    >>> format_quantity("efficiency_ratio", 0.875), format_quantity("jobs", 10_000), format_quantity("site", None)
    ('87.5 %', '10,000', '–')
    """
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    sign, size = ("−" if value < 0 else ""), abs(value)
    for suffix, form in _FORMS:
        if name.endswith(suffix):
            return sign + form(size)
    if isinstance(value, int) or float(value).is_integer():
        return f"{sign}{size:,.0f}" if size >= COMMAS_FROM else f"{sign}{size:.0f}"
    return f"{sign}{size:,.4g}"


def column_is_text(column: Column, cells: list[Scalar]) -> bool:
    """Return whether a column is left-aligned, because it has texts or no values."""
    return any(isinstance(cell, str) for cell in cells) or not any(cell is not None for cell in cells)


def axis_scale(name: str, highest: float) -> Scale:
    """Return the scale of an axis whose largest absolute value is ``highest``.

    Examples
    --------
    >>> axis_scale("rate_bit_per_s", 4.2e9), axis_scale("time_s", 7200)
    (Scale(divisor=1000000000.0, unit='Gb/s'), Scale(divisor=60.0, unit='min'))
    >>> axis_scale("share_ratio", 1.0), axis_scale("jobs", 40)
    (Scale(divisor=0.01, unit='%'), Scale(divisor=1.0, unit=''))
    """
    for suffix, unit in _PREFIXED.items():
        if name.endswith(suffix):
            prefix, factor = next(((p, f) for p, f in _PREFIXES if highest >= f), _PREFIXES[-1])
            return Scale(factor, prefix + unit)
    if name.endswith("_per_s"):
        return Scale(1.0, "1/s")
    if name.endswith("_s"):
        unit, factor = next((u, f) for u, f, least in _TIMES if highest >= least)
        return Scale(factor if highest else 1.0, unit if highest else "s")
    return Scale(0.01, "%") if name.endswith("_ratio") else Scale(1.0, "")


def format_axis(name: str, unit: str) -> str:
    """Return the label of an axis: the name without its unit, then the displayed unit.

    Examples
    --------
    >>> format_axis("goodput_bytes_per_s", "MB/s"), format_axis("concurrent_jobs", ""), format_axis("time_s", "min")
    ('goodput, MB/s', 'concurrent jobs', 'time, min')
    """
    for suffix, _ in _FORMS:
        if name.endswith(suffix):
            name = name.removesuffix(suffix)
            break
    words = name.replace("_", " ").strip()
    return f"{words}, {unit}" if unit else words
