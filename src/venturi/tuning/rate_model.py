r"""Rate against the number of connections, and its update by probes, in closed form.

.. math:: R(n) = \min(n r_1, C)

========  ===========================================  =====
symbol    meaning                                      unit
========  ===========================================  =====
n         data connections                             1
r1        rate of one connection alone                 B/s
C         capacity of path, disks and hosts            B/s
========  ===========================================  =====

This is the family ``window`` of :mod:`venturi.model`. Its logarithms have normal priors. A probe measures
:math:`\ln(n r_1)` or :math:`\ln C` with a normal error. For a given split of the probes (small n on the slope, large n
at the capacity), the posterior is the mean weighted by precision. The best split has the largest posterior density, with
the minimum in its likelihood. There are as many splits as probes plus one, so the search is exhaustive.

Near the capacity the real curve is softer than the minimum: sessions have pauses that other sessions fill. There, the
rate follows the family ``saturating``, R = C n/(n + h). For n ≫ h, ln R = ln C − h/n, so each doubling of n gains half of
the doubling before. :func:`saturating_gain` extrapolates with this rule.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["MODEL_ERROR", "RateModel", "RatePoint", "fit_rate_model", "saturating_gain"]

MODEL_ERROR = 0.04
"""Relative error of the model.

With an interval of ± 5 % at level 0.95, the error of a point is 4.7 %. The expected gain of another point at the
capacity is then 1.9 %, just below the limit of the stop rule.
"""

_NODES = 15


@dataclass(frozen=True, slots=True)
class RatePoint:
    """Measured rate: connections, B/s, and its relative standard error."""

    connections: int
    rate_bytes_per_s: float
    relative_error: float = 0.0


@dataclass(frozen=True, slots=True)
class RateModel:
    """Normal distributions of ln r1 and ln C, as a prior or a posterior: medians in B/s, deviations of the logarithm."""

    connection_bytes_per_s: float
    connection_error: float
    capacity_bytes_per_s: float
    capacity_error: float

    def rate(self, connections: float) -> float:
        """Return the predicted rate in B/s.

        Examples
        --------
        >>> model = RateModel(10.0, 0.1, 55.0, 0.1)
        >>> model.rate(4), model.rate(8)
        (40.0, 55.0)
        """
        return min(connections * self.connection_bytes_per_s, self.capacity_bytes_per_s)

    @property
    def knee(self) -> float:
        """Smallest number of connections with the rate of the capacity."""
        return self.capacity_bytes_per_s / self.connection_bytes_per_s

    def expected_gain(self, connections: int, best_bytes_per_s: float) -> float:
        """Return E[max(R(n) − best, 0)] / best, by Gauss-Hermite quadrature over both parameters."""
        nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES)
        weights = weights / weights.sum()
        slope = connections * self.connection_bytes_per_s * np.exp(self.connection_error * nodes)
        capacity = self.capacity_bytes_per_s * np.exp(self.capacity_error * nodes)
        gain = np.maximum(np.minimum(slope[:, None], capacity[None, :]) / best_bytes_per_s - 1.0, 0.0)
        return float(weights @ gain @ weights)


def fit_rate_model(prior: RateModel, points: Sequence[RatePoint]) -> RateModel:
    """Return the posterior of a prior after measured points.

    Points without a rate are ignored. The prior decides a parameter that no point measures.

    Examples
    --------
    >>> vague = RateModel(1.0, 9.0, 1.0, 9.0)
    >>> fitted = fit_rate_model(vague, [RatePoint(1, 10.0), RatePoint(2, 20.0), RatePoint(8, 50.0)])
    >>> round(fitted.connection_bytes_per_s, 2), round(fitted.capacity_bytes_per_s, 1)
    (10.0, 50.0)
    """
    usable = sorted((one for one in points if one.rate_bytes_per_s > 0), key=lambda one: one.connections)
    fits = [_fit_split(prior, usable, number) for number in range(len(usable) + 1)]
    return min(fits, key=lambda fit: fit[0])[1]


def saturating_gain(before: RatePoint, last: RatePoint, connections: float) -> float:
    """Return the relative gain from the last point to more connections, if each doubling gains half of the one before.

    With G = ln(R2/R1) between two points, ln R = c − h/n gives h = G / (1/n1 − 1/n2), and the gain
    exp(h (1/n2 − 1/n)) − 1. It is 0 if the rate did not rise, or if an earlier rate is unknown.

    Examples
    --------
    >>> import math
    >>> gain = saturating_gain(RatePoint(2, 1.0), RatePoint(4, math.exp(0.2)), 8)
    >>> round(math.log(1 + gain), 6)
    0.1
    """
    if not 0 < before.rate_bytes_per_s < last.rate_bytes_per_s or last.connections <= before.connections:
        return 0.0
    growth = math.log(last.rate_bytes_per_s / before.rate_bytes_per_s)
    scale = growth / (1 / before.connections - 1 / last.connections)
    return math.expm1(scale * (1 / last.connections - 1 / connections))


def _fit_split(prior: RateModel, points: Sequence[RatePoint], on_slope: int) -> tuple[float, RateModel]:
    slope = [(math.log(one.rate_bytes_per_s / one.connections), _weight(one)) for one in points[:on_slope]]
    capped = [(math.log(one.rate_bytes_per_s), _weight(one)) for one in points[on_slope:]]
    connection, connection_error = _posterior(prior.connection_bytes_per_s, prior.connection_error, slope)
    capacity, capacity_error = _posterior(prior.capacity_bytes_per_s, prior.capacity_error, capped)
    model = RateModel(math.exp(connection), connection_error, math.exp(capacity), capacity_error)
    cost = sum(
        _weight(one) * (math.log(one.rate_bytes_per_s) - math.log(model.rate(one.connections))) ** 2 for one in points
    )
    cost += ((connection - math.log(prior.connection_bytes_per_s)) / prior.connection_error) ** 2
    cost += ((capacity - math.log(prior.capacity_bytes_per_s)) / prior.capacity_error) ** 2
    return cost, model


def _weight(point: RatePoint) -> float:
    return 1.0 / (MODEL_ERROR**2 + point.relative_error**2)


def _posterior(median: float, error: float, measured: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return mean and deviation of a normal distribution after measured values with weights."""
    weight = error**-2 + sum(one for _, one in measured)
    total = math.log(median) * error**-2 + sum(value * one for value, one in measured)
    return total / weight, weight**-0.5
