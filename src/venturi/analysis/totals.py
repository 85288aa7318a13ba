"""Totals over the grid (table IV of document 000), and the rate of whole trials against the number of files."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from venturi.analysis.format import format_factors, plural
from venturi.analysis.result import FactorColumn, FactorValue, LoadCurve, PointResult, Total
from venturi.run import Run
from venturi.stats import (
    GridRates,
    Knee,
    Saturation,
    saturation_point,
    step_ratios,
    total_throughput,
    two_segment_knee,
)

__all__ = [
    "COMMON_FILES",
    "failure_text",
    "grid_rates",
    "load_curves",
    "points_by_others",
    "ratio_of_rates",
    "total_of",
    "totals",
]

COMMON_FILES = (1, 30)
"""File counts common to all three scenarios of document 000. The first scenario goes to 45 (000-E14)."""

GRID = ("files", "size_bytes")


def totals(
    points: Sequence[PointResult], factors: Sequence[FactorColumn], files: tuple[int, int] | None = None
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


def total_of(
    others: Mapping[str, FactorValue], kept: Sequence[PointResult], factors: Sequence[FactorColumn]
) -> Total:
    """Return the total of points with a throughput whose factors other than files and size are ``others``."""
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
    """Return the ratio of two independent rates and its standard error, or None if an error is unknown."""
    ratio = above / below
    if above_error is None or below_error is None:
        return ratio, None
    return ratio, ratio * math.hypot(above_error / above, below_error / below)


def grid_rates(kept: Sequence[PointResult]) -> GridRates:
    """Return points with a throughput as a grid. A point with several movers counts the files of each mover."""
    errors = [point.error_bytes_per_s for point in kept]
    together = np.array([max(len(point.parts), 1) for point in kept], dtype=float)
    return GridRates(
        files=np.array([point.files for point in kept], dtype=float),
        size_bytes=np.array([point.size_bytes for point in kept], dtype=float),
        rate_bytes_per_s=np.array([point.throughput_bytes_per_s for point in kept], dtype=float) * together,
        error_bytes_per_s=None if None in errors else np.array(errors, dtype=float) * together,
    )


def points_by_others(
    points: Sequence[PointResult], without: Sequence[str] = GRID
) -> dict[tuple[tuple[str, FactorValue], ...], list[PointResult]]:
    """Return the points by the values of their factors other than ``without``."""
    groups: dict[tuple[tuple[str, FactorValue], ...], list[PointResult]] = {}
    for point in points:
        groups.setdefault(tuple((k, v) for k, v in point.factors.items() if k not in without), []).append(point)
    return groups


def _name(others: Mapping[str, FactorValue], factors: Sequence[FactorColumn]) -> str:
    """Return the values of the varied factors as text, always with the mover."""
    varied = {factor.name for factor in factors if factor.varied}
    shown = [str(others["mover"])] if "mover" in others else []
    shown += [
        format_factors({name: value}, [name]) for name, value in others.items() if name in varied and name != "mover"
    ]
    return ", ".join(shown) or "all points"


def load_curves(
    points: Sequence[PointResult], factors: Sequence[FactorColumn], *, level: float
) -> tuple[LoadCurve, ...]:
    """Return the rate of whole trials against files for each combination of the other factors.

    The result is empty if the number of files does not vary.
    """
    if not any(factor.name == "files" and factor.varied for factor in factors):
        return ()
    found = []
    for others, group in points_by_others(points, ("files",)).items():
        kept = sorted((p for p in group if p.together_bytes_per_s), key=lambda point: point.files)
        if len(kept) >= 2:
            found.append(_load_curve(dict(others), kept, level))
    return tuple(found)


def _load_curve(others: Mapping[str, FactorValue], kept: Sequence[PointResult], level: float) -> LoadCurve:
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


def failure_text(run: Run, failed: int, noun: str) -> str:
    """Return a clause about failures that is valid for the whole run.

    Parameters
    ----------
    failed
        Failures in the selection of a section.
    noun
        Name of the failures of the selection, such as ``"of them"``.
    """
    rows = run.query(
        """SELECT (SELECT count(*) FROM transfers WHERE outcome <> 'ok')
                  + coalesce((SELECT sum((outcomes->>outcome)::BIGINT)
                              FROM (SELECT outcomes, unnest(json_keys(outcomes)) AS outcome FROM routes)
                              WHERE outcome <> 'ok'), 0) AS failed,
                  (SELECT count(*) FROM transfers) + coalesce((SELECT sum(transfers) FROM routes), 0) AS transfers"""
    )
    all_failed, transfers = int(rows["failed"][0]), int(rows["transfers"][0])
    own = f"{failed:,} {noun} failed" if failed else ""
    if all_failed <= failed:
        return own or "none failed"
    whole = f"{all_failed:,} of {plural(transfers, 'transfer')} in the whole run failed"
    return f"{own}, and {whole}" if own else whole
