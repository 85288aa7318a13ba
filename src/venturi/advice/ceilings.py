r"""Rates that each resource alone would allow, and the predicted rate after one limit is removed.

The time of a trial has serial parts (start, authentication, latency of files) and the time of the data flow. Without
limit :math:`c`, the data flow has the smallest of the other ceilings:

.. math:: T' = \sum_{i \ne c,\ \text{serial}} s_i T + \frac{V}{\min_{j \ne c} C_j}

=============  =====================================================  ==============================
resource       ceiling :math:`C`                                      source
=============  =====================================================  ==============================
link           rate × MSS / (MSS + headers) × own fraction           RFC 9293
window         connections × largest window / RTT                     RFC 7323
loss           connections × larger of Reno and CUBIC                 Mathis 1997; RFC 9438, eq. 5
CPU            present rate / use of the quota, core or host          measured
disk           declared rate of the storage                           scenario
=============  =====================================================  ==============================
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from venturi.advice.observe import Observation, covered_s
from venturi.advice.pressure import waits_for_writes
from venturi.advice.verdict import Cause, Counterfactual, TimeFraction
from venturi.plan.network import ETHERNET_MSS_BYTES, INITIAL_WINDOW_BYTES, TCP_HEADER_BYTES
from venturi.run.route_links import forward_links

__all__ = ["Ceiling", "ceilings", "predict_without"]

SERIAL: frozenset[Cause] = frozenset({"start-up", "authentication", "file-latency", "server-slots"})
"""Causes whose time adds to the time of the data flow. The others overlap with it."""

SERIAL_LOW, SERIAL_HIGH = 0.85, 1.3
"""Range of the serial time of another run, relative to this run. The start of a tool depends on other work of the machine."""

REMOVED_LOW = 0.7
"""Minimum fraction of the time of a limit that its removal saves.

