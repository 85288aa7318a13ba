"""Power laws a·x^b and a·x^b + c."""

from __future__ import annotations

import numpy as np

from venturi.model.family import Array, Family, Terms

__all__ = ["POWERS", "positive_x"]

STEEPEST = 12.0
"""Largest searched |b|. Over one decade of x, the curve then changes by 10^12, more than any rate."""


def positive_x(x: Array) -> bool:
    """Return whether every x is positive."""
    return bool((x > 0).all())


def _power(with_constant: bool) -> Family:
    def value(x: Array, p: Array) -> Array:
        curve: Array = p[0] * np.exp(p[1] * np.log(x))
        if with_constant:
            curve = curve + p[2]
        return curve

    def terms(x: Array, theta: Array) -> Terms:
        logarithm = np.log(x)
        power = np.exp(theta[0] * logarithm)
        phi = [power, np.ones_like(x)] if with_constant else [power]
        return Terms(phi, [(0, 0, power * logarithm)])

    def expand(theta: Array, c: Array, x_scale: Array, y_scale: Array) -> list[Array]:
        scaled = [c[0] * y_scale * x_scale ** -theta[0], theta[0]]
        return [*scaled, c[1] * y_scale] if with_constant else scaled

    return Family(
        name="power-constant" if with_constant else "power",
        formula="a·x^b + c" if with_constant else "a·x^b",
        parameters=("a", "b", "c") if with_constant else ("a", "b"),
        value=value, terms=terms, expand=expand,
        limits=lambda span: [(-STEEPEST, STEEPEST)], start_box=lambda span: [(-4.0, 4.0)],
        linear=2 if with_constant else 1, coordinates=("b",), usable=positive_x, validity="x > 0",
        reason="empirical: a straight line on double logarithmic axes",
    )  # fmt: skip


POWERS = (_power(with_constant=False), _power(with_constant=True))
