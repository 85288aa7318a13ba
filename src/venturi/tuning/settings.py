"""Settings that a controller chooses, in its own vocabulary; :mod:`venturi.tuning.tunable_options` maps them to options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

__all__ = ["SETTING_NAMES", "TunedSettings"]


@dataclass(frozen=True, slots=True)
class TunedSettings:
    """Settings of a transfer; ``None`` leaves the default of the scenario or of the mover.

    Attributes
    ----------
    concurrency
        Files, sessions or calls at the same time.
    streams
        TCP connections of each of them.
    pipelining
        Files in flight of each of them.
    window_bytes, block_bytes
        Socket buffer of a connection, and size of a read or write.

    Examples
    --------
    >>> TunedSettings(concurrency=4, streams=2).connections
    8
    >>> TunedSettings().connections is None
    True
    """

    concurrency: int | None = None
    streams: int | None = None
    pipelining: int | None = None
    window_bytes: int | None = None
    block_bytes: int | None = None

    @property
    def connections(self) -> int | None:
        """Number of data connections; ``None`` if neither concurrency nor streams is set."""
        if self.concurrency is None and self.streams is None:
            return None
        return (self.concurrency or 1) * (self.streams or 1)

    @property
    def values(self) -> Mapping[str, int]:
        """Name → value of the settings that are set."""
        found = {name: getattr(self, name) for name in SETTING_NAMES}
        return {name: value for name, value in found.items() if value is not None}

    def __str__(self) -> str:
        """Return the settings as text for a table."""
        return (
            ", ".join(f"{name.removesuffix('_bytes')} {value}" for name, value in self.values.items()) or "defaults"
        )


SETTING_NAMES = tuple(field.name for field in fields(TunedSettings))
"""Names of all settings."""
