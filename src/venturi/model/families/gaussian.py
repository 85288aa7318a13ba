"""Gaussians with one and two terms, in the form a·e^(-((x-b)/c)²) of curve-fitting toolboxes.

Amplitudes are positive. Otherwise, two terms of opposite sign at almost the same position would grow without bound and
imitate the derivatives of one term, which does not describe a rate.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from venturi.model.family import Array, Family, Pairs, Span, Terms

__all__ = ["GAUSSIANS"]


def _gaussian(count: int) -> Family:
    names = tuple(f"{letter}{i + 1}" if count > 1 else letter for i in range(count) for letter in "abc")
    bumps = [f"{a}·e^(-((x-{b})/{c})²)" for a, b, c in zip(names[::3], names[1::3], names[2::3], strict=True)]

    def value(x: Array, p: Array) -> Array:
        total: Array = p[0] * np.exp(-(((x - p[1]) / p[2]) ** 2))
        for i in range(1, count):
            total = total + p[3 * i] * np.exp(-(((x - p[3 * i + 1]) / p[3 * i + 2]) ** 2))
        return total

    def terms(x: Array, theta: Array) -> Terms:
        phi, slopes = [], []
        for i in range(count):
            width = np.exp(theta[2 * i + 1])
            z = (x - theta[2 * i]) / width
            bump = np.exp(-z * z)
            phi.append(bump)
            slopes += [(2 * i, i, 2 * z / width * bump), (2 * i + 1, i, 2 * z * z * bump)]
        return Terms(phi, slopes)

    def expand(theta: Array, c: Array, x_scale: Array, y_scale: Array) -> list[Array]:
        centres = theta[::2] * x_scale
        order = np.argsort(centres, axis=0, kind="stable")
        heights = np.take_along_axis(c * y_scale, order, axis=0)
        widths = np.take_along_axis(np.exp(theta[1::2]) * x_scale, order, axis=0)
        centres = np.take_along_axis(centres, order, axis=0)
        return [column for i in range(count) for column in (heights[i], centres[i], widths[i])]

    return Family(
        name="gaussian" if count == 1 else "gaussian-2", formula=" + ".join(bumps), parameters=names,
        value=value, terms=terms, expand=expand, limits=_limits(count), start_box=_start_box(count),
        initial_positions=_initial_positions if count == 2 else None,
        linear=count, coordinates=("b", "c") if count == 1 else ("a centre", "a width") * count, nonnegative=True, positive=tuple(name for name in names if name[0] in "ac"),
        reason="empirical: one peak, or the flank of a peak" if count == 1 else "empirical: two peaks, in order of b",
    )  # fmt: skip


def _limits(count: int) -> Callable[[Span], Pairs]:
    def limits(span: Span) -> Pairs:
        # With a centre far outside the range and a much larger width, only a flank remains, and the parameters cannot be
        # separated. A width below half a step affects one point only.
        centre = (span.low - 2 * span.width, span.high + 2 * span.width)
        return [centre, (np.log(0.5 * span.gap), np.log(20 * span.width))] * count

    return limits


def _initial_positions(unit: Array, span: Span) -> Array:
    """Return starts of two terms: centres at the points in half of them, and evenly over x in the other half.

    Sizes often form a geometric series, and evenly spread centres would hardly ever match the small ones. However, a
    flank of a bump outside the range can also be a good fit.
    """
    unit = unit.copy()
    unit[::2] = np.sort(unit[::2], axis=0)
    even = np.empty((*unit.shape, len(span.low)))
    for j, (low, high) in enumerate(_start_box(2)(span)):
        even[j] = low + unit[j][:, None] * (high - low)
    ranks = unit[::2] * (len(span.quantiles) - 1)
    below = np.minimum(np.floor(ranks).astype(int), len(span.quantiles) - 2)
    step = span.quantiles[below + 1] - span.quantiles[below]
    theta = np.empty_like(even)
    theta[::2] = span.quantiles[below] + (ranks - below)[..., None] * step
    narrow = np.log(np.maximum(0.7 * step, span.gap))
    theta[1::2] = narrow + unit[1::2][..., None] * (np.log(2 * span.width) - narrow)
    return np.where((np.arange(unit.shape[1]) % 2 == 0)[:, None], theta, even)


def _start_box(count: int) -> Callable[[Span], Pairs]:
    def start_box(span: Span) -> Pairs:
        centre = (span.low - 0.5 * span.width, span.high + 0.5 * span.width)
        return [centre, (np.log(span.gap), np.log(2 * span.width))] * count

    return start_box


GAUSSIANS = (_gaussian(1), _gaussian(2))
