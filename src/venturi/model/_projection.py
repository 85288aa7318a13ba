"""Linear amplitudes of many small least-squares problems together.

The method is modified Gram-Schmidt with the data as the last column. The solution is as stable as with Householder. For
one to four columns, it needs a handful of whole-array operations, but a LAPACK call per lane would cost one or two
microseconds each.
"""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

import numpy as np

from venturi.model.family import Array

__all__ = ["Projection", "project"]

DEPENDENT = 1e-11
"""Relative norm of the part of a column outside the span of the earlier ones, below which the column is omitted."""


class Projection(NamedTuple):
    """Best amplitudes, and the residuals."""

    amplitudes: Array
    """(k, lanes)."""
    residual: Array
    """Weighted data minus model, (points, lanes)."""
    basis: list[Array]
    """Orthonormal columns that span the used basis functions; zero columns for unused ones."""
    sse: Array
    """Weighted sum of squared residuals, (lanes,); infinite if a value was not finite."""


def project(columns: list[Array], data: Array, nonnegative: bool) -> Projection:
    """Return the solution of ``min |data - sum_k c_k column_k|`` in each lane, with ``c >= 0`` if ``nonnegative``.

    Parameters
    ----------
    columns
        Weighted basis functions, each (points, lanes).
    data
        Weighted data, (points, lanes).
    nonnegative
        Whether amplitudes must not be negative. If the free solution is not allowed, every subset of the columns is
        tried, which gives the exact solution.
    """
    free = _orthogonalise(columns, data)
    if not nonnegative or not columns:
        return free
    wrong = np.flatnonzero((free.amplitudes < 0).any(axis=0))
    if len(wrong) == 0:
        return free
    fixed = _best_subset([column[:, wrong] for column in columns], data[:, wrong])
    for whole, part in zip((free.amplitudes, free.residual, *free.basis), (fixed.amplitudes, fixed.residual,
                           *fixed.basis), strict=True):  # fmt: skip
        whole[:, wrong] = part
    free.sse[wrong] = fixed.sse
    return free


def _orthogonalise(columns: list[Array], data: Array) -> Projection:
    count = len(columns)
    basis: list[Array] = []
    used: list[Array] = []
    factors: dict[tuple[int, int], Array] = {}
    for k, column in enumerate(columns):
        vector = column
        before = np.einsum("nb,nb->b", column, column)
        for j in range(k):
            factors[j, k] = np.einsum("nb,nb->b", basis[j], vector)
            vector = vector - basis[j] * factors[j, k]
        square = np.einsum("nb,nb->b", vector, vector)
        norm = np.sqrt(square)
        keep = square > DEPENDENT**2 * before
        factors[k, k] = np.where(keep, norm, 1.0)
        basis.append(vector * (keep / factors[k, k]))
        used.append(keep)
    residual = data
    weights = []
    for column in basis:
        weight = np.einsum("nb,nb->b", column, residual)
        residual = residual - column * weight
        weights.append(weight)
    amplitudes = np.empty((count, data.shape[1]))
    for k in reversed(range(count)):
        value = weights[k]
        for j in range(k + 1, count):
            value = value - factors[k, j] * amplitudes[j]
        # An omitted column has zero weight, but its factors would still couple it to the later columns.
        amplitudes[k] = np.where(used[k], value / factors[k, k], 0.0)
    if count == 0:
        residual = data.copy()
    sse = np.einsum("nb,nb->b", residual, residual)
    return Projection(amplitudes, residual, basis, np.where(np.isfinite(sse), sse, np.inf))


def _best_subset(columns: list[Array], data: Array) -> Projection:
    empty = [np.zeros_like(data) for _ in columns]
    sse = np.einsum("nb,nb->b", data, data)
    best = Projection(
        np.zeros((len(columns), data.shape[1])), data.copy(), empty, np.where(np.isfinite(sse), sse, np.inf)
    )
    for used in product((False, True), repeat=len(columns)):
        if not any(used) or all(used):
            continue
        trial = _orthogonalise([column if on else np.zeros_like(column) for column, on in zip(columns, used, strict=True)],
                               data)  # fmt: skip
        better = np.flatnonzero((trial.sse < best.sse) & (trial.amplitudes >= 0).all(axis=0))
        best.amplitudes[:, better] = trial.amplitudes[:, better]
        best.residual[:, better] = trial.residual[:, better]
        best.sse[better] = trial.sse[better]
        for whole, part in zip(best.basis, trial.basis, strict=True):
            whole[:, better] = part[:, better]
    return best
