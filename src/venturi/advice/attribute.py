r"""Attribution of the time of a trial to resources, from counters of kernels, links and processes.

All functions are pure. The sender of a TCP connection counts its time: busy (:math:`B`), limited by the receive window
(:math:`W`) and by the send buffer (:math:`S`). :math:`W` and :math:`S` are included in :math:`B`. With the life
:math:`L` of the connection, this gives four parts that do not overlap. The fifth part is the time of the transfers
without an open data connection:

==============================  =============================================
part                            candidates
==============================  =============================================
network, :math:`(B-W-S)/L`      link, other traffic, policer, loss, CPU, start-up
receive window, :math:`W/L`     buffer, or a reader that waits for disk or CPU
send buffer, :math:`S/L`        buffer
idle sender, :math:`(L-B)/L`    disks, CPU, client, latency of files, rate limit
no connection                   set-up, authentication, latency of files, slots
==============================  =============================================

Each candidate has a weight from 0 to 1. The weight is the fraction of the time that its own counter reports as busy, or
a smooth step at a stated threshold. A part is divided in proportion to the weights of its candidates. Time without
evidence is ``unknown``.

Source of the counters: Linux ``tcp_info`` (commit efd90174). The division into application, window and path follows
T-RAT.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from venturi.advice.flows import DataFlow
from venturi.advice.observe import LinkTraffic, Observation
from venturi.advice.pressure import CpuPressure, cpu_pressure, disk_pressure, percent, step
from venturi.advice.verdict import Cause, Observed, TimeFraction
from venturi.plan.network import ETHERNET_MSS_BYTES
from venturi.units import format_bytes, format_duration, format_rate

__all__ = ["Attribution", "attribute", "set_up_cause"]

LINK_BUSY = 0.82
"""Busy fraction of the data flow time for a link that is the limit with a probability of 50 %.

A TCP flow limited by the link reaches 0.9.
"""

QUEUED_BUSY = 0.7
"""Like :data:`LINK_BUSY`, for a link with a packet queue during most of the time."""

OWN_TRAFFIC = 0.75
"""Fraction of the bytes of a full link below which other traffic limits the transfers."""

QUEUE_RATIO = 0.25
"""Excess of the mean round trip over the smallest one, as a fraction, that indicates a queue at a full link."""

LOSS_RATIO = 3e-5
"""Minimum ratio of retransmitted to sent bytes for losses that limit a long path."""

DROP_RATIO = 3e-4
"""Minimum fraction of dropped packets at a queue that is too short for the path."""

SHALLOW_QUEUE = 0.2
"""Maximum drain time of a short queue as a fraction of the smallest round trip.

It drops packets before TCP can slow down.
"""

FILLED_RATIO = 0.72
"""Threshold of data in flight per congestion window.

