"""Profile-likelihood intervals: range of one parameter until the best fit of the others becomes worse.

For each parameter and side, the search varies v until z(v) = sqrt((SSE(v) - SSE_min)/s²) equals the quantile of the
level. z is the signed root of the likelihood ratio. It is nearly linear in v, so a bracketed secant needs few steps.
The other parameters start from the last point. All parameters, sides and fits run as lanes of one problem.

With absolute sigma, s² = 1 and the quantile is normal. Otherwise, s² = SSE_min/(n - P) and the quantile is from
Student's t with n - P degrees of freedom (Bates and Watts 1988, section 6.1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from venturi.errors import FitError
from venturi.model._descent import DataPoints, descend
from venturi.model.curve import pack
from venturi.model.family import Array, Family, Terms
from venturi.model.fit import Fit, quantile

__all__ = ["ParameterInterval", "profile", "profile_many"]

ROUNDS = 60
"""Maximum number of evaluations for one end of an interval."""
CLOSE = 1e-6
"""Accepted relative distance of z from its goal."""
FARTHEST = 1e6
"""Distance, in standard errors, beyond which an interval counts as open."""


class ParameterInterval(NamedTuple):
    """Profile-likelihood interval of one parameter, in base units."""

    low: float
    """Minus infinity (or zero for a positive parameter) if the data set no lower bound."""
    high: float
    """Infinity if the data set no upper bound."""
    level: float
    """Confidence level."""


def profile(
    fit: Fit, *, level: float = 0.95, parameters: Sequence[str] | None = None
) -> dict[str, ParameterInterval]:
    """Return profile-likelihood intervals of one fit, by name.

    Parameters
    ----------
    fit
        A fit with at least one degree of freedom, or with absolute sigma.
    level
        Confidence level.
    parameters
        Names; all by default.

    Raises
    ------
    FitError
        If there are no degrees of freedom to estimate the size of the errors, or a name is unknown.

    Examples
    --------
    >>> import numpy as np
    >>> from venturi.model import FAMILIES, Curve, fit
    >>> x = np.arange(1.0, 9.0)
    >>> line = fit(Curve(x, 2 * x + np.array([1, -1, 1, -1, 1, -1, 1, -1]) / 10), FAMILIES["linear"])
    >>> interval = profile(line)["b"]  # for a line the profile is the t interval
    >>> bool(np.isclose(interval.high - interval.low, 2 * 2.446911851 * line.standard_errors["b"]))
    True
    """
    return profile_many([fit], level=level, parameters=parameters)[0]


def profile_many(
    fits: Sequence[Fit], *, level: float = 0.95, parameters: Sequence[str] | None = None
) -> list[dict[str, ParameterInterval]]:  # fmt: skip
    """Return profile-likelihood intervals of many fits of one family; see `profile`."""
    if not fits:
        return []
    family = fits[0].family
    names = list(family.parameters if parameters is None else parameters)
    unknown = sorted(set(names) - set(family.parameters))
    if unknown or any(fit.family is not family for fit in fits):
        raise FitError(f"expected fits of one family and names among {', '.join(family.parameters)}, found {unknown}")
    for fit in fits:
        if fit.degrees_of_freedom == 0 and not fit.sigma_is_absolute:
            raise FitError(f"{family.name} on {fit.curve.name}: as many parameters as points; expected sigma to be "
                           "absolute, or more points")  # fmt: skip
    cases = [(fit, family.parameters.index(name), side) for fit in fits for name in names for side in (-1, 1)]
    with np.errstate(all="ignore"):
        ends = iter(_Walk(family, cases, level).ends().tolist())
    return [{name: ParameterInterval(next(ends), next(ends), level) for name in names} for _ in fits]


def _whole(family: Family) -> Family:
    """Return the family with all named parameters searched instead of solved for, because a profile fixes one of them."""

    def terms(x: Array, p: Array) -> Terms:
        slopes = [(j, -1, slope) for j, slope in enumerate(family.jacobian(x, p))]
        return Terms([], slopes, family.value(x, p) * np.ones(x.shape[-2:]))

    return replace(family, terms=terms, linear=0, nonnegative=False, coordinates=family.parameters)


class _Walk:
    """Search for the ends of all intervals together."""

    def __init__(self, family: Family, cases: list[tuple[Fit, int, int]], level: float) -> None:
        fits = [fit for fit, _, _ in cases]
        batch = pack([fit.curve for fit in fits], scales_x=False, scales_y=False)
        weight = np.zeros_like(batch.points.weight)
        y = np.zeros_like(weight)
        for lane, fit in enumerate(fits):
            weight[: fit.n, lane] = fit.curve.weight
            y[: fit.n, lane] = fit.curve.weight * fit.curve.y
        self.points = DataPoints(batch.points.x, y, weight)
        self.family = _whole(family)
        self.index = np.array([index for _, index, _ in cases])
        self.side = np.array([float(side) for _, _, side in cases])
        self.best = np.array([fit.values for fit in fits]).T
        self.least = np.array([fit.goodness.sse for fit in fits])
        self.scale = np.array([1.0 if fit.sigma_is_absolute else fit.goodness.reduced_chi_square for fit in fits])
        self.goal = np.array([quantile(level, fit.degrees_of_freedom, fit.sigma_is_absolute) for fit in fits])
        lanes = np.arange(len(cases))
        self.centre = self.best[self.index, lanes]
        errors = np.sqrt(np.array([fit.covariance[index, index] for fit, index, _ in cases]))
        fallback = 0.1 * np.abs(self.centre) + 1e-12
        self.step = np.where(np.isfinite(errors) & (errors > 0), errors, fallback)
        bound = [0.0 if family.parameters[index] in family.positive else -np.inf for _, index, _ in cases]
        self.edge = np.where(self.side < 0, np.array(bound), np.inf)
        self.floor = np.array([0.0 if name in family.positive else -np.inf for name in family.parameters])

    def ends(self) -> Array:
        """Return the end of each interval, or the edge for an open interval."""
        lanes = np.arange(len(self.centre))
        theta = self.best.copy()
        inner, inner_z = np.zeros(len(lanes)), np.zeros(len(lanes))
        outer, outer_z = np.full(len(lanes), np.nan), np.full(len(lanes), np.nan)
        # Distances from the best value along the side, in base units.
        reach = np.where(np.isfinite(self.edge), np.abs(self.edge - self.centre), FARTHEST * self.step)
        trial = np.minimum(self.goal * self.step, reach)
        result = np.full(len(lanes), np.nan)
        active = self.scale > 0
        result[~active] = self.centre[~active]
        for round_number in range(ROUNDS):
            run = np.flatnonzero(active)
            if len(run) == 0:
                break
            z, theta[:, run] = self._ratio(run, trial[run], theta[:, run])
            beyond = z >= self.goal[run]
            outer[run[beyond]], outer_z[run[beyond]] = trial[run[beyond]], z[beyond]
            inner[run[~beyond]], inner_z[run[~beyond]] = trial[run[~beyond]], z[~beyond]
            met = np.abs(z - self.goal[run]) <= CLOSE * self.goal[run]
            open_end = ~beyond & ~met & (trial[run] >= reach[run])
            tight = outer[run] - inner[run] <= 1e-12 * outer[run]
            result[run[met | tight]] = (self.centre + self.side * trial)[run[met | tight]]
            edge = np.where(np.isfinite(self.edge), self.edge, self.side * np.inf)
            result[run[open_end]] = edge[run[open_end]]
            active[run[met | open_end | tight]] = False
            bracketed = np.isfinite(outer)
            secant = inner + (self.goal - inner_z) * (outer - inner) / (outer_z - inner_z)
            middle = (inner + outer) / 2
            inside = (secant > inner) & (secant < outer) & np.isfinite(secant) & (round_number % 3 != 2)
            grow = np.where(inner_z > 0.05 * self.goal, 1.1 * inner * self.goal / inner_z, 4 * inner)
            grow = np.clip(grow, 1.1 * inner, 10 * inner)
            trial = np.where(bracketed, np.where(inside, secant, middle), np.minimum(grow, reach))
        return result

    def _ratio(self, run: Array, distance: Array, theta: Array) -> tuple[Array, Array]:
        held = self.centre[run] + self.side[run] * distance
        lower = np.repeat(self.floor[:, None], len(run), axis=1)
        upper = np.full_like(lower, np.inf)
        lower[self.index[run], np.arange(len(run))] = upper[self.index[run], np.arange(len(run))] = held
        start = theta.copy()
        start[self.index[run], np.arange(len(run))] = held
        # Two starts, the last point and the best fit, because in a curved valley the nearer start can miss the minimum.
        found = [descend(self.family, self.points.take(run), first, (lower, upper), steps=100, tolerance=1e-6)
                 for first in (start, self.best[:, run])]  # fmt: skip
        better = found[1].sse < found[0].sse
        sse = np.where(better, found[1].sse, found[0].sse)
        end = np.where(better, found[1].theta, found[0].theta)
        return np.sqrt(np.maximum(sse - self.least[run], 0.0) / self.scale[run]), end
