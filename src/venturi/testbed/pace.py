r"""How fast the transfers of a sweep can be over the network of their plan: links, windows, and the round trips of logging in.

Of a transfer of *S* bytes with *n* streams and a window *W* over a way with the slowest link *B* and the round-trip time *T*,

.. math:: t = S / \min(B, r, n W / T) + k T,

where *r* is the rate of storages and *k* = :data:`LOGIN_ROUND_TRIPS`. Transfers of one trial over one way share its link.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from venturi.plan import Parallel, Plan, Step, Transfer, Trial
from venturi.plan.header import Header
from venturi.testbed.paths import Paths
from venturi.units import BITS_PER_BYTE

__all__ = ["LOGIN_ROUND_TRIPS", "MOST_TRIALS", "moving_s"]

LOGIN_ROUND_TRIPS = 10
"""Of one call: an anonymous globus-url-copy takes about twelve, xrdcp six, iperf3 five."""

MOST_TRIALS = 5_000
"""Trials that are looked at: the others of a longer sweep are taken to be like them, as its blocks are."""


def moving_s(plan: Plan, rate_bytes_per_s: float) -> float | None:
    """Return the seconds that the trials of a sweep take over its network, one after the other.

    Parameters
    ----------
    plan
        Of any workload.
    rate_bytes_per_s
        The rate of storages: no transfer is faster.

    Returns
    -------
    float or None
        ``None`` for a plan without a network, and for one whose trials do not follow each other.
    """
    header = plan.header
    workload = header.scenario.get("workload")
    kind = workload.get("kind") if isinstance(workload, dict) else None
    if header.network is None or kind != "sweep":
        return None
    pace = _Pace(header, rate_bytes_per_s)
    found = [pace.trial_s(host, trial) for host, trial in islice(_trials(plan), MOST_TRIALS)]
    return sum(found) / len(found) * header.totals.trials if found else None


def _trials(plan: Plan) -> Iterator[tuple[str, Trial]]:
    for line in plan.lines:
        for step in line.steps:
            if isinstance(step, Trial):
                yield line.host, step


class _Pace:
    """What limits a transfer, looked up once for each way."""

    def __init__(self, header: Header, rate_bytes_per_s: float) -> None:
        assert header.network is not None
        self._header, self._rate = header, rate_bytes_per_s
        labs = {name: host.lab for name, host in header.hosts.items() if host.lab is not None}
        self._paths = Paths(header.network, labs)
        self._known: dict[tuple[str, str], tuple[float, float]] = {}

    def trial_s(self, host: str, trial: Trial) -> float:
        """Return the time of a trial: that of its slowest transfer, or of its fullest way."""
        alone, shared = 0.0, dict[tuple[str, str], float]()
        for transfer in _transfers(trial.steps):
            size = transfer.bytes if isinstance(transfer.bytes, int) else 0
            way = (self._end(transfer.source_via, host), self._end(transfer.destination_via, host))
            link, rtt_s = self._way(way)
            alone = max(alone, self._transfer_s(transfer, size, link, rtt_s))
            shared[way] = shared.get(way, 0.0) + size / min(link, self._rate)
        return max(alone, max(shared.values(), default=0.0))

    def _transfer_s(self, transfer: Transfer, size: int, link: float, rtt_s: float) -> float:
        options = self._header.calls[transfer.call].options
        login_s = LOGIN_ROUND_TRIPS * rtt_s
        time_s, window, streams = options.get("time_s"), options.get("window_bytes"), options.get("streams") or 1
        if isinstance(time_s, float):
            return time_s + login_s
        rate = min(link, self._rate)
        if isinstance(window, int) and isinstance(streams, int) and rtt_s:
            rate = min(rate, streams * window / rtt_s)
        return size / rate + login_s

    def _end(self, via: str | None, host: str) -> str:
        return host if via is None else self._header.services[via.partition("/")[0]].host

    def _way(self, way: tuple[str, str]) -> tuple[float, float]:
        """Return the rate of the slowest link in bytes per second, and the round-trip time in seconds."""
        if way not in self._known:
            rate = self._paths.bottleneck_bit_per_s(*way)
            self._known[way] = (rate / BITS_PER_BYTE if rate else float("inf"), self._paths.rtt_s(*way) or 0.0)
        return self._known[way]


def _transfers(steps: Iterable[Step]) -> Iterator[Transfer]:
    for step in steps:
        if isinstance(step, Transfer):
            yield step
        elif isinstance(step, Parallel):
            for child in step.children:
                yield from _transfers(child)
