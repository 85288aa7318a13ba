"""Cost of a transfer: a fixed time and a rate, a shared rate, a window.

========  =======================================  ===========
symbol    meaning                                  unit
========  =======================================  ===========
x         size, number of files, or window count   B, 1, B or 1
t0        fixed time of one transfer               s
r         rate without the fixed time              B/s
B         rate shared by all files                 B/s
cap       maximum of one file or of the link       B/s
w         rate per unit of x, W/RTT                B/s
========  =======================================  ===========
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from venturi.model.families.power import positive_x
from venturi.model.family import Array, Family, Pairs, Span, Terms

__all__ = ["TRANSFER", "log_box", "saturating_terms"]


def log_box(below: float, above: float) -> Callable[[Span], Pairs]:
    """Return limits of a coordinate that is the logarithm of an x, from ``below``·x_min to ``above``·x_max."""

    def box(span: Span) -> Pairs:
        return [(np.log(below * span.low), np.log(above * span.high))]

    return box


def saturating_terms(x: Array, theta: Array) -> Terms:
    """Return x/(x + h) and its slope in log h, with h the x of half of the plateau."""
    half = np.exp(theta[0])
    phi = x / (x + half)
    return Terms([phi], [(0, 0, -phi * half / (x + half))])


def _least(a: Array, b: Array) -> Array:
    """Return the smaller value, compared by the real part so that a complex step is preserved."""
    return np.where(np.real(a) <= np.real(b), a, b)


def _capped_share_terms(x: Array, theta: Array) -> Terms:
    corner = np.exp(theta[0])
    shared = x > corner
    phi = np.where(shared, corner / x, 1.0)
    return Terms([phi], [(0, 0, np.where(shared, phi, 0.0))])


def _window_terms(x: Array, theta: Array) -> Terms:
    corner = np.exp(theta[0])
    return Terms([np.minimum(x, corner)], [(0, 0, np.where(x > corner, corner + 0 * x, 0.0))])


SETUP = Family(
    name="setup", formula="x/(t0 + x/r)", parameters=("t0", "r"),
    value=lambda x, p: x / (p[0] + x / p[1]), terms=saturating_terms,
    expand=lambda theta, c, x_scale, y_scale: [np.exp(theta[0]) * x_scale / (c[0] * y_scale), c[0] * y_scale],
    limits=log_box(1e-6, 1e4), start_box=log_box(1e-2, 1e2), linear=1, coordinates=("t0·r",), nonnegative=True,
    positive=("t0", "r"), usable=positive_x, validity="x > 0", variables=("size",),
    reason="a fixed time t0 (login, connection, file creation) before bytes flow at r; x = size in bytes",
)  # fmt: skip

SHARE = Family(
    name="share", formula="B/x", parameters=("B",), value=lambda x, p: p[0] / x,
    terms=lambda x, theta: Terms([1 / x], []),
    expand=lambda theta, c, x_scale, y_scale: [c[0] * y_scale * x_scale],
    limits=lambda span: [], start_box=lambda span: [], linear=1, coordinates=(), nonnegative=True, positive=("B",),
    usable=positive_x, validity="x > 0", variables=("files",),
    reason="x files share one bottleneck of rate B equally; rate is that of one file",
)  # fmt: skip

CAPPED_SHARE = Family(
    name="share-capped", formula="min(cap, B/x)", parameters=("B", "cap"),
    value=lambda x, p: _least(p[0] / x, p[1]), terms=_capped_share_terms,
    expand=lambda theta, c, x_scale, y_scale: [c[0] * y_scale * np.exp(theta[0]) * x_scale, c[0] * y_scale],
    limits=log_box(1.0, 1.0), start_box=log_box(1.0, 1.0), linear=1, coordinates=("B/cap",), nonnegative=True,
    positive=("B", "cap"), usable=positive_x, validity="x > 0", variables=("files",),
    reason="as share, but one file alone cannot exceed cap (its disk, stream or core)",
)  # fmt: skip

WINDOW = Family(
    name="window", formula="min(w·x, cap)", parameters=("w", "cap"),
    value=lambda x, p: _least(p[0] * x, p[1]), terms=_window_terms,
    expand=lambda theta, c, x_scale, y_scale: [c[0] * y_scale / x_scale, c[0] * y_scale * np.exp(theta[0])],
    limits=log_box(1.0, 1.0), start_box=log_box(1.0, 1.0), linear=1, coordinates=("cap/w",), nonnegative=True,
    positive=("w", "cap"), usable=positive_x, validity="x > 0", variables=("streams", "window", "files"),
    reason="n streams of window W carry n·W/RTT until the link is full (documents 000, 002, 004); x = n, or x = n·W "
    "in bytes, when w = 1/RTT",
)  # fmt: skip

TRANSFER = (SETUP, SHARE, CAPPED_SHARE, WINDOW)
