"""Requested rate of a load: transfers per time, or bits per second."""

from __future__ import annotations

from dataclasses import dataclass

from venturi.errors import UnitError
from venturi.units import BITS_PER_BYTE, PERIODS_S, format_bit_rate, parse_rate_bit_per_s, parse_transfer_rate

__all__ = ["RequestedRate"]

_BITS = "b/s"


@dataclass(frozen=True, slots=True)
class RequestedRate:
    """A rate, and the unit of printed results.

    Attributes
    ----------
    value
        In bit/s if ``unit`` is ``b/s``, otherwise transfers per second.
    unit
        ``b/s``, or a period of :data:`venturi.units.PERIODS_S`.
    """

    value: float
    unit: str

    @classmethod
    def parse(cls, text: str) -> RequestedRate:
        """Return the rate of a text.

        Raises
        ------
        UnitError
            If the text has no unit or is not a rate above 0.

        Examples
        --------
        >>> RequestedRate.parse("600 /min").per_s(1e9), RequestedRate.parse("8 Gb/s").per_s(1e9)
        (10.0, 1.0)
        """
        transfers = parse_transfer_rate(text)
        if transfers is not None:
            number, period = transfers
            return cls(float(number) / PERIODS_S[period], period)
        try:
            bit_per_s = parse_rate_bit_per_s(text)
        except UnitError:
            bit_per_s = 0.0
        if not bit_per_s > 0:
            raise UnitError(
                f'--rate: expected a rate with its unit, such as "600 /min" for transfers or "10 Gb/s", found "{text}"; add a unit'
            )
        return cls(bit_per_s, _BITS)

    def per_s(self, mean_bytes: float) -> float:
        """Return transfers per second, for transfers of this mean size."""
        return self.value / (BITS_PER_BYTE * mean_bytes) if self.unit == _BITS else self.value

    def text(self, per_s: float, mean_bytes: float, *, noun: bool = False) -> str:
        """Return a number of transfers per second in the unit of this rate.

        Examples
        --------
        >>> RequestedRate.parse("600 /min").text(10.0, 1e9, noun=True), RequestedRate.parse("8 Gb/s").text(1.5, 1e9)
        ('600 transfers/min', '12 Gb/s')
        """
        if self.unit == _BITS:
            return format_bit_rate(per_s * mean_bytes * BITS_PER_BYTE)
        value = per_s * PERIODS_S[self.unit]
        number = f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
        return f"{number} transfers/{self.unit}" if noun else f"{number} /{self.unit}"
