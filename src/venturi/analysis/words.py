"""How factors and rates are named in sentences, findings and tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from venturi.analysis.result import Factor, FactorValue
from venturi.stats import Interval
from venturi.units import format_bytes, format_bytes_exact, format_duration, format_rate

__all__ = [
    "RATE_UNITS", "bit_rate", "describe", "factor_name", "factor_value", "interval_ends", "plural", "rate_range", "rate_with_interval", "varying",
]  # fmt: skip

RATE_UNITS = {"B/s": 1.0, "kB/s": 1e3, "MB/s": 1e6, "GB/s": 1e9, "TB/s": 1e12, "PB/s": 1e15}
"""Unit as :func:`venturi.units.format_rate` writes it → bytes/s."""

_NAMES = {"files": "parallel files", "size_bytes": "file size", "streams": "streams per file"}


def factor_name(name: str) -> str:
    """Return a factor in words.

    Examples
    --------
    >>> factor_name("size_bytes"), factor_name("window_bytes"), factor_name("files")
    ('file size', 'window', 'parallel files')
    """
    if name in _NAMES:
        return _NAMES[name]
    for suffix in ("_bytes_per_s", "_bit_per_s", "_bytes", "_s"):
        name = name.removesuffix(suffix)
    return name.replace("_", " ")


def factor_value(name: str, value: FactorValue) -> str:
    """Return a value of a factor with its unit.

    Examples
    --------
    >>> factor_value("size_bytes", 100_000_000), factor_value("files", 10), factor_value("mover", "cp")
    ('100 MB', '10', 'cp')
    """
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    if name.endswith("_bytes"):
        exact = format_bytes_exact(int(value)) if float(value).is_integer() else ""
        return exact if exact and len(exact) <= 7 else format_bytes(value)
    if name.endswith("_s") and not name.endswith("_per_s"):
        return format_duration(float(value))
    return f"{value:g}"


def bit_rate(rate_bit_per_s: float) -> str:
    """Return a rate of a link as networks count it.

    Examples
    --------
    >>> bit_rate(1e8), bit_rate(2.5e9)
    ('100 Mb/s', '2.5 Gb/s')
    """
    return format_rate(rate_bit_per_s).replace("B/s", "b/s")


def varying(factors: Sequence[Factor]) -> tuple[str, ...]:
    """Return the names of the factors that took more than one value."""
    return tuple(factor.name for factor in factors if factor.varied)


def describe(values: Mapping[str, FactorValue], names: Sequence[str]) -> str:
    """Return the values of some factors as one phrase: ``cp, 10 files, 100 MB``; empty if there are none."""
    texts = []
    for name in names:
        if name in values:
            text = factor_value(name, values[name])
            own = {"size_bytes": text, "mover": text, "files": f"{text} file{'' if text == '1' else 's'}"}
            texts.append(own.get(name, f"{factor_name(name)} {text}"))
    return ", ".join(texts)


def plural(count: int, noun: str) -> str:
    """Return ``1 trial``, ``2 trials``, ``1,000 trials``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def rate_with_interval(rate_bytes_per_s: float, interval: Interval | None) -> str:
    """Return ``1.4 GB/s (1.31–1.52)``: the interval in the unit of the rate, or nothing where there is none.

    Examples
    --------
    >>> rate_with_interval(1.4e9, Interval(1.4e9, 1.31e9, 1.52e9, 0.95, "Student t", 5))
    '1.4 GB/s (1.31–1.52)'
    """
    text = format_rate(rate_bytes_per_s)
    return text if interval is None else f"{text} ({'–'.join(interval_ends(interval, text.split(' ', 1)[1]))})"


def interval_ends(interval: Interval, unit: str) -> tuple[str, str]:
    """Return both ends of an interval of rates in one unit, with as many digits as it takes to tell them apart.

    Examples
    --------
    >>> interval_ends(Interval(2e8, 1.9996e8, 2.0004e8, 0.95, "Student t", 5), "MB/s")
    ('199.96', '200.04')
    >>> interval_ends(Interval(1e9, 9.9e8, 1.01e9, 0.95, "Student t", 5), "MB/s")
    ('990', '1010')
    """
    low, high = interval.low / RATE_UNITS[unit], interval.high / RATE_UNITS[unit]
    for digits in range(3, 7):
        ends = (_rounded(low, digits), _rounded(high, digits))
        if ends[0] != ends[1]:
            break
    return ends


def rate_range(low_bytes_per_s: float | None, high_bytes_per_s: float | None) -> str:
    """Return both ends of a range in the unit of the lower one, the one rate there is, or a dash.

    Examples
    --------
    >>> rate_range(5e8, 5.5e8), rate_range(9.19e8, 1.59e9), rate_range(3e8, 3e8), rate_range(None, None)
    ('500–550 MB/s', '919–1590 MB/s', '300 MB/s', '–')
    """
    low = high_bytes_per_s if low_bytes_per_s is None else low_bytes_per_s
    if low is None:
        return "–"
    text = format_rate(low)
    if high_bytes_per_s is None or high_bytes_per_s == low:
        return text
    number, unit = text.split(" ", 1)
    return f"{number}–{_rounded(high_bytes_per_s / RATE_UNITS[unit], 3)} {unit}"


def _rounded(value: float, digits: int) -> str:
    """Return a number to so many digits, but never with an exponent where whole numbers will do."""
    return f"{value:.0f}" if 10**digits <= abs(value) < 1e9 else f"{value:.{digits}g}"
