"""Families from arbitrary functions, for the same fitter as the families of the table."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from venturi.errors import FitError
from venturi.model.family import Array, Family, Span, Terms

__all__ = ["family_of"]

DECADES = 0.7
"""Fraction of the starts that cover decades.

With this value, all 27 NIST sets are solved without given starts if their linear parameters are named, and 23 otherwise.
Starts in the decades from 1e-3 to 1 alone solve 22 and 15.
"""
TINY = 1e-40
"""Complex step: far below any rounding, far above underflow."""


def family_of(
    name: str,
    function: Callable[..., Array],
    parameters: Sequence[str],
    *,
    linear: Sequence[str] = (),
    starts: dict[str, tuple[float, float]] | None = None,
    limits: dict[str, tuple[float, float]] | None = None,
    nonnegative: bool = False,
    formula: str = "",
    reason: str = "user-defined",
) -> Family:
    """Return a family of the function ``function(x, *parameters)``.

    Parameters
    ----------
    name, formula, reason
        Texts for reports.
    function
        Analytic function that accepts complex parameters. It may use ``np.exp``, powers and fractions, but not ``abs``,
        ``min`` or comparisons. Its slopes are then computed exactly to rounding.
    parameters
        Names of the parameters, in the order of the arguments.
    linear
        Names of the linear parameters. They are solved for instead of searched and need no start. A hard problem with
        six parameters can become one with three.
    starts
        Box of the seeded starts of the nonlinear parameters, by name. A positive box over more than a decade is covered
        evenly in the logarithm. Without a box, 70 % of the starts cover the decades from 1e-3 to 1, extended to 0.1 / X
        and 10 X, with X the largest absolute x. The other starts lie between the smallest and the largest x, for
        parameters that are a position. ``fit(..., start=...)`` overrides all starts.
    limits
        Hard limits of the nonlinear parameters, by name.
    nonnegative
        Whether the linear parameters must not be negative.

    Raises
    ------
    FitError
        If a name in ``linear``, ``starts`` or ``limits`` is not among the parameters.

    Examples
    --------
    >>> import numpy as np
    >>> from venturi.model import Curve, fit
    >>> decay = family_of("decay", lambda x, a, b: a * np.exp(-b * x), ["a", "b"], linear=["a"])
    >>> x = np.linspace(0, 4, 9)
    >>> found = fit(Curve(x, 3 * np.exp(-0.5 * x)), decay)
    >>> {name: round(value, 9) for name, value in found.parameters.items()}
    {'a': 3.0, 'b': 0.5}
    """
    names = tuple(parameters)
    unknown = sorted({*linear, *(starts or {}), *(limits or {})} - set(names))
    if unknown:
        raise FitError(f"{name}: expected names among {', '.join(names)}, found {', '.join(unknown)}")
    amplitudes = [names.index(each) for each in names if each in linear]
    searched = [index for index in range(len(names)) if index not in amplitudes]
    split = _Split(function, len(names), amplitudes, searched)
    boxes = [(starts or {}).get(names[index]) for index in searched]
    edges = [(limits or {}).get(names[index], (-1e300, 1e300)) for index in searched]
    return Family(
        name=name, formula=formula or f"{name}(x, {', '.join(names)})", parameters=names,
        value=lambda x, p: function(x, *p), terms=split.terms, expand=split.expand,
        limits=lambda span: list(edges), start_box=lambda span: list(edges), linear=len(amplitudes),
        coordinates=tuple(names[index] for index in searched), nonnegative=nonnegative, scales_x=False, scales_y=False,
        rows=(), reason=reason, initial_positions=lambda unit, span: _positions(unit, span, boxes),
        contract=lambda start: [start[names[index]] for index in searched],
    )  # fmt: skip


def _positions(unit: Array, span: Span, boxes: Sequence[tuple[float, float] | None]) -> Array:
    """Return starts (m, count, lanes) from even points of the unit cube (m, count)."""
    starts = np.empty((*unit.shape, len(span.low)))
    largest = np.maximum(np.abs(span.low), np.abs(span.high))
    largest = np.where(largest > 0, largest, 1.0)
    for j, (column, box) in enumerate(zip(unit[:, :, None], boxes, strict=True)):
        if box is not None:
            starts[j] = _between(column, *box)
            continue
        decades = _between(column / DECADES, np.minimum(1e-3, 0.1 / largest), np.maximum(1.0, 10 * largest))
        starts[j] = np.where(
            column < DECADES, decades, span.low + (column - DECADES) / (1 - DECADES) * (span.high - span.low)
        )
    return starts


def _between(unit: Array, low: Array | float, high: Array | float) -> Array:
    """Return numbers from ``low`` to ``high``, evenly in the logarithm if they span more than a decade."""
    if np.all(np.asarray(low) > 0) and np.all(np.asarray(high) > 10 * np.asarray(low)):
        return np.asarray(low * (np.asarray(high) / low) ** unit)
    return np.asarray(low + unit * (np.asarray(high) - low))


class _Split:
    """Function as an offset plus amplitudes times basis functions, determined by calls with unit amplitudes."""

    def __init__(
        self, function: Callable[..., Array], count: int, amplitudes: list[int], searched: list[int]
    ) -> None:
        self._function, self._count, self._amplitudes, self._searched = function, count, amplitudes, searched

    def terms(self, x: Array, theta: Array) -> Terms:
        offset, phi = self._parts(x, theta)
        slopes = []
        for j in range(len(theta)):
            shifted = theta.astype(complex)
            step = TINY * np.where(theta[j] == 0, 1.0, np.abs(theta[j]))
            shifted[j] += 1j * step
            moved_offset, moved_phi = self._parts(x, shifted)
            slopes.append((j, -1, np.imag(moved_offset) / step))
            slopes += [(j, k, np.imag(moved) / step) for k, moved in enumerate(moved_phi)]
        return Terms(phi, slopes, offset)

    def expand(self, theta: Array, c: Array, _x_scale: Array, y_scale: Array) -> list[Array]:
        values: list[Array] = [theta[0] if len(theta) else c[0]] * self._count
        for k, index in enumerate(self._amplitudes):
            values[index] = c[k] * y_scale
        for j, index in enumerate(self._searched):
            values[index] = theta[j]
        return values

    def _parts(self, x: Array, theta: Array) -> tuple[Array, list[Array]]:
        offset = self._call(x, theta, None)
        return offset, [self._call(x, theta, index) - offset for index in self._amplitudes]

    def _call(self, x: Array, theta: Array, unit: int | None) -> Array:
        arguments: list[Array | float] = [0.0] * self._count
        for j, index in enumerate(self._searched):
            arguments[index] = theta[j]
        if unit is not None:
            arguments[unit] = 1.0
        return np.asarray(self._function(x, *arguments)) * np.ones(x.shape[-2:])
