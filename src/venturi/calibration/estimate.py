"""Least squares on log times, with the simulator as the model, of as many parameters as the times can tell.

| symbol | meaning | unit |
|---|---|---|
| y_i, e_i | log of the time of point i, and its error | – |
| t_i(x) | the simulated time | s |
| x_j, d_j | number j (:class:`venturi.calibration.parameters.Parameter`), and that of its default | – |
| s_j | how far it may be from its default (:attr:`venturi.calibration.parameters.Parameter.prior`) | – |
| J | ∂ log t_i / ∂ x_j by finite differences | – |

Minimised is Σ ρ((log t_i − y_i) / e_i) + Σ ((x_j − d_j) / s_j)², x ≥ 0, with ρ(r) = 2c² (√(1 + (r/c)²) − 1), which is r² for small r and
2c |r| for large ones. The second sum is weak but for round trips: it decides what the times leave open, and then for the default.

The covariance is (JᵀWJ + 10⁻² I)⁻¹, so that what is known beforehand makes no parameter look estimated. A parameter is identified if its standard error is at most half of it (or of its scale, where it is
small). Of those that are not, the one that is farthest from it is taken out, of near equals the last, until all that are left are identified:
so of two with the same effect one stays. What is taken out keeps its default, unless the times contradict that. Errors are multiplied by
√(χ²/ν) where that is above 1, with ν = n − tr(J C JᵀW).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import optimize

from venturi.stats.quantiles import student_reach

__all__ = ["LEVEL", "METHOD", "Estimate", "estimate"]

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Times = Callable[[list[Floats]], list[Floats]]
"""Simulated log times of all points for each of several lists of numbers, in order."""

LEVEL = 0.95
METHOD = "covariance at the minimum, Student's t, scaled by the residuals"
PRIOR = 10.0
"""Standard deviation of a number about its default, in scales, of which nothing is known."""
ROBUST = 2.0
"""c: residuals beyond so many errors count linearly."""
STEP = 0.05
"""Of finite differences, of a number or of its scale: larger than what the rounding of a simulation's choices makes.

From 0 it is a whole scale, for a bound that is not there has no slope."""
LARGEST_ERROR = 0.5
"""Of a number that counts as identified, relative to it."""
SMALLEST_NUMBER = 0.5
"""Numbers below count as this where they are judged: 0 ± a tenth of the scale is known well."""
ALMOST = 0.8
"""Of errors that count as equally large."""
LEAST_EFFECT = 0.02
"""Change of a log time, over a scale, that counts as an effect."""
CONTRADICTION = 4.0
"""More of χ² than this is a contradiction: two standard errors."""
ROUNDS = 4
"""How often the choice of parameters is made anew, where the last one led."""
MOST_EVALUATIONS = 15


@dataclass(frozen=True)
class Estimate:
    """What came out.

    Attributes
    ----------
    numbers, errors
        Of shape (parameters,); errors are NaN for those that were not estimated.
    identified
        Which were estimated.
    moved
        Which are not identified, and yet not at their defaults, as those contradict the times.
    effect
        Largest change of a log time over a scale.
    correlation
        Of shape (parameters, parameters): of the effects of two parameters on the points, where both have one.
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
        """Half the width of an interval in standard errors."""
        return student_reach(LEVEL, self.freedom)


def estimate(times: Times, measured: Floats, errors: Floats, start: Floats, priors: Floats) -> Estimate:
    """Return the numbers for which simulated times are nearest to the measured ones.

    Parameters
    ----------
    times
        The model.
    measured, errors
        Log times and their errors, of shape (points,).
    start
        The numbers of the defaults, of shape (parameters,).
    priors
        How far numbers may be from these.
    """
    fitter = _Fitter(times, measured, errors, start, priors)
    every = np.ones(len(start), dtype=bool)
    numbers, base, active = start.copy(), start.copy(), ~every
    jacobian = fitter.jacobian(numbers, every)
    for turn in range(ROUNDS):
        chosen = fitter.choose(numbers, jacobian)
        if turn and np.array_equal(chosen, active):
            break
        base = fitter.let_go(active & ~chosen, chosen, numbers, base)
        active = chosen
        begin = fitter.begin(numbers, jacobian, active) if turn == 0 else numbers
        numbers = fitter.refine(np.where(active, begin, base), active)
        jacobian = fitter.jacobian(numbers, every)
    # What the last fit cannot tell after all is let go, too.
    kept = active & fitter.choose(numbers, jacobian)
    if not np.array_equal(kept, active):
        base = fitter.let_go(active & ~kept, kept, numbers, base)
        active = kept
        numbers = fitter.refine(np.where(active, numbers, base), active)
        jacobian = fitter.jacobian(numbers, every)
    return fitter.conclude(numbers, jacobian, active, ~active & (base != start))


