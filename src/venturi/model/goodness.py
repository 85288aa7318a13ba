"""Goodness of a fitted curve: R² in its forms, and AICc.

========  ==================================================  ===========================
symbol    meaning                                             definition
========  ==================================================  ===========================
w_i       weight of point i                                   1/sigma_i², or 1
ȳ         weighted mean                                       Σ w_i y_i / Σ w_i
SSE       residual sum of squares                             Σ w_i (y_i - ŷ_i)²
SST       total sum of squares                                Σ w_i (y_i - ȳ)²
SSR       regression sum of squares                           Σ w_i (ŷ_i - ȳ)²
P         number of fitted parameters
========  ==================================================  ===========================

Equation (4) of document 000 prints SSR instead of SSE (000-E01), so a perfect fit would have R² = 0. Both forms are
kept, with separate names.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from venturi.model.family import Array

__all__ = ["Goodness", "assess"]

EPSILON = float(np.finfo(float).eps)


class Goodness(NamedTuple):
    """Figures of merit of one fit."""

    sse: float
    """Σ w (y - ŷ)², which is chi-square for absolute sigma."""
    reduced_chi_square: float
    """SSE/(n - P); NaN without degrees of freedom."""
    r_squared: float
    """1 - SSE/SST, the corrected form of 000 equation (4)."""
    r_squared_adjusted: float
    """1 - (1 - R²)(n - 1)/(n - P); NaN without degrees of freedom."""
    r_squared_printed: float
    """1 - SSR/SST: equation (4) of 000 with its erratum. Zero for a perfect fit."""
    r_squared_regression: float
    """SSR/SST, as described before equation (4). It equals R² only for linear least squares with a constant term."""
    aicc: float
    """Akaike's criterion for small samples. Infinite if n is too small for P (n <= P + 2, or P + 1 with absolute sigma)."""


def assess(y: Array, fitted: Array, weight: Array, parameters: int, *, absolute: bool = False) -> Goodness:
    """Return the figures of merit of a fitted curve.

    Parameters
    ----------
    y, fitted
        Data and curve, (n,).
    weight
        One over sigma, (n,); it enters squared.
    parameters
        Number of fitted parameters P.
    absolute
        Whether sigma is known. If not, its size counts as one more parameter in AICc.

    Examples
    --------
    >>> import numpy as np
    >>> y = np.array([1.0, 2.0, 4.0])
    >>> perfect = assess(y, y, np.ones(3), 2)
    >>> perfect.r_squared, perfect.r_squared_printed
    (1.0, 0.0)
    """
    n, w = len(y), weight**2
    mean = float(w @ y / w.sum())
    sse, sst, ssr = float(w @ (y - fitted) ** 2), float(w @ (y - mean) ** 2), float(w @ (fitted - mean) ** 2)
    freedom = n - parameters
    # R² is undefined for points with equal y.
    r_squared, regression = (1 - sse / sst, ssr / sst) if sst > 0 else (float("nan"), float("nan"))
    return Goodness(
        sse=sse,
        reduced_chi_square=sse / freedom if freedom > 0 else float("nan"),
        r_squared=r_squared,
        r_squared_adjusted=1 - (1 - r_squared) * (n - 1) / freedom if freedom > 0 else float("nan"),
        r_squared_printed=1 - regression,
        r_squared_regression=regression,
        aicc=_aicc(sse, float(w @ y**2), n, parameters, absolute),
    )


def _aicc(sse: float, size: float, n: int, parameters: int, absolute: bool) -> float:
    estimated = parameters if absolute else parameters + 1
    spare = n - estimated - 1
    if spare <= 0:
        return float("inf")
    # Residuals below the rounding of the data are meaningless. Without a floor, the logarithm would reward them.
    floor = n * EPSILON**2 * size
    fit = sse if absolute else n * float(np.log(max(sse, floor, np.finfo(float).tiny) / n))
    return fit + 2 * estimated + 2 * estimated * (estimated + 1) / spare
