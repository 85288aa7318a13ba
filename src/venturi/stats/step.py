"""Step ratios: growth of the rate from one load to the next, compared with linear growth.

Document 003 calls the ratio of the rates of consecutive batches a slope and compares it with 2.0 for linear growth.
This is right only for the step from 32 to 64 jobs. For the later steps, linear growth is 1.5, 1.333, 1.25 and 1.2
(003-E11).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from venturi.errors import SampleError
from venturi.stats._arrays import FloatArray, as_errors, as_positive, same_length

__all__ = ["StepRatio", "step_ratios"]


@dataclass(frozen=True, slots=True)
class StepRatio:
    """One step of a load.

    Attributes
    ----------
    load_from, load_to
        The two loads (jobs, clients, files, …).
    ratio
        Rate at ``load_to`` over rate at ``load_from``.
    error
        Standard error of the ratio, if the rates have errors.
    linear
        ``load_to`` / ``load_from``: the ratio for linear growth.
    """

    load_from: float
    load_to: float
    ratio: float
    linear: float
    error: float | None

    @property
    def fraction_of_linear_growth(self) -> float:
        """(ratio − 1) / (linear − 1): 1 for linear growth, 0 for constant rate, negative for a decrease."""
        return (self.ratio - 1) / (self.linear - 1)


def step_ratios(
    load: npt.ArrayLike, rate: npt.ArrayLike, error: npt.ArrayLike | None = None
) -> tuple[StepRatio, ...]:
    """Return the ratio of each rate to the one before.

    Parameters
    ----------
    load
        Strictly ascending, > 0, shape (n,), n ≥ 2.
    rate
        Shape (n,), > 0, any unit.
    error
        Standard errors of the rates, shape (n,).

    Examples
    --------
    Direct Lustre, table 6.1 of document 003:

    >>> steps = step_ratios([32, 64, 96], [1700, 3270, 5401])
    >>> [(round(step.ratio, 3), step.linear) for step in steps]
    [(1.924, 2.0), (1.652, 1.5)]
    """
    loads, rates, errors = load_curve(load, rate, error, minimum=2)
    relative = None if errors is None else errors / rates
    steps = []
    for i in range(1, loads.size):
        ratio = float(rates[i] / rates[i - 1])
        deviation = None if relative is None else ratio * math.hypot(relative[i], relative[i - 1])
        steps.append(
            StepRatio(float(loads[i - 1]), float(loads[i]), ratio, float(loads[i] / loads[i - 1]), deviation)
        )
    return tuple(steps)


def load_curve(
    load: npt.ArrayLike, rate: npt.ArrayLike, error: npt.ArrayLike | None, *, minimum: int
) -> tuple[FloatArray, FloatArray, FloatArray | None]:
    """Return loads, rates and errors after checks: loads strictly ascending, with one rate each."""
    loads, rates = as_positive(load, "load", minimum=minimum), as_positive(rate, "rate", minimum=minimum)
    same_length(load=loads, rate=rates)
    if np.any(np.diff(loads) <= 0):
        raise SampleError(f"load: expected strictly ascending loads, one rate each, found {loads.tolist()}")
    return loads, rates, None if error is None else as_errors(error, "error", rates.size)
