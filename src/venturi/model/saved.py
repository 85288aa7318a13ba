"""Fits without their points: a fitted function that predicts new measurements with an interval.

`SavedFit` is the part of a `Fit` that fits into a file. It has no reference to the measured points.

========  ====================================================  =====
symbol    meaning                                               unit
========  ====================================================  =====
ŷ(x)      fitted curve
g         slopes of the curve in the parameters at x, (P,)
C         covariance of the parameters, (P, P)
s²        residual variance in units of sigma², SSE/(n - P);
          1 if sigma is absolute
σ         standard error of the new measurement
t         quantile of Student's t with n - P degrees of freedom;
          of the normal distribution if sigma is absolute
========  ====================================================  =====

A new measurement at x lies with the given probability in ŷ(x) ± t·√(gᵀ C g + s² σ²) (Bates and Watts 1988, sections 1.3
and 2.3.2: the band of the curve, and the variance of the new measurement). The interval is exact for functions that are
linear in the parameters, if the family is the right one and errors are normal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from venturi.errors import FitError
from venturi.model.family import Array, Family
from venturi.model.fit import Fit, quantile

__all__ = ["NewPoints", "SavedFit"]


class NewPoints(NamedTuple):
    """Predicted measurements at new positions. All arrays have shape (n,)."""

    value: Array
    """Fitted curve."""
    low: Array
    """Lower end of the prediction interval; NaN if the fit has no interval."""
    high: Array
    """Upper end."""
    extrapolated: Array
    """True where x is outside the fitted range."""


@dataclass(frozen=True, eq=False)
class SavedFit:
    """Fitted function of one variable, with everything that a prediction interval needs.

    Attributes
    ----------
    family
        The function.
    parameters
        Values by name, in base units.
    covariance
        Covariance matrix (P, P), in the order of ``parameters``. Infinite for parameters that are not determined.
    points
        Number of fitted points n.
    residual_variance
        s² of the module text. NaN without degrees of freedom.
    relative_sigma
        Median of sigma / \\|y\\| of the fitted points. It replaces σ of new measurements without a standard error. None if
        the fit had equal weights; then s² alone is the variance of a new measurement, in units of y².
    sigma_is_absolute
        Whether the standard errors were the true size of the errors.
    x_range
        Smallest and largest fitted x.
    """

    family: Family
    parameters: Mapping[str, float]
    covariance: Array
    points: int
    residual_variance: float
    relative_sigma: float | None
    sigma_is_absolute: bool
    x_range: tuple[float, float]

    def __post_init__(self) -> None:
        names, count = tuple(self.parameters), len(self.family.parameters)
        if names != self.family.parameters:
            raise FitError(
                f"expected the parameters {', '.join(self.family.parameters)} of {self.family.name},"
                f" found {', '.join(names) or 'none'}"
            )
        if np.shape(self.covariance) != (count, count):
            raise FitError(
                f"expected a covariance of {count} x {count} for {self.family.name}, found shape {np.shape(self.covariance)}"
            )

    @classmethod
    def of(cls, fit: Fit) -> SavedFit:
        """Return the part of a fit that predictions need.

        Raises
        ------
        FitError
            If the fit has more than one variable.
        """
        if fit.curve.x.ndim != 1:
            raise FitError(
                f"{fit.family.name}: expected a function of one variable, found {fit.curve.x.shape[0]} variables"
            )
        sigma, size = fit.curve.sigma, np.abs(fit.curve.y)
        ratios = None if sigma is None else (sigma / np.where(size > 0, size, np.nan))
        return cls(
            family=fit.family,
            parameters=dict(fit.parameters),
            covariance=fit.covariance,
            points=fit.n,
            residual_variance=1.0 if fit.sigma_is_absolute else fit.goodness.reduced_chi_square,
            relative_sigma=None if ratios is None else float(np.nanmedian(ratios)),
            sigma_is_absolute=fit.sigma_is_absolute,
            x_range=fit.x_range[0],
        )

    @property
    def degrees_of_freedom(self) -> int:
        """Number of points minus number of parameters."""
        return self.points - len(self.parameters)

    def predict(
        self, x: Array | Sequence[float], sigma: Sequence[float | None] | None = None, *, level: float = 0.9
    ) -> NewPoints:
        """Predict new measurements at ``x``, also outside the fitted range.

        Parameters
        ----------
        x
            Positions in base units, (n,).
        sigma
            Standard errors of the new measurements, (n,), or None where unknown. Only used if the fit has weights.
        level
            Probability that a new measurement lies in its interval.

        Examples
        --------
        >>> import numpy as np
        >>> from venturi.model import FAMILIES, Curve, fit
        >>> x = np.arange(5.0)
        >>> found = SavedFit.of(fit(Curve(x, 2 * x + np.array([0.1, -0.1, 0.0, -0.1, 0.1])), FAMILIES["linear"]))
        >>> new = found.predict([2.0, 9.0])
        >>> bool(new.low[0] < 4 < new.high[0]), new.extrapolated.tolist()
        (True, [False, True])
        """
        position = np.asarray(x, dtype=float)
        values = np.array(list(self.parameters.values()))[:, None]
        with np.errstate(all="ignore"):
            value = self.family.value(position[:, None], values)[:, 0] * np.ones(len(position))
            slopes = self.family.jacobian(position[:, None], values)[:, :, 0]
            of_curve = np.einsum("in,ij,jn->n", slopes, self.covariance, slopes)
            variance = of_curve + self.residual_variance * self._sigma(value, sigma) ** 2
        reach = quantile(level, self.degrees_of_freedom, self.sigma_is_absolute) * np.sqrt(
            np.where(np.isfinite(variance) & (variance >= 0), variance, np.nan)
        )
        low, high = self.x_range
        return NewPoints(value, value - reach, value + reach, ~((position >= low) & (position <= high)))

    def _sigma(self, value: Array, sigma: Sequence[float | None] | None) -> Array:
        """Return the standard errors of new measurements, in the scale of the weights."""
        if self.relative_sigma is None:
            return np.ones(len(value))
        typical = self.relative_sigma * np.abs(value)
        if sigma is None:
            return typical
        known = np.array([np.nan if one is None or one <= 0 else one for one in sigma], dtype=float)
        return np.where(np.isfinite(known), known, typical)
