"""Defaults of rclone 1.74: 4 transfers, and 4 streams for a file of 256 MiB or more.

Source: https://rclone.org/docs/ , options ``--transfers``, ``--multi-thread-streams`` and ``--multi-thread-cutoff``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from venturi.tuning.controller import StopTuning
from venturi.tuning.path import TunePath
from venturi.tuning.probe import TuneProbe
from venturi.tuning.settings import TunedSettings

__all__ = ["RcloneDefaults"]

TRANSFERS = STREAMS = 4
CUTOFF_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class RcloneDefaults:
    """Fixed settings; one probe."""

    name: str = "rclone"
    summary: str = "4 files at the same time, and 4 streams for a file of 256 MiB or more; one probe."
    source: str = "rclone.org/docs: --transfers, --multi-thread-streams, --multi-thread-cutoff"

    def first(self, properties: TunePath) -> TunedSettings:
        """Return the defaults."""
        streams = STREAMS if (properties.file_bytes or 0) >= CUTOFF_BYTES else 1
        return properties.limit(TunedSettings(concurrency=TRANSFERS, streams=streams))

    def next(self, properties: TunePath, history: Sequence[TuneProbe]) -> TunedSettings | StopTuning:
        """Stop, because rclone does not adapt."""
        return StopTuning("rclone does not adapt", history[-1].settings)
