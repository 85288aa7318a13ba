"""Conversion of sizes, times and rates to text and back.

The program uses base units, and names contain them (``_bytes``, ``_s``, ``_bytes_per_s``, ``_bit_per_s``). Text must
contain a unit: ``k M G T P`` are powers of 1000, ``Ki Mi Gi Ti Pi`` are powers of 1024. The factor 8 between bits and
bytes is :data:`BITS_PER_BYTE`.

The parsers return exact integers for sizes: ``parse_bytes(format_bytes_exact(n)) == n`` for every ``n >= 0``.
"""

from __future__ import annotations

import re
from fractions import Fraction

from venturi.errors import UnitError

__all__ = [
    "BITS_PER_BYTE",
    "PERIODS_S",
    "format_bit_rate",
    "format_bit_rate_ends",
    "format_bytes",
    "format_bytes_exact",
    "format_duration",
    "format_rate",
    "format_rate_ends",
    "format_rate_triple",
    "parse_bytes",
    "parse_duration",
    "parse_rate_bit_per_s",
    "parse_transfer_rate",
]

BITS_PER_BYTE = 8

_DECIMAL = {"": 0, "k": 1, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5}
_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5}
_PREFIX_FACTOR = {p: 1000**e for p, e in _DECIMAL.items()} | {p: 1024**e for p, e in _BINARY.items()}
_SECONDS = {
    "ns": Fraction(1, 10**9), "us": Fraction(1, 10**6), "µs": Fraction(1, 10**6), "ms": Fraction(1, 1000),
    "s": Fraction(1), "min": Fraction(60), "h": Fraction(3600), "d": Fraction(86400),
}  # fmt: skip
PERIODS_S = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "year": 365 * 86400.0}
"""Period of a rate of transfers → its length in seconds."""

_TRANSFER_RATE = re.compile(
    rf"([0-9]{{1,12}}(?:\.[0-9]{{1,12}})?) *(?:requests?|transfers?|files?)? */ *({'|'.join(PERIODS_S)})"
)
_QUANTITY = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]{1,2})?|\.[0-9]+)\s*([^\s0-9].*?)?\s*\Z")


def _split(text: object, kind: str, example: str) -> tuple[Fraction, str]:
    """Return the number and the unit of ``text``."""
    if not isinstance(text, str):
        raise UnitError(f'expected {kind} such as "{example}", found {text!r}')
    match = _QUANTITY.match(text)
    if match is None:
        raise UnitError(f'expected {kind} such as "{example}", found "{text}"')
    number, unit = match.groups()
    if unit is None and Fraction(number) != 0:
        raise UnitError(f'expected {kind} such as "{example}", found "{text}" without a unit; add a unit')
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
        hint = "; write MB, not Mb (bits are not bytes)" if unit.endswith(("b", "bit")) else ""
        raise UnitError(f'expected a size such as "100 MB" or "1 MiB", found "{text}"{hint}')
    size = number * _PREFIX_FACTOR[prefix]
    if size.denominator != 1:
        raise UnitError(f'expected a whole number of bytes, found "{text}" ({float(size):g} B); round the size')
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
    """Return a rate in bit/s, such as ``"10 Gb/s"``, ``"10 Gbit/s"`` or ``"100 MB/s"``.

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


def parse_transfer_rate(text: str) -> tuple[str, str] | None:
    """Return number and period of a rate of transfers such as ``"600 /min"``, or None for another text.

    :data:`PERIODS_S` has the periods. A number of transfers per second is ``float(number) / PERIODS_S[period]``.

    Examples
    --------
    >>> parse_transfer_rate("600 /min"), parse_transfer_rate("2.5 transfers/s"), parse_transfer_rate("10 Gb/s")
    (('600', 'min'), ('2.5', 's'), None)
    """
    match = _TRANSFER_RATE.fullmatch(text.strip())
    return None if match is None or float(match[1]) == 0 else (match[1], match[2])


def format_bytes(size_bytes: float) -> str:
    """Return a size as text with three significant digits and a decimal prefix: ``1.5 GB``."""
    return _scaled(size_bytes, "B")


def format_bytes_exact(size_bytes: int) -> str:
    """Return the shortest exact text of a size; :func:`parse_bytes` returns the same number.

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
    """Return a time as text: ``1.23 ms``, ``12.3 s``, ``4 min 05 s``, ``2 h 03 min``."""
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
    """Return a storage rate as text: ``278 MB/s``."""
    return _scaled(rate_bytes_per_s, "B/s")


def format_rate_ends(low_bytes_per_s: float, high_bytes_per_s: float) -> str:
    """Return the lowest and highest rate. Equal texts are written once, and equal units at the end only.

    Examples
    --------
    >>> format_rate_ends(1.78e6, 19.4e6), format_rate_ends(34e3, 2e6), format_rate_ends(5e6, 5e6)
    ('1.78 to 19.4 MB/s', '34 kB/s to 2 MB/s', '5 MB/s')
    """
    return _ends(format_rate(low_bytes_per_s), format_rate(high_bytes_per_s))


def format_bit_rate_ends(low_bit_per_s: float, high_bit_per_s: float) -> str:
    """Return the lowest and highest rate in network units, like :func:`format_rate_ends`.

    Examples
    --------
    >>> format_bit_rate_ends(9.1e7, 1.66e8)
    '91 to 166 Mb/s'
    """
    return _ends(format_bit_rate(low_bit_per_s), format_bit_rate(high_bit_per_s))


def _ends(low: str, high: str) -> str:
    if low == high:
        return high
    number, unit = low.split(" ", 1)
    return f"{number if high.split(' ', 1)[1] == unit else low} to {high}"


def format_bit_rate(rate_bit_per_s: float) -> str:
    """Return the rate of a link in network units.

    Examples
    --------
    >>> format_bit_rate(1e8), format_bit_rate(2.5e9)
    ('100 Mb/s', '2.5 Gb/s')
    """
    return _scaled(rate_bit_per_s, "b/s")


def format_rate_triple(rate_bytes_per_s: float) -> str:
    """Return a rate as volume per hour, bit/s and byte/s, like the scorecard of ESnet.

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
