"""Current rates of a host and of links, from the last samples of cumulative counters."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["WINDOW_S", "SampledHost"]

WINDOW_S = 3.0
"""Time window of a rate: some samples, and short enough to show a change."""

MAX_SAMPLES = 256
"""Most samples in the window. With an interval below 12 ms, the window is shorter."""

_CPU = {
    "cpu.user_s": "busy", "cpu.system_s": "busy", "cpu.steal_s": "busy", "cpu.idle_s": "idle", "cpu.iowait_s": "idle",
    "cgroup.cpu.user_s": "own", "cgroup.cpu.system_s": "own",
}  # fmt: skip


def _channel(counter: str) -> str | None:
    """Return the channel of a counter, or None. Channels of links are ``link.NAME.bytes`` and ``.busy_s``."""
    if counter in _CPU:
        return _CPU[counter]
    family, _, rest = counter.partition(".")
    device, _, value = rest.rpartition(".")
    if family == "nic" and value in ("rx_bytes", "tx_bytes"):
        if device == "lo":
            return "loopback" if value == "rx_bytes" else None
        return "received" if value == "rx_bytes" else "sent"
    if family == "disk" and value in ("read_bytes", "write_bytes"):
        kind = "loop " if device.startswith("loop") else ""
        return f"{kind}{'read' if value == 'read_bytes' else 'written'}"
    return counter if family == "link" and value in ("bytes", "busy_s") else None


class SampledHost:
    """Samples of one host in a time window.

    Attributes
    ----------
    last_s
        Time of the last sample, in seconds since the epoch of the run. None before the first one.

    Examples
    --------
    >>> host = SampledHost()
    >>> host.add({"time_s": 1.0, "set": "a", "counters": {"nic.eth0.rx_bytes": 0.0, "cpu.user_s": 0.0, "cpu.idle_s": 0.0}})
    >>> host.add({"time_s": 2.0, "set": "a", "values": [5e6, 0.5, 1.5]})
    >>> host.rates()["received"], host.cpu(None)
    (5000000.0, 0.25)
    """

    def __init__(self) -> None:
        self._names: dict[str, tuple[tuple[int, str], ...]] = {}
        self._samples: deque[tuple[float, dict[str, float]]] = deque(maxlen=MAX_SAMPLES)
        self.last_s: float | None = None

    def add(self, sample: Mapping[str, Any]) -> None:
        """Add a line of ``samples.jsonl``. A line whose set of counters is unknown is ignored."""
        time_s = float(sample["time_s"])
        counters = sample.get("counters")
        key = str(sample.get("set") or "")
        values: Sequence[float]
        if counters is not None:
            self._names[key] = tuple(
                (index, channel) for index, name in enumerate(counters) if (channel := _channel(name)) is not None
            )
            values = list(counters.values())
        else:
            values = sample.get("values") or ()
        sums: dict[str, float] = {}
        for index, channel in self._names.get(key, ()):
            sums[channel] = sums.get(channel, 0.0) + values[index]
        self._samples.append((time_s, sums))
        self.last_s = time_s
        while self._samples[0][0] < time_s - WINDOW_S and len(self._samples) > 2:
            self._samples.popleft()

    def rates(self) -> dict[str, float]:
        """Return channel → growth per second over the window. Empty before the second sample."""
        if len(self._samples) < 2:
            return {}
        (first_s, first), (last_s, last) = self._samples[0], self._samples[-1]
        if last_s <= first_s:
            return {}
        grown = {name: (value - first[name]) / (last_s - first_s) for name, value in last.items() if name in first}
        # A counter that decreased belongs to a host that restarted.
        found = {name: rate for name, rate in grown.items() if rate >= 0.0}
        for name in ("read", "written"):
            # A loop device is a file on another disk, so it only counts without another disk.
            loop = found.pop(f"loop {name}", None)
            if loop is not None and name not in last:
                found[name] = loop
        return found

    def cpu(self, cores: float | None) -> float | None:
        """Return the busy fraction of the CPU, 0 to 1; None without counters.

        Parameters
        ----------
        cores
            Cores that a host of a lab can use. If given, and if the host has its own CPU time, this is the fraction of them.
            Otherwise, it is the fraction of the whole machine.
        """
        rates = self.rates()
        if cores and "own" in rates:
            return min(rates["own"] / cores, 1.0)
        busy, idle = rates.get("busy"), rates.get("idle")
        if busy is None or idle is None or busy + idle <= 0.0:
            return None
        return busy / (busy + idle)

    def links(self) -> dict[str, tuple[float, float | None]]:
        """Return link → bytes per second, and its busy fraction of the time, 0 to 1 (None without a counter)."""
        rates = self.rates()
        found: dict[str, tuple[float, float | None]] = {}
        for name, rate in rates.items():
            link, _, value = name.removeprefix("link.").rpartition(".")
            if name.startswith("link.") and value == "bytes":
                busy = rates.get(f"link.{link}.busy_s")
                found[link] = rate, None if busy is None else min(busy, 1.0)
        return found
