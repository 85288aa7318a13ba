r"""Estimated time of the transfers of a sweep over the network of their plan.

The estimate uses links, windows and the round trips of logins. A transfer of *S* bytes with *n* streams and a window *W*
uses a path with the slowest link *B* and the round-trip time *T*. It takes

.. math:: t = S / \min(B, r, n W / T) + k T,

where *r* is the rate of storages and *k* = :data:`LOGIN_ROUND_TRIPS`. Transfers of one trial on one path share its link.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from venturi.plan import Plan, TransferStep, Trial
from venturi.plan.header import Header
from venturi.plan.steps import data_steps
from venturi.testbed.paths import NetworkPaths, endpoint_host
from venturi.units import BITS_PER_BYTE

__all__ = ["LOGIN_ROUND_TRIPS", "MAX_SAMPLED_TRIALS", "estimate_transfer_s"]

LOGIN_ROUND_TRIPS = 10
"""Round trips of one call: about twelve for an anonymous globus-url-copy, six for xrdcp, five for iperf3."""

MAX_SAMPLED_TRIALS = 5_000
"""Trials that the estimate examines. The blocks of a longer sweep repeat them."""


def estimate_transfer_s(plan: Plan, rate_bytes_per_s: float) -> float | None:
    """Return the seconds that the consecutive trials of a sweep take over its network.

    Parameters
    ----------
    plan
        Plan of any workload.
    rate_bytes_per_s
        Rate of storages, which no transfer exceeds.

    Returns
    -------
    float or None
        ``None`` for a plan without a network, and for workloads with concurrent trials.
    """
    header = plan.header
    workload = header.scenario.get("workload")
    kind = workload.get("kind") if isinstance(workload, dict) else None
    if header.network is None or kind != "sweep":
        return None
    model = _TransferModel(header, rate_bytes_per_s)
    found = [model.trial_s(host, trial) for host, trial in islice(_trials(plan), MAX_SAMPLED_TRIALS)]
    return sum(found) / len(found) * header.totals.trials if found else None


def _trials(plan: Plan) -> Iterator[tuple[str, Trial]]:
    for line in plan.lines:
        for step in line.steps:
            if isinstance(step, Trial):
                yield line.host, step


class _TransferModel:
    """Limits of a transfer, computed once for each route."""

    def __init__(self, header: Header, rate_bytes_per_s: float) -> None:
        assert header.network is not None
        self._header, self._rate = header, rate_bytes_per_s
        labs = {name: host.lab for name, host in header.hosts.items() if host.lab is not None}
        self._paths = NetworkPaths(header.network, labs)
        self._limits: dict[tuple[str, str], tuple[float, float]] = {}

    def trial_s(self, host: str, trial: Trial) -> float:
        """Return the time of a trial: the time of its slowest transfer, or of the route with the most data."""
        slowest_s, shared = 0.0, dict[tuple[str, str], float]()
        for transfer in data_steps(trial.steps):
            if not isinstance(transfer, TransferStep):
                continue
            size = transfer.bytes if isinstance(transfer.bytes, int) else 0
            route = (
                endpoint_host(self._header, transfer.source_via, host),
                endpoint_host(self._header, transfer.destination_via, host),
            )
            link, rtt_s = self._route_limits(route)
            slowest_s = max(slowest_s, self._transfer_s(transfer, size, link, rtt_s))
            shared[route] = shared.get(route, 0.0) + size / min(link, self._rate)
        return max(slowest_s, max(shared.values(), default=0.0))

    def _transfer_s(self, transfer: TransferStep, size: int, link: float, rtt_s: float) -> float:
        options = self._header.calls[transfer.call].options
        login_s = LOGIN_ROUND_TRIPS * rtt_s
        time_s, window, streams = options.get("time_s"), options.get("window_bytes"), options.get("streams") or 1
        if isinstance(time_s, float):
            return time_s + login_s
        rate = min(link, self._rate)
        if isinstance(window, int) and isinstance(streams, int) and rtt_s:
            rate = min(rate, streams * window / rtt_s)
        return size / rate + login_s

    def _route_limits(self, route: tuple[str, str]) -> tuple[float, float]:
        """Return the rate of the slowest link in bytes per second, and the round-trip time in seconds."""
        if route not in self._limits:
            rate = self._paths.bottleneck_bit_per_s(*route)
            self._limits[route] = (rate / BITS_PER_BYTE if rate else float("inf"), self._paths.rtt_s(*route) or 0.0)
        return self._limits[route]
