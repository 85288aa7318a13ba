"""Exponentials: one term, one term with a constant, and the two-term forms (5) and (6) of document 000.

In (5), a·e^(-bx) + c·e^(-dx), the two terms can be exchanged, so b >= d is imposed (000-E12). In (6),
a·e^(-bx) - c·e^(-dx), the terms differ by their sign, so no order is needed; f(0) = a - c may be negative. Both need
positive parameters. For a plateau, a rate reaches its lower limit, and the fit has a warning.
"""

from __future__ import annotations

import numpy as np

from venturi.model.family import Array, Family, Pairs, Span, Terms

__all__ = ["EXPONENTIALS"]

SLOWEST = 1e-6
"""Smallest b·(x_max - x_min) of the two-term forms. A curve that changes by less than a millionth is a constant."""
FASTEST = 30.0
"""Largest b·(smallest step of x). Below e^-30, a term has no influence on the next point."""


def _rate_limits(span: Span) -> tuple[Array, Array]:
    reach = np.where(span.low > 0, np.maximum(span.low, span.gap), span.gap)
    return SLOWEST / span.width, FASTEST / reach


def _signed_limits(span: Span) -> Pairs:
    return [(-FASTEST / span.width, _rate_limits(span)[1])]


def _signed_box(span: Span) -> Pairs:
    return [(-4.0 / span.width, 12.0 / span.width)]


def _pair_limits(span: Span) -> Pairs:
    low, high = _rate_limits(span)
    return [(np.log(low), np.log(high))] * 2


def _pair_box(span: Span) -> Pairs:
    low, high = np.log(0.03 / span.width), np.log(0.3 * _rate_limits(span)[1])
    return [(low, high)] * 2


def _single(with_constant: bool) -> Family:
    def value(x: Array, p: Array) -> Array:
        curve: Array = p[0] * np.exp(-p[1] * x)
        if with_constant:
            curve = curve + p[2]
        return curve

    def terms(x: Array, theta: Array) -> Terms:
        decay = np.exp(-theta[0] * x)
        phi = [decay, np.ones_like(x)] if with_constant else [decay]
        return Terms(phi, [(0, 0, -x * decay)])

    def expand(theta: Array, c: Array, x_scale: Array, y_scale: Array) -> list[Array]:
        scaled = [c[0] * y_scale, theta[0] / x_scale]
        return [*scaled, c[1] * y_scale] if with_constant else scaled

    return Family(
        name="exponential-constant" if with_constant else "exponential",
        formula="a·e^(-b·x) + c" if with_constant else "a·e^(-b·x)",
        parameters=("a", "b", "c") if with_constant else ("a", "b"),
        value=value, terms=terms, expand=expand, limits=_signed_limits, start_box=_signed_box,
        linear=2 if with_constant else 1, coordinates=("b",),
        reason="empirical: a change proportional to the remaining difference" + (", towards a plateau c" if with_constant else ""),
    )  # fmt: skip


def _pair(sign: int) -> Family:
    def value(x: Array, p: Array) -> Array:
        curve: Array = p[0] * np.exp(-p[1] * x) + sign * p[2] * np.exp(-p[3] * x)
        return curve

    def terms(x: Array, theta: Array) -> Terms:
        first, second = np.exp(theta)
        left, right = np.exp(-first * x), sign * np.exp(-second * x)
        return Terms([left, right], [(0, 0, -first * x * left), (1, 1, -second * x * right)])

    def expand(theta: Array, c: Array, x_scale: Array, y_scale: Array) -> list[Array]:
        amplitudes, rates = c * y_scale, np.exp(theta) / x_scale
        if sign > 0:
            order = np.argsort(-rates, axis=0, kind="stable")
            amplitudes = np.take_along_axis(amplitudes, order, axis=0)
            rates = np.take_along_axis(rates, order, axis=0)
        return [amplitudes[0], rates[0], amplitudes[1], rates[1]]

    return Family(
        name="exponential-sum" if sign > 0 else "exponential-difference",
        formula="a·e^(-b·x) + c·e^(-d·x), b ≥ d" if sign > 0 else "a·e^(-b·x) - c·e^(-d·x)",
        parameters=("a", "b", "c", "d"), value=value, terms=terms, expand=expand,
        limits=_pair_limits, start_box=_pair_box, linear=2, coordinates=("b or d",) * 2 if sign > 0 else ("b", "d"), nonnegative=True, positive=("a", "b", "c", "d"),
        reason="the best of document 000: equation (5), a fast and a slow fall" if sign > 0
        else "equation (6) of document 000: a rise towards a plateau that falls slowly",
    )  # fmt: skip


EXPONENTIALS = (_single(with_constant=False), _single(with_constant=True), _pair(+1), _pair(-1))
