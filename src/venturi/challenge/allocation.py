r"""Weighted max-min fair rates of flows with demands, by progressive filling.

All flows rise together: flow :math:`i` has the rate :math:`x_i = w_i \theta`. It stops at its demand, or when a
resource that it uses is full. The result is the unique weighted max-min fair allocation (Bertsekas and Gallager, *Data
Networks*, 1992, section 6.5.2): a flow below its demand uses a full resource, and no other flow on this resource
has a larger :math:`x/w`.

===============  ==========================================  ====
symbol           meaning                                     unit
===============  ==========================================  ====
:math:`x`        rate of a flow                              bit/s
:math:`d, w`     demand and weight of a flow                 bit/s, any
:math:`a_{ir}`   use of resource r per bit of flow i         1
:math:`c_r`      capacity of a resource                      bit/s
:math:`\theta`   level of the flows that still rise          bit/s per weight
===============  ==========================================  ====
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

__all__ = ["NO_LIMIT", "FlowAllocation", "allocate"]

NO_LIMIT = -1
"""Number of the limiting resource of a flow that reaches its demand."""

_TOLERANCE = 1e-9
"""Relative difference of levels that count as equal: far above rounding errors, far below any effect."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class FlowAllocation:
    """Rates (bit/s) and limiting resources of flows; both have one element for each flow.

    ``limit`` is the number of the resource, or :data:`NO_LIMIT`.
    """

    rate: Floats
    limit: npt.NDArray[np.int64]


def allocate(demand: Floats, weight: Floats, usage: csr_array, capacity: Floats) -> FlowAllocation:
    """Return the weighted max-min fair rates of flows.

    Parameters
    ----------
    demand, weight
        Demand (bit/s, 0 or more) and weight (above 0) of each of n flows.
    usage
        Matrix of n flows and m resources: use of a resource per bit of a flow, 0 or more.
    capacity
        Capacity of each of m resources (0 or more; infinite for none).

    Examples
    --------
    Two flows share 10 bit/s; the first one needs 3 bit/s only.

    >>> usage = csr_array(np.array([[1.0], [1.0]]))
    >>> found = allocate(np.array([3.0, 20.0]), np.ones(2), usage, np.array([10.0]))
    >>> found.rate.tolist(), found.limit.tolist()
    ([3.0, 7.0], [-1, 0])
    """
    usage = csr_array(usage)
    by_resource = csr_array(usage.T)
    of_resource = by_resource.astype(bool).astype(np.float64)
    flow_of_entry = np.repeat(np.arange(len(demand)), np.diff(usage.indptr))
    rate, limit = np.zeros(len(demand)), np.full(len(demand), NO_LIMIT, dtype=np.int64)
    rising = demand > 0
    normal = np.divide(demand, weight)
    remaining = capacity.astype(np.float64)
    # Each pass fixes a flow or more, so there are at most n passes.
    while rising.any():
        slope = by_resource @ np.where(rising, weight, 0.0)
        count = of_resource @ rising.astype(np.float64)
        level = np.full(len(capacity), np.inf)
        np.divide(np.maximum(remaining, 0.0), slope, out=level, where=(count > 0) & (slope > 0))
        lowest = float(level.min(initial=np.inf))
        fixed = rising & (normal <= lowest * (1 + _TOLERANCE))
        if fixed.any():
            rate[fixed] = demand[fixed]
        else:
            full = level <= lowest * (1 + _TOLERANCE)
            entries = np.flatnonzero(full[usage.indices] & rising[flow_of_entry])
            stopped, first = np.unique(flow_of_entry[entries], return_index=True)
            fixed = np.zeros(len(demand), dtype=bool)
            fixed[stopped] = True
            rate[stopped] = weight[stopped] * lowest
            limit[stopped] = usage.indices[entries[first]]
        remaining = remaining - by_resource @ np.where(fixed, rate, 0.0)
        rising = rising & ~fixed
    return FlowAllocation(rate, limit)
