"""Evidence in samples: windows, losses and CPU time of a network test, and the use of CPUs by a part. Pure functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from venturi.measure.result import PartSample, Side

__all__ = ["CpuUse", "NetworkEvidence", "cpu_use", "network_evidence", "thread_activity"]

ACTIVE_RATIO = 0.8
"""If a thread runs or waits for a CPU for this fraction of the time, its limit is the CPU and not disk or network."""

THROTTLED_RATIO = 0.5
"""From this fraction of throttled periods on, the CPU quota is a limit."""

BUSY_RATIO = 0.9
"""From this fraction of busy cores, all CPUs of a host count as busy."""

QUOTA_ACTIVE_RATIO = 0.5
"""The same while a quota stops the process: other threads of its control group use a part of the quota."""

STALLED_RATIO = 0.25
"""If a window stops the sender for this fraction of the sending time, the window is a limit, because it stops the sender
once per round trip. On paths with another limit, the fraction is below 0.02."""


@dataclass(frozen=True, slots=True)
class NetworkEvidence:
    """Medians of the network samples. None: unknown.

    Attributes
    ----------
    scaling
        Rate of all connections divided by the rate of one connection.
    receive_window_ratio, send_buffer_ratio
        Fraction of the sending time while the receive window, or the send buffer, stopped the sender.
    retransmit_ratio
        Retransmitted bytes divided by sent bytes.
    sender_activity, receiver_activity
        Fraction of the time while a thread used or waited for a CPU.
    min_rtt_s
        Smallest round-trip time.
    congestion_control
        Algorithm of the sender.
    """

    scaling: float | None = None
    receive_window_ratio: float | None = None
    send_buffer_ratio: float | None = None
    retransmit_ratio: float | None = None
    sender_activity: float | None = None
    receiver_activity: float | None = None
    min_rtt_s: float | None = None
    congestion_control: str | None = None


@dataclass(frozen=True, slots=True)
class CpuUse:
    """CPU use of one host during a part; medians of the samples.

    Attributes
    ----------
    is_limit
        Whether the CPU limits the part.
    phrase
        The reason for messages; empty without one.
    """

    is_limit: bool
    phrase: str


def network_evidence(samples: Sequence[PartSample]) -> NetworkEvidence:
    """Return the evidence of all network samples with a rate."""
    tests = [sample for sample in samples if sample.rate_bytes_per_s is not None]

    def middle(value: Callable[[PartSample], float | None]) -> float | None:
        found = [number for sample in tests if (number := value(sample)) is not None]
        return median(found) if found else None

    names = {name for sample in tests if (name := _sender(sample).get("congestion_control"))}
    return NetworkEvidence(
        scaling=middle(_scaling),
        receive_window_ratio=middle(lambda sample: _ratio(sample, "receive_window_limited_s", "busy_s")),
        send_buffer_ratio=middle(lambda sample: _ratio(sample, "send_buffer_limited_s", "busy_s")),
        retransmit_ratio=middle(lambda sample: _ratio(sample, "retransmitted_bytes", "sent_bytes")),
        sender_activity=middle(lambda sample: _end_activity(sample, "sender")),
        receiver_activity=middle(lambda sample: _end_activity(sample, "receiver")),
        min_rtt_s=middle(_min_rtt),
        congestion_control=names.pop() if len(names) == 1 else None,
    )


def thread_activity(detail: Mapping[str, Any], threads: int, elapsed_s: float) -> float | None:
    """Return the fraction of the time while the threads of a process used or waited for a CPU; None: unknown."""
    times = [detail.get(key) for key in ("cpu_s", "cpu_wait_s")]
    if elapsed_s <= 0 or any(time is None for time in times):
        return None
    return sum(float(time or 0.0) for time in times) / (threads * elapsed_s)


def cpu_use(samples: Sequence[PartSample], side: Side, *, activity: float | None = None) -> CpuUse:
    """Return whether the CPU of a host limits a part.

    Parameters
    ----------
    samples
        All samples of the part.
    side
        The host.
    activity
        :func:`thread_activity` of the measuring process on the host. Without it, busy CPUs also indicate a limit.
    """
    loads = [sample.load[side] for sample in samples if sample.error is None and side in sample.load]
    throttled = [load.throttled_ratio for load in loads if load.throttled_ratio is not None]
    quotas = [load.quota_cores for load in loads if load.quota_cores is not None]
    busy = [load.busy_ratio for load in loads if load.busy_ratio is not None]
    if throttled and median(throttled) >= THROTTLED_RATIO and (activity is None or activity >= QUOTA_ACTIVE_RATIO):
        quota = f" of {median(quotas):.3g} cores" if quotas else ""
        return CpuUse(
            True, f"a CPU quota{quota} stopped the processes in {_percent(median(throttled))} of its periods"
        )
    if activity is not None:
        phrase = f"its threads used or waited for a CPU for {_percent(activity)} of the time"
        return CpuUse(True, phrase) if activity >= ACTIVE_RATIO else CpuUse(False, "")
    if busy and median(busy) >= BUSY_RATIO:
        return CpuUse(True, f"the cores were {_percent(median(busy))} busy")
    return CpuUse(False, "")


def _percent(ratio: float) -> str:
    return f"{100 * min(ratio, 1.0):.0f} %"


def _sender(sample: PartSample) -> Mapping[str, Any]:
    connections = (sample.detail.get("sender") or {}).get("connections") or [{}]
    return dict(connections[0])


def _ratio(sample: PartSample, part: str, whole: str) -> float | None:
    connections = (sample.detail.get("sender") or {}).get("connections") or []
    if not connections or any(connection.get(key) is None for connection in connections for key in (part, whole)):
        return None
    total = sum(float(connection[whole]) for connection in connections)
    return sum(float(connection[part]) for connection in connections) / total if total else None


def _scaling(sample: PartSample) -> float | None:
    one = sample.one_connection_bytes_per_s
    return None if not one or sample.rate_bytes_per_s is None else sample.rate_bytes_per_s / one


def _end_activity(sample: PartSample, end: str) -> float | None:
    elapsed_s = sample.duration_s + float(sample.detail.get("omitted_s") or 0.0)
    return thread_activity(sample.detail.get(end) or {}, int(sample.detail.get("connections") or 1), elapsed_s)


def _min_rtt(sample: PartSample) -> float | None:
    connections = (sample.detail.get("sender") or {}).get("connections") or []
    found = [float(connection["min_rtt_s"]) for connection in connections if connection.get("min_rtt_s") is not None]
    return min(found) if found else None
