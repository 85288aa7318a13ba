"""Rate of a service against the number of clients: saturation and overload.

========  ====================================================  ======
symbol    meaning                                               unit
========  ====================================================  ======
x         concurrent clients, files, streams or processes       1
a, b      intercept and slope of x against x/rate               s/B
rate1     rate with one client                                  B/s
sigma     contention: the part of the work that is serial       1
kappa     coherency: the cost of coordination of each pair      1
========  ====================================================  ======
"""

from __future__ import annotations

import numpy as np

from venturi.model.families.power import positive_x
from venturi.model.families.transfer import log_box, saturating_terms
from venturi.model.family import Array, Family, Pairs, Span, Terms

__all__ = ["SCALING"]


def _overload_value(x: Array, p: Array) -> Array:
    curve: Array = p[0] * x / (1 + p[1] * (x - 1) + p[2] * x * (x - 1))
    return curve


def _overload_terms(x: Array, theta: Array) -> Terms:
    phi = x / (1 + theta[0] * (x - 1) + theta[1] * x * (x - 1))
    steep = -phi * phi * (x - 1)
    return Terms([phi], [(0, 0, steep / x), (1, 0, steep)])


def _overload_limits(_span: Span) -> Pairs:
    return [(0.0, 1e3), (0.0, 1e3)]


def _overload_box(span: Span) -> Pairs:
    return [(0.0, 1.0), (0.0, np.minimum(1.0, 2.0 / span.high))]


def _saturating_expand(theta: Array, c: Array, x_scale: Array, y_scale: Array) -> list[Array]:
    plateau = c[0] * y_scale
    return [np.exp(theta[0]) * x_scale / plateau, 1 / plateau]


SATURATING = Family(
    name="saturating", formula="x/(a + b·x)", parameters=("a", "b"),
    value=lambda x, p: x / (p[0] + p[1] * x), terms=saturating_terms, expand=_saturating_expand,
    limits=log_box(1e-6, 1e4), start_box=log_box(1e-2, 1e2), linear=1, coordinates=("a against b",), nonnegative=True,
    positive=("a", "b"), usable=positive_x, validity="x > 0", variables=("files", "streams", "window"),
    reason="Michaelis-Menten: each client adds less as the plateau 1/b is approached (the same curve as setup, whose "
    "x is a size)",
)  # fmt: skip

OVERLOAD = Family(
    name="overload", formula="rate1·x/(1 + sigma·(x-1) + kappa·x·(x-1))", parameters=("rate1", "sigma", "kappa"),
    value=_overload_value, terms=_overload_terms,
    expand=lambda theta, c, x_scale, y_scale: [c[0] * y_scale, theta[0], theta[1]],
    limits=_overload_limits, start_box=_overload_box, linear=1, coordinates=("sigma", "kappa"), nonnegative=True,
    positive=("rate1", "sigma", "kappa"), scales_x=False, usable=lambda x: bool((x >= 1).all()),
    validity="x ≥ 1, a count", variables=("files", "streams"),
    reason="universal scalability law (Gunther 2007): contention bends the curve, coherency turns it down",
)  # fmt: skip

SCALING = (SATURATING, OVERLOAD)
