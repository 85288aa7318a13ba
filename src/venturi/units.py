"""Quantities as text and back: sizes, times, rates.

Inside the program everything is in base units, and the name says so (``_bytes``, ``_s``, ``_bytes_per_s``,
``_bit_per_s``). Text carries its unit: ``k M G T P`` are powers of 1000, ``Ki Mi Gi Ti Pi`` powers of 1024, and a bare
number where a unit is due is refused. The factor 8 between bits and bytes stands in :data:`BITS_PER_BYTE` alone.

The parsers return exact integers for sizes; ``parse_bytes(format_bytes_exact(n)) == n`` for every ``n >= 0``.
"""

from __future__ import annotations

import re
from fractions import Fraction

from venturi.errors import UnitError

__all__ = [
    "BITS_PER_BYTE",
    "format_bytes",
    "format_bytes_exact",
    "format_duration",
    "format_rate",
    "format_rate_triple",
    "parse_bytes",
    "parse_duration",
    "parse_rate_bit_per_s",
]

BITS_PER_BYTE = 8

_DECIMAL = {"": 0, "k": 1, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5}
_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5}
_PREFIX_FACTOR = {p: 1000**e for p, e in _DECIMAL.items()} | {p: 1024**e for p, e in _BINARY.items()}
_SECONDS = {
    "ns": Fraction(1, 10**9), "us": Fraction(1, 10**6), "µs": Fraction(1, 10**6), "ms": Fraction(1, 1000),
    "s": Fraction(1), "min": Fraction(60), "h": Fraction(3600), "d": Fraction(86400),
}  # fmt: skip
_QUANTITY = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]{1,2})?|\.[0-9]+)\s*([^\s0-9].*?)?\s*\Z")


def _split(text: object, kind: str, example: str) -> tuple[Fraction, str]:
    """Return the number and the unit of ``text``, or say what was expected."""
    if not isinstance(text, str):
        raise UnitError(f'expected {kind} such as "{example}", found {text!r}')
    match = _QUANTITY.match(text)
    if match is None:
        raise UnitError(f'expected {kind} such as "{example}", found "{text}"')
    number, unit = match.groups()
    if unit is None and Fraction(number) != 0:
        raise UnitError(f'expected {kind} such as "{example}", found "{text}" without a unit')
    return Fraction(number), unit or ""


def parse_bytes(text: object) -> int:
    """Return a size in bytes.

    Parameters
    ----------
    text
        A number and a unit: ``"100 MB"`` is 10**8, ``"1 MiB"`` is 2**20, ``"0"`` and ``"512 B"`` are allowed.

    Raises
    ------
    UnitError
        If the unit is missing or unknown, or the size is not a whole number of bytes.

    Examples
    --------
    >>> parse_bytes("0.1 GB"), parse_bytes("1MiB")
    (100000000, 1048576)
    """
    number, unit = _split(text, "a size", "100 MB")
    prefix = unit[:-1] if unit.endswith("B") else None
    if unit == "":
        return 0
    if prefix is None or prefix not in _PREFIX_FACTOR:
        hint = " (bits are not bytes: write MB, not Mb)" if unit.endswith(("b", "bit")) else ""
        raise UnitError(f'expected a size such as "100 MB" or "1 MiB", found "{text}"{hint}')
    size = number * _PREFIX_FACTOR[prefix]
    if size.denominator != 1:
        raise UnitError(f'expected a whole number of bytes, found "{text}", which is {float(size):g} B')
    return int(size)


def parse_duration(text: object) -> float:
    """Return a time in seconds: ``"100 ms"``, ``"10 s"``, ``"5 min"``, ``"2 h"``, ``"1 d"``, ``"0"``.

    Examples
    --------
    >>> parse_duration("100 ms"), parse_duration("2 h")
    (0.1, 7200.0)
    """
    number, unit = _split(text, "a time", "10 s")
    if unit and unit not in _SECONDS:
        raise UnitError(f'expected a time such as "10 s" or "100 ms", found "{text}"')
    return float(number * _SECONDS[unit or "s"])


def parse_rate_bit_per_s(text: object) -> float:
    """Return a rate in bit/s: ``"10 Gb/s"``, ``"10 Gbit/s"`` and ``"100 MB/s"`` are understood.

    Examples
    --------
    >>> parse_rate_bit_per_s("10 Gb/s"), parse_rate_bit_per_s("100 MB/s")
    (10000000000.0, 800000000.0)
    """
    number, unit = _split(text, "a rate", "10 Gb/s")
    per_second = unit.removesuffix("/s")
    for suffix, bits in (("bit", 1), ("b", 1), ("B", BITS_PER_BYTE)):
        prefix = per_second.removesuffix(suffix)
        if per_second != unit and per_second.endswith(suffix) and prefix in _PREFIX_FACTOR:
            return float(number * _PREFIX_FACTOR[prefix] * bits)
    if unit == "":
        return 0.0
    raise UnitError(f'expected a rate such as "10 Gb/s" or "100 MB/s", found "{text}"')


def format_bytes(size_bytes: float) -> str:
    """Return a size for people, with three significant digits and a decimal prefix: ``1.5 GB``."""
    return _scaled(size_bytes, "B")


def format_bytes_exact(size_bytes: int) -> str:
    """Return the shortest exact text of a size; :func:`parse_bytes` gives the same number back.

    Examples
    --------
    >>> format_bytes_exact(100_000_000), format_bytes_exact(1048576), format_bytes_exact(1001)
    ('100 MB', '1 MiB', '1001 B')
    """
    for prefixes, base in (("PTGMk", 1000), ("PTGMK", 1024)):
        for power, prefix in zip(range(5, 0, -1), prefixes, strict=True):
            if size_bytes and size_bytes % base**power == 0:
                return f"{size_bytes // base**power} {prefix}{'i' if base == 1024 else ''}B"
    return f"{size_bytes} B"


def format_duration(duration_s: float) -> str:
    """Return a time for people: ``1.23 ms``, ``12.3 s``, ``4 min 05 s``, ``2 h 03 min``."""
    if round(duration_s) >= 3600:
        hours, minutes = divmod(round(duration_s / 60), 60)
        return f"{hours} h {minutes:02d} min"
    if round(duration_s) >= 120:
        minutes, seconds = divmod(round(duration_s), 60)
        return f"{minutes} min {seconds:02d} s"
    for factor, unit in ((1, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if duration_s >= factor:
            return f"{duration_s / factor:.3g} {unit}"
    return f"{duration_s / 1e-9:.3g} ns" if duration_s else "0 s"


def format_rate(rate_bytes_per_s: float) -> str:
    """Return a storage rate for people: ``278 MB/s``."""
    return _scaled(rate_bytes_per_s, "B/s")


def format_rate_triple(rate_bytes_per_s: float) -> str:
    """Return a rate for three readers as ESnet's scorecard does: volume an hour, bit/s and byte/s.

    Examples
    --------
    >>> format_rate_triple(1e12 / 3600)
    '1 TB/h = 2.22 Gb/s = 278 MB/s'
    """
    return " = ".join((_scaled(rate_bytes_per_s * 3600, "B/h"), _scaled(rate_bytes_per_s * BITS_PER_BYTE, "b/s"),
                       format_rate(rate_bytes_per_s)))  # fmt: skip


def _scaled(value: float, unit: str) -> str:
    for power, prefix in ((5, "P"), (4, "T"), (3, "G"), (2, "M"), (1, "k")):
        if abs(value) >= 999.5 * 1000 ** (power - 1):
            return f"{value / 1000**power:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}"
