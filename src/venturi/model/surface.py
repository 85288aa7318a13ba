"""Rate as one function of size and files (and streams), which document 000 proposed but did not fit.

The transfer of a file of s bytes among n files, each over k streams, takes a fixed time, its part of a common
bottleneck, and in some families the time of a separate stage. Its rate is s divided by the sum. ``Curve.x`` has one row
for each variable, in the order ``size, files[, streams]``.

========  ==============================================  ======
symbol    meaning                                         unit
========  ==============================================  ======
s         size of one file                                B
n         files in parallel                               1
k         streams of each file                            1
t0        fixed time of a transfer                        s
t1        fixed time that each parallel file adds         s
B         rate of the common bottleneck                   B/s
r         rate of the stage that each file has alone      B/s
w         rate of one stream, W/RTT                       B/s
gamma     1: equal parts; more: overload; less: the       1
          bottleneck gains from parallel files
========  ==============================================  ======
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from venturi.model.families.polynomial import CONSTANT
from venturi.model.family import Array, Family, Span, Terms

__all__ = ["NULL_SURFACES", "SURFACES", "SURFACES_WITH_STREAMS"]

FIXED_RANGE = (1e-9, 1e3)
"""Searched range of the fixed cost, in multiples of the largest file.

A lower cost is negligible; a higher one hides the other terms.
"""


def _positive(x: Array) -> bool:
    return bool((x > 0).all())


def _fixed(span: Span) -> tuple[Array, Array]:
    return np.log(FIXED_RANGE[0] * span.high), np.log(FIXED_RANGE[1] * span.high)


def _fixed_start(span: Span) -> tuple[Array, Array]:
    return np.log(1e-2 * span.low), np.log(1e1 * span.high)


def _shared_terms(x: Array, theta: Array) -> Terms:
    fixed, stream_cost = np.exp(theta[0]), np.exp(theta[1] * np.log(x[1]))
    phi = x[0] / (fixed + stream_cost * x[0])
    slope = -phi * phi / x[0]
    return Terms([phi], [(0, 0, slope * fixed), (1, 0, slope * stream_cost * x[0] * np.log(x[1]))])


def _two_costs(first: Callable[[Array], Array], second: Callable[[Array], Array]) -> Callable[[Array, Array], Terms]:
    """Return terms of B·s/(e^theta0·first(x) + e^theta1·second(x) + n·s)."""

    def terms(x: Array, theta: Array) -> Terms:
        one, two = np.exp(theta[0]) * first(x), np.exp(theta[1]) * second(x)
        phi = x[0] / (one + two + x[1] * x[0])
        slope = -phi * phi / x[0]
        return Terms([phi], [(0, 0, slope * one), (1, 0, slope * two)])

    return terms


def _ones(x: Array) -> Array:
    return np.ones_like(x[0])


def _two_cost_expand(rates: bool) -> Callable[[Array, Array, Array, Array], list[Array]]:
    def expand(theta: Array, c: Array, _x_scale: Array, y_scale: Array) -> list[Array]:
        bottleneck = c[0] * y_scale
        second = bottleneck / np.exp(theta[1]) if rates else np.exp(theta[1]) / bottleneck
        return [bottleneck, np.exp(theta[0]) / bottleneck, second]

    return expand


def _power_terms(x: Array, theta: Array) -> Terms:
    logs = np.log(x)
    total = sum(theta[j] * logs[j] for j in range(1, len(theta))) + theta[0] * logs[0]
    phi = np.exp(total)
    return Terms([phi], [(j, 0, phi * logs[j]) for j in range(len(theta))])


def _power_surface(variables: int) -> Family:
    names = ("alpha", "beta", "delta")[:variables]
    symbols = ("s", "n", "k")[:variables]

    def value(x: Array, p: Array) -> Array:
        total = p[1] * np.log(x[0])
        for j in range(1, variables):
            total = total + p[1 + j] * np.log(x[j])
        curve: Array = p[0] * np.exp(total)
        return curve

    return Family(
        name="surface-power", formula="a·" + "·".join(f"{s}^{e}" for s, e in zip(symbols, names, strict=True)),
        parameters=("a", *names), value=value, terms=_power_terms,
        expand=lambda theta, c, x_scale, y_scale: [c[0] * y_scale, *theta],
        limits=lambda span: [(-6.0, 6.0)] * variables, start_box=lambda span: [(-2.0, 2.0)] * variables, linear=1,
        coordinates=names, scales_x=False, usable=_positive, validity="all variables > 0", variables=("surface",), rows=(variables,),
        reason="null: no interaction, each variable acts on its own",
    )  # fmt: skip


def _null(variables: int) -> Family:
    return Family(
        name="surface-constant", formula="a", parameters=("a",),
        value=lambda x, p: p[0] * np.ones_like(x[0]), terms=lambda x, theta: Terms([np.ones_like(x[0])], []),
        expand=CONSTANT.expand, limits=CONSTANT.limits, start_box=CONSTANT.start_box, linear=1, coordinates=(),
        scales_x=False, variables=("surface",), rows=(variables,), reason=f"null: none of the {variables} variables matters",
    )  # fmt: skip


SHARED = Family(
    name="surface-shared", formula="s/(t0 + n^gamma·s/B)", parameters=("B", "t0", "gamma"),
    value=lambda x, p: x[0] / (p[1] + np.exp(p[2] * np.log(x[1])) * x[0] / p[0]), terms=_shared_terms,
    expand=lambda theta, c, x_scale, y_scale: [c[0] * y_scale, np.exp(theta[0]) / (c[0] * y_scale), theta[1]],
    limits=lambda span: [_fixed(span), (-3.0, 5.0)], start_box=lambda span: [_fixed_start(span), (0.0, 2.0)],
    linear=1, coordinates=("t0·B", "gamma"), nonnegative=True, positive=("B", "t0"), scales_x=False, usable=_positive,
    validity="size > 0, files ≥ 1", variables=("surface",), rows=(2, 3),
    reason="a fixed time, then a bottleneck of rate B that n files share efficiently (gamma < 1) or inefficiently (gamma > 1)",
)  # fmt: skip

LOGINS = Family(
    name="surface-logins", formula="s/(t0 + t1·n + n·s/B)", parameters=("B", "t0", "t1"),
    value=lambda x, p: x[0] / (p[1] + p[2] * x[1] + x[1] * x[0] / p[0]),
    terms=_two_costs(_ones, lambda x: x[1]), expand=_two_cost_expand(rates=False),
    limits=lambda span: [_fixed(span)] * 2, start_box=lambda span: [_fixed_start(span)] * 2, linear=1,
    coordinates=("t0·B", "t1·B"), nonnegative=True, positive=("B", "t0", "t1"), scales_x=False, usable=_positive,
    validity="size > 0, files ≥ 1", variables=("surface",), rows=(2, 3),
    reason="logins and file creations queue: each parallel file adds t1 to every transfer before bytes flow",
)  # fmt: skip

STAGES = Family(
    name="surface-stages", formula="s/(t0 + s/r + n·s/B)", parameters=("B", "t0", "r"),
    value=lambda x, p: x[0] / (p[1] + x[0] / p[2] + x[1] * x[0] / p[0]),
    terms=_two_costs(_ones, lambda x: x[0]), expand=_two_cost_expand(rates=True),
    limits=lambda span: [_fixed(span), (np.log(1e-6), np.log(1e6))],
    start_box=lambda span: [_fixed_start(span), (np.log(1e-2), np.log(1e2))], linear=1, coordinates=("t0·B", "B/r"),
    nonnegative=True, positive=("B", "t0", "r"), scales_x=False, usable=_positive, validity="size > 0, files ≥ 1",
    variables=("surface",), rows=(2, 3),
    reason="each file passes its own stage (checksum, one core, one stream) and then a shared stage",
)  # fmt: skip

STREAMS = Family(
    name="surface-streams", formula="s/(t0 + s/(w·k) + n·s/B)", parameters=("B", "t0", "w"),
    value=lambda x, p: x[0] / (p[1] + x[0] / (p[2] * x[2]) + x[1] * x[0] / p[0]),
    terms=_two_costs(_ones, lambda x: x[0] / x[2]), expand=_two_cost_expand(rates=True),
    limits=lambda span: [_fixed(span), (np.log(1e-6), np.log(1e6))],
    start_box=lambda span: [_fixed_start(span), (np.log(1e-2), np.log(1e2))], linear=1, coordinates=("t0·B", "B/w"),
    nonnegative=True, positive=("B", "t0", "w"), scales_x=False, usable=_positive,
    validity="size > 0, files ≥ 1, streams ≥ 1", variables=("surface",), rows=(3,),
    reason="k streams carry k·W/RTT for each file, and all files share the bottleneck",
)  # fmt: skip

NULL_SURFACES = (_null(2), _power_surface(2))
"""Null models for surfaces with a reason: a constant, and a product of powers."""

SURFACES = (SHARED, LOGINS, STAGES, *NULL_SURFACES)
"""Surfaces for ``x = [size, files]``."""

SURFACES_WITH_STREAMS = (STREAMS, SHARED, LOGINS, STAGES, _null(3), _power_surface(3))
"""Surfaces for ``x = [size, files, streams]``. Only the first and the last use the third row."""
