"""What each storage gave and took: bytes read from it and written to it over the time of the whole trial.

The clock is that of the trial, first start to last end, for every rate of it: so the two directions of a point add up, and the
rates are what a file system's own counters would say of the same minutes (document 001, groups 2 and 3).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from venturi.analysis.intervals import trial_interval
from venturi.analysis.measured import DELIVERED_BYTES
from venturi.analysis.result import Point, Trials
from venturi.analysis.result_lab import Direction, StorageRate
from venturi.analysis.values import FloatArray, IntArray
from venturi.run import Run
from venturi.stats import Interval

__all__ = ["storage_rates"]

NO_STORAGE = ("zero", "null")
"""Sources and sinks that are nobody's disk."""
_DIRECTIONS: tuple[Direction, ...] = ("all", "there", "back")


def storage_rates(
    run: Run, points: Sequence[Point], trials: Trials, *, level: float, rng: np.random.Generator
) -> tuple[StorageRate, ...]:
    """Return the rates of every storage at every point, in the order of the points."""
    rows = run.query(_MOVED, {"none": list(NO_STORAGE)})
    span = trials.end_s - trials.start_s
    place = _places(trials)
    by_point = {point.point: point for point in points}
    found = []
    for key, own in _groups(rows).items():
        point, storage, direction = key
        if point not in by_point:
            continue
        at = place(np.asarray(rows["position"][own], dtype=np.int64))
        known = (at >= 0) & (span[at] > 0)
        read, write = (np.asarray(rows[name][own], dtype=np.float64)[known] for name in ("read", "written"))
        rates = [
            _rate(values, span[at[known]], by_point[point], trials, at[known], level, rng) for values in (read, write)
        ]
        if not read.any() and not write.any():
            continue  # empty files: nothing was asked of any storage
        found.append(
            StorageRate(
                point=point, storage=storage, direction=direction, factors=by_point[point].factors, trials=int(known.sum()),
                read_asked=bool(read.any()), write_asked=bool(write.any()),
                read_bytes_per_s=rates[0][0], read_error_bytes_per_s=rates[0][1], read_interval=rates[0][2],
                write_bytes_per_s=rates[1][0], write_error_bytes_per_s=rates[1][1], write_interval=rates[1][2],
            )
        )  # fmt: skip
    order = {point.point: index for index, point in enumerate(points)}
    return tuple(sorted(found, key=lambda r: (order[r.point], r.storage, _DIRECTIONS.index(r.direction))))


_MOVED = f"""
    WITH ends AS (
        SELECT point, coalesce(position, 0) AS position, json_extract_string(labels, '$.way') AS way,
               split_part(source, ':', 1) AS source, split_part(destination, ':', 1) AS destination,
               sum({DELIVERED_BYTES})::DOUBLE AS moved
        FROM transfers
        WHERE outcome = 'ok' AND point IS NOT NULL AND duration_s > 0 AND asked_bytes IS NOT NULL GROUP BY ALL),
    sides AS (
        SELECT point, position, way, source AS storage, moved AS read, 0.0 AS written FROM ends
        UNION ALL SELECT point, position, way, destination, 0.0, moved FROM ends)
    SELECT point::INTEGER AS point, position, storage, 'all' AS direction, sum(read) AS read, sum(written) AS written
    FROM sides WHERE NOT list_contains($none::VARCHAR[], storage) GROUP BY ALL
    UNION ALL
    SELECT point::INTEGER, position, storage, way, sum(read), sum(written)
    FROM sides WHERE way IS NOT NULL AND NOT list_contains($none::VARCHAR[], storage) GROUP BY ALL
    ORDER BY 1, 3, 4, 2"""


def _groups(rows: Mapping[str, Any]) -> dict[tuple[int, str, Direction], slice]:
    """Return the rows of each point, storage and direction; they come in this order."""
    n = len(rows["point"])
    if n == 0:
        return {}
    point, storage, direction = rows["point"], rows["storage"], rows["direction"]
    new = (point[1:] != point[:-1]) | (storage[1:] != storage[:-1]) | (direction[1:] != direction[:-1])
    edges = [0, *(np.flatnonzero(new) + 1).tolist(), n]
    return {(int(point[a]), str(storage[a]), direction[a]): slice(a, b) for a, b in itertools.pairwise(edges)}


def _places(trials: Trials) -> Callable[[IntArray], IntArray]:
    """Return what finds the trials by their positions in the run; −1: not there."""
    order = np.argsort(trials.position, kind="stable")
    positions = trials.position[order]

    def find(wanted: IntArray) -> IntArray:
        if len(positions) == 0:
            return np.full(len(wanted), -1, dtype=np.int64)
        at = np.minimum(np.searchsorted(positions, wanted), len(positions) - 1)
        return np.where(positions[at] == wanted, order[at], -1)

    return find


def _rate(
    moved: FloatArray, span_s: FloatArray, point: Point, trials: Trials, at: IntArray, level: float,
    rng: np.random.Generator,
) -> tuple[float | None, float | None, Interval | None]:  # fmt: skip
    """Return mean, standard error and interval over the trials; nothing where no byte was asked for."""
    if len(moved) == 0 or not moved.any():
        return None, None, None
    values = moved / span_s
    together = trials.together_bytes_per_s[at]
    if np.array_equal(values, together) and len(values) == point.trials and point.together_bytes_per_s is not None:
        # All bytes of the point: the interval is there already, and a bootstrap is the dear part.
        return point.together_bytes_per_s, point.together_error_bytes_per_s, point.together_interval
    error = float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else None
    return float(values.mean()), error, trial_interval(values, level=level, rng=rng)
