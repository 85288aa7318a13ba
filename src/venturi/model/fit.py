"""Fits of families to curves, with parameters, uncertainty and range of validity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from venturi.errors import FitError, RangeError
from venturi.model._search import DEFAULT_SEARCH, Search, cloud, search
from venturi.model.curve import Curve, pack
from venturi.model.family import Array, Family
from venturi.model.goodness import Goodness, assess
from venturi.stats.quantiles import normal_reach, student_reach

__all__ = ["Fit", "Prediction", "RejectedFit", "fit", "fit_many"]

NEARLY_SINGULAR = 1e7
"""Condition number of the Jacobian, with columns of unit length, above which a fit is nearly singular.

The covariance then loses half of the digits of a double.
"""
SINGULAR = 1e13
EXPLAINS_NOTHING = 1e-9
"""Maximum R² of a failed fit. If the fitted curve is a constant, R² is 0 up to rounding."""
AT_LIMIT = 1e-9
"""Distance from a limit, relative to its size, that counts as at the limit."""


class Prediction(NamedTuple):
    """Values of a fitted curve with its confidence band."""

    x: Array
    """Positions, (n,) or (variables, n)."""
    value: Array
    """Fitted curve, (n,)."""
    low: Array
    """Lower edge of the pointwise band of the curve."""
    high: Array
    """Upper edge."""
    level: float
    """Confidence level of the band."""
    extrapolated: Array
    """True where x is outside the fitted range."""


class RejectedFit(NamedTuple):
    """Family that was not fitted to a curve, and the reason."""

    family: Family
    reason: str


@dataclass(frozen=True, eq=False)
class Fit:
    """One family fitted to one curve, in base units.

    Attributes
    ----------
    family, curve
        The fitted family and its data.
    parameters
        Best values by name.
    covariance
        Covariance matrix (P, P), in the order of ``parameters``, from the full Jacobian at the minimum. It is infinite
        for parameters that the data do not determine, and NaN without degrees of freedom (relative sigma). A parameter
        at its limit counts as free; see ``warnings``.
    goodness
        SSE, R² in its forms, AICc.
    converged
        Whether the search reached a minimum before its maximum number of steps.
    failed
        Whether the curve follows the points no better than their mean: R² ≤ 0.
    warnings
        Reasons to doubt the fit, as text. A failure comes first.
    """

    family: Family
    curve: Curve
    parameters: Mapping[str, float]
    covariance: Array
    goodness: Goodness
    converged: bool
    failed: bool
    warnings: tuple[str, ...]

    @property
    def n(self) -> int:
        """Number of points."""
        return len(self.curve)

    @property
    def degrees_of_freedom(self) -> int:
        """Number of points minus number of parameters."""
        return self.n - len(self.parameters)

    @property
    def sigma_is_absolute(self) -> bool:
        """Whether only the given sigma determines the covariance. Otherwise, it contains the factor SSE/(n - P)."""
        return self.curve.sigma_is_absolute

    @property
    def values(self) -> Array:
        """Best values, (P,)."""
        return np.array(list(self.parameters.values()))

    @property
    def standard_errors(self) -> dict[str, float]:
        """Square roots of the diagonal of the covariance, by name."""
        with np.errstate(invalid="ignore"):
            return dict(zip(self.parameters, np.sqrt(np.diag(self.covariance)).tolist(), strict=True))

    @property
    def x_range(self) -> tuple[tuple[float, float], ...]:
        """Smallest and largest fitted x of each variable."""
        rows = np.atleast_2d(self.curve.x)
        return tuple((float(row.min()), float(row.max())) for row in rows)

    def predict(
        self, x: Array | Sequence[float] | float, *, level: float = 0.95, extrapolate: bool = False
    ) -> Prediction:
        """Return the curve at ``x`` with its confidence band.

        Parameters
        ----------
        x
            Positions in base units: a number, (n,), or (variables, n).
        level
            Confidence level of the pointwise band of the curve. The band is linear in the parameters (delta method). It
            uses Student's t with n - P degrees of freedom for relative sigma, and the normal distribution for absolute
            sigma.
        extrapolate
            Whether x outside the fitted range is allowed.

        Raises
        ------
        RangeError
            If x is outside the fitted range and ``extrapolate`` is false.
        """
        points = np.atleast_1d(np.asarray(x, dtype=float))
        outside = self._outside(points)
        if outside.any() and not extrapolate:
            ranges = ", ".join(f"[{low:g}, {high:g}]" for low, high in self.x_range)
            raise RangeError(f"{self.family.name} was fitted to {self.curve.name} for x in {ranges}; found "
                             f"{points[..., outside].ravel()[0]:g}. Measure there, or allow extrapolation (--extrapolate)")  # fmt: skip
        parameters = self.values[:, None]
        with np.errstate(all="ignore"):
            value = self.family.value(points[..., None], parameters)[:, 0]
            slopes = self.family.jacobian(points[..., None], parameters)[:, :, 0]
            spread = np.sqrt(np.maximum(np.einsum("in,ij,jn->n", slopes, self.covariance, slopes), 0.0))
        factor = quantile(level, self.degrees_of_freedom, self.sigma_is_absolute)
        return Prediction(points, value, value - factor * spread, value + factor * spread, level, outside)

    def _outside(self, points: Array) -> Array:
        rows = np.atleast_2d(points)
        if len(rows) != len(self.x_range):
            raise FitError(f"expected x with {len(self.x_range)} variables, found shape {points.shape}")
        low, high = np.array(self.x_range).T[:, :, None]
        return np.asarray(~((rows >= low) & (rows <= high)).all(axis=0))


def quantile(level: float, freedom: int, absolute: bool) -> float:
    """Return the two-sided factor on a standard error for a confidence level."""
    if not 0 < level < 1:
        raise FitError(f"expected a level between 0 and 1, found {level:g}")
    if absolute:
        return normal_reach(level)
    return student_reach(level, freedom)


def fit(
    curve: Curve,
    family: Family,
    *,
    start: Mapping[str, float] | None = None,
    decades: float = 2.0,
    settings: Search = DEFAULT_SEARCH,
) -> Fit:
    """Fit one family to one curve by weighted least squares.

    Parameters
    ----------
    curve
        The points.
    family
        Family from `venturi.model.FAMILIES`, or created by `venturi.model.family_of`.
    start
        Starting values by name, for a family created by `family_of`. By default, the starts are seeded.
    decades
        Width of the searched range around ``start``, in decades; 0 searches from ``start`` alone.
    settings
        Effort of the search.

    Raises
    ------
    FitError
        If the family is not defined at these x, there are fewer points than parameters, or no start gives a finite
        curve.

    Examples
    --------
    >>> import numpy as np
    >>> from venturi.model import FAMILIES
    >>> size_bytes = np.array([1e7, 1e8, 2e8, 5e8, 1e9, 2e9])
    >>> found = fit(Curve(size_bytes, size_bytes / (0.5 + size_bytes / 1e8)), FAMILIES["setup"])
    >>> {name: float(f"{value:.6g}") for name, value in found.parameters.items()}
    {'t0': 0.5, 'r': 100000000.0}
    """
    starts = None
    if start is not None:
        if family.contract is None:
            raise FitError(f"{family.name} chooses its own start values")
        starts = cloud(np.array(family.contract(dict(start)), dtype=float), decades, settings)
    (outcome,) = fit_many([curve], family, settings=settings, starts=starts)
    if isinstance(outcome, RejectedFit):
        raise FitError(f"{family.name} on {curve.name}: {outcome.reason}")
    return outcome


def fit_many(
    curves: Sequence[Curve], family: Family, *, settings: Search = DEFAULT_SEARCH, starts: Array | None = None
) -> list[Fit | RejectedFit]:
    """Fit one family to many curves together, at little more cost than to one.

    Parameters
    ----------
    curves
        Curves of any lengths, with the same number of variables.
    family, settings
        As in `fit`.
    starts
        Starts as search coordinates, (m, count). By default, the starts are seeded.

    Returns
    -------
    list of Fit or RejectedFit
        In the order of ``curves``.
    """
    outcomes: list[Fit | RejectedFit | None] = [_reject(curve, family) for curve in curves]
    fitted = [index for index, outcome in enumerate(outcomes) if outcome is None]
    if fitted:
        with np.errstate(all="ignore"):
            results = _fit_all([curves[index] for index in fitted], family, settings, starts)
        for index, outcome in zip(fitted, results, strict=True):
            outcomes[index] = outcome
    return [outcome for outcome in outcomes if outcome is not None]


def _reject(curve: Curve, family: Family) -> RejectedFit | None:
    needed = len(family.parameters)
    rows = curve.x.shape[0] if curve.x.ndim == 2 else 1
    if family.rows and rows not in family.rows:
        expected = " or ".join(map(str, family.rows))
        return RejectedFit(family, f"expected x with {expected} variables, found {rows}")
    if len(curve) < needed:
        return RejectedFit(family, f"expected at least {needed} points for {needed} parameters, found {len(curve)}")
    if not family.usable(curve.x):
        return RejectedFit(family, f"expected {family.validity}, found x from {curve.x.min():g} to {curve.x.max():g}")
    return None


def _fit_all(curves: list[Curve], family: Family, settings: Search, starts: Array | None) -> list[Fit | RejectedFit]:
    batch = pack(curves, scales_x=family.scales_x, scales_y=family.scales_y)
    ended = search(family, batch, settings, starts)
    values = np.array(family.expand(ended.theta, ended.amplitudes, batch.x_scale, batch.y_scale)) * np.ones(
        len(curves)
    )
    x = batch.points.x * batch.x_scale
    fitted = family.value(x, values) * np.ones(x.shape[-2:])
    weight = np.zeros_like(fitted)
    for lane, curve in enumerate(curves):
        weight[: len(curve), lane] = curve.weight
    inverse, condition = _invert(family.jacobian(x, values) * weight)
    limits = family.box(family.limits, batch.span)
    reach = AT_LIMIT * np.maximum(np.abs(limits[1] - limits[0]), AT_LIMIT)
    at_limit = (ended.theta <= limits[0] + reach) | (ended.theta >= limits[1] - reach)
    outcomes: list[Fit | RejectedFit] = []
    for lane, curve in enumerate(curves):
        n, freedom = len(curve), len(curve) - len(values)
        if not (
            np.isfinite(ended.sse[lane])
            and np.isfinite(values[:, lane]).all()
            and np.isfinite(fitted[:n, lane]).all()
        ):
            outcomes.append(
                RejectedFit(family, "no start gives a finite curve with the signs that the family requires")
            )
            continue
        goodness = assess(curve.y, fitted[:n, lane], weight[:n, lane], len(values), absolute=curve.sigma_is_absolute)
        factor = 1.0 if curve.sigma_is_absolute else goodness.reduced_chi_square
        # The mean itself is a fit with one parameter and has R² = 0.
        is_mean = len(values) == 1 and float(np.ptp(fitted[:n, lane])) == 0
        failed = goodness.r_squared <= EXPLAINS_NOTHING and not is_mean
        notes = _warnings(family, goodness.r_squared, failed, at_limit[:, lane], ended.amplitudes[:, lane], condition[lane], freedom,
                          bool(ended.converged[lane]))  # fmt: skip
        outcomes.append(Fit(family, curve, dict(zip(family.parameters, values[:, lane].tolist(), strict=True)),
                            inverse[lane] * factor, goodness, bool(ended.converged[lane]), failed, notes))  # fmt: skip
    return outcomes


def _invert(jacobian: Array) -> tuple[Array, Array]:
    """Return (JᵀJ)⁻¹ of each lane, (lanes, P, P), and the condition number of J with columns of unit length.

    QR loses only one condition number of digits, not two. A column of zeros (the rate of a term whose amplitude is
    zero) leaves that parameter undetermined, but not the others.
    """
    rows = np.moveaxis(jacobian, -1, 0).swapaxes(1, 2)
    count = rows.shape[2]
    norms = np.sqrt(np.einsum("bnp,bnp->bp", rows, rows))
    empty = ~((norms > 0) & np.isfinite(norms))
    norms = np.where(empty, 1.0, norms)
    scaled = np.where(empty[:, None, :], 0.0, rows / norms[:, None, :])
    scaled = np.where(np.isfinite(scaled), scaled, 0.0)
    extra = np.eye(count) * empty[:, None, :]
    triangle = np.asarray(np.linalg.qr(np.concatenate([scaled, extra], axis=1), mode="r"))
    singular_values = np.linalg.svd(triangle, compute_uv=False)
    condition = singular_values[:, 0] / np.maximum(singular_values[:, -1], 1e-300)
    undetermined = condition > SINGULAR
    triangle[undetermined] = np.eye(count)
    root = np.linalg.inv(triangle)
    inverse = root @ root.swapaxes(1, 2) / (norms[:, :, None] * norms[:, None, :])
    inverse[undetermined] = np.inf
    lane, parameter = np.nonzero(empty)
    inverse[lane, parameter, :] = 0.0
    inverse[lane, :, parameter] = 0.0
    inverse[lane, parameter, parameter] = np.inf
    return inverse, condition


def _warnings(
    family: Family, r_squared: float, failed: bool, at_limit: Array, amplitudes: Array, condition: float, freedom: int, converged: bool
) -> tuple[str, ...]:  # fmt: skip
    notes = []
    if failed:
        notes.append(f"failed: the curve fits the points no better than their mean (R² = {r_squared:.3g})")
    if not converged:
        notes.append("not converged: the search reached its maximum number of steps")
    notes += [f"at limit: {name} is at the edge of its search range"
              for name, there in zip(family.coordinates, at_limit, strict=True) if there]  # fmt: skip
    if family.nonnegative and (amplitudes == 0).any():
        notes.append("at limit: an amplitude that must not be negative is zero, so its term has no rate")
    if condition > NEARLY_SINGULAR:
        notes.append(f"nearly singular: the data barely distinguish the parameters (condition {condition:.0e})")
    if freedom == 0:
        notes.append("no degrees of freedom: as many parameters as points, so R² is meaningless")
    return tuple(dict.fromkeys(notes))