Source: development seeds of `bench/attribution.py`, 2026-11-29.
"""

TCP_USE = 0.95
"""Fraction of a link that one TCP connection uses, with its recovery from losses."""

WINDOW_PER_BUFFER = 0.5
"""Window that the kernel offers per byte of receive buffer (tcp_adv_win_scale = 1)."""

DATA_PER_SEND_BUFFER = 1.0
"""Data in flight per byte of send buffer. Large segments have little overhead, and a write can exceed the buffer."""


@dataclass(frozen=True, slots=True)
class Ceiling:
    """Rate that one resource allows, with the ratios of the ends of its 80 % interval to the rate."""

    cause: Cause
    resource: str
    rate_bytes_per_s: float
    low_ratio: float
    high_ratio: float


def ceilings(one: Observation, *, alone: bool = False) -> tuple[Ceiling, ...]:
    """Return the known ceilings of the data flow of a trial, smallest first.

    With ``alone``, other traffic on its links is ignored.
    """
    found = [*_links(one, alone=alone), *_interfaces(one), *_windows(one), *_losses(one), *_cpus(one), *_disks(one)]
    return tuple(sorted(found, key=lambda ceiling: ceiling.rate_bytes_per_s))


def _links(one: Observation, *, alone: bool) -> list[Ceiling]:
    mss = next((flow.gauges["mss_bytes"] for flow in one.flows if "mss_bytes" in flow.gauges), ETHERNET_MSS_BYTES)
    sent = sum(flow.sent_bytes for flow in one.flows) or one.bytes
    found = []
    for link in one.links:
        if link.rate_bytes_per_s:
            shared = link.bytes > 0 and link.busy > 0.5 and not alone
            own = min(1.0, sent * (1 + TCP_HEADER_BYTES / mss) / link.bytes) if shared else 1.0
            rate = link.rate_bytes_per_s * own * TCP_USE * mss / (mss + TCP_HEADER_BYTES)
            found.append(Ceiling("link", f"the link {link.name}", rate, 0.75, 1.05))
    return found


def _interfaces(one: Observation) -> list[Ceiling]:
    found = []
    for host in {one.source, one.destination} - {None} if one.source != one.destination and not one.links else set():
        for key, value in one.environment.get(str(host), {}).items():
            if key.startswith("nic.") and key.endswith(".speed_mbit_per_s") and float(value) > 0:
                device = key.split(".")[1]
                rate = 1e6 / 8 * float(value) * TCP_USE
                found.append(Ceiling("link", f"the network interface {device} of {host}", rate, 0.7, 1.05))
    return found


def _setting_bytes(one: Observation, host: str | None, name: str) -> float | None:
    text = one.sysctl(host, name)
    return float(text.split()[-1]) if text else None


def _concurrent(one: Observation) -> float:
    """Return the mean number of data connections that are open at the same time."""
    covered = covered_s(one.flows)
    return max(1.0, sum(flow.alive_s for flow in one.flows) / covered) if covered > 0 else 1.0


def _rtt_s(one: Observation) -> float | None:
    """Return the smallest measured round trip. Without connections, return the delay of the declared links."""
    found = [flow.gauges["min_rtt_s"] for flow in one.flows if "min_rtt_s" in flow.gauges]
    if found:
        return min(found)
    network = one.header.get("network")
    if not network or one.source is None or one.destination is None or one.source == one.destination:
        return None
    links = (
        *forward_links(network, one.source, one.destination),
        *forward_links(network, one.destination, one.source),
    )
    return sum(float(network["links"][name]["delay_s"]) for name in links) or None


def _windows(one: Observation) -> list[Ceiling]:
    rtt_s = _rtt_s(one)
    if not rtt_s:
        return []
    number = _concurrent(one)
    found = []
    received = [flow.receiver_gauges.get("receive_buffer_bytes", 0.0) for flow in one.flows]
    sent = [flow.gauges.get("send_buffer_bytes", 0.0) for flow in one.flows]
    for cause, host, name, ratio, text, seen in (
        ("receive-window", one.destination, "net.ipv4.tcp_rmem", WINDOW_PER_BUFFER, "receive window", received),
        ("send-buffer", one.source, "net.ipv4.tcp_wmem", DATA_PER_SEND_BUFFER, "send buffer", sent),
    ):
        size = _setting_bytes(one, host, name)
        if size is not None:
            # The kernel setting does not limit a program that sets its own buffer.
            size = max(size, *seen, 0.0)
            resource = f"the TCP {text} of {host}"
            low, high = (0.6, 1.4) if cause == "receive-window" else (0.4, 2.0)
            found.append(Ceiling(cause, resource, number * ratio * size / rtt_s, low, high))  # type: ignore[arg-type]
    return found


def _losses(one: Observation) -> list[Ceiling]:
    rtt_s = _rtt_s(one)
    sent = sum(flow.sent_bytes for flow in one.flows)
    if not rtt_s or sent <= 0:
        return []
    if one.links:
        lost = max((link.loss_drops / link.packets for link in one.links if link.packets > 0), default=0.0)
    else:
        lost = sum(flow.retransmitted_bytes for flow in one.flows) / sent
    if lost <= 0:
        return []
    mss = next((flow.gauges["mss_bytes"] for flow in one.flows if "mss_bytes" in flow.gauges), ETHERNET_MSS_BYTES)
    reno = math.sqrt(1.5 / lost)
    cubic = 1.054 * (rtt_s / lost) ** 0.75
    rate = _concurrent(one) * mss * max(reno, cubic) / rtt_s
    return [Ceiling("loss", "packet loss on the path", rate, 0.5, 1.8)]


def _cpus(one: Observation) -> list[Ceiling]:
    found = []
    rate = one.rate_bytes_per_s
    for side, host in (("source-cpu", one.source), ("destination-cpu", one.destination)):
        if host is None:
            continue
        cores = one.lab(host).get("cpu_limit_cores")
        used = [one.ratio(host, f"cgroup.cpu.{name}_s") for name in ("user", "system")]
        if cores and all(value is not None for value in used):
            use = sum(value or 0.0 for value in used)
            if use > 0:
                found.append(Ceiling(side, f"the CPU quota of {host}", rate * float(cores) / use, 0.6, 1.3))  # type: ignore[arg-type]
            continue
        names = [f"process.server.{name}" for name, at in one.services.items() if at == host]
        names += ["process.mover"] if host == one.client else []
        for name in names:
            busiest = one.ratio(host, f"{name}.busiest_thread_s")
            if busiest:
                cause = "server-cpu" if "server" in name else side
                text = f"one thread of {name.removeprefix('process.server.').replace('process.mover', 'the mover')} on {host}"
                found.append(Ceiling(cause, text, rate / busiest, 0.5, 1.2))  # type: ignore[arg-type]
    return found


def _disks(one: Observation) -> list[Ceiling]:
    found = []
    for cause, host, storage, key in (
        ("source-disk", one.source, one.source_storage, "read_bytes_per_s"),
        ("destination-disk", one.destination, one.destination_storage, "write_bytes_per_s"),
    ):
        rate = one.spec(storage).get(key)
        # Writes that stay in memory are faster than the disk, so only its reads are a ceiling of every transfer.
        if rate and (cause == "source-disk" or waits_for_writes(one)):
            found.append(Ceiling(cause, f"the disk of storage {storage} on {host}", float(rate), 0.75, 1.1))  # type: ignore[arg-type]
    return found


def predict_without(
    one: Observation, cause: Cause, resource: str, fractions: Sequence[TimeFraction], change: str
) -> Counterfactual:
    """Return the predicted rate of a trial without one limit.

    Parameters
    ----------
    one
        The trial.
    cause, resource
        The removed limit.
    fractions
        Fractions of its time.
    change
        Text of the change.
    """
    rate = one.rate_bytes_per_s
    serial_s = one.duration_s * sum(
        fraction.fraction for fraction in fractions if fraction.cause in SERIAL and fraction.cause != cause
    )
    flow_rate = one.bytes / max(1e-9, one.duration_s * (1 - sum(s.fraction for s in fractions if s.cause in SERIAL)))
    others = [
        ceiling
        for ceiling in ceilings(one, alone=cause == "congestion")
        if not (ceiling.cause == cause and (cause != "link" or ceiling.resource == resource))
        and not (cause == "server-cpu" and ceiling.cause in ("source-cpu", "destination-cpu"))
    ]
    if not one.bytes:
        return Counterfactual(change, None, rate, None, "unknown: the files are empty")
    if not others:
        return Counterfactual(change, None, rate, None, "unknown: the run has no rate of another resource")
    smallest = min(others, key=lambda ceiling: ceiling.rate_bytes_per_s)
    if cause in SERIAL:
        # The data flow stays unchanged. If files now overlap, its ceilings are the limit.
        best = (
            smallest.rate_bytes_per_s
            if cause in ("file-latency", "server-slots")
            else min(smallest.rate_bytes_per_s, flow_rate)
        )
    else:
        best = max(smallest.rate_bytes_per_s, flow_rate)
    rtt_s = _rtt_s(one)
    # Slow start doubles the window in each round trip. Its last round has nearly the full rate.
    rounds = max(0.0, math.log2(max(1.0, best * rtt_s / INITIAL_WINDOW_BYTES)) - 1) if rtt_s else 0.0
    growth_s = rounds * (rtt_s or 0.0) * max(1, one.transfers) / one.concurrency
    fastest_s, slowest_s, shortest_s = (
        serial_s * ratio + growth_s + one.bytes / (best * rate_ratio)
        for ratio, rate_ratio in ((1.0, 1.0), (SERIAL_HIGH, smallest.low_ratio), (SERIAL_LOW, smallest.high_ratio))
    )
    # If the other resources took turns with this one, their time remains. If they overlapped, the next ceiling counts.
    removed = next((one.fraction for one in fractions if (one.cause, one.resource) == (cause, resource)), 0.0)
    turns_s = one.duration_s * (1 - removed)
    value = one.bytes / math.sqrt(fastest_s * max(fastest_s, turns_s))
    low = one.bytes / max(slowest_s, one.duration_s * (1 - REMOVED_LOW * removed))
    high = one.bytes / shortest_s
    return Counterfactual(change, max(value, rate), max(low, rate), max(high, rate), smallest.resource)
