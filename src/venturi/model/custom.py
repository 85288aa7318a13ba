"""Any function as a family, so that it is fitted by the same machinery as the table."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from venturi.errors import FitError
from venturi.model.family import Array, Family, Terms

__all__ = ["family_of"]

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
    reason: str = "given by the caller",
) -> Family:
    """Return a family made from ``function(x, *parameters)``.

    Parameters
    ----------
    name, formula, reason
        For reports.
    function
        Must be analytic and accept complex parameters: ``np.exp``, powers and fractions are, ``abs``, ``min`` and
        comparisons are not. Slopes are then exact to rounding without being written down.
    parameters
        Names, in the order of the arguments.
    linear
        Those in which the function is linear. They are solved for rather than searched, need no start, and make a
        hard problem of six parameters one of three.
    starts
        Box of the seeded starts by name, for the others; default 1e-3 to 1. A positive box that spans more than a
        decade is covered evenly in the logarithm. ``fit(..., start=...)`` overrides it.
    limits
        Hard limits by name, for the others.
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
    box = [(starts or {}).get(names[index], (1e-3, 1.0)) for index in searched]
    edges = [(limits or {}).get(names[index], (-1e300, 1e300)) for index in searched]
    return Family(
        name=name, formula=formula or f"{name}(x, {', '.join(names)})", parameters=names,
        value=lambda x, p: function(x, *p), terms=split.terms, expand=split.expand,
        limits=lambda span: list(edges), start_box=lambda span: list(box), linear=len(amplitudes),
        coordinates=tuple(names[index] for index in searched), nonnegative=nonnegative, scales_x=False, scales_y=False,
        decades_in_starts=True,
        rows=(),
        reason=reason, contract=lambda start: [start[names[index]] for index in searched],
    )  # fmt: skip


class _Split:
    """A function seen as offset plus amplitudes times basis functions, found by calling it with unit amplitudes."""

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
