"""Total throughput over a grid: table IV of document 000.

The total is the mean, over all sizes and file counts, of the rate per file times the number of files (000, L218). Grids
with different file counts cannot be compared in this way (000-E14: one scenario has up to 45 files, the others up to
30). The second form therefore uses only the points that all grids have.
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
    """Rates per file on a grid, one element per point.

    Attributes
    ----------
    files
        Number of parallel files, shape (n,), > 0.
    size_bytes
        Size of each file, shape (n,), > 0.
    rate_bytes_per_s
        Throughput per file, shape (n,), > 0.
    error_bytes_per_s
        Standard error of the rate, shape (n,), or ``None`` if unknown.
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
        Error of the mean of *this* grid, propagated from the errors of independent points, not the scatter between
        points. ``None`` without errors.
    n_points
        Number of points in the mean.
    files
        File counts in the mean, ascending.
    complete
        Whether every file count was measured with every size. Otherwise, the mean favours the more frequent ones.
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
    Files that share 100 bytes/s evenly have this total for any number of files:

    >>> total_throughput(GridRates([1, 2, 4], [10, 10, 10], [100, 50, 25])).mean_bytes_per_s
    100.0
    """
    return _total(grid, None)


def totals_on_common_points(grids: Mapping[str, GridRates]) -> dict[str, TotalThroughput]:
    """Return the total of each grid over the pairs (files, size) that all grids have (000-E14).

    Raises
    ------
    SampleError
        If the grids have no common pair.

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
