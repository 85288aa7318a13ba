"""Properties about a path that a controller knows before its first probe."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from venturi.plan.network import ETHERNET_MSS_BYTES
from venturi.tuning.settings import TunedSettings

__all__ = ["MAX_CONCURRENCY", "MAX_STREAMS", "TunePath"]

MAX_CONCURRENCY, MAX_STREAMS = 64, 16
"""Largest values that a controller tries, unless the mover has a smaller limit. FTS also ends at 16 streams."""


@dataclass(frozen=True, slots=True)
class TunePath:
    """Path, files and limits of a mover. ``None``: unknown.

    Attributes
    ----------
    rtt_s
        Round-trip time in seconds.
    rate_bytes_per_s
        Smallest payload rate of links and disks.
    loss
        Loss probability of a packet.
    window_bytes
        Largest window of one connection.
    file_bytes, files
        Size of a file, and number of files of a call.
    default_rate_bytes_per_s
        Measured rate with the default settings.
    largest
        Setting → largest value that the mover accepts. A setting that is absent cannot be changed.
    """

    rtt_s: float | None = None
    rate_bytes_per_s: float | None = None
    loss: float | None = None
    window_bytes: float | None = None
    file_bytes: float | None = None
    files: int = 1
    default_rate_bytes_per_s: float | None = None
    largest: Mapping[str, int] = field(
        default_factory=lambda: {"concurrency": MAX_CONCURRENCY, "streams": MAX_STREAMS, "pipelining": 1024}
    )

    @property
    def bdp_bytes(self) -> float | None:
        """Bandwidth-delay product: rate × round-trip time."""
        if self.rate_bytes_per_s is None or self.rtt_s is None:
            return None
        return self.rate_bytes_per_s * self.rtt_s

    @property
    def connection_bytes_per_s(self) -> float | None:
        """Long-run rate of one connection by window and loss; ``None`` if both limits or the round trip are unknown.

        The window gives W/RTT (RFC 7323). Loss gives the larger of Reno (Mathis et al. 1997) and CUBIC (RFC 9438,
        section 5).

        Examples
        --------
        >>> TunePath(rtt_s=0.1, window_bytes=1e6).connection_bytes_per_s
        10000000.0
        """
        if not self.rtt_s:
            return None
        found = []
        if self.window_bytes:
            found.append(self.window_bytes / self.rtt_s)
        if self.loss:
            segments = max(math.sqrt(1.5 / self.loss), 1.054 * (self.rtt_s / self.loss) ** 0.75)
            found.append(ETHERNET_MSS_BYTES * segments / self.rtt_s)
        return min(found, default=None)

    def limit(self, settings: TunedSettings) -> TunedSettings:
        """Return the settings of the mover, with values from 1 to its limits.

        Examples
        --------
        >>> TunePath(largest={"streams": 15}).limit(TunedSettings(concurrency=9, streams=64))
        TunedSettings(concurrency=None, streams=15, pipelining=None, window_bytes=None, block_bytes=None)
        """
        return TunedSettings(
            **{
                name: max(1, min(value, self.largest[name]))
                for name, value in settings.values.items()
                if name in self.largest
            }
        )

    def most(self, name: str) -> int:
        """Return the largest value of a setting; 1 if the mover does not have it."""
        return self.largest.get(name, 1)
