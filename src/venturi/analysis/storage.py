"""Rates of each storage: bytes read from it and written to it over the time of the whole trial.

Every rate uses the time of the trial, from first start to last end. Therefore the rates of both directions of a point
add up. The counters of a file system would give the same rates over the same minutes (document 001, groups 2 and 3).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from venturi.analysis.intervals import trial_interval
from venturi.analysis.result import About, PointResult, Trials
from venturi.analysis.result_lab import Direction, StorageRate
from venturi.analysis.run_columns import DELIVERED_BYTES
from venturi.analysis.values import FloatArray, IntArray
from venturi.run import Run
from venturi.stats import Interval

__all__ = ["limited_destination", "memory_sources", "storage_rates"]

MEMORY_FILE_SYSTEMS = ("tmpfs", "ramfs")
LIMITED_FRACTION = 0.5
"""Minimum fraction of its write rate for a destination that limits the transfers."""

NO_STORAGE = ("zero", "null")
"""Sources and sinks without a disk."""
_DIRECTIONS: tuple[Direction, ...] = ("all", "forward", "reverse")


def storage_rates(
    run: Run, points: Sequence[PointResult], trials: Trials, *, level: float
) -> tuple[StorageRate, ...]:
    """Return the rates of every storage at every point, in the order of the points."""
    rows = run.query(_MOVED, {"none": list(NO_STORAGE)})
    span = trials.end_s - trials.start_s
    position_of = _trial_finder(trials)
    by_point = {point.point: point for point in points}
    found = []
    for key, own in _groups(rows).items():
        point, storage, direction = key
        if point not in by_point:
            continue
        at = position_of(np.asarray(rows["position"][own], dtype=np.int64))
        known = (at >= 0) & (span[at] > 0)
        read, write = (np.asarray(rows[name][own], dtype=np.float64)[known] for name in ("read", "written"))
        rates = [_rate(values, span[at[known]], level) for values in (read, write)]
        if not read.any() and not write.any():
            continue  # empty files: no storage moved bytes
        found.append(
            StorageRate(
                point=point, storage=storage, direction=direction, factors=by_point[point].factors, trials=int(known.sum()),
                read_requested=bool(read.any()), write_requested=bool(write.any()),
                read_bytes_per_s=rates[0][0], read_error_bytes_per_s=rates[0][1], read_interval=rates[0][2],
                write_bytes_per_s=rates[1][0], write_error_bytes_per_s=rates[1][1], write_interval=rates[1][2],
            )
        )  # fmt: skip
    order = {point.point: index for index, point in enumerate(points)}
    return tuple(sorted(found, key=lambda r: (order[r.point], r.storage, _DIRECTIONS.index(r.direction))))


_MOVED = f"""
    WITH ends AS (
        SELECT point, coalesce(position, 0) AS position, json_extract_string(labels, '$.direction') AS direction,
               split_part(source, ':', 1) AS source, split_part(destination, ':', 1) AS destination,
               sum({DELIVERED_BYTES})::DOUBLE AS moved
        FROM transfers
        WHERE outcome = 'ok' AND point IS NOT NULL AND duration_s > 0 AND requested_bytes IS NOT NULL GROUP BY ALL),
    sides AS (
        SELECT point, position, direction, source AS storage, moved AS read, 0.0 AS written FROM ends
        UNION ALL SELECT point, position, direction, destination, 0.0, moved FROM ends)
    SELECT point::INTEGER AS point, position, storage, 'all' AS direction, sum(read) AS read, sum(written) AS written
    FROM sides WHERE NOT list_contains($none::VARCHAR[], storage) GROUP BY ALL
    UNION ALL
    SELECT point::INTEGER, position, storage, direction, sum(read), sum(written)
    FROM sides WHERE direction IS NOT NULL AND NOT list_contains($none::VARCHAR[], storage) GROUP BY ALL
    ORDER BY 1, 3, 4, 2"""


def _groups(rows: Mapping[str, Any]) -> dict[tuple[int, str, Direction], slice]:
    """Return the rows of each point, storage and direction. The rows have this order."""
    n = len(rows["point"])
    if n == 0:
        return {}
    point, storage, direction = rows["point"], rows["storage"], rows["direction"]
    new = (point[1:] != point[:-1]) | (storage[1:] != storage[:-1]) | (direction[1:] != direction[:-1])
    edges = [0, *(np.flatnonzero(new) + 1).tolist(), n]
    return {(int(point[a]), str(storage[a]), direction[a]): slice(a, b) for a, b in itertools.pairwise(edges)}


def _trial_finder(trials: Trials) -> Callable[[IntArray], IntArray]:
    """Return a function from positions in the run to indices of trials, with −1 for unknown positions."""
    order = np.argsort(trials.position, kind="stable")
    positions = trials.position[order]

    def find(requested_position: IntArray) -> IntArray:
        if len(positions) == 0:
            return np.full(len(requested_position), -1, dtype=np.int64)
        at = np.minimum(np.searchsorted(positions, requested_position), len(positions) - 1)
        return np.where(positions[at] == requested_position, order[at], -1)

    return find


def _rate(moved: FloatArray, span_s: FloatArray, level: float) -> tuple[float | None, float | None, Interval | None]:
    """Return mean, standard error and interval over the trials, or None for each of them if no bytes moved."""
    if len(moved) == 0 or not moved.any():
        return None, None, None
    values = moved / span_s
    error = float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else None
    return float(values.mean()), error, trial_interval(values, level=level)


def memory_sources(run: Run, about: About) -> bool:
    """Return whether all sources of the run are storages in memory: created as tmpfs, or on such a file system."""
    rows = run.query(
        "SELECT DISTINCT split_part(source, ':', 1) AS name FROM transfers WHERE outcome = 'ok' AND source IS NOT NULL"
    )
    names = {str(name) for name in rows["name"]} & set(run.header.get("storages") or {})
    return bool(names) and all(_in_memory(run, about, name) for name in names)


def _in_memory(run: Run, about: About, name: str) -> bool:
    storage = run.header["storages"][name]
    kind = (storage.get("spec") or {}).get("kind")
    if kind is not None:
        return bool(kind == "tmpfs")
    return about.environment.get(str(storage["host"]), {}).get(f"storages.{name}.type") in MEMORY_FILE_SYSTEMS


def limited_destination(run: Run, rates: Sequence[StorageRate]) -> bool:
    """Return whether a storage with a write rate limit received at least half of that rate."""
    limits = {
        name: float(limit)
        for name, storage in (run.header.get("storages") or {}).items()
        if (limit := (storage.get("spec") or {}).get("write_bytes_per_s"))
    }
    return any(
        rate.write_bytes_per_s is not None and rate.write_bytes_per_s >= LIMITED_FRACTION * limits[rate.storage]
        for rate in rates
        if rate.storage in limits
    )
