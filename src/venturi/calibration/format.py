"""Formatting of parameter values."""

from __future__ import annotations

from venturi.analysis.quantity import format_quantity

__all__ = ["value_text"]

_BOUNDS = ("in_flight_bytes", "process_bytes_per_s", "read_bytes_per_s", "write_bytes_per_s", "cores")
_NANO = 1e-6
"""Shorter times are times per byte, and shown in ns."""


def value_text(parameter: str, value: float | None) -> str:
    """Return the value of a parameter with its unit.

    Examples
    --------
    >>> value_text("start_s", 0.0123), value_text("auth_core_s", 0.2), value_text("byte_core_s", 4.2e-9)
    ('12.3 ms', '200 ms of a core', '4.2 ns of a core')
    >>> value_text("read_bytes_per_s", 1e8), value_text("read_bytes_per_s", None), value_text("start_s", None), value_text("cores", 2.5)
    ('100 MB/s', 'no known limit', 'not known', '2.5')
    """
    if value is None:
        return "no known limit" if parameter in _BOUNDS else "not known"
    of_a_core = " of a core" if parameter.endswith("_core_s") else ""
    if parameter.endswith("_s") and not parameter.endswith("_per_s") and 0 < value < _NANO:
        return f"{value * 1e9:.3g} ns{of_a_core}"
    return f"{format_quantity(parameter, value)}{of_a_core}"
