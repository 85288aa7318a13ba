"""How well a fitted curve follows the points: R² in its forms, and AICc.

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

Equation (4) of document 000 prints SSR where SSE is due (000-E01), so that a perfect fit would have R² = 0. Both are
kept under their names.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from venturi.model.family import Array

__all__ = ["Goodness", "judge"]

EPSILON = float(np.finfo(float).eps)


class Goodness(NamedTuple):
    """Figures of merit of one fit."""

    sse: float
    """Σ w (y - ŷ)², which is chi-square where sigma is given."""
    reduced_chi_square: float
    """SSE/(n - P); not a number without degrees of freedom."""
    r_squared: float
    """1 - SSE/SST, the corrected form of 000 equation (4)."""
    r_squared_adjusted: float
    """1 - (1 - R²)(n - 1)/(n - P); not a number without degrees of freedom."""
    r_squared_printed: float
    """1 - SSR/SST: 000 equation (4) with its slip. Zero for a perfect fit."""
    r_squared_regression: float
    """SSR/SST, which the sentence before equation (4) speaks of; equals R² only for linear least squares with a
    constant term."""
    aicc: float
    """Akaike's criterion for small samples; infinite where n is too small for P (n <= P + 2, or P + 1 with absolute
    sigma)."""


def judge(y: Array, fitted: Array, weight: Array, parameters: int, *, absolute: bool = False) -> Goodness:
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
    >>> perfect = judge(y, y, np.ones(3), 2)
    >>> perfect.r_squared, perfect.r_squared_printed
    (1.0, 0.0)
    """
    n, w = len(y), weight**2
    mean = float(w @ y / w.sum())
    sse, sst, ssr = float(w @ (y - fitted) ** 2), float(w @ (y - mean) ** 2), float(w @ (fitted - mean) ** 2)
    freedom = n - parameters
    # A flat curve has no spread to explain.
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
    room = n - estimated - 1
    if room <= 0:
        return float("inf")
    # Below the rounding of the data a smaller residual says nothing; without a floor the logarithm would reward it.
    floor = n * EPSILON**2 * size
    fit = sse if absolute else n * float(np.log(max(sse, floor, np.finfo(float).tiny) / n))
    return fit + 2 * estimated + 2 * estimated * (estimated + 1) / room
