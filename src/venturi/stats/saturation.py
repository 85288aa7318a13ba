"""Saturation of a curve of rate against load: the smallest load with nearly the best rate.

If only the largest measured load is near the best rate, the result is "not reached" and has no load, because the rate
may rise further. For the bend of a curve, use :func:`venturi.stats.two_segment_knee`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from venturi.errors import SampleError
from venturi.stats._arrays import FloatArray, as_level
from venturi.stats.quantiles import normal_reach
from venturi.stats.step import load_curve

__all__ = ["Saturation", "saturation_point"]


@dataclass(frozen=True, slots=True)
class Saturation:
    """Smallest load whose rate is within ``tolerance`` of the best rate.

    Attributes
    ----------
    outcome
        ``"reached"``: a load inside the measured range. ``"below range"``: the smallest measured load qualifies, so the
        point is there or lower. ``"not reached"``: only the largest load qualifies.
    load
        The load; ``None`` if not reached; an upper bound if below range.
    load_low, load_high
        Smallest load that the errors do not exclude, and smallest load that they confirm. ``None`` without errors.
    certain
        Whether the errors allow one load only; ``None`` without errors.
    best_rate, best_load
        The highest rate and its load.
    tolerance
        Fraction of the best rate that may be missing.
    """

    outcome: Literal["reached", "below range", "not reached"]
    load: float | None
    load_low: float | None
    load_high: float | None
    best_rate: float
    best_load: float
    tolerance: float

    @property
    def certain(self) -> bool | None:
        """Whether the errors allow one load only; ``None`` without errors."""
        return None if self.load_low is None else self.load_low == self.load_high


def saturation_point(
    load: npt.ArrayLike,
    rate: npt.ArrayLike,
    error: npt.ArrayLike | None = None,
    *,
    tolerance: float = 0.05,
    level: float = 0.95,
) -> Saturation:
    """Return the point at which a curve of rate against load saturates.

    Parameters
    ----------
    load
        Strictly ascending, > 0, shape (n,), n ≥ 3.
    rate
        Total rate at each load, shape (n,), > 0, any unit.
    error
        Standard errors of the rates, shape (n,), for ``load_low`` and ``load_high``.
    tolerance
        Fraction of the best rate, 0 < tolerance < 1.
    level
        Confidence to exclude or confirm a load, for each load separately.

    Examples
    --------
    WAN xrootd, table 6.1 of document 003:

    >>> point = saturation_point([32, 64, 96, 128, 160, 192], [1877, 2702, 4108, 4470, 4104, 4129])
    >>> point.outcome, point.load
    ('reached', 128.0)
    >>> saturation_point([1, 2, 4], [10, 20, 40]).outcome
    'not reached'
    """
    loads, rates, errors = load_curve(load, rate, error, minimum=3)
    if not 0 < tolerance < 1:
        raise SampleError(f"tolerance: expected a fraction between 0 and 1, such as 0.05, found {tolerance!r}")
    best = int(np.argmax(rates))
    surplus = rates - (1 - tolerance) * rates[best]
    at = _first(surplus >= 0)
    low = high = None
    if errors is not None:
        reach = normal_reach(as_level(level)) * np.hypot(errors, (1 - tolerance) * errors[best])
        reach[best] = 0.0  # The best rate is within any fraction of itself, at any uncertainty.
        low, high = float(loads[_first(surplus + reach >= 0)]), float(loads[_first(surplus - reach >= 0)])
    outcome: Literal["reached", "below range", "not reached"] = "reached"
    if at == loads.size - 1:
        outcome = "not reached"
    elif at == 0:
        outcome = "below range"
    return Saturation(
        outcome=outcome,
        load=None if outcome == "not reached" else float(loads[at]),
        load_low=low,
        load_high=high,
        best_rate=float(rates[best]),
        best_load=float(loads[best]),
        tolerance=tolerance,
    )


def _first(condition: FloatArray | npt.NDArray[np.bool_]) -> int:
    return int(np.argmax(condition))
