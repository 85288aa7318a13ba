r"""Uncertainty of a prediction: seeds, parameters of the costs, and the error of the model on a measured run.

- **Seeds**: of n seeds, k sustain the load. The posterior of the probability with Jeffreys' prior is
  :math:`\mathrm{Beta}(k + 1/2,\, n - k + 1/2)` (Brown, Cai and DasGupta, Statist. Sci. 16 (2001) 101).
- **Model**: the times of held-out points of the run are :math:`e^{\varepsilon}` times the simulated ones. The standard
  deviation of :math:`\varepsilon` is the root mean square of these logarithms, so a bias counts too. Each seed has one
  value of :math:`e^{\varepsilon}`, at evenly spread quantiles of a normal distribution.
- **Parameters**: each seed draws the costs from the intervals of the calibration, on a logarithmic scale.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from venturi.calibration.origin import CostOrigin
from venturi.cost import CostParameters
from venturi.plan import Header
from venturi.prediction.offered import OfferedLoad

__all__ = ["Probability", "draw_costs", "jeffreys", "time_factors"]

LEVEL = 0.95


@dataclass(frozen=True, slots=True)
class Probability:
    """Estimated probability with its 95 % interval; ``successes`` of ``n`` seeds."""

    value: float
    low: float
    high: float
    successes: int
    n: int


def jeffreys(successes: int, n: int, level: float = LEVEL) -> Probability:
    """Return the posterior mean and interval of a probability.

    Examples
    --------
    >>> found = jeffreys(10, 10)
    >>> round(found.value, 3), round(found.low, 2), found.high
    (0.955, 0.78, 1.0)
    """
    from scipy.stats import beta  # takes a moment to import

    tail = (1 - level) / 2
    low, high = (beta.ppf(level, successes + 0.5, n - successes + 0.5) for level in (tail, 1 - tail))
    # At the ends of the range, the interval includes them.
    low = 0.0 if successes == 0 else float(low)
    high = 1.0 if successes == n else float(high)
    return Probability((successes + 0.5) / (n + 1), low, high, successes, n)


def time_factors(deviation: float, count: int) -> tuple[float, ...]:
    """Return one factor of all times per seed: evenly spread quantiles of a lognormal distribution with median 1.

    Examples
    --------
    >>> time_factors(0.0, 2), sorted(round(one, 3) for one in time_factors(0.1, 3))
    ((1.0, 1.0), [0.908, 1.0, 1.102])
    """
    if deviation == 0:
        return (1.0,) * count
    from scipy.stats import norm

    quantiles = norm.ppf((np.arange(count) + 0.5) / count)
    order = np.random.default_rng(count).permutation(count)
    return tuple(float(factor) for factor in np.exp(deviation * quantiles[order]))


def draw_costs(
    load: OfferedLoad, declared: CostParameters, origin: CostOrigin, seeds: Sequence[int]
) -> tuple[list[CostParameters], int]:
    """Return costs drawn from the intervals of a calibration, one per seed, and the number of varied parameters.

    A parameter is varied if the plan of the load has it under the same name.
    """
    from scipy.stats import norm

    from venturi.calibration.parameters import Subject, cost_of, ends_of, parameters_of

    header: Header = load.header
    ends = frozenset(ends_of(header, kind.call, kind.source_via, kind.destination_via) for kind in load.kinds)
    cores = declared.machine_cores
    intervals = origin.intervals or {}
    varied = [one for one in parameters_of([Subject(origin.name, header, ends, cores)]) if one.name in intervals]
    reach = float(norm.ppf((1 + origin.level) / 2))
    found = []
    for seed in seeds:
        rng = np.random.default_rng([seed, len(varied)])
        numbers = []
        for parameter in varied:
            low, value, high = intervals[parameter.name]
            drawn = value * math.exp(_deviation(low, value, high, reach) * float(rng.standard_normal()))
            drawn = max(drawn, 1e-30)
            numbers.append((1.0 / drawn if parameter.inverse else drawn) / parameter.scale)
        found.append(cost_of(declared, varied, numbers))
    return found, len(varied)


def _deviation(low: float, value: float, high: float, reach: float) -> float:
    """Return the standard deviation of the logarithm whose interval is nearest to these limits."""
    if low > 0 and high > low:
        return math.log(high / low) / (2 * reach)
    return math.log(high / value) / reach if high > value > 0 else 0.0
