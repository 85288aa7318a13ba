"""Knee of a curve of rate against load: two connected straight lines, fitted by weighted least squares.

    rate = a + b load + c max(load − knee, 0)

For a given position of the knee, the model is linear. The fit is therefore a search in one dimension over the profile
of the sum of squares. The F ratio against one straight line decides if there is a knee. The position is not identified
under the hypothesis of one line, so the ratio does not follow F(2, n − 4) exactly (Davies, Biometrika 74 (1987) 33).
The test of this module measures by simulation how often a knee is found in a straight line.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import special

from venturi.errors import SampleError
from venturi.stats._arrays import FloatArray, as_level
from venturi.stats.step import load_curve

__all__ = ["Knee", "two_segment_knee"]

_GRID = 200
"""Positions of the knee on the search grid, between the second load and the last but one."""


@dataclass(frozen=True, slots=True)
class Knee:
    """Two segments and their meeting point.

    Attributes
    ----------
    found
        Whether two segments explain the curve better than one line, and the second is flatter.
    load, load_low, load_high
        Meeting point and its profile interval, limited to the searched range; ``None`` if not found.
    rate
        Fitted rate at the meeting point; ``None`` if not found.
    slope_before, slope_after
        Slopes of the two fitted segments, rate per load, also if not found.
    p_value
        Approximate p-value of the F ratio of two segments against one line.
    level, n
        Confidence, and number of points.
    """

    found: bool
    load: float | None
    load_low: float | None
    load_high: float | None
    rate: float | None
    slope_before: float
    slope_after: float
    p_value: float
    level: float
    n: int


def two_segment_knee(
    load: npt.ArrayLike, rate: npt.ArrayLike, error: npt.ArrayLike | None = None, *, level: float = 0.95
) -> Knee:
    """Return the knee of a curve of rate against load.

    Parameters
    ----------
    load
        Strictly ascending, > 0, shape (n,), n ≥ 6 (the fit has four parameters).
    rate
        Shape (n,), > 0, any unit.
    error
        Standard errors of the rates, shape (n,), > 0, which give relative weights. By default, all weights are equal.
    level
        Confidence of the test and of the interval.

    Examples
    --------
    >>> load = [1, 2, 4, 6, 8, 10, 12]
    >>> knee = two_segment_knee(load, [10, 20, 40, 50, 50, 50, 50])
    >>> knee.found, round(knee.load, 2), round(knee.rate, 1)
    (True, 5.0, 50.0)
    """
    loads, rates, errors = load_curve(load, rate, error, minimum=6)
    if errors is not None and np.any(errors <= 0):
        raise SampleError(
            "error: expected standard errors > 0, found 0; omit the errors to weight all values equally"
        )
    weight = np.ones_like(rates) if errors is None else errors.mean() / errors
    freedom = loads.size - 4
    # Rounding floor: data exactly on a line must not give a knee in the last digits.
    floor = 1e-24 * float(np.sum((weight * rates) ** 2))
    line = max(_fit(loads, rates, weight, None)[1], floor)
    knees = np.unique(np.concatenate((np.linspace(loads[1], loads[-2], _GRID), loads[1:-1])))
    squares = np.array([_fit(loads, rates, weight, knee)[1] for knee in knees])
    best = _refined(loads, rates, weight, knees, squares)
    coefficients, bent = _fit(loads, rates, weight, best)
    bent = max(bent, floor)
    p_value = float(special.fdtrc(2, freedom, (line - bent) / 2 / (bent / freedom)))
    limit = bent * (1 + special.fdtri(1, freedom, as_level(level)) / freedom)
    inside = np.append(knees[squares <= limit], best)
    before, after = float(coefficients[1]), float(coefficients[1] + coefficients[2])
    found = p_value < 1 - level and abs(after) < abs(before)
    return Knee(
        found=found,
        load=best if found else None,
        load_low=float(inside.min()) if found else None,
        load_high=float(inside.max()) if found else None,
        rate=float(coefficients[0] + coefficients[1] * best) if found else None,
        slope_before=before,
        slope_after=after,
        p_value=p_value,
        level=level,
        n=loads.size,
    )


def _fit(load: FloatArray, rate: FloatArray, weight: FloatArray, knee: float | None) -> tuple[FloatArray, float]:
    """Return the coefficients (a, b[, c]) and the weighted sum of squares for a given knee, or for one line."""
    terms = [np.ones_like(load), load]
    if knee is not None:
        terms.append(np.maximum(load - knee, 0.0))
    design = np.column_stack(terms) * weight[:, None]
    coefficients = np.asarray(np.linalg.lstsq(design, rate * weight)[0], dtype=np.float64)
    return coefficients, float(np.sum((design @ coefficients - rate * weight) ** 2))


def _refined(load: FloatArray, rate: FloatArray, weight: FloatArray, knees: FloatArray, squares: FloatArray) -> float:
    """Return the best knee on the grid, refined by golden section between its neighbours."""
    at = int(np.argmin(squares))
    low, high = float(knees[max(at - 1, 0)]), float(knees[min(at + 1, len(knees) - 1)])
    golden = (5**0.5 - 1) / 2
    for _ in range(60):
        left, right = high - golden * (high - low), low + golden * (high - low)
        if _fit(load, rate, weight, left)[1] < _fit(load, rate, weight, right)[1]:
            high = right
        else:
            low = left
    middle = (low + high) / 2
    return middle if _fit(load, rate, weight, middle)[1] < squares[at] else float(knees[at])
