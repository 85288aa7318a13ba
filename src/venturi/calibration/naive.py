"""The naive estimate of a transfer time: bytes over the rate of the slowest link, plus a round trip."""

from __future__ import annotations

from venturi.calibration.result import CalibrationPoint

__all__ = ["naive_s"]


def naive_s(point: CalibrationPoint) -> float | None:
    """Return bytes / rate of the slowest link + RTT, in seconds.

    For a timed tool, return the time per byte. None if no link is known.

    Examples
    --------
    >>> import dataclasses
    >>> point = CalibrationPoint(0, 0, "cp", "cp", {}, 1, 1e9, 1, False, 3, 9.0, 0.03, 125e6, 0.1)
    >>> naive_s(point), naive_s(dataclasses.replace(point, path_bytes_per_s=None))
    (8.1, None)
    """
    if point.path_bytes_per_s is None:
        return None
    if point.timed:
        return 1.0 / point.path_bytes_per_s
    return point.bytes / point.path_bytes_per_s + (point.rtt_s or 0.0)
