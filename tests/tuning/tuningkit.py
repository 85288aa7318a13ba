"""Paths with a known rate for each number of connections, and a scenario with a known limit."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from venturi.stats import mean_interval
from venturi.tuning import TunedSettings, TunePath, TuneProbe

MB = 1e6

SCENARIO = """
venturi = 1
name = "far"

[testbed.host.a]
[testbed.host.b]

[testbed.link.wan]
between = ["a", "b"]
rate = "1 Gb/s"
rtt = "100 ms"

[testbed.storage.data]
host = "a"
path = "data"
kind = "disk"
size = "1 TB"
read_rate = "8 Gb/s"

[testbed.storage.copies]
host = "b"
path = "copies"
kind = "disk"
size = "1 TB"
write_rate = "8 Gb/s"

[testbed.service.server]
kind = "gridftp"
host = "a"
storage = ["data"]

[workload]
kind = "sweep"
mover = "globus-url-copy"
source = "data"
destination = "copies"
files_per_call = 8
factors.size = ["100 MB"]
"""


def probe(rate: float, *, success: float = 1.0, lost: float | None = None, **settings: int) -> TuneProbe:
    """Return a probe of this rate in B/s without noise."""
    return TuneProbe(
        TunedSettings(**settings), (rate, rate), mean_interval((rate, rate)), 1.0, None, lost, success=success
    )


def numbers(controller, path: TunePath, rates: Sequence[float]) -> list[int]:
    """Return the concurrency that a controller chooses before each rate in MB/s, and after the last one."""
    chosen = [controller.first(path)]
    history = []
    for rate in rates:
        history.append(TuneProbe(chosen[-1], (rate * MB,)))
        chosen.append(controller.next(path, history))
    return [one.concurrency if isinstance(one, TunedSettings) else one.settings.concurrency for one in chosen]


@dataclass
class KnownRates:
    """Backend whose rate is a function of the connections, in MB/s; the defaults have ``default`` connections."""

    rate: Callable[[int], float]
    path: TunePath
    default: int = 1
    mover: str = "globus-url-copy"
    tried: list[TunedSettings] = field(default_factory=list)

    def measure(self, settings: TunedSettings, remaining_s: float) -> TuneProbe:
        self.tried.append(settings)
        rate = self.rate(settings.connections or self.default) * MB
        return TuneProbe(settings, (rate, rate), mean_interval((rate, rate)), 1.0)

    def path_properties(self, baseline: TuneProbe) -> TunePath:
        values = {name: getattr(self.path, name) for name in self.path.__slots__}
        return TunePath(**{**values, "default_rate_bytes_per_s": baseline.rate_bytes_per_s})


def window_limited(connection: float, capacity: float) -> Callable[[int], float]:
    """Return min(n·r1, C)."""
    return lambda n: min(n * connection, capacity)


def overloaded(connection: float, capacity: float, knee: int) -> Callable[[int], float]:
    """Return min(n·r1, C), divided by 1 + ((n − knee)/knee)² above the knee."""
    return lambda n: min(n * connection, capacity) / (1 + (max(0, n - knee) / knee) ** 2)


def saturating(capacity: float, half: float) -> Callable[[int], float]:
    """Return C·n/(n + h)."""
    return lambda n: capacity * n / (n + half)


def is_close(a: float, b: float, relative: float = 1e-9) -> bool:
    return math.isclose(a, b, rel_tol=relative)
