"""Polynomials of degree one to three, which have no reason but are the reference for all other shapes."""

from __future__ import annotations

import numpy as np

from venturi.model.family import Array, Family, Terms

__all__ = ["CONSTANT", "POLYNOMIALS"]


def _polynomial(degree: int, name: str) -> Family:
    letters = tuple("abcd"[: degree + 1])
    powers = [letter + ("", "·x", "·x²", "·x³")[k] for k, letter in enumerate(letters)]

    def value(x: Array, p: Array) -> Array:
        total: Array = p[degree] * np.ones_like(x)
        for k in reversed(range(degree)):
            total = total * x + p[k]
        return total

    def terms(x: Array, _theta: Array) -> Terms:
        return Terms([x**k for k in range(degree + 1)], [])

    def expand(_theta: Array, c: Array, x_scale: Array, y_scale: Array) -> list[Array]:
        return [c[k] * y_scale / x_scale**k for k in range(degree + 1)]

    return Family(
        name=name, formula=" + ".join(powers), parameters=letters, value=value, terms=terms, expand=expand,
        limits=lambda span: [], start_box=lambda span: [], linear=degree + 1, coordinates=(),
        reason="empirical: a smooth curve over a short range, wrong outside it",
    )  # fmt: skip


CONSTANT = _polynomial(0, "constant")
"""Null model: the weighted mean."""

POLYNOMIALS = tuple(
    _polynomial(degree, name) for degree, name in ((1, "linear"), (2, "quadratic"), (3, "cubic"))
)  # fmt: skip
