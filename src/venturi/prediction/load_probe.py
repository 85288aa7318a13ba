r"""Result of a probe: whether a target held under an offered load, from the transfers of its run.

The first part of a probe is warm-up: a quarter, or three quarters if caches fill. In the measured part, the backlog
:math:`B(t)` is the bytes of the transfers that are due but have not ended. Its slope by least squares, times the duration of
the part, relative to the bytes :math:`V` that are due in it, is the growth. Up to the tolerance

.. math:: \tau = \max\Bigl(2\,\%,\; \frac{2}{V} \sqrt{\textstyle\sum_k s_k^2}\Bigr)

the load holds. With arrivals at even intervals, each kind k of transfers changes the backlog by about one size :math:`s_k`
without any overload; with random arrivals, the sum has every transfer instead of every kind. An overload by the fraction
:math:`\tau` gives a growth of about :math:`\tau`, so a load up to :math:`1 + \tau` times the limit can hold.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from venturi.prediction.peak_finder import LoadOrder, LoadProbe
from venturi.prediction.replay import in_progress
from venturi.units import format_duration

__all__ = ["LoadTarget", "ProbeTransfers", "evaluate_load"]

FloatArray = npt.NDArray[np.float64]

SMALLEST_TOLERANCE = 0.02
"""Growth that counts as none: twice the one of a prediction, because a probe is shorter."""

GRID = 256
"""Number of times for the backlog."""

QUANTILES = (0.5, 0.95, 0.99)


@dataclass(frozen=True, slots=True)
class LoadTarget:
    """Target of a load: the backlog does not grow, and optionally a limit of the latency.

    Attributes
    ----------
    within
        Fraction of the requested bytes that must arrive.
    p95_s
        Largest quantile 0.95 of the time from the intended start to the end; None: no limit.
    """

    within: float = 0.95
    p95_s: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class ProbeTransfers:
    """Transfers of a probe, each an array of shape (n,).

    Attributes
    ----------
    intended_s, start_s, end_s
        Intended start, start and end, in s since the first intended start could be.
    size_bytes
        Requested bytes.
    good
        Whether the transfer succeeded.
    """

    intended_s: FloatArray
    start_s: FloatArray
    end_s: FloatArray
    size_bytes: FloatArray
    good: npt.NDArray[np.bool_]


def evaluate_load(
    found: ProbeTransfers, order: LoadOrder, target: LoadTarget, *, warm_up: float, streams: Sequence[float] | None
) -> LoadProbe:
    """Return the result of a probe, without the fields ``time_s`` and ``run``.

    Parameters
    ----------
    found
        Its transfers, in any order.
    order
        Its load.
    warm_up
        Fraction of the duration that does not count.
    streams
        Sizes of the streams with even intervals, in bytes; None for random arrivals.

    Examples
    --------
    >>> start_s, order = np.arange(100.0), LoadOrder(1.0, 100.0)
    >>> ones, good = np.ones(100), np.ones(100, dtype=bool)
    >>> slow = ProbeTransfers(start_s, start_s, start_s * 1.25 + 1, ones, good)
    >>> found = evaluate_load(slow, order, LoadTarget(), warm_up=0.25, streams=[1.0])
    >>> found.holds, round(found.growth, 2), found.reason
    (False, 0.2, 'the backlog grows by 20 %')
    """
    by_time = np.argsort(found.intended_s, kind="stable")
    intended_s, end_s, sizes = (array[by_time] for array in (found.intended_s, found.end_s, found.size_bytes))
    good = found.good[by_time]
    first_s, last_s = warm_up * order.duration_s, order.duration_s
    measured = (intended_s >= first_s) & (intended_s <= last_s)
    count, due_bytes = int(measured.sum()), float(sizes[measured].sum())
    if count == 0:
        return LoadProbe(
            order.per_s, order.duration_s, False, SMALLEST_TOLERANCE, "no transfer was due", bytes=int(sizes.sum())
        )
    grid = np.linspace(first_s, last_s, GRID)
    backlog = in_progress(intended_s, end_s, sizes, grid)
    growth = float(np.polyfit(grid, backlog, 1)[0]) * (last_s - first_s) / due_bytes
    jumps = sizes[measured] if streams is None else np.asarray(streams, dtype=float)
    tolerance = max(SMALLEST_TOLERANCE, 2 * float(np.linalg.norm(jumps)) / due_bytes)
    latency_s = np.where(good, end_s - intended_s, np.inf)[measured]
    quantiles = np.quantile(latency_s, QUANTILES, method="inverted_cdf")
    arrived = float(sizes[measured & good].sum()) / due_bytes
    done = good & (end_s > first_s) & (end_s <= last_s)
    reason = _reason(growth, tolerance, arrived, float(quantiles[1]), target)
    return LoadProbe(
        per_s=order.per_s,
        duration_s=order.duration_s,
        holds=not reason,
        tolerance=tolerance,
        reason=reason,
        growth=growth,
        completed_bytes_per_s=float(sizes[done].sum()) / (last_s - first_s),
        latency_s=(float(quantiles[0]), float(quantiles[1]), float(quantiles[2])),
        transfers=count,
        failed=float(np.mean(~good[measured])),
        bytes=int(sizes.sum()),
        late_s=float(np.median(found.start_s - found.intended_s)),
    )


def _reason(growth: float, tolerance: float, arrived: float, p95_s: float, target: LoadTarget) -> str:
    """Return the reason why the target did not hold; "" if it held."""
    if arrived < target.within:
        return f"only {100 * arrived:.3g} % of the bytes arrive"
    if growth > tolerance:
        return f"the backlog grows by {100 * growth:.2g} %"
    if target.p95_s is not None and p95_s > target.p95_s:
        return f"p95 is {format_duration(p95_s)}" if math.isfinite(p95_s) else "p95 is infinite"
    return ""
