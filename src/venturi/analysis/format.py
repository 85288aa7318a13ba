"""Formatting of factors and rates in sentences, findings and tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from venturi.analysis.result import FactorColumn, FactorValue
from venturi.stats import Interval
from venturi.units import format_bytes, format_bytes_exact, format_duration, format_rate

__all__ = [
    "RATE_UNITS",
    "format_factor_name",
    "format_factor_value",
    "format_factors",
    "format_interval_ends",
    "format_rate_range",
    "format_rate_with_interval",
    "format_sentences",
    "plural",
    "varied_factors",
]  # fmt: skip

RATE_UNITS = {"B/s": 1.0, "kB/s": 1e3, "MB/s": 1e6, "GB/s": 1e9, "TB/s": 1e12, "PB/s": 1e15}
"""Unit as in :func:`venturi.units.format_rate` → bytes/s."""

_NAMES = {"files": "parallel files", "size_bytes": "file size", "streams": "streams per file"}


def format_factor_name(name: str) -> str:
    """Return the name of a factor as words.

    Examples
    --------
    >>> format_factor_name("size_bytes"), format_factor_name("window_bytes"), format_factor_name("files")
    ('file size', 'window', 'parallel files')
    """
    if name in _NAMES:
        return _NAMES[name]
    for suffix in ("_bytes_per_s", "_bit_per_s", "_bytes", "_s"):
        name = name.removesuffix(suffix)
    return name.replace("_", " ")


def format_factor_value(name: str, value: FactorValue) -> str:
    """Return a value of a factor with its unit.

    Examples
    --------
    >>> format_factor_value("size_bytes", 100_000_000), format_factor_value("files", 10), format_factor_value("mover", "cp")
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


def varied_factors(factors: Sequence[FactorColumn]) -> tuple[str, ...]:
    """Return the names of the factors with more than one value."""
    return tuple(factor.name for factor in factors if factor.varied)


def format_factors(values: Mapping[str, FactorValue], names: Sequence[str]) -> str:
    """Return the values of some factors as one phrase: ``cp, 10 files, 100 MB``. It is empty without values."""
    texts = []
    for name in names:
        if name in values:
            text = format_factor_value(name, values[name])
            own = {"size_bytes": text, "mover": text, "files": f"{text} file{'' if text == '1' else 's'}"}
            texts.append(own.get(name, f"{format_factor_name(name)} {text}"))
    return ", ".join(texts)


def plural(count: int, noun: str) -> str:
    """Return a count with its noun: ``1 trial``, ``2 trials``, ``1,000 trials``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def format_rate_with_interval(rate_bytes_per_s: float, interval: Interval | None) -> str:
    """Return a rate with its interval in the same unit: ``1.4 GB/s (1.31–1.52)``.

    A missing interval is left out. So is an interval with limits that are equal in six digits, as in a simulation.

    Examples
    --------
    >>> format_rate_with_interval(1.4e9, Interval(1.4e9, 1.31e9, 1.52e9, 0.95, "Student t", 5))
    '1.4 GB/s (1.31–1.52)'
    >>> format_rate_with_interval(8e8, Interval(8e8, 8e8, 8e8, 0.95, "Student t", 5))
    '800 MB/s'
    """
    text = format_rate(rate_bytes_per_s)
    if interval is None:
        return text
    low, high = format_interval_ends(interval, text.split(" ", 1)[1])
    return text if low == high else f"{text} ({low}–{high})"


def format_sentences(clauses: Iterable[str]) -> str:
    """Return clauses as sentences, each with a capital letter and a full stop. Empty clauses are left out.

    Examples
    --------
    >>> format_sentences(["one cp moves 1 GB/s", "", "no link was full"])
    'One cp moves 1 GB/s. No link was full.'
    """
    return " ".join(f"{clause[0].upper()}{clause[1:]}." for clause in clauses if clause)


def format_interval_ends(interval: Interval, unit: str) -> tuple[str, str]:
    """Return both ends of an interval of rates in one unit, with enough digits to distinguish them.

    Examples
    --------
    >>> format_interval_ends(Interval(2e8, 1.9996e8, 2.0004e8, 0.95, "Student t", 5), "MB/s")
    ('199.96', '200.04')
    >>> format_interval_ends(Interval(1e9, 9.9e8, 1.01e9, 0.95, "Student t", 5), "MB/s")
    ('990', '1010')
    """
    low, high = interval.low / RATE_UNITS[unit], interval.high / RATE_UNITS[unit]
    for digits in range(3, 7):
        ends = (_rounded(low, digits), _rounded(high, digits))
        if ends[0] != ends[1]:
            break
    return ends


def format_rate_range(low_bytes_per_s: float | None, high_bytes_per_s: float | None) -> str:
    """Return both ends of a range in the unit of the lower one. A single rate or a dash replaces missing ends.

    Examples
    --------
    >>> format_rate_range(5e8, 5.5e8), format_rate_range(9.19e8, 1.59e9), format_rate_range(3e8, 3e8), format_rate_range(None, None)
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
    """Return a number rounded to a number of digits, without an exponent if whole numbers suffice."""
    return f"{value:.0f}" if 10**digits <= abs(value) < 1e9 else f"{value:.{digits}g}"