class _Fitter:
    """The data, and the steps of the fit on them."""

    def __init__(self, times: Times, measured: Floats, errors: Floats, start: Floats, priors: Floats) -> None:
        self._times = times
        self._measured = measured
        self._errors = errors
        self._start = start
        self._priors = priors
        self._known: dict[bytes, Floats] = {}

    def log_times(self, numbers: list[Floats]) -> list[Floats]:
        """Simulate what has not been simulated yet."""
        missing = {one.tobytes(): one for one in numbers if one.tobytes() not in self._known}
        if missing:
            self._known |= dict(zip(missing, self._times(list(missing.values())), strict=True))
        return [self._known[one.tobytes()] for one in numbers]

    def jacobian(self, numbers: Floats, active: Flags) -> Floats:
        """J for the active parameters, 0 for others."""
        moved = []
        for place in np.flatnonzero(active):
            one = numbers.copy()
            one[place] += STEP * max(1.0, one[place]) if one[place] > 0 else 1.0
            moved.append(one)
        base, *others = self.log_times([numbers, *moved])
        found = np.zeros((len(base), len(numbers)))
        for place, one, log_times in zip(np.flatnonzero(active), moved, others, strict=True):
            found[:, place] = (log_times - base) / (one[place] - numbers[place])
        return found

    def choose(self, numbers: Floats, jacobian: Floats) -> Flags:
        """Return which parameters the points can tell, near these numbers."""
        active: Flags = np.abs(jacobian).max(axis=0, initial=0.0) >= LEAST_EFFECT
        for _ in range(len(numbers)):
            if not active.any():
                break
            errors = np.sqrt(np.diag(self._covariance(jacobian[:, active])))
            worst = errors / (LARGEST_ERROR * np.maximum(numbers[active], SMALLEST_NUMBER))
            # Of near equals the later one goes: the order of the parameters is that of preference.
            place = int(np.flatnonzero(worst >= ALMOST * worst.max())[-1])
            if worst.max() <= 1.0:
                break
            active[np.flatnonzero(active)[place]] = False
        return active

    def let_go(self, dropped: Flags, kept: Flags, numbers: Floats, base: Floats) -> Floats:
        """Return ``base`` with the defaults of what is not estimated any more; where the times contradict a default, with the number it has.

        They do not if what is kept can make up for it.
        """
        found = np.where(dropped, self._start, base)
        if not dropped.any():
            return found
        now = self._cost(numbers)
        if self._cost(self.refine(np.where(kept, numbers, found), kept)) - now <= CONTRADICTION:
            return found
        for place in np.flatnonzero(dropped):
            back = numbers.copy()
            back[place] = self._start[place]
            if self._cost(back) - now > CONTRADICTION:
                found[place] = numbers[place]
        return found

    def _cost(self, numbers: Floats) -> float:
        return float(np.sum(_bent((self.log_times([numbers])[0] - self._measured) / self._errors) ** 2))

    def begin(self, numbers: Floats, jacobian: Floats, active: Flags) -> Floats:
        """Return where to begin: times as sums of effects in proportion, which is a linear regression with numbers of 0 or more."""
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
        """Return the minimum near these numbers, over the active ones."""
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

    def conclude(self, numbers: Floats, jacobian: Floats, active: Flags, moved: Flags) -> Estimate:
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
        return Estimate(numbers, errors, active, moved, effect, unit.T @ unit, freedom, ratio)

    def _information(self, jacobian: Floats) -> Floats:
        weighted = jacobian / self._errors[:, None]
        return np.asarray(weighted.T @ weighted)

    def _covariance(self, jacobian: Floats) -> Floats:
        count = jacobian.shape[1]
        return np.asarray(np.linalg.inv(self._information(jacobian) + np.eye(count) / PRIOR**2))


def _bent(residuals: Floats) -> Floats:
    """√ρ with the sign of the residual, so that its square is ρ."""
    return np.asarray(np.sign(residuals) * ROBUST * np.sqrt(2.0 * (np.sqrt(1.0 + (residuals / ROBUST) ** 2) - 1.0)))


def _slope(residuals: Floats) -> Floats:
    """Derivative of :func:`_bent`."""
    root = np.sqrt(1.0 + (residuals / ROBUST) ** 2)
    bent = np.abs(_bent(residuals))
    return np.where(bent > 1e-9, np.abs(residuals) / np.where(bent > 1e-9, bent * root, 1.0), 1.0)
