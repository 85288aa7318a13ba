"""Levenberg-Marquardt on the variable-projection functional, for many problems together.

The method is that of Golub and Pereyra (1973) with Kaufman's simplification (1975). The amplitudes are functions of the
searched coordinates, and the slope of the residual is the projected slope of the basis. One step then equals a
Gauss-Newton step in all parameters followed by a new linear solve, so the convergence near the minimum is not slower.

Every operation runs over all lanes. Converged lanes are removed from the arrays.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from venturi.model._projection import Projection, project
from venturi.model.family import Array, Box, Family

__all__ = ["DataPoints", "Descent", "descend", "residuals"]

STEP_TOLERANCE = 1e-11
"""Maximum change of the fitted curve by a final step, relative to the residual (and so to a standard error)."""
EPSILON = float(np.finfo(float).eps)
FIRST_DAMPING = 1e-3
RIDGE = 1e-13
"""Added to the unit diagonal of the normal matrix, above its rounding, so that it can always be factored."""
SMALLEST_DAMPING = 1e-15
LARGEST_DAMPING = 1e12
FREE_STEP = 0.1
COMPACT_BELOW = 0.7
"""Fraction of running lanes below which the arrays are repacked."""


class DataPoints(NamedTuple):
    """Data of all lanes: scaled x, y multiplied by ``weight``. A weight of zero marks padding or a held-out point."""

    x: Array
    """(points, lanes), or (variables, points, lanes) for a surface."""
    y: Array
    """(points, lanes), already multiplied by the weight."""
    weight: Array
    """(points, lanes): one over sigma."""

    def take(self, lanes: Array) -> DataPoints:
        """Return the chosen lanes, in that order."""
        return DataPoints(self.x[..., lanes], self.y[:, lanes], self.weight[:, lanes])


class Descent(NamedTuple):
    """Final state of each lane."""

    theta: Array
    amplitudes: Array
    sse: Array
    converged: Array


def residuals(family: Family, points: DataPoints, theta: Array) -> tuple[Projection, list[Array]]:
    """Return the projection at ``theta`` and the projected slopes of the weighted model, one for each coordinate."""
    x, y, weight = points
    terms = family.terms(x, theta)
    data = y if terms.offset is None else y - weight * terms.offset
    projection = project([weight * phi for phi in terms.phi], data, family.nonnegative)
    slopes: list[Array | None] = [None] * len(theta)
    for j, k, slope in terms.slopes:
        part = slope if k < 0 else slope * projection.amplitudes[k]
        held = slopes[j]
        slopes[j] = part if held is None else held + part
    projected = []
    for total in slopes:
        vector: Array = np.zeros_like(y) if total is None else weight * total
        for column in projection.basis:
            vector = vector - column * np.einsum("nb,nb->b", column, vector)
        projected.append(vector)
    return projection, projected


def descend(
    family: Family, points: DataPoints, theta: Array, limits: Box, *, steps: int, tolerance: float = STEP_TOLERANCE
) -> Descent:
    """Run every lane to its nearest minimum inside the limits, for at most ``steps`` iterations.

    Parameters
    ----------
    family, points
        Model and data.
    theta
        Starts, (m, lanes).
    limits
        Lower and upper limits, (m, lanes) each. A coordinate with equal limits is fixed.
    steps
        Maximum number of iterations.
    tolerance
        See `STEP_TOLERANCE`.
    """
    with np.errstate(all="ignore"):
        return _descend(family, points, np.clip(theta, *limits), limits, steps, tolerance)


def _descend(family: Family, points: DataPoints, theta: Array, limits: Box, steps: int, tolerance: float) -> Descent:
    lower, upper = limits
    state, slopes = residuals(family, points, theta)
    lanes = np.arange(theta.shape[1])
    result = Descent(theta.copy(), state.amplitudes.copy(), state.sse.copy(), np.zeros(len(lanes), dtype=bool))
    if len(theta) == 0:
        return result._replace(converged=np.isfinite(state.sse))
    size = np.einsum("nb,nb->b", points.y, points.y)
    damping = np.full(len(lanes), FIRST_DAMPING)
    growth = np.full(len(lanes), 2.0)
    running = np.isfinite(state.sse)
    for _ in range(steps):
        if running.mean() < COMPACT_BELOW:
            kept = np.flatnonzero(running)
            _store(result, lanes, theta, state)
            if len(kept) == 0:
                return result
            lanes, points, theta, lower, upper = (
                lanes[kept], points.take(kept), theta[:, kept], lower[:, kept], upper[:, kept])  # fmt: skip
            state = Projection(state.amplitudes[:, kept], state.residual[:, kept], [b[:, kept] for b in state.basis],
                               state.sse[kept])  # fmt: skip
            slopes = [slope[:, kept] for slope in slopes]
            size, damping, growth, running = size[kept], damping[kept], growth[kept], running[kept]
        step, effect, gain = _step(slopes, state.residual, damping, theta, lower, upper)
        trial_theta = np.clip(theta + step, lower, upper)
        trial, trial_slopes = residuals(family, points, trial_theta)
        # Near the minimum, two sums of squares differ by less than their rounding. Without this allowance, the search
        # would stop at half the digits.
        noise = 8 * EPSILON * np.sqrt(size * state.sse) + 4 * EPSILON**2 * size
        accepted = running & (trial.sse <= state.sse + noise)
        final = effect <= tolerance**2 * state.sse + (2 * EPSILON) ** 2 * size
        # A heavily damped step is short everywhere; only a nearly undamped short step indicates a minimum.
        small = damping <= FREE_STEP
        drop = np.where(gain > 0, (state.sse - trial.sse) / gain, 1.0)
        theta, state, slopes = _choose(accepted, (theta, state, slopes), (trial_theta, trial, trial_slopes))
        shrink = np.maximum(1 / 10, 1 - (2 * np.clip(drop, 0.0, 1.0) - 1) ** 3)
        damping = np.clip(np.where(accepted, damping * shrink, damping * growth), SMALLEST_DAMPING, LARGEST_DAMPING)
        growth = np.where(accepted, 2.0, np.minimum(growth * 2, 1e6))
        done = running & final & small
        result.converged[lanes[done]] = True
        running = running & ~done & (damping < LARGEST_DAMPING)
    _store(result, lanes, theta, state)
    return result


def _store(result: Descent, lanes: Array, theta: Array, state: Projection) -> None:
    result.theta[:, lanes] = theta
    result.amplitudes[:, lanes] = state.amplitudes
    result.sse[lanes] = state.sse


def _choose(
    accepted: Array, old: tuple[Array, Projection, list[Array]], new: tuple[Array, Projection, list[Array]]
) -> tuple[Array, Projection, list[Array]]:
    """Return the new state of accepted lanes and the old state of the others. Copies only if a lane was not accepted."""
    if accepted.all():
        return new
    theta, state, slopes = old
    trial_theta, trial, trial_slopes = new
    return (
        np.where(accepted, trial_theta, theta),
        Projection(
            np.where(accepted, trial.amplitudes, state.amplitudes),
            np.where(accepted, trial.residual, state.residual),
            [np.where(accepted, after, before) for after, before in zip(trial.basis, state.basis, strict=True)],
            np.where(accepted, trial.sse, state.sse),
        ),
        [np.where(accepted, after, before) for after, before in zip(trial_slopes, slopes, strict=True)],
    )


def _step(slopes: list[Array], residual: Array, damping: Array, theta: Array, lower: Array, upper: Array
          ) -> tuple[Array, Array, Array]:  # fmt: skip
    """Return the damped step, the squared change of the curve, and the predicted decrease of SSE."""
    count = len(slopes)
    norms = np.array([np.sqrt(np.einsum("nb,nb->b", slope, slope)) for slope in slopes])
    gradient = np.array([np.einsum("nb,nb->b", slope, residual) for slope in slopes])
    held_low, held_high = (theta <= lower) & (gradient < 0), (theta >= upper) & (gradient > 0)
    blocked: Array = np.asarray(held_low | held_high | ~(norms > 0))
    norms = np.where(blocked, 1.0, norms)
    gradient = np.where(blocked, 0.0, gradient / norms)
    if count == 1:
        step = gradient / (1 + damping)
        effect = (step**2)[0]
        gain = (step * gradient)[0] * (2 - 1 / (1 + damping))
    else:
        normal = np.empty((theta.shape[1], count, count))
        for i in range(count):
            for j in range(i):
                held = np.einsum("nb,nb->b", slopes[i], slopes[j]) / (norms[i] * norms[j])
                normal[:, i, j] = normal[:, j, i] = np.where(blocked[i] | blocked[j], 0.0, held)
            normal[:, i, i] = 1.0 + damping + RIDGE
        step = _solve(normal, gradient)
        effect = np.maximum(np.einsum("ib,ib->b", step, gradient) - damping * np.einsum("ib,ib->b", step, step), 0.0)
        gain = np.einsum("ib,ib->b", step, gradient) + damping * np.einsum("ib,ib->b", step, step)
    return step / norms, effect, gain


def _solve(normal: Array, gradient: Array) -> Array:
    if len(gradient) == 2:
        a, b, c = normal[:, 0, 0], normal[:, 0, 1], normal[:, 1, 1]
        determinant = np.maximum(a * c - b * b, EPSILON)
        return np.array([(c * gradient[0] - b * gradient[1]) / determinant,
                         (a * gradient[1] - b * gradient[0]) / determinant])  # fmt: skip
    usable = np.asarray(np.isfinite(normal).all(axis=(1, 2)) & np.isfinite(gradient).all(axis=0))
    normal = np.where(usable[:, None, None], normal, np.eye(len(gradient)))
    right = np.where(usable, gradient, 0.0)
    return np.linalg.solve(normal, right.T[:, :, None])[:, :, 0].T
