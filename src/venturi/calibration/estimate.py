"""Least squares on log times, with the simulator as the model, for the parameters that the times determine.

| symbol | meaning | unit |
|---|---|---|
| y_i, e_i | log of the time of point i, and its error | – |
| t_i(x) | the simulated time | s |
| x_j, d_j | number j (:class:`venturi.calibration.parameters.Parameter`), and the number of its default | – |
| s_j | standard deviation of x_j about d_j (:attr:`venturi.calibration.parameters.Parameter.prior`) | – |
| J | ∂ log t_i / ∂ x_j by finite differences | – |

The fit minimises Σ ρ((log t_i − y_i) / e_i) + Σ ((x_j − d_j) / s_j)², x ≥ 0, with ρ(r) = 2c² (√(1 + (r/c)²) − 1), which
is r² for small r and 2c |r| for large ones. The second sum is weak, except for round trips. It keeps undetermined
parameters near their defaults.

The covariance is (JᵀWJ + 10⁻² I)⁻¹. It uses the weak prior for all parameters, so that a narrow prior does not make a
parameter look estimated. A parameter is identified if its standard error is at most half of its number. Numbers below
0.5 count as 0.5. While any parameter is not identified, the one with the largest relative error is removed, and among
nearly equal ones the last. So of two parameters with the same effect, one stays. A removed parameter keeps its default
unless the times contradict it. Errors are multiplied by √(χ²/ν) if that is above 1, with ν = n − tr(J C JᵀW).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import optimize

from venturi.stats.quantiles import student_reach

__all__ = ["LEVEL", "METHOD", "CostEstimate", "estimate"]

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Times = Callable[[list[Floats]], list[Floats]]
"""Simulated log times of all points for each of several lists of numbers, in order."""

LEVEL = 0.95
METHOD = "covariance at the minimum, Student's t, scaled by the residuals"
PRIOR = 10.0
"""Standard deviation of a number about its default, in scales, for parameters without prior knowledge."""
ROBUST = 2.0
"""c: residuals beyond this number of errors count linearly."""
STEP = 0.05
"""Step of finite differences, relative to the number or its scale. Larger than the rounding of a simulation's decisions.

