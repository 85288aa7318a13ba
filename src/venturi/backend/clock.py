"""How far another machine's clock is from ours.

A round trip that left at ``sent`` and was back at ``received`` (ours) and read the clock there in between, ``remote``,
proves that the clock there is ahead of ours by ``remote − (sent + received)/2``, give or take half the round trip:
the smallest round trip says most (RFC 5905, section 8, and its clock filter).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["ClockOffset", "RoundTrip", "estimate_offset"]


@dataclass(frozen=True, slots=True)
class RoundTrip:
    """One reading of a clock elsewhere, all in nanoseconds since 1970."""

    sent_ns: int
    remote_ns: int
    received_ns: int


@dataclass(frozen=True, slots=True)
class ClockOffset:
    """How far a clock is ahead of this machine's.

    Attributes
    ----------
    offset_s
        Seconds; positive: the clock there shows a later time.
    uncertainty_s
        Seconds to either side within which the offset certainly lies, both clocks running evenly meanwhile.
    """

    offset_s: float
    uncertainty_s: float

    @property
    def offset_ns(self) -> int:
        """The offset in nanoseconds, as times since 1970 are kept."""
        return round(self.offset_s * 1e9)


def estimate_offset(trips: Iterable[RoundTrip]) -> ClockOffset:
    """Return what the shortest round trip proves.

    Raises
    ------
    ValueError
        If there is none.

    Examples
    --------
    >>> estimate_offset([RoundTrip(1_000_000, 8_000_000, 3_000_000), RoundTrip(4_000_000, 99_000_000, 90_000_000)])
    ClockOffset(offset_s=0.006, uncertainty_s=0.001)
    """
    shortest = min(trips, key=lambda trip: trip.received_ns - trip.sent_ns, default=None)
    if shortest is None:
        raise ValueError("expected at least one round trip, found none")
    middle_ns = (shortest.sent_ns + shortest.received_ns) // 2
    half_ns = (shortest.received_ns - shortest.sent_ns) / 2
    return ClockOffset((shortest.remote_ns - middle_ns) / 1e9, half_ns / 1e9)
