"""Offset of another machine's clock from the clock of this machine.

A round trip starts at ``sent`` and ends at ``received`` by the local clock, and reads the remote clock as ``remote`` in
between. Then the remote clock is ahead by ``remote − (sent + received)/2``, with an uncertainty of half the round trip.
So the shortest round trip is the most precise (RFC 5905, section 8, and its clock filter).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["ClockOffset", "RoundTrip", "estimate_offset"]


@dataclass(frozen=True, slots=True)
class RoundTrip:
    """One reading of a remote clock. All times in nanoseconds since 1970."""

    sent_ns: int
    remote_ns: int
    received_ns: int


@dataclass(frozen=True, slots=True)
class ClockOffset:
    """Offset of a clock from the clock of this machine.

    Attributes
    ----------
    offset_s
        Offset in seconds. Positive: the remote clock is ahead.
    uncertainty_s
        Largest possible error of the offset in either direction, in seconds, if both clocks run evenly.
    """

    offset_s: float
    uncertainty_s: float

    @property
    def offset_ns(self) -> int:
        """The offset in nanoseconds, like times since 1970."""
        return round(self.offset_s * 1e9)


def estimate_offset(trips: Iterable[RoundTrip]) -> ClockOffset:
    """Return the offset by the shortest round trip.

    Raises
    ------
    ValueError
        If there is no round trip.

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
