"""Totals over the grid (table IV of document 000), and the rate of whole trials against the number of files."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from venturi.analysis.result import Factor, FactorValue, LoadCurve, Point, Total
from venturi.analysis.words import describe
from venturi.stats import (
    GridRates,
    Knee,
    Saturation,
    saturation_point,
    step_ratios,
    total_throughput,
    two_segment_knee,
)

__all__ = ["COMMON_FILES", "grid_rates", "load_curves", "points_by_others", "ratio_of_rates", "total_of", "totals"]

COMMON_FILES = (1, 30)
"""File counts that all three scenarios of document 000 have; the first goes to 45 (000-E14)."""

GRID = ("files", "size_bytes")


def totals(
    points: Sequence[Point], factors: Sequence[Factor], files: tuple[int, int] | None = None
) -> tuple[Total, ...]:
    """Return the total of each combination of the factors other than files and size, over all or some file counts."""
    found = []
    for others, group in points_by_others(points).items():
        kept = [
            p
            for p in group
            if p.throughput_bytes_per_s and p.size_bytes and (not files or files[0] <= p.files <= files[1])
        ]
        if kept:
            found.append(total_of(dict(others), kept, factors))
    return tuple(found)


def total_of(others: Mapping[str, FactorValue], kept: Sequence[Point], factors: Sequence[Factor]) -> Total:
    """Return the total of points that all have a throughput, and whose factors other than files and size are ``others``."""
    total = total_throughput(grid_rates(kept))
    return Total(
        others=others,
        name=_name(others, factors),
        mean_bytes_per_s=total.mean_bytes_per_s,
        error_bytes_per_s=total.error_bytes_per_s,
        points=total.n_points,
        files_low=min(point.files for point in kept),
        files_high=max(point.files for point in kept),
        complete=total.complete,
    )


def ratio_of_rates(
    above: float, above_error: float | None, below: float, below_error: float | None
) -> tuple[float, float | None]:
    """Return a ratio of two independent rates and its standard error, None where one of theirs is not known."""
    ratio = above / below
    if above_error is None or below_error is None:
        return ratio, None
    return ratio, ratio * math.hypot(above_error / above, below_error / below)


def grid_rates(kept: Sequence[Point]) -> GridRates:
    """Return points that have a throughput as a grid; a point of several movers counts the files of each."""
    errors = [point.error_bytes_per_s for point in kept]
    together = np.array([max(len(point.parts), 1) for point in kept], dtype=float)
    return GridRates(
        files=np.array([point.files for point in kept], dtype=float),
        size_bytes=np.array([point.size_bytes for point in kept], dtype=float),
        rate_bytes_per_s=np.array([point.throughput_bytes_per_s for point in kept], dtype=float) * together,
        error_bytes_per_s=None if None in errors else np.array(errors, dtype=float) * together,
    )


def points_by_others(
    points: Sequence[Point], without: Sequence[str] = GRID
) -> dict[tuple[tuple[str, FactorValue], ...], list[Point]]:
    """Return the points by the values of their factors other than ``without``."""
    groups: dict[tuple[tuple[str, FactorValue], ...], list[Point]] = {}
    for point in points:
        groups.setdefault(tuple((k, v) for k, v in point.factors.items() if k not in without), []).append(point)
    return groups


def _name(others: Mapping[str, FactorValue], factors: Sequence[Factor]) -> str:
    """Return the values of the factors that vary, the mover in any case."""
    varied = {factor.name for factor in factors if factor.varied}
    shown = [str(others["mover"])] if "mover" in others else []
    shown += [describe({name: value}, [name]) for name, value in others.items() if name in varied and name != "mover"]
    return ", ".join(shown) or "all points"


def load_curves(points: Sequence[Point], factors: Sequence[Factor], *, level: float) -> tuple[LoadCurve, ...]:
    """Return the rate of whole trials against files, for each combination of the other factors, where files vary."""
    if not any(factor.name == "files" and factor.varied for factor in factors):
        return ()
    found = []
    for others, group in points_by_others(points, ("files",)).items():
        kept = sorted((p for p in group if p.together_bytes_per_s), key=lambda point: point.files)
        if len(kept) >= 2:
            found.append(_load_curve(dict(others), kept, level))
    return tuple(found)


def _load_curve(others: Mapping[str, FactorValue], kept: Sequence[Point], level: float) -> LoadCurve:
    files = np.array([point.files for point in kept], dtype=float)
    rate = np.array([point.together_bytes_per_s for point in kept], dtype=float)
    errors = tuple(point.together_error_bytes_per_s for point in kept)
    error = None if None in errors else np.array(errors, dtype=float)
    saturation: Saturation | None = None
    knee: Knee | None = None
    if len(kept) >= 3:
        saturation = saturation_point(files, rate, error, level=level)
    if len(kept) >= 6:
        knee = two_segment_knee(files, rate, error if error is not None and (error > 0).all() else None, level=level)
    return LoadCurve(
        others=others,
        files=tuple(point.files for point in kept),
        together_bytes_per_s=tuple(rate.tolist()),
        error_bytes_per_s=errors,
        steps=step_ratios(files, rate, error),
        saturation=saturation,
        knee=knee,
    )