The ratio is above 0.9 if the path limits, and below 0.6 if the program or a buffer limits.
"""

WINDOW_RATIO = 0.55
"""Minimum bytes per round trip and window for a window that limits the mean rate."""

FULL_BUFFER = 0.85
"""Minimum ratio of send queue to send buffer for a full buffer."""

START_UP_ROUND_TRIPS = 20
"""A connection with fewer round trips is mostly in slow start."""

READER_RATIO = 0.3
"""Filled fraction of the receive buffer that indicates a slow reader."""

LIMIT_RATIO = 0.85
"""Minimum fraction of a configured rate for a transfer limited by this rate."""

BASE_WEIGHT = 0.08
"""Weight of an unknown cause in each part."""

PER_FILE = "the latency of each file"

AUTHENTICATED = ("gsi", "krb5", "sss")


@dataclass(slots=True)
class Attribution:
    """Fractions of the time of one trial, with the evidence and the missing evidence."""

    fractions: dict[tuple[Cause, str], float] = field(default_factory=dict)
    evidence: list[Observed] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)

    def divide(self, part: float, weights: dict[tuple[Cause, str], float]) -> None:
        """Divide a part of the time in proportion to weights. If the weights are small, the rest is unknown."""
        known = {key: weight for key, weight in weights.items() if weight > 0}
        unknown = max(BASE_WEIGHT, 1 - sum(known.values()) if sum(known.values()) < 0.5 else 0.0)
        total = sum(known.values()) + unknown
        for key, weight in (*known.items(), (("unknown", ""), unknown)):
            self.fractions[key] = self.fractions.get(key, 0.0) + part * weight / total

    def add(self, text: str, supports: Cause, *, against: bool = False) -> None:
        """Add an observation once."""
        one = Observed(text, supports, against)
        if one not in self.evidence:
            self.evidence.append(one)

    def sorted(self) -> tuple[TimeFraction, ...]:
        """Return the fractions, largest first."""
        found = [
            TimeFraction(cause, resource, fraction)
            for (cause, resource), fraction in self.fractions.items()
            if fraction > 0
        ]
        return tuple(sorted(found, key=lambda one: -one.fraction))


@dataclass(frozen=True, slots=True)
class _Parts:
    network: float
    window: float
    buffer: float
    idle: float
    outside: float


def attribute(one: Observation) -> Attribution:
    """Return the attribution of a trial."""
    found = Attribution()
    timed = [flow for flow in one.flows if flow.busy_s is not None]
    remote = one.source is not None and one.destination is not None and one.source != one.destination
    if not one.flows:
        if remote:
            found.missing.append("TCP counters of the data connections")
        _local(one, found, remote=remote)
        return found
    if not timed:
        found.missing.append("TCP counters of the sender: only the receiver was sampled")
        _receiver_only(one, found)
        return found
    parts = _parts(one, timed)
    found.add(
        f"TCP sender: {percent(parts.network)} of the time limited by the path, {percent(parts.window)} by the receive window, "
        f"{percent(parts.buffer)} by the send buffer, {percent(parts.idle)} idle, {percent(parts.outside)} without a data connection",
        "unknown",
    )
    source_cpu, destination_cpu = cpu_pressure(one, one.source), cpu_pressure(one, one.destination)
    _note_cpu(one, found, source_cpu, "source-cpu")
    _note_cpu(one, found, destination_cpu, "destination-cpu")
    filled = _filled(timed)
    limit = _rate_limit(one, timed)
    idle = _idle(one, timed, found, source_cpu, destination_cpu, limit)
    found.divide(
        parts.network * filled,
        _with_limit(_network(one, timed, found, parts, source_cpu, destination_cpu), limit, found),
    )
    # Data in flight are below the congestion window, so the sender waits for its program or for space in its buffer.
    full = _full_buffer(one, timed, found) if filled < 0.9 else 0.0
    buffer: dict[tuple[Cause, str], float] = {
        ("send-buffer", f"the TCP send buffer of {one.source or 'the sender'}"): full
    }
    found.divide(parts.network * (1 - filled), buffer | {key: (1 - full) * weight for key, weight in idle.items()})
    found.divide(parts.window, _window(one, timed, found, destination_cpu, limit, idle))
    found.divide(parts.buffer, _buffer(one, timed, found, parts))
    found.divide(parts.idle, idle)
    found.divide(parts.outside, _outside(one, timed, found, source_cpu, destination_cpu))
    return found


def _parts(one: Observation, flows: Sequence[DataFlow]) -> _Parts:
    life = sum(flow.alive_s for flow in flows)
    busy = min(life, sum(flow.busy_s or 0.0 for flow in flows))
    window = min(busy, sum(flow.receive_window_limited_s or 0.0 for flow in flows))
    buffer = min(busy - window, sum(flow.send_buffer_limited_s or 0.0 for flow in flows))
    streams = max(1.0, _peak(flows) / one.concurrency)
    open_part = min(1.0, life / (one.transfer_s * streams)) if one.transfer_s > 0 else 0.0
    scale = open_part / life if life > 0 else 0.0
    return _Parts(
        (busy - window - buffer) * scale, window * scale, buffer * scale, (life - busy) * scale, 1 - open_part
    )


def _filled(flows: Sequence[DataFlow]) -> float:
    """Return the fraction of the network time that the congestion window limits, because data in flight fill it."""
    window, rtt_s = _mean(flows, "cwnd_bytes"), _mean(flows, "rtt_s")
    life = sum(flow.alive_s for flow in flows)
    if not window or not rtt_s or life <= 0:
        return 1.0
    flight = sum(flow.bytes for flow in flows) / life * rtt_s
    # If the queue is longer than the window, the path does not accept its data.
    queue, buffer = _mean(flows, "send_queue_bytes"), _mean(flows, "send_buffer_bytes")
    waiting = step(queue / window, 1.2, 0.1) if queue is not None and buffer else 0.0
    return max(step(flight / window, FILLED_RATIO, 0.05), waiting)


def _full_buffer(one: Observation, flows: Sequence[DataFlow], found: Attribution) -> float:
    """Return the weight of a full send buffer as the reason for data in flight below the congestion window."""
    queue, buffer, window = (_mean(flows, name) for name in ("send_queue_bytes", "send_buffer_bytes", "cwnd_bytes"))
    if not queue or not buffer or not window:
        return 0.0
    # The buffer counts overhead too, and a large write can exceed it.
    weight = step(queue / buffer, FULL_BUFFER, 0.08) * step(-queue / window, -1.0, 0.1)
    if weight > 0.05:
        text = f"send buffer of {format_bytes(round(buffer))} with {format_bytes(round(queue))} in its queue"
        found.add(
            f"{text}; the congestion window is {format_bytes(round(window))}", "send-buffer", against=weight < 0.3
        )
    return weight


def _peak(flows: Sequence[DataFlow]) -> int:
    """Return the maximum number of flows that were open at the same time."""
    events = sorted([(flow.start_s, 1) for flow in flows] + [(flow.end_s, -1) for flow in flows])
    now = most = 0
    for _, change in events:
        now += change
        most = max(most, now)
    return max(1, most)


def _mean(flows: Sequence[DataFlow], name: str, *, receiver: bool = False) -> float | None:
    """Return the mean of a gauge over flows, weighted by their bytes."""
    pairs = [
        (value, flow.bytes)
        for flow in flows
        if (value := (flow.receiver_gauges if receiver else flow.gauges).get(name)) is not None
    ]
    total = sum(weight for _, weight in pairs)
    return sum(value * weight for value, weight in pairs) / total if total > 0 else None


def _note_cpu(one: Observation, found: Attribution, cpu: CpuPressure, cause: Cause) -> None:
    if cpu.text:
        found.add(cpu.text, cpu.cause(cause), against=cpu.score < 0.3)
    if cpu.waiting:
        found.add(cpu.waiting, "lab", against=cpu.machine < 0.3)
    for text in cpu.missing:
        if text not in found.missing:
            found.missing.append(text)


def _cpu_weights(source: CpuPressure, destination: CpuPressure) -> dict[tuple[Cause, str], float]:
    weights: dict[tuple[Cause, str], float] = {}
    for pressure, side in ((source, "source-cpu"), (destination, "destination-cpu")):
        # A host that is source and destination counts once.
        if pressure.score > 0 and not any(resource == pressure.resource for _, resource in weights):
            key = (pressure.cause(side), pressure.resource)  # type: ignore[arg-type]
            weights[key] = max(weights.get(key, 0.0), pressure.score)
    machine = max(source.machine, destination.machine)
    if machine > 0:
        weights["lab", "the machine, which has no free CPU"] = machine
    return weights


def _network(
    one: Observation,
    flows: Sequence[DataFlow],
    found: Attribution,
    parts: _Parts,
    source_cpu: CpuPressure,
    destination_cpu: CpuPressure,
) -> dict[tuple[Cause, str], float]:
    weights: dict[tuple[Cause, str], float] = {}
    rtt_s = _mean(flows, "rtt_s")
    min_rtt_s = min((flow.gauges["min_rtt_s"] for flow in flows if "min_rtt_s" in flow.gauges), default=None)
    queueing = rtt_s / min_rtt_s - 1 if rtt_s and min_rtt_s else 0.0
    busiest = max(one.links, key=lambda link: link.busy, default=None)
    if busiest is not None:
        full = _emulated_link(flows, found, weights, busiest, min_rtt_s or 0.0, queueing)
        for link in one.links:
            if link is not busiest:
                found.add(f"link {link.name}: {percent(link.busy)} busy", "link", against=True)
    else:
        full = _path_link(one, found, weights, queueing)
    # A full link is the limit, even if other resources are busy.
    for key, weight in _cpu_weights(source_cpu, destination_cpu).items():
        weights[key] = (1 - 0.8 * full) * weight
    # A sender that pauses between bursts overflows queues in each burst. These losses are not its limit.
    steady = parts.network / (parts.network + parts.idle) if parts.network + parts.idle > 0 else 0.0
    _loss(one, flows, found, weights, (1 - full) * steady**2, rtt_s)
    reading = disk_pressure(one, one.source, one.source_storage, "read")
    if reading.score > 0:
        # The kernel still sends while the program waits for the disk. Without disk counters, only idle time is
        # evidence.
        certainty = 1 - steady if reading.missing else 1.0
        weights["source-disk", reading.resource] = (1 - full) * reading.score * certainty
    if rtt_s:
        trips = sum(flow.alive_s for flow in flows) / len(flows) / rtt_s
        # If a call has many files, each new connection is part of the cost of its file.
        several = one.files >= 2 * max(1, one.transfers)
        growth: tuple[Cause, str] = (
            ("file-latency", PER_FILE) if several else ("start-up", "the slow start of connections")
        )
        weights[growth] = (1 - full) * step(-trips, -START_UP_ROUND_TRIPS, 4.0)
    return weights


def _loss(
    one: Observation,
    flows: Sequence[DataFlow],
    found: Attribution,
    weights: dict[tuple[Cause, str], float],
    factor: float,
    rtt_s: float | None,
) -> None:
    """Add the weight of random losses: losses of the path in a lab, or retransmissions without a queue."""
    sent = sum(flow.sent_bytes for flow in flows)
    again = sum(flow.retransmitted_bytes for flow in flows) / sent if sent > 0 else 0.0
    lost = max((link.loss_drops / link.packets for link in one.links if link.packets > 0), default=again)
    if again <= 0 or not rtt_s:
        return
    mss = _mean(flows, "mss_bytes") or ETHERNET_MSS_BYTES
    weight = factor * step(math.log10(max(min(lost, again), 1e-9)), math.log10(LOSS_RATIO), 0.25)
    weights["loss", "packet loss on the path"] = weight
    mathis = math.sqrt(1.5) * mss / (rtt_s * math.sqrt(again))
    found.add(
        f"{100 * again:.2g} % of the bytes were retransmitted; one connection reaches about {format_rate(mathis)} with this loss at "
        f"{format_duration(rtt_s)}",
        "loss",
        against=weight < 0.3,
    )


def _emulated_link(
    flows: Sequence[DataFlow],
    found: Attribution,
    weights: dict[tuple[Cause, str], float],
    link: LinkTraffic,
    min_rtt_s: float,
    queueing: float,
) -> float:
    """Add the weights of a link with known counters and return the fraction of the time that it explains."""
    full = step(link.busy, LINK_BUSY, 0.03)
    # Losses sometimes keep a link below its rate. A standing queue shows that the link was still the limit.
    full = max(full, step(link.busy, QUEUED_BUSY, 0.04) * step(queueing, 2 * QUEUE_RATIO, 0.06))
    own = min(1.0, sum(flow.sent_bytes for flow in flows) / link.bytes) if link.bytes > 0 else 1.0
    others = step(-own, -OWN_TRAFFIC, 0.04)
    dropped = link.queue_drops / link.packets if link.packets > 0 else 0.0
    overflow = (1 - full) * step(math.log10(max(dropped, 1e-9)), math.log10(DROP_RATIO), 0.2)
    shallow = step(-link.queue_s, -SHALLOW_QUEUE * min_rtt_s, 0.05 * min_rtt_s) if min_rtt_s > 0 else 0.0
    # An overflowing queue shows that the link was full at times, even if TCP did not keep it full.
    used = overflow * (1 - shallow) * step(link.busy, 0.5, 0.08)
    weights["link", f"the link {link.name}"] = (full + used) * (1 - others)
    weights["congestion", f"other traffic on the link {link.name}"] = full * others
    short = overflow * shallow
    if short > 0.05:
        weights["policer", f"the short queue of the link {link.name}"] = short
        found.add(
            f"the queue of {link.name} dropped {100 * dropped:.2g} % of the packets after at most {format_duration(link.queue_s)}",
            "policer",
            against=short < 0.3,
        )
    found.add(f"link {link.name}: {percent(link.busy)} busy", "link", against=full + used < 0.3)
    if others > 0.3 and full > 0.3:
        found.add(f"these transfers send {percent(own)} of the bytes of {link.name}", "congestion")
    if queueing > QUEUE_RATIO and full > 0.3:
        found.add(f"round trips are {percent(queueing)} longer than the shortest one", "link")
    return min(1.0, full + used + short)


def _path_link(
    one: Observation, found: Attribution, weights: dict[tuple[Cause, str], float], queueing: float
) -> float:
    """Add the weights of interfaces and of a path without counters, and return the weight of a full link."""
    full = 0.0
    for host, direction in ((one.source, "tx"), (one.destination, "rx")):
        for name, counter in one.counters:
            if name != host or not counter.startswith("nic.") or not counter.endswith(f".{direction}_bytes"):
                continue
            device = counter.split(".")[1]
            speed = one.environment.get(host or "", {}).get(f"nic.{device}.speed_mbit_per_s")
            grown = one.growth(host, counter)
            if device == "lo" or not speed or float(speed) <= 0 or grown is None:
                continue
            busy = 8 * grown / one.duration_s / (1e6 * float(speed))
            weight = step(busy, LINK_BUSY, 0.03)
            found.add(f"interface {device} of {host}: {percent(busy)} busy", "link", against=weight < 0.3)
            if weight > 0.05:
                weights["link", f"the network interface {device} of {host}"] = weight
            full = max(full, weight)
    queue = step(queueing, QUEUE_RATIO, 0.06)
    if queue > 0.05:
        weights["link", "a link of the path"] = 0.65 * queue * (1 - full)
        weights["congestion", "other traffic on the path"] = 0.35 * queue * (1 - full)
        found.add(f"round trips are {percent(queueing)} longer than the shortest one", "link", against=queue < 0.3)
    return max(full, queue)


def _window(
    one: Observation,
    flows: Sequence[DataFlow],
    found: Attribution,
    destination_cpu: CpuPressure,
    limit: tuple[float, str, str],
    idle: dict[tuple[Cause, str], float],
) -> dict[tuple[Cause, str], float]:
    waiting = _mean(flows, "receive_queue_bytes", receiver=True)
    mean_window, largest = (
        _mean(flows, "send_window_bytes"),
        max((f.max_send_window_bytes or 0.0 for f in flows), default=0.0),
    )
    slow = 0.0
    if waiting is not None and largest > 0:
        slow = step(waiting / largest, READER_RATIO, 0.08)
        found.add(
            f"receive queue of {one.destination}: {format_bytes(round(waiting))} of {format_bytes(round(largest))} not yet read",
            "destination-disk" if slow > 0.5 else "receive-window",
        )
    elif mean_window is not None and largest > 0:
        slow = step(-mean_window / largest, -0.6, 0.08)
    rtt_s = _mean(flows, "rtt_s")
    reached = 1.0
    if mean_window and rtt_s:
        # A sender in bursts fills the window in each burst. It only limits if the mean rate reaches one window per
        # round trip.
        rate = sum(flow.bytes for flow in flows) / max(1e-9, sum(flow.alive_s for flow in flows))
        reached = step(rate * rtt_s / mean_window, WINDOW_RATIO, 0.06)
        found.add(
            f"window of {format_bytes(round(mean_window))} per round trip of {format_duration(rtt_s)}: at most "
            f"{format_rate(mean_window / rtt_s)} per connection",
            "receive-window",
        )
    weights: dict[tuple[Cause, str], float] = {
        ("receive-window", f"the TCP receive window of {one.destination or 'the receiver'}"): (1 - slow) * reached
    }
    for key, weight in idle.items():
        weights[key] = weights.get(key, 0.0) + (1 - slow) * (1 - reached) * weight
    if slow > 0:
        disk = disk_pressure(one, one.destination, one.destination_storage, "write")
        found.missing.extend(text for text in disk.missing if text not in found.missing)
        if disk.text:
            found.add(disk.text, "destination-disk", against=disk.score < 0.3)
        # A reader that waits for neither disk nor CPU is its own limit.
        weights["destination-disk", disk.resource] = (
            weights.get(("destination-disk", disk.resource), 0.0) + slow * disk.score
        )
        key = (destination_cpu.cause("destination-cpu"), destination_cpu.resource)
        weights[key] = weights.get(key, 0.0) + slow * destination_cpu.score
        rest = max(0.0, 1 - disk.score - destination_cpu.score)
        weights["client", f"the program that reads at {one.destination or 'the receiver'}"] = 0.3 * slow * rest
        weights = _with_limit(weights, limit, found)
    return weights


def _buffer(
    one: Observation, flows: Sequence[DataFlow], found: Attribution, parts: _Parts
) -> dict[tuple[Cause, str], float]:
    buffer, rtt_s = _mean(flows, "send_buffer_bytes"), _mean(flows, "rtt_s")
    if buffer is not None and rtt_s and parts.buffer > 0.05:
        found.add(
            f"send buffer of {format_bytes(round(buffer))} full for {percent(parts.buffer)} of the time, "
            f"round trip {format_duration(rtt_s)}",
            "send-buffer",
        )
    return {("send-buffer", f"the TCP send buffer of {one.source or 'the sender'}"): 1.0}


def _rate_limit(one: Observation, flows: Sequence[DataFlow]) -> tuple[float, str, str]:
    """Return weight, resource and evidence of a configured rate."""
    movers = " and ".join(one.movers)
    limits = [
        (float(one.options[key]), f"the option {key.partition('_')[0]} of {movers}")
        for key in ("rate_bytes_per_s", "pacing_bytes_per_s")
        if key in one.options
    ]
    for name in one.services:
        options = ((one.header.get("services") or {}).get(name) or {}).get("options") or {}
        limits += [
            (float(options[key]), f"the option {key.rpartition('_bytes')[0]} of the service {name}")
            for key in ("pacing_bytes_per_s", "process_rate_bytes_per_s")
            if options.get(key)
        ]
    best = (0.0, "", "")
    life = sum(flow.alive_s for flow in flows) / max(1, _peak(flows))
    for limit, resource in limits:
        rates = (one.bytes / life if life > 0 else 0.0, one.bytes / life / _peak(flows) if life > 0 else 0.0)
        ratio = min((rate / limit for rate in rates), key=lambda r: abs(r - 1))
        weight = step(ratio, LIMIT_RATIO, 0.03) * step(-ratio, -1.2, 0.03)
        if weight > best[0]:
            best = (weight, resource, f"data flow at {percent(ratio)} of the configured {format_rate(limit)}")
    return best


def _with_limit(
    weights: dict[tuple[Cause, str], float], limit: tuple[float, str, str], found: Attribution
) -> dict[tuple[Cause, str], float]:
    """Return the weights with the weight of a configured rate. A reached rate explains the time."""
    weight, resource, text = limit
    if weight <= 0.05:
        return weights
    found.add(text, "rate-limit")
    return {key: value * (1 - weight) for key, value in weights.items()} | {("rate-limit", resource): 2 * weight}


def _idle(
    one: Observation,
    flows: Sequence[DataFlow],
    found: Attribution,
    source_cpu: CpuPressure,
    destination_cpu: CpuPressure,
    limit: tuple[float, str, str],
) -> dict[tuple[Cause, str], float]:
    weights = dict(_cpu_weights(source_cpu, destination_cpu))
    reading = disk_pressure(one, one.source, one.source_storage, "read")
    writing = disk_pressure(one, one.destination, one.destination_storage, "write")
    for pressure, cause in ((reading, "source-disk"), (writing, "destination-disk")):
        found.missing.extend(text for text in pressure.missing if text not in found.missing)
        if pressure.text:
            found.add(pressure.text, cause, against=pressure.score < 0.3)  # type: ignore[arg-type]
        if pressure.score > 0:
            weights[cause, pressure.resource] = pressure.score  # type: ignore[index]
    weights = _with_limit(weights, limit, found)
    rest = max(0.0, 1 - sum(weights.values()))
    files = one.files / max(1, one.transfers)
    if files >= 2:
        weights["file-latency", PER_FILE] = rest
    else:
        rtt_s = _mean(flows, "rtt_s")
        # The client is the cause only if counters exclude disks and CPU. Without them, the time has no known cause.
        excluded = not (reading.missing or writing.missing or source_cpu.missing or destination_cpu.missing)
        name = f"the requests of {' and '.join(one.movers) or 'the client'}, one after another"
        short = (
            step(-sum(flow.alive_s for flow in flows) / len(flows) / rtt_s, -START_UP_ROUND_TRIPS, 4.0)
            if rtt_s
            else 0.0
        )
        weights["client", name] = (0.6 if excluded else 0.2) * rest * (1 - short)
        # A connection of a few round trips waits for its session, not for requests.
        weights[set_up_cause(one)] = rest * short
        if rtt_s and rest > 0.4 and excluded:
            flight = one.bytes / max(1e-9, sum(flow.alive_s for flow in flows)) * rtt_s
            found.add(
                f"the sender waits although disks and CPU are idle: {format_bytes(round(flight))} per round trip of "
                f"{format_duration(rtt_s)}",
                "client",
            )
    return weights


def _outside(
    one: Observation,
    flows: Sequence[DataFlow],
    found: Attribution,
    source_cpu: CpuPressure,
    destination_cpu: CpuPressure,
) -> dict[tuple[Cause, str], float]:
    weights = {key: 0.8 * weight for key, weight in _cpu_weights(source_cpu, destination_cpu).items()}
    closed_s = one.transfer_s - sum(flow.alive_s for flow in flows) / max(1.0, _peak(flows) / one.concurrency)
    tail_s = one.end_s - max(flow.end_s for flow in flows)
    rest = max(0.0, 1 - sum(weights.values()))
    writing = disk_pressure(one, one.destination, one.destination_storage, "write")
    if closed_s > 0 and tail_s * one.concurrency > 0.3 * closed_s and writing.score > 0:
        weights["destination-disk", writing.resource] = rest * writing.score
        rest *= 1 - writing.score
        if writing.text:
            found.add(writing.text, "destination-disk")
        found.add(
            f"{format_duration(tail_s)} after the last byte arrived, the destination still wrote", "destination-disk"
        )
    waiting = _slots(one, flows)
    if waiting > 0.05:
        name = next(iter(one.services), "the server")
        weights["server-slots", f"the slots of the service {name}"] = rest * waiting
        rest *= 1 - waiting
        found.add(
            f"{one.concurrency} transfers were active, but at most {_peak(flows)} had a data connection",
            "server-slots",
        )
    calls = max(1, one.transfers)
    per_file_s = max(0.0, closed_s) / one.files
    rtt_s = _mean(flows, "min_rtt_s")
    trips = f" = {per_file_s / rtt_s:.0f} round trips" if rtt_s else ""
    if one.files / calls >= 2:
        weights["file-latency", PER_FILE] = rest
        found.add(f"{format_duration(per_file_s)} per file without data flow{trips}", "file-latency")
    else:
        key = set_up_cause(one)
        weights[key] = rest
        found.add(
            f"{format_duration(per_file_s)} per transfer without data flow{trips}",
            key[0],
        )
    return weights


def _slots(one: Observation, flows: Sequence[DataFlow]) -> float:
    """Return the fraction of the transfers that waited for a slot.

    Transfers wait if they outnumber the simultaneous data connections. Short connections rarely overlap by chance. With
    k simultaneous connections, the weight is therefore the probability that independent connections would have
    overlapped k + 1 times. It is one minus exp of minus the expected number of these overlaps.
    """
    peak = _peak(flows)
    number = len(flows)
    if one.concurrency < 2 or number < one.concurrency or peak >= one.concurrency:
        return 0.0
    part = sum(flow.alive_s for flow in flows) / number / one.duration_s
    expected = math.comb(number, peak + 1) * (peak + 1) * part**peak
    return (1 - peak / one.concurrency) * (1 - math.exp(-expected))


def set_up_cause(one: Observation) -> tuple[Cause, str]:
    """Return cause and resource of the time before the data flow."""
    login = _authentication(one)
    return (
        ("authentication", f"the authentication ({login})")
        if login
        else ("start-up", "the start of the tool and its session")
    )


def _authentication(one: Observation) -> str | None:
    """Return the authentication of the services of the transfers."""
    for name in one.services:
        options = ((one.header.get("services") or {}).get(name) or {}).get("options") or {}
        if options.get("auth") in AUTHENTICATED:
            return str(options["auth"])
        if options.get("tls"):
            return "TLS"
    return None


def _receiver_only(one: Observation, found: Attribution) -> None:
    """Attribute a download from a server without samples, from its effects at the receiver."""
    cpu = cpu_pressure(one, one.destination)
    _note_cpu(one, found, cpu, "destination-cpu")
    weights: dict[tuple[Cause, str], float] = {}
    if cpu.score > 0:
        weights[cpu.cause("destination-cpu"), cpu.resource] = cpu.score
    writing = disk_pressure(one, one.destination, one.destination_storage, "write")
    waiting = sum(flow.receiver_gauges.get("receive_queue_bytes", 0.0) for flow in one.flows)
    buffers = sum(flow.receiver_gauges.get("receive_buffer_bytes", 0.0) for flow in one.flows)
    slow = step(waiting / buffers, 0.5 * READER_RATIO, 0.05) if buffers > 0 else 0.0
    if slow > 0.05:
        weights["destination-disk", writing.resource] = slow * writing.score
    _path_link(one, found, weights, 0.0)
    found.divide(1.0, weights)


def _local(one: Observation, found: Attribution, *, remote: bool) -> None:
    """Attribute a trial without data connections: a copy within a host, or a network without socket samples."""
    weights: dict[tuple[Cause, str], float] = {}
    source_cpu, destination_cpu = cpu_pressure(one, one.source), cpu_pressure(one, one.destination)
    _note_cpu(one, found, source_cpu, "source-cpu")
    if remote:
        _note_cpu(one, found, destination_cpu, "destination-cpu")
    weights |= _cpu_weights(source_cpu, destination_cpu)
    if one.cpu_s is not None and one.transfer_s > 0 and not remote:
        use = one.cpu_s / one.transfer_s
        score = step(use, 0.85, 0.05)
        found.add(f"{' and '.join(one.movers)} used {percent(use)} of a core", "source-cpu", against=score < 0.3)
        key: tuple[Cause, str] = ("source-cpu", f"one core of {one.client}")
        if score > 0.05 and not any(weight > 0.3 for weight in weights.values()):
            weights[key] = score
    reading = disk_pressure(one, one.source, one.source_storage, "read")
    writing = disk_pressure(one, one.destination, one.destination_storage, "write")
    for pressure, cause in ((reading, "source-disk"), (writing, "destination-disk")):
        found.missing.extend(text for text in pressure.missing if text not in found.missing)
        if pressure.text:
            found.add(pressure.text, cause, against=pressure.score < 0.3)  # type: ignore[arg-type]
        if pressure.score > 0:
            weights[cause, pressure.resource] = pressure.score  # type: ignore[index]
    weights = _with_limit(weights, _rate_limit(one, ()), found)
    if remote and one.links:
        busiest = max(one.links, key=lambda link: link.busy)
        _emulated_link((), found, weights, busiest, 0.0, 0.0)
    found.divide(1.0, weights)
