"""What a model family is: a formula with a name, a shape for the fitter, and a reason.

A family is seen from two sides. To the reader it is ``value(x, parameters)`` in base units with named parameters. To
the fitter it is a sum of basis functions, ``y = offset(x, theta) + sum_k c_k phi_k(x, theta)``, in coordinates chosen
so that the search is easy (logarithms of rates, scaled x); the amplitudes ``c`` are solved for, not searched.
``expand`` leads from the second to the first.

Arrays here are *batched*: the last axis counts lanes, which are independent problems (a start of a curve).

========  ==================================================  ==================
symbol    meaning                                             shape
========  ==================================================  ==================
x         independent variable                                (points, lanes)
theta     search coordinates                                  (m, lanes)
c         linear amplitudes                                   (k, lanes)
p         named parameters in base units                      (P, lanes)
========  ==================================================  ==================
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["Array", "Box", "Family", "Pairs", "Span", "Terms"]

Array = npt.NDArray[Any]
"""Float arrays; complex ones while a derivative is taken by a complex step."""

Box = tuple[Array, Array]
"""Lower and upper limits, each of shape (m, lanes)."""


Pairs = list[tuple[Array | float, Array | float]]
"""A lower and an upper limit for each searched coordinate, each a number or an array with an entry a lane."""


class Terms(NamedTuple):
    """The basis functions of a family at some points, and their slopes in the search coordinates."""

    phi: list[Array]
    """Basis functions phi_k, each (points, lanes)."""
    slopes: list[tuple[int, int, Array]]
    """Triples (j, k, d phi_k / d theta_j); pairs that are absent are zero. k = -1 means the offset."""
    offset: Array | None = None
    """The part of the model that no amplitude multiplies."""


class Span(NamedTuple):
    """How the points of each curve lie, in scaled x; each entry has shape (lanes,) unless said otherwise."""

    low: Array
    high: Array
    gap: Array
    """The smallest distance between two different x."""
    quantiles: Array
    """x at evenly spaced ranks from the smallest to the largest, (ranks, lanes): where the points are dense."""

    @property
    def width(self) -> Array:
        """Distance from the first to the last x."""
        width: Array = np.maximum(self.high - self.low, 1e-300)
        return width


def _any_x(_x: Array) -> bool:
    return True


@dataclass(frozen=True, eq=False, repr=False)
class Family:
    """One trial function. A new one is one more of these in a table.

    Parameters
    ----------
    name
        Short name used in reports and to choose families.
    formula
        Text of the formula, in the names of `parameters`.
    parameters
        Names of all parameters, in the order of `expand`.
    value
        ``value(x, p)``: the function in base units. It must accept complex ``p`` (no ``abs``, comparisons on the real
        part only), because exact derivatives are taken by a complex step.
    terms
        ``terms(x, theta)``: basis functions and slopes in search coordinates, with scaled x.
    expand
        ``expand(theta, c, x_scale, y_scale)``: named parameters in base units, and in their canonical order.
    limits
        Hard limits of ``theta`` for points that lie as a `Span` says.
    start_box
        Where the seeded starts are drawn, inside `limits`.
    place
        ``place(unit, span)``: starts (m, count, lanes) from even points of the unit cube (m, count), where a box would
        waste them.
    linear
        How many amplitudes there are.
    coordinates
        What each of ``theta`` is called in a warning that it is at its limit, usually the parameter behind it.
    nonnegative
        Whether the amplitudes must not be negative.
    positive
        Names of parameters that are positive by their meaning; they bound the profile intervals.
    scales_x
        Whether x may be divided by its largest value. False where x has a natural unit (a count, a loss rate).
    scales_y
        Whether y may be divided by its largest value. False where the model has an offset in base units.
    decades_in_starts
        Whether starts are spread evenly over decades in those coordinates whose start box is positive and spans more
        than one.
    usable
        Whether the family is defined at these x; `validity` says the same in words.
    variables
        Kinds of x that it was made for (``size``, ``files``, ``streams``, ``window``, ``loss``, ``rtt``); ``any`` for
        the families without a reason.
    rows
        How many rows x may have: 1 for a curve, more for a surface; empty for any.
    reason
        Why throughput should look like this, with the source.
    contract
        ``contract(start)``: search coordinates of named starting values, where a family takes such.
    """

    name: str
    formula: str
    parameters: tuple[str, ...]
    value: Callable[[Array, Array], Array]
    terms: Callable[[Array, Array], Terms]
    expand: Callable[[Array, Array, Array, Array], list[Array]]
    limits: Callable[[Span], Pairs]
    start_box: Callable[[Span], Pairs]
    linear: int
    coordinates: tuple[str, ...]
    nonnegative: bool = False
    positive: tuple[str, ...] = ()
    scales_x: bool = True
    scales_y: bool = True
    decades_in_starts: bool = False
    usable: Callable[[Array], bool] = _any_x
    validity: str = "any x"
    variables: tuple[str, ...] = ("any",)
    rows: tuple[int, ...] = (1,)
    reason: str = ""
    place: Callable[[Array, Span], Array] | None = None
    contract: Callable[[dict[str, float]], list[float]] | None = None

    def __repr__(self) -> str:
        return f"<Family {self.name}: {self.formula}>"

    @property
    def searched(self) -> int:
        """How many coordinates ``theta`` has."""
        return len(self.coordinates)

    def jacobian(self, x: Array, p: Array) -> Array:
        """Return the slopes of `value` in the named parameters, exact to rounding.

        Parameters
        ----------
        x
            Points, (points, lanes) or (variables, points, lanes), in base units.
        p
            Parameters, (P, lanes), in base units.

        Returns
        -------
        Array
            (P, points, lanes). By a complex step: Im f(p + i h) / h loses nothing to cancellation, so h can be tiny.
        """
        steps = 1e-40 * np.where(p == 0, 1.0, np.abs(p))
        slopes = []
        for index in range(len(p)):
            shifted = p.astype(complex)
            shifted[index] += 1j * steps[index]
            slopes.append(np.imag(self.value(x, shifted)) / steps[index])
        return np.array(slopes)

    def box(self, of: Callable[[Span], Pairs], span: Span) -> Box:
        """Return `limits` or `start_box` as two arrays of shape (m, lanes)."""
        pairs = of(span)
        lanes = len(span.low)
        lower = np.empty((self.searched, lanes))
        upper = np.empty((self.searched, lanes))
        for index, (low, high) in enumerate(pairs):
            lower[index], upper[index] = low, high
        return lower, upper
