"""Data of one fit: x, y and, if known, the standard error of y."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from venturi.errors import FitError
from venturi.model._descent import DataPoints
from venturi.model.family import Array, Span

__all__ = ["Curve", "CurveBatch", "pack"]

RANKS = 11
"""Number of quantiles in a `Span`."""


@dataclass(frozen=True, eq=False)
class Curve:
    """Measured points, in base units.

    Parameters
    ----------
    x
        Shape (n,), or (variables, n) for a surface.
    y
        Shape (n,).
    sigma
        Standard errors of ``y``, shape (n,), > 0. Without them, all points have equal weights.
    name
        Name of the curve for messages and tables.
    sigma_is_absolute
        Whether ``sigma`` is the true size of the errors. If not, only the ratios count, and the residuals give the size
        (covariances contain the factor SSE/(n - P)).

    Raises
    ------
    FitError
        If shapes differ, a number is not finite, or a sigma is not positive.
    """

    x: Array
    y: Array
    sigma: Array | None = None
    name: str = "curve"
    sigma_is_absolute: bool = False

    def __post_init__(self) -> None:
        x, y = np.asarray(self.x, dtype=float), np.asarray(self.y, dtype=float)
        sigma = None if self.sigma is None else np.asarray(self.sigma, dtype=float)
        if y.ndim != 1 or len(y) == 0 or x.ndim not in (1, 2) or x.shape[-1] != len(y):
            raise FitError(f"{self.name}: expected x of shape (n,) or (variables, n) and y of shape (n,) with n > 0, "
                           f"found {x.shape} and {y.shape}")  # fmt: skip
        if not (np.isfinite(x).all() and np.isfinite(y).all()):
            raise FitError(f"{self.name}: expected finite numbers, found others; omit points without a measurement")
        if sigma is not None and (sigma.shape != y.shape or not (np.isfinite(sigma) & (sigma > 0)).all()):
            raise FitError(f"{self.name}: expected a positive standard error for each of {len(y)} points")
        if self.sigma_is_absolute and sigma is None:
            raise FitError(f"{self.name}: expected standard errors to be absolute, found none")
        for field, array in (("x", x), ("y", y), ("sigma", sigma)):
            if array is not None:
                array = array.copy()
                array.flags.writeable = False
            object.__setattr__(self, field, array)

    @property
    def weight(self) -> Array:
        """One over sigma, or ones; shape (n,)."""
        return np.ones(len(self.y)) if self.sigma is None else 1 / self.sigma

    def __len__(self) -> int:
        return len(self.y)

    def within(self, low: float, high: float) -> Curve:
        """Return the points with ``low <= x <= high``. For a surface, x is its first variable.

        Examples
        --------
        >>> import numpy as np
        >>> len(Curve(np.array([1.0, 5, 10, 15]), np.ones(4)).within(1, 10))
        3
        """
        first = self.x[0] if self.x.ndim == 2 else self.x
        inside = (first >= low) & (first <= high)
        sigma = None if self.sigma is None else self.sigma[inside]
        return Curve(self.x[..., inside], self.y[inside], sigma, self.name, self.sigma_is_absolute)


class CurveBatch(NamedTuple):
    """Curves of different lengths, scaled, one per lane."""

    points: DataPoints
    span: Span
    x_scale: Array
    y_scale: Array


def pack(curves: list[Curve], *, scales_x: bool, scales_y: bool, weights: list[Array] | None = None) -> CurveBatch:
    """Return the curves as lanes, with x and y divided by their largest values if the family allows it.

    Parameters
    ----------
    curves
        Curves with the same number of variables.
    scales_x
        Whether x is divided by its largest absolute value. Sizes of 10^9 bytes and rates of 10^9 bytes/s would give
        sums of squares of 10^36 and slopes of 10^-18. Scaled values are near one.
    scales_y
        Whether y is divided by its largest absolute value.
    weights
        Weights that replace those of the curves, for example with zeros at held-out points.
    """
    longest = max(len(curve) for curve in curves)
    variables = curves[0].x.shape[:-1]
    x = np.empty((*variables, longest, len(curves)))
    y = np.zeros((longest, len(curves)))
    weight = np.zeros_like(y)
    for lane, curve in enumerate(curves):
        n = len(curve)
        x[..., :n, lane] = curve.x
        x[..., n:, lane] = curve.x[..., -1:]
        y[:n, lane] = curve.y
        own = curve.weight if weights is None else weights[lane]
        weight[:n, lane] = own / own.max()
    first = x[0] if variables else x
    x_scale = np.abs(first).max(axis=0) if scales_x and not variables else np.ones(len(curves))
    x_scale = np.where(x_scale > 0, x_scale, 1.0)
    y_scale = np.abs(y).max(axis=0) if scales_y else np.ones(len(curves))
    y_scale = np.where(y_scale > 0, y_scale, 1.0)
    lengths = np.array([len(curve) for curve in curves])
    span = _span(first / x_scale, lengths)
    return CurveBatch(DataPoints(x / x_scale, weight * y / y_scale, weight), span, x_scale, y_scale)


def _span(x: Array, lengths: Array) -> Span:
    """Return the distribution of the first ``lengths`` points of each lane; x has shape (points, lanes)."""
    ordered = np.sort(np.where(np.arange(len(x))[:, None] < lengths, x, np.inf), axis=0)
    low = ordered[0]
    high = np.take_along_axis(ordered, lengths[None] - 1, axis=0)[0]
    with np.errstate(invalid="ignore"):
        gaps = np.diff(ordered, axis=0)
    gaps = np.where((gaps > 0) & np.isfinite(gaps), gaps, np.inf)
    gap = gaps.min(axis=0, initial=np.inf)
    ranks = np.linspace(0, 1, RANKS)[:, None] * (lengths - 1)
    below = np.floor(ranks).astype(int)
    above = np.minimum(below + 1, lengths - 1)
    start, stop = (np.take_along_axis(ordered, index, axis=0) for index in (below, above))
    gap = np.where(np.isfinite(gap), gap, np.maximum(np.abs(high), 1.0))
    return Span(low, high, gap, start + (ranks - below) * (stop - start))
