"""Model families: a formula with a name, a form for the fitter, and a reason.

A family has two forms. The public form is ``value(x, parameters)`` in base units with named parameters. The fitter uses
a sum of basis functions, ``y = offset(x, theta) + sum_k c_k phi_k(x, theta)``, in coordinates that make the search easy
(logarithms of rates, scaled x). The amplitudes ``c`` are solved for, not searched. ``expand`` converts the second form
to the first.

Arrays are *batched*: the last axis counts lanes. A lane is an independent problem, such as one start of a curve.

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
"""Float array; complex during a derivative by a complex step."""

Box = tuple[Array, Array]
"""Lower and upper limits, each of shape (m, lanes)."""


Pairs = list[tuple[Array | float, Array | float]]
"""Lower and upper limit of each searched coordinate, as numbers or as arrays with one entry per lane."""


class Terms(NamedTuple):
    """Basis functions of a family at some points, and their slopes in the search coordinates."""

    phi: list[Array]
    """Basis functions phi_k, each (points, lanes)."""
    slopes: list[tuple[int, int, Array]]
    """Triples (j, k, d phi_k / d theta_j). Absent pairs are zero. k = -1 means the offset."""
    offset: Array | None = None
    """Part of the model without an amplitude."""


class Span(NamedTuple):
    """Distribution of the points of each curve, in scaled x. Entries have shape (lanes,), except ``quantiles``."""

    low: Array
    high: Array
    gap: Array
    """Smallest distance between two different x."""
    quantiles: Array
    """x at evenly spaced ranks from the smallest to the largest, (ranks, lanes), which shows where points are dense."""

    @property
    def width(self) -> Array:
        """Distance from the first to the last x."""
        width: Array = np.maximum(self.high - self.low, 1e-300)
        return width


def _any_x(_x: Array) -> bool:
    return True


@dataclass(frozen=True, eq=False, repr=False)
class Family:
    """Trial function. A new family is a new entry in a table.

    Parameters
    ----------
    name
        Short name for reports and for the choice of families.
    formula
        Formula as text, with the names of `parameters`.
    parameters
        Names of all parameters, in the order of `expand`.
    value
        ``value(x, p)``: the function in base units. It must accept complex ``p`` (no ``abs``, comparisons on the real
        part only), because a complex step gives the exact derivatives.
    terms
        ``terms(x, theta)``: basis functions and slopes in search coordinates, with scaled x.
    expand
        ``expand(theta, c, x_scale, y_scale)``: named parameters in base units, and in their canonical order.
    limits
        Hard limits of ``theta`` for points with a given `Span`.
    start_box
        Box of the seeded starts, inside `limits`.
    initial_positions
        ``initial_positions(unit, span)``: starts (m, count, lanes) from even points of the unit cube (m, count), for
        families that would waste most starts in a box.
    linear
        Number of amplitudes.
    coordinates
        Name of each element of ``theta`` in a warning about its limit, usually the corresponding parameter.
    nonnegative
        Whether the amplitudes must not be negative.
    positive
        Names of parameters that are positive by their meaning, which bounds the profile intervals.
    scales_x
        Whether x can be divided by its largest value. False if x has a natural unit (a count, a loss rate).
    scales_y
        Whether y can be divided by its largest value. False if the model has an offset in base units.
    usable
        Whether the family is defined at these x. `validity` is the condition as text.
    variables
        Kinds of x of the family (``size``, ``files``, ``streams``, ``window``, ``loss``, ``rtt``); ``any`` for families
        without a reason.
    rows
        Allowed numbers of rows of x: 1 for a curve, more for a surface; empty for any number.
    reason
        Reason for this shape of throughput, with its source.
    contract
        ``contract(start)``: search coordinates of named starting values, for families that accept them.
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
    usable: Callable[[Array], bool] = _any_x
    validity: str = "any x"
    variables: tuple[str, ...] = ("any",)
    rows: tuple[int, ...] = (1,)
    reason: str = ""
    initial_positions: Callable[[Array, Span], Array] | None = None
    contract: Callable[[dict[str, float]], list[float]] | None = None

    def __repr__(self) -> str:
        return f"<Family {self.name}: {self.formula}>"

    @property
    def searched(self) -> int:
        """Number of coordinates in ``theta``."""
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
            (P, points, lanes). The complex step Im f(p + i h) / h has no cancellation, so h can be tiny.
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
