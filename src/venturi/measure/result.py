"""Results of a measurement: samples of parts, their medians, and the limit of each direction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from venturi.measure.load import HostLoad
from venturi.stats import Interval

__all__ = [
    "PARTS",
    "CopyPrediction",
    "Limit",
    "Measurement",
    "Part",
    "PartResult",
    "PartSample",
    "PathResult",
    "Side",
    "SmallFiles",
]

Part: TypeAlias = Literal["network", "read", "write", "mover", "copy"]
"""Network alone; reading at the source; writing at the destination, with sync; mover between memories; copy, with sync."""

PARTS: tuple[Part, ...] = ("network", "read", "write", "mover", "copy")
"""In the order of tables."""

Side: TypeAlias = Literal["source", "destination", "client"]
"""A host: of the source, of the destination, or between two existing servers."""

Limit: TypeAlias = Literal[
    "link",
    "loss",
    "receive-window",
    "send-buffer",
    "source-disk",
    "destination-disk",
    "source-cpu",
    "destination-cpu",
    "client-cpu",
    "source-server",
    "destination-server",
    "max-rate",
    "mover",
]
"""Resource that limits the smallest part."""


@dataclass(frozen=True, slots=True)
class PartSample:
    """One measurement of a part.

    Attributes
    ----------
    part
        The part.
    round
        Number of the round, from 1; 0: warm-up, which does not count.
    start_s
        Start in seconds since the start of the measurement.
    bytes, duration_s
        Bytes that arrived, and their time, without the start-up of the mover.
    one_connection_bytes_per_s
        Rate of a single connection in the same round; of the network only.
    cached
        Whether a read came from the page cache; None: unknown, or not a read.
    load
        Load of source and destination during the sample.
    detail
        Output of the engine.
    error
        Reason for a missing rate; `bytes` and `duration_s` are then 0.
    """

    part: Part
    round: int
    start_s: float
    bytes: int = 0
    duration_s: float = 0.0
    one_connection_bytes_per_s: float | None = None
    cached: bool | None = None
    load: Mapping[Side, HostLoad] = field(default_factory=dict)
    detail: Mapping[str, Any] = field(default_factory=dict)
    error: str | None = None

    @property
    def rate_bytes_per_s(self) -> float | None:
        """Bytes per second; None after an error."""
        return self.bytes / self.duration_s if self.error is None and self.duration_s > 0 else None


@dataclass(frozen=True, slots=True)
class PartResult:
    """All samples of a part.

    Attributes
    ----------
    rate_bytes_per_s
        Median of the rounds; None: no sample.
    interval
        90 % interval of the median; None: fewer than 5 rounds.
    cached
        Whether a sample came from the page cache; the part then cannot limit the copy.
    """

    part: Part
    samples: tuple[PartSample, ...]
    rate_bytes_per_s: float | None
    interval: Interval | None
    cached: bool | None = None

    @property
    def errors(self) -> tuple[str, ...]:
        """Different errors of the samples."""
        return tuple(dict.fromkeys(sample.error for sample in self.samples if sample.error is not None))


@dataclass(frozen=True, slots=True)
class CopyPrediction:
    """Rate of the copy if parts use one resource and take turns: 1/v = Σ 1/vᵢ.

    Attributes
    ----------
    resource
        The shared resource, such as ``the CPU of a``; None: no resource was busy.
    parts
        Parts whose times add up.
    rate_bytes_per_s
        The prediction.
    evidence
        Measured reason, as a phrase.
    """

    resource: str | None
    parts: tuple[Part, ...]
    rate_bytes_per_s: float
    evidence: str


@dataclass(frozen=True, slots=True)
class PathResult:
    """Result of one direction.

    Attributes
    ----------
    source, destination
        Endpoints as the user wrote them.
    parts
        Results of the measured parts.
    smallest
        Part with the smallest rate that can limit the copy; None: no part has a rate.
    limit
        Resource that limits it.
    evidence
        Measured reasons for the limit, as phrases.
    loss
        1 − copy / smallest part: median and interval of the rounds.
    shared
        Predictions for parts that use one resource; only if the copy is below 70 % of the smallest part.
    summary
        The result in one or two sentences.
    notes
        Further remarks, one sentence each.
    unmeasured
        Reason for each part that cannot be measured alone, such as the network to an existing server.
    """

    source: str
    destination: str
    parts: Mapping[Part, PartResult]
    smallest: Part | None
    limit: Limit | None
    evidence: tuple[str, ...]
    loss: float | None
    loss_interval: Interval | None
    shared: tuple[CopyPrediction, ...]
    summary: str
    notes: tuple[str, ...] = ()
    unmeasured: Mapping[Part, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SmallFiles:
    """Copy of a directory with small files, from disk to disk.

    Attributes
    ----------
    files, file_bytes
        Number of files, and size of each.
    duration_s
        Time of the copy without the start-up of the mover; None after a failure.
    error
        Reason of the failure.
    """

    files: int
    file_bytes: int
    duration_s: float | None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Measurement:
    """Result of ``venturi measure``.

    Attributes
    ----------
    paths
        One or two directions.
    rounds
        Completed rounds.
    complete
        Whether all rounds were completed.
    connections
        Data connections of network and mover.
    startup_s
        Time of a copy of one byte: login and start of the mover. Rates exclude it. By direction. None: a file of the user
        was copied.
    duration_s
        Time of the measurement.
    environment
        Properties of hosts and path.
    created_unix_s
        Start.
    failure
        Reason for an early end; None: no early end.
    small_files
        Copies of small files, by direction; empty: not measured.
    remains
        Files that could not be removed from servers; None: no such files.
    """

    paths: tuple[PathResult, ...]
    rounds: int
    complete: bool
    connections: int
    startup_s: tuple[float | None, ...]
    duration_s: float
    environment: Mapping[str, Any]
    created_unix_s: float
    failure: str | None = None
    small_files: tuple[SmallFiles, ...] = ()
    remains: str | None = None
