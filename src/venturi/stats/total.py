"""Total throughput over a grid: table IV of document 000.

For each point of the grid the rate per file times the number of files; the mean of that over all sizes and all file
counts (000, L218). Grids that reach different file counts are not comparable that way (000-E14: one scenario goes to
45 files, the others to 30), so there is a second form over the points that all grids have.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from venturi.errors import SampleError
from venturi.stats._arrays import as_errors, as_positive, same_length

__all__ = ["GridRates", "TotalThroughput", "total_throughput", "totals_on_common_points"]


@dataclass(frozen=True, slots=True, eq=False)
class GridRates:
    """Rates per file on a grid, one element a point.

    Attributes
    ----------
    files
        Number of parallel files, shape (n,), > 0.
    size_bytes
        Size of each file, shape (n,), > 0.
    rate_bytes_per_s
        Throughput per file, shape (n,), > 0.
    error_bytes_per_s
        Its standard error, shape (n,), or ``None`` if not known.
    """

    files: npt.ArrayLike
    size_bytes: npt.ArrayLike
    rate_bytes_per_s: npt.ArrayLike
    error_bytes_per_s: npt.ArrayLike | None = None


@dataclass(frozen=True, slots=True)
class TotalThroughput:
    """Mean over a grid of files × rate per file.

    Attributes
    ----------
    mean_bytes_per_s
        The mean.
    error_bytes_per_s
        Propagated from the errors of the points, taken as independent; ``None`` without them. It says how well the
        mean of *this* grid is known, not how much the points differ.
    n_points
        Points that entered.
    files
        File counts that entered, ascending.
    complete
        Whether every file count was measured with every size; if not, the mean leans to what was measured more.
    """

    mean_bytes_per_s: float
    error_bytes_per_s: float | None
    n_points: int
    files: tuple[float, ...]
    complete: bool


def total_throughput(grid: GridRates) -> TotalThroughput:
    """Return the total throughput of a grid.

    Examples
    --------
    A pipe of 100 bytes/s shared evenly has that total, whatever the number of files:

    >>> total_throughput(GridRates([1, 2, 4], [10, 10, 10], [100, 50, 25])).mean_bytes_per_s
    100.0
    """
    return _total(grid, None)


def totals_on_common_points(grids: Mapping[str, GridRates]) -> dict[str, TotalThroughput]:
    """Return the total of each grid over the pairs (files, size) that all of them have (000-E14).

    Raises
    ------
    SampleError
        If no pair is common to all.

    Examples
    --------
    >>> totals = totals_on_common_points(
    ...     {"cp": GridRates([1, 2, 45], [10, 10, 10], [100, 50, 8]), "wan": GridRates([1, 2], [10, 10], [30, 15])}
    ... )
    >>> totals["cp"].mean_bytes_per_s, totals["wan"].mean_bytes_per_s, totals["cp"].files
    (100.0, 30.0, (1.0, 2.0))
    """
    if not grids:
        raise SampleError("grids: expected at least one, found none")
    common = set.intersection(*(set(_pairs(grid)) for grid in grids.values()))
    if not common:
        raise SampleError(f"grids: expected pairs (files, size) common to {', '.join(grids)}, found none")
    return {name: _total(grid, common) for name, grid in grids.items()}


def _pairs(grid: GridRates) -> list[tuple[float, float]]:
    files, size = as_positive(grid.files, "files"), as_positive(grid.size_bytes, "size_bytes")
    same_length(files=files, size_bytes=size)
    pairs = list(zip(files.tolist(), size.tolist(), strict=True))
    if len(set(pairs)) < len(pairs):
        raise SampleError("grid: expected each pair (files, size) once, found one twice; combine repetitions first")
    return pairs


def _total(grid: GridRates, allowed: set[tuple[float, float]] | None) -> TotalThroughput:
    pairs = _pairs(grid)
    keep = np.array([allowed is None or pair in allowed for pair in pairs])
    files, rate = as_positive(grid.files, "files"), as_positive(grid.rate_bytes_per_s, "rate_bytes_per_s")
    same_length(files=files, rate_bytes_per_s=rate)
    error = None
    if grid.error_bytes_per_s is not None:
        errors = as_errors(grid.error_bytes_per_s, "error_bytes_per_s", rate.size)
        error = float(np.sqrt(np.sum((files * errors)[keep] ** 2)) / keep.sum())
    kept = [pair for pair, kept in zip(pairs, keep, strict=True) if kept]
    counts, sizes = {count for count, _ in kept}, {size for _, size in kept}
    return TotalThroughput(
        mean_bytes_per_s=float(np.mean((files * rate)[keep])),
        error_bytes_per_s=error,
        n_points=len(kept),
        files=tuple(sorted(counts)),
        complete=len(kept) == len(counts) * len(sizes),
    )
