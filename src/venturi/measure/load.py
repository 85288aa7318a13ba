"""Load of a host between two readings of its counters (``venturi-engine counters``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["HostLoad", "load_between"]


@dataclass(frozen=True, slots=True)
class HostLoad:
    """Load of a host during a sample. None: unknown.

    Attributes
    ----------
    cores
        Cores that processes of the measurement can use.
    busy_cores, iowait_cores, steal_cores
        Mean number of cores that were busy, waited for disks, or were used by the hypervisor for other machines.
    quota_cores
        CPU quota of the control group.
    throttled_ratio
        Fraction of the quota's periods with stopped processes.
    cpu_pressure, io_pressure, memory_pressure
        Fraction of the time while a process waited for the resource.
    """

    cores: int
    busy_cores: float | None = None
    iowait_cores: float | None = None
    steal_cores: float | None = None
    quota_cores: float | None = None
    throttled_ratio: float | None = None
    cpu_pressure: float | None = None
    io_pressure: float | None = None
    memory_pressure: float | None = None

    @property
    def busy_ratio(self) -> float | None:
        """Busy fraction of all cores."""
        return None if self.busy_cores is None else self.busy_cores / self.cores


def load_between(before: Mapping[str, Any], after: Mapping[str, Any]) -> HostLoad:
    """Return the load between two readings of one host.

    Examples
    --------
    >>> load_between({"unix_s": 1, "cores": 2, "cpu": {"busy_s": 10}}, {"unix_s": 3, "cores": 2, "cpu": {"busy_s": 13}}).busy_cores
    1.5
    """
    elapsed_s = float(after["unix_s"]) - float(before["unix_s"])
    quota = after.get("quota") or {}
    periods = _change(before, after, "quota", "periods")
    throttled = _change(before, after, "quota", "throttled_periods")
    mean = {
        name: change / elapsed_s if (change := _change(before, after, *path)) is not None and elapsed_s > 0 else None
        for name, path in _MEANS.items()
    }
    return HostLoad(
        cores=int(after["cores"]),
        quota_cores=quota.get("cores"),
        throttled_ratio=throttled / periods if throttled is not None and periods else None,
        **mean,
    )


_MEANS = {
    "busy_cores": ("cpu", "busy_s"),
    "iowait_cores": ("cpu", "iowait_s"),
    "steal_cores": ("cpu", "steal_s"),
    "cpu_pressure": ("pressure", "cpu"),
    "io_pressure": ("pressure", "io"),
    "memory_pressure": ("pressure", "memory"),
}


def _change(before: Mapping[str, Any], after: Mapping[str, Any], *path: str) -> float | None:
    found: list[float] = []
    for reading in (before, after):
        value: Any = reading
        for key in path:
            value = value.get(key) if isinstance(value, Mapping) else None
        if value is None:
            return None
        found.append(float(value))
    return found[1] - found[0]
