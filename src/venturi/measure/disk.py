"""Samples of a disk of a host: reading a file past the page cache, and writing with sync."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import PurePosixPath
from typing import TypeVar

from venturi.measure.engine import call_engine
from venturi.measure.hosts import MeasureHost, read_counters
from venturi.measure.load import HostLoad, load_between
from venturi.measure.result import PartSample, Side

__all__ = ["LIMIT_S", "read_disk", "with_load", "write_disk"]

LIMIT_S = 60.0
"""Added to the expected time of a call: a disk can have a long queue."""

_Result = TypeVar("_Result")


def read_disk(host: MeasureHost, file: PurePosixPath, time_s: float, max_bytes: int) -> PartSample:
    """Return a sample of reading a file at the source.

    Raises
    ------
    MeasureError
        If it fails.
    """
    argv = ["disk", "read", file, "--time-s", f"{time_s:.3f}", "--bytes", max_bytes]
    load, result = with_load({"source": host}, lambda: call_engine(host.shell, argv, timeout_s=time_s + LIMIT_S))
    # In a file system in memory, memory is the storage. Only a page cache in front of a disk hides the storage.
    cached = False if result["file_system"] in ("tmpfs", "ramfs") else result["cached"]
    return PartSample(
        "read", 0, 0.0, int(result["bytes"]), float(result["duration_s"]), cached=cached, load=load, detail=result
    )


def write_disk(host: MeasureHost, time_s: float, max_bytes: int) -> PartSample:
    """Return a sample of writing at the destination, with sync.

    Raises
    ------
    MeasureError
        If it fails.
    """
    argv = ["disk", "write", host.directory, "--time-s", f"{time_s:.3f}", "--bytes", max_bytes]
    load, result = with_load({"destination": host}, lambda: call_engine(host.shell, argv, timeout_s=time_s + LIMIT_S))
    return PartSample("write", 0, 0.0, int(result["bytes"]), float(result["duration_s"]), load=load, detail=result)


def with_load(hosts: Mapping[Side, MeasureHost], work: Callable[[], _Result]) -> tuple[dict[Side, HostLoad], _Result]:
    """Run a part between two readings of the counters of its hosts."""
    before = read_counters(hosts)
    result = work()
    after = read_counters(hosts)
    return {side: load_between(before[side], after[side]) for side in hosts}, result
