r"""Queueing theory: single stations in an open system, and closed networks. Pure functions.

=================  ==========================================================  ========
symbol             meaning                                                     unit
=================  ==========================================================  ========
:math:`\lambda`    arrivals                                                    1/s
:math:`S`          service time of a transfer alone                            s
:math:`a`          offered load :math:`\lambda S`                              1
:math:`c`          servers; for a shared resource, transfers that fill it      1
:math:`\rho`       utilisation :math:`a / c`                                   1
:math:`D_k`        demand of a transfer at station k                           s
:math:`N`, :math:`Z`  customers of a closed network, and their think time      1, s
=================  ==========================================================  ========

Sources: Kleinrock, *Queueing Systems*, volume 1 (1975), sections 3.4 and 3.5 (M/M/c, Erlang C). Cohen, Acta Informatica
12 (1979) 245: processor sharing with a state-dependent rate has the same state probabilities for each distribution of
the sizes with the same mean. Lee and Longton, Oper. Res. Q. 10 (1959) 56: waits for general service times. Buzen,
Commun. ACM 16 (1973) 527, and Reiser and Lavenberg, J. ACM 27 (1980) 313: closed product-form networks; both methods
give the same exact values, and Buzen's sums stay stable with several servers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from venturi.errors import SampleError

__all__ = ["ClosedNetwork", "Station", "closed_network", "erlang_c", "fcfs_wait_s", "sharing_time_s"]

FloatArray = npt.NDArray[np.float64]

MAX_CUSTOMERS = 20_000
"""Customers of a closed network; the sums need the square of it in time."""


def erlang_c(servers: int, offered: float) -> float:
    """Return the probability that an arrival waits in M/M/c.

    Parameters
    ----------
    servers
        c, at least 1.
    offered
        a = λS, from 0 to below c.

    Raises
    ------
    SampleError
        If there is no stationary state.

    Examples
    --------
    >>> round(erlang_c(1, 0.5), 6), round(erlang_c(10, 8.0), 4)
    (0.5, 0.4092)
    """
    _check_load(servers, offered)
    blocked = 1.0
    for number in range(1, servers + 1):
        blocked = offered * blocked / (number + offered * blocked)
    return servers * blocked / (servers - offered * (1 - blocked))


def fcfs_wait_s(servers: int, per_s: float, service_s: float, variation: float = 1.0) -> float:
    """Return the mean wait before service in M/G/c, first come, first served.

    It is exact for exponential service times (``variation`` = 1) and for one server. Otherwise it is the approximation
    of Lee and Longton.

    Parameters
    ----------
    servers, per_s, service_s
        c, λ in 1/s, S in s.
    variation
        Coefficient of variation of the service time, 0 or more.

    Examples
    --------
    >>> fcfs_wait_s(1, 0.5, 1.0), fcfs_wait_s(1, 0.5, 1.0, variation=0.0)
    (1.0, 0.5)
    """
    waits = erlang_c(servers, per_s * service_s)
    exponential = waits * service_s / (servers - per_s * service_s)
    return exponential * (1 + variation**2) / 2


def sharing_time_s(per_s: float, alone_s: float, width: float) -> float:
    """Return the mean time of a transfer in M/G/c with processor sharing.

    All transfers share a resource equally, but one transfer alone uses only 1/``width`` of it. With n transfers, each has
    the rate min(1, width / n) of a transfer alone. The mean does not depend on the distribution of the sizes.

    Parameters
    ----------
    per_s
        λ in 1/s.
    alone_s
        Time of a transfer alone, in s.
    width
        c, at least 1; need not be a whole number.

    Raises
    ------
    SampleError
        If λ S ≥ c, because there is no stationary state.

    Examples
    --------
    >>> sharing_time_s(0.5, 1.0, 1.0)
    2.0
    """
    offered = per_s * alone_s
    _check_load(width, offered)
    if offered == 0:
        return alone_s
    whole = math.floor(width)
    # Probabilities of 0 … whole transfers, relative to the state `whole`. Above it, they fall by `ratio`.
    ratio = offered / width
    logs = [n * math.log(offered) - math.lgamma(n + 1) for n in range(whole + 1)]
    weights = [math.exp(log - logs[-1]) for log in logs]
    # States whole+1, whole+2, … have the weights ratio, ratio², …
    tail = ratio / (1 - ratio)
    tail_mean = whole * tail + ratio / (1 - ratio) ** 2
    total = math.fsum(weights) + tail
    mean = (math.fsum(n * weight for n, weight in enumerate(weights)) + tail_mean) / total
    return mean / per_s


def _check_load(servers: float, offered: float) -> None:
    if servers < 1 or offered < 0:
        raise SampleError(
            f"expected at least 1 server and a load of 0 or more, found {servers:g} and {offered:g}; check the arguments"
        )
    if offered >= servers:
        raise SampleError(
            f"expected a load below {servers:g}, found {offered:g}: the queue grows without a limit; reduce the rate"
        )


@dataclass(frozen=True, slots=True)
class Station:
    """Station of a closed network.

    Attributes
    ----------
    demand_s
        Service time of a transfer alone, over all visits.
    servers
        Transfers that it serves at full speed at the same time, at least 1; need not be a whole number.
    """

    demand_s: float
    servers: float = 1.0


@dataclass(frozen=True, slots=True)
class ClosedNetwork:
    """Stationary state of a closed network.

    Attributes
    ----------
    per_s
        Completed transfers, 1/s.
    response_s
        Mean time of a transfer, without the think time.
    """

    per_s: float
    response_s: float


def closed_network(customers: int, stations: Sequence[Station], think_s: float) -> ClosedNetwork:
    """Return throughput and response time of a closed product-form network of one class.

    Stations share their service equally, or are first come, first served with exponential times.

    Parameters
    ----------
    customers
        N, from 1 on.
    stations
        Stations with queues.
    think_s
        Z: time of a customer outside of the stations for each transfer, in s.

    Raises
    ------
    SampleError
        If no station and no think time takes time, or N is out of range.

    Examples
    --------
    >>> found = closed_network(2, [Station(1.0)], 1.0)
    >>> round(found.per_s, 12), round(found.response_s, 12)
    (0.8, 1.5)
    """
    if not 1 <= customers <= MAX_CUSTOMERS:
        raise SampleError(f"expected 1 to {MAX_CUSTOMERS} customers, found {customers}; use the simulation")
    if not math.fsum([think_s, *(station.demand_s for station in stations)]) > 0:
        raise SampleError("expected a station or a think time above 0 s, found none; check the demands")
    count = np.arange(1, customers + 1, dtype=float)
    logs = _delay_logs(think_s, count)
    for station in stations:
        logs = _log_convolution(logs, _station_logs(station, count))
    per_s = math.exp(logs[customers - 1] - logs[customers])
    return ClosedNetwork(per_s, customers / per_s - think_s)


def _delay_logs(think_s: float, count: FloatArray) -> FloatArray:
    """Return the logarithms of Zⁿ/n!, n = 0 … N."""
    if think_s <= 0:
        return np.concatenate(([0.0], np.full(len(count), -np.inf)))
    return np.concatenate(([0.0], np.cumsum(math.log(think_s) - np.log(count))))


def _station_logs(station: Station, count: FloatArray) -> FloatArray:
    """Return the logarithms of the products of D / min(n, c), n = 0 … N."""
    if station.demand_s <= 0:
        return np.concatenate(([0.0], np.full(len(count), -np.inf)))
    steps = math.log(station.demand_s) - np.log(np.minimum(count, station.servers))
    return np.concatenate(([0.0], np.cumsum(steps)))


def _log_convolution(one: FloatArray, other: FloatArray) -> FloatArray:
    found = np.empty_like(one)
    for n in range(len(one)):
        terms = one[: n + 1] + other[n::-1]
        largest = float(terms.max())
        found[n] = largest if largest == -math.inf else largest + math.log(float(np.exp(terms - largest).sum()))
    return found