From 0 the step is a whole scale, because an absent bound has no slope.
"""
LARGEST_ERROR = 0.5
"""Largest error of an identified number, relative to it."""
SMALLEST_NUMBER = 0.5
"""Smaller numbers count as this when their errors are assessed: 0 ± a tenth of the scale is well known."""
ALMOST = 0.8
"""Errors above this fraction of the largest count as equally large."""
LEAST_EFFECT = 0.02
"""Change of a log time over one scale that counts as an effect."""
CONTRADICTION = 4.0
"""A larger increase of χ² is a contradiction: two standard errors."""
ROUNDS = 4
"""Maximum number of times that the choice of parameters is repeated after a fit."""
MOST_EVALUATIONS = 15


@dataclass(frozen=True)
class CostEstimate:
    """Numbers that were fitted, and their errors.

    Attributes
    ----------
    numbers, errors
        Of shape (parameters,). Errors are NaN for parameters that were not estimated.
    identified
        Whether each parameter was estimated.
    moved
        Whether a parameter is not identified but differs from its default, because the default contradicts the times.
    effect
        Largest change of a log time over one scale.
    correlation
        Of shape (parameters, parameters): correlation of the effects of two parameters on the points, if both have an effect.
    freedom
        Degrees of freedom ν, at least 1.
    chi2_ratio
        χ²/ν.
    """

    numbers: Floats
    errors: Floats
    identified: Flags
    moved: Flags
    effect: Floats
    correlation: Floats
    freedom: float
    chi2_ratio: float

    @property
    def quantile(self) -> float:
        """Half the width of an interval, in standard errors."""
        return student_reach(LEVEL, self.freedom)


def estimate(times: Times, measured: Floats, errors: Floats, start: Floats, priors: Floats) -> CostEstimate:
    """Return the numbers that bring the simulated times closest to the measured ones.

    Parameters
    ----------
    times
        The model.
    measured, errors
        Log times and their errors, of shape (points,).
    start
        The numbers of the defaults, of shape (parameters,).
    priors
        Standard deviations of the numbers about ``start``, of shape (parameters,).
    """
    fitter = _Fitter(times, measured, errors, start, priors)
    every = np.ones(len(start), dtype=bool)
    numbers, base, active = start.copy(), start.copy(), ~every
    jacobian = fitter.jacobian(numbers, every)
    for turn in range(ROUNDS):
        chosen = fitter.choose(numbers, jacobian)
        if turn and np.array_equal(chosen, active):
            break
        base = fitter.drop(active & ~chosen, chosen, numbers, base)
        active = chosen
        proportional_start = fitter.proportional_start(numbers, jacobian, active) if turn == 0 else numbers
        numbers = fitter.refine(np.where(active, proportional_start, base), active)
        jacobian = fitter.jacobian(numbers, every)
    # Also drop parameters that the last fit does not determine.
    kept = active & fitter.choose(numbers, jacobian)
    if not np.array_equal(kept, active):
        base = fitter.drop(active & ~kept, kept, numbers, base)
        active = kept
        numbers = fitter.refine(np.where(active, numbers, base), active)
        jacobian = fitter.jacobian(numbers, every)
    return fitter.conclude(numbers, jacobian, active, ~active & (base != start))


class _Fitter:
    """The data, and the steps of the fit."""

    def __init__(self, times: Times, measured: Floats, errors: Floats, start: Floats, priors: Floats) -> None:
        self._times = times
        self._measured = measured
        self._errors = errors
        self._start = start
        self._priors = priors
        self._known: dict[bytes, Floats] = {}

    def log_times(self, numbers: list[Floats]) -> list[Floats]:
        """Return the log times for each list of numbers. Only new lists are simulated."""
        missing = {one.tobytes(): one for one in numbers if one.tobytes() not in self._known}
        if missing:
            self._known |= dict(zip(missing, self._times(list(missing.values())), strict=True))
        return [self._known[one.tobytes()] for one in numbers]

    def jacobian(self, numbers: Floats, active: Flags) -> Floats:
        """Return J; columns of inactive parameters are 0."""
        moved = []
        for index in np.flatnonzero(active):
            one = numbers.copy()
            one[index] += STEP * max(1.0, one[index]) if one[index] > 0 else 1.0
            moved.append(one)
        base, *others = self.log_times([numbers, *moved])
        found = np.zeros((len(base), len(numbers)))
        for index, one, log_times in zip(np.flatnonzero(active), moved, others, strict=True):
            found[:, index] = (log_times - base) / (one[index] - numbers[index])
        return found

    def choose(self, numbers: Floats, jacobian: Floats) -> Flags:
        """Return the parameters that the points determine near these numbers."""
        active: Flags = np.abs(jacobian).max(axis=0, initial=0.0) >= LEAST_EFFECT
        for _ in range(len(numbers)):
            if not active.any():
                break
            errors = np.sqrt(np.diag(self._covariance(jacobian[:, active])))
            worst = errors / (LARGEST_ERROR * np.maximum(numbers[active], SMALLEST_NUMBER))
            # Remove the last of nearly equal ones, because the parameters are in order of preference.
            last = int(np.flatnonzero(worst >= ALMOST * worst.max())[-1])
            if worst.max() <= 1.0:
                break
            active[np.flatnonzero(active)[last]] = False
        return active

    def drop(self, dropped: Flags, kept: Flags, numbers: Floats, base: Floats) -> Floats:
        """Return ``base`` with the defaults of dropped parameters, or their numbers if the times contradict the defaults.

        The times do not contradict the defaults if a fit of the kept parameters compensates for them.
        """
        found = np.where(dropped, self._start, base)
        if not dropped.any():
            return found
        now = self._cost(numbers)
        if self._cost(self.refine(np.where(kept, numbers, found), kept)) - now <= CONTRADICTION:
            return found
        for index in np.flatnonzero(dropped):
            back = numbers.copy()
            back[index] = self._start[index]
            if self._cost(back) - now > CONTRADICTION:
                found[index] = numbers[index]
        return found

    def _cost(self, numbers: Floats) -> float:
        return float(np.sum(_bent((self.log_times([numbers])[0] - self._measured) / self._errors) ** 2))

    def proportional_start(self, numbers: Floats, jacobian: Floats, active: Flags) -> Floats:
        """Return start values by a linear regression with numbers ≥ 0. It models times as sums of proportional effects."""
        found = numbers.copy()
        if not active.any():
            return found
        times = np.exp(self.log_times([numbers])[0])
        measured = np.exp(self._measured)
        weight = 1.0 / (measured * self._errors)
        columns = (jacobian[:, active] * times[:, None]) * weight[:, None]
        goal = (measured - times) * weight + columns @ numbers[active]
        prior = np.diag(1.0 / self._priors[active])
        solution, _ = optimize.nnls(np.vstack([columns, prior]), np.concatenate([goal, prior @ self._start[active]]))
        found[active] = solution
        return found

    def refine(self, numbers: Floats, active: Flags) -> Floats:
        """Return the minimum over the active parameters, near these numbers."""
        if not active.any():
            return numbers

        def whole(part: Floats) -> Floats:
            one = numbers.copy()
            one[active] = part
            return one

        def residuals(part: Floats) -> Floats:
            data = (self.log_times([whole(part)])[0] - self._measured) / self._errors
            return np.concatenate([_bent(data), (part - self._start[active]) / self._priors[active]])

        def slopes(part: Floats) -> Floats:
            one = whole(part)
            data = (self.log_times([one])[0] - self._measured) / self._errors
            inner = self.jacobian(one, active)[:, active] * (_slope(data) / self._errors)[:, None]
            return np.vstack([inner, np.diag(1.0 / self._priors[active])])

        solved = optimize.least_squares(
            residuals,
            np.maximum(numbers[active], 1e-3),
            jac=slopes,
            bounds=(0.0, np.inf),
            xtol=1e-4,
            ftol=1e-4,
            max_nfev=MOST_EVALUATIONS,
        )
        return whole(np.asarray(solved.x, dtype=np.float64))

    def conclude(self, numbers: Floats, jacobian: Floats, active: Flags, moved: Flags) -> CostEstimate:
        """Return the estimate at the minimum."""
        data = (self.log_times([numbers])[0] - self._measured) / self._errors
        errors = np.full(len(numbers), np.nan)
        inner = jacobian[:, active]
        covariance = self._covariance(inner)
        used = float(np.trace(covariance @ self._information(inner))) if active.any() else 0.0
        freedom = max(1.0, len(data) - used)
        ratio = float(np.sum(_bent(data) ** 2)) / freedom
        errors[active] = np.sqrt(np.diag(covariance) * max(1.0, ratio))
        weighted = jacobian / self._errors[:, None]
        length = np.linalg.norm(weighted, axis=0)
        unit = weighted / np.where(length > 0, length, 1.0)
        effect = np.abs(jacobian).max(axis=0, initial=0.0)
        return CostEstimate(numbers, errors, active, moved, effect, unit.T @ unit, freedom, ratio)

    def _information(self, jacobian: Floats) -> Floats:
        weighted = jacobian / self._errors[:, None]
        return np.asarray(weighted.T @ weighted)

    def _covariance(self, jacobian: Floats) -> Floats:
        count = jacobian.shape[1]
        return np.asarray(np.linalg.inv(self._information(jacobian) + np.eye(count) / PRIOR**2))


def _bent(residuals: Floats) -> Floats:
    """Return √ρ with the sign of the residual, so that its square is ρ."""
    return np.asarray(np.sign(residuals) * ROBUST * np.sqrt(2.0 * (np.sqrt(1.0 + (residuals / ROBUST) ** 2) - 1.0)))


def _slope(residuals: Floats) -> Floats:
    """Return the derivative of :func:`_bent`."""
    root = np.sqrt(1.0 + (residuals / ROBUST) ** 2)
    bent = np.abs(_bent(residuals))
    return np.where(bent > 1e-9, np.abs(residuals) / np.where(bent > 1e-9, bent * root, 1.0), 1.0)
