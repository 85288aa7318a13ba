"""TCP Reno under loss: the square-root law and the full formula with timeouts.

Mathis, Semke, Mahdavi and Ott (1997), and Padhye, Firoiu, Towsley and Kurose (1998), called PFTK, in its short form:

    rate = MSS / (RTT·sqrt(2·b·p/3) + T0·min(1, 3·sqrt(3·b·p/8))·p·(1 + 32·p²))

========  ===============================================  ======
symbol    meaning                                          unit
========  ===============================================  ======
p         loss event rate                                  1
b         packets acknowledged by one acknowledgement: 2   1
MSS/RTT   rate of one segment per round trip               B/s
T0        retransmission timeout                           s
========  ===============================================  ======
"""

from __future__ import annotations

import numpy as np

from venturi.model.families.power import positive_x
from venturi.model.families.transfer import log_box
from venturi.model.family import Array, Family, Pairs, Span, Terms

__all__ = ["LOSS"]

DELAYED_ACK = 2.0


def _is_a_fraction(x: Array) -> bool:
    return bool(((x > 0) & (x < 1)).all())


def _halving(p: Array) -> Array:
    return np.sqrt(2 * DELAYED_ACK * p / 3)


def _timeouts(p: Array) -> Array:
    part: Array = np.minimum(1.0, 3 * np.sqrt(3 * DELAYED_ACK * p / 8)) * p * (1 + 32 * p * p)
    return part


def _pftk_terms(x: Array, theta: Array) -> Terms:
    phi = 1 / (_halving(x) + theta[0] * _timeouts(x))
    return Terms([phi], [(0, 0, -phi * phi * _timeouts(x))])


def _delay_terms(x: Array, theta: Array) -> Terms:
    fixed = np.exp(theta[0])
    phi = 1 / (x + fixed)
    return Terms([phi], [(0, 0, -phi * phi * fixed)])


def _ratio_limits(_span: Span) -> Pairs:
    return [(0.0, 1e4)]


LOSS = (
    Family(
        name="loss-mathis", formula="A·sqrt(3/(2·b·x)), b = 2", parameters=("A",),
        value=lambda x, p: p[0] / _halving(x), terms=lambda x, theta: Terms([1 / _halving(x)], []),
        expand=lambda theta, c, x_scale, y_scale: [c[0] * y_scale],
        limits=lambda span: [], start_box=lambda span: [], linear=1, coordinates=(), nonnegative=True, positive=("A",),
        scales_x=False, usable=_is_a_fraction, validity="0 < x < 1; meant for x below 0.02", variables=("loss",),
        reason="Mathis et al. 1997: each loss halves the window; x = loss rate, A = MSS/RTT",
    ),
    Family(
        name="loss-pftk", formula="A/(sqrt(2·b·x/3) + q·min(1, 3·sqrt(3·b·x/8))·x·(1+32·x²)), b = 2",
        parameters=("A", "q"), value=lambda x, p: p[0] / (_halving(x) + p[1] * _timeouts(x)), terms=_pftk_terms,
        expand=lambda theta, c, x_scale, y_scale: [c[0] * y_scale, theta[0]],
        limits=_ratio_limits, start_box=lambda span: [(0.0, 100.0)], linear=1, coordinates=("q",), nonnegative=True,
        positive=("A", "q"), scales_x=False, usable=_is_a_fraction, validity="0 < x < 1", variables=("loss",),
        reason="Padhye et al. 1998: includes losses that end in timeouts; x = loss rate, A = MSS/RTT, q = T0/RTT",
    ),
    Family(
        name="rtt-mathis", formula="A/x", parameters=("A",), value=lambda x, p: p[0] / x,
        terms=lambda x, theta: Terms([1 / x], []),
        expand=lambda theta, c, x_scale, y_scale: [c[0] * y_scale * x_scale],
        limits=lambda span: [], start_box=lambda span: [], linear=1, coordinates=(), nonnegative=True, positive=("A",),
        usable=positive_x, validity="x > 0", variables=("rtt",),
        reason="Mathis et al. 1997 at fixed loss, or a fixed window: x = RTT in seconds, A = bytes per round trip",
    ),
    Family(
        name="rtt-pftk", formula="A/(x + t)", parameters=("A", "t"), value=lambda x, p: p[0] / (x + p[1]),
        terms=_delay_terms,
        expand=lambda theta, c, x_scale, y_scale: [c[0] * y_scale * x_scale, np.exp(theta[0]) * x_scale],
        limits=log_box(1e-6, 1e4), start_box=log_box(1e-2, 1e1), linear=1, coordinates=("t",), nonnegative=True,
        positive=("A", "t"), usable=positive_x, validity="x > 0", variables=("rtt",),
        reason="Padhye et al. 1998 at fixed loss: timeouts (or host delay) add t seconds that do not shrink with RTT",
    ),
)  # fmt: skip
