"""Pure functions that find the limit of a path from its samples.

The copy cannot be faster than its smallest part. The mover from memory to memory contains the network, so it counts as
the smallest part only if it is clearly slower than the network alone. Parts that use the same resource take turns, and
their times add up:

.. math:: \\frac{1}{v} = \\sum_i \\frac{1}{v_i}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from venturi.measure.evidence import STALLED_RATIO, CpuUse, cpu_use, network_evidence, thread_activity
from venturi.measure.result import PARTS, CopyPrediction, Limit, Part, PartResult, PartSample, PathResult, Side
from venturi.stats import Interval, median_interval, shortest_median_sample
from venturi.units import format_bytes, format_duration, format_rate

__all__ = ["LEVEL", "PathDescription", "evaluate_path", "harmonic_sum"]

LEVEL = 0.90
"""Confidence of all intervals."""

METHOD_RATIO = 0.03
"""Systematic error of a rate that all rounds share: starts and ends, metadata of file systems, and headers.
``bench/measure.py`` determines it with planted limits; iperf3 and fio differ from these limits by a similar amount."""

MOVER_RATIO = 0.85
"""Below this fraction of the network alone, the mover counts as a separate limit."""

CONNECTION_MOVER_RATIO = 0.40
"""The same if windows or losses limit each connection: the mover opens its connections in each copy, and they start slowly."""

_CONNECTION_LIMITS: tuple[Limit, ...] = ("loss", "receive-window", "send-buffer")

LOSS_RATIO = 0.70
"""Below this fraction of the smallest part, the result names the shared resource."""

FASTER_RATIO = 1.10
"""From this ratio of copy to smallest part on, the result contains a remark."""

CLOSE_RATIO = 0.90
"""Two parts with a larger ratio are close: both can be the limit."""

MAX_RATE_RATIO = 0.75
"""From this fraction on, a limit of the user (--max-rate) limits the part: short samples have starts and ends."""

SCALING_RATIO = 1.5
"""If more connections increase the rate by this factor, the limit is the connection and not the link."""

RETRANSMIT_RATIO = 1e-4
"""From this fraction of retransmitted bytes on, losses can limit a connection."""


@dataclass(frozen=True, slots=True)
class PathDescription:
    """Properties of a path for the evaluation and its sentences.

    Attributes
    ----------
    source, destination
        Endpoints as the user wrote them.
    source_host, destination_host
        Names of the hosts in sentences.
    same_machine
        Whether both hosts run on one machine and use the same CPUs.
    shared_disk
        Device of both directories; None: they are on different devices.
    connections
        Data connections of network and mover.
    notes
        Remarks of the measurement, such as the direction of the connections.
    max_rate_bytes_per_s
        Limit that the user set for network, mover and copy; None: no limit.
    servers
        Ends that are existing servers. Reading or writing there contains the network to them.
    client_host
        Name of the host between two existing servers.
    unmeasured
        Reason for each part that cannot be measured alone.
    """

    source: str
    destination: str
    source_host: str
    destination_host: str
    same_machine: bool = False
    shared_disk: str | None = None
    connections: int = 1
    notes: tuple[str, ...] = ()
    max_rate_bytes_per_s: float | None = None
    servers: tuple[Side, ...] = ()
    client_host: str = "this machine"
    unmeasured: Mapping[Part, str] = field(default_factory=dict)

    def host(self, side: Side) -> str:
        """Return the name of a host."""
        return {
            "source": self.source_host,
            "destination": self.destination_host,
            "client": self.client_host,
        }[side]


def evaluate_path(samples: Sequence[PartSample], description: PathDescription) -> PathResult:
    """Return the result of one direction.

    Parameters
    ----------
    samples
        All samples of the direction; samples of round 0 do not count.
    description
        Properties of the path.
    """
    counted = [sample for sample in samples if sample.round > 0]
    present = {sample.part for sample in counted}
    parts = {part: _part_result(part, counted) for part in PARTS if part in present}
    smallest = _smallest(parts, description)
    limit, evidence = _limit(smallest, parts, description) if smallest is not None else (None, ())
    loss, loss_interval = _loss(smallest, parts)
    shared = _shared(parts, description) if loss is not None and 1 - loss < LOSS_RATIO else ()
    return PathResult(
        description.source,
        description.destination,
        parts,
        smallest,
        limit,
        evidence,
        loss,
        loss_interval,
        shared,
        _summary(parts, smallest, limit, evidence, loss, shared, description),
        _notes(parts, smallest, limit, description),
        description.unmeasured,
    )


def harmonic_sum(rates_bytes_per_s: Sequence[float]) -> float:
    """Return the rate of parts that take turns: 1/v = Σ 1/vᵢ.

    Examples
    --------
    >>> harmonic_sum([100.0, 100.0, 50.0])
    25.0
    """
    return 1.0 / sum(1.0 / rate for rate in rates_bytes_per_s)


def _part_result(part: Part, samples: Sequence[PartSample]) -> PartResult:
    own = tuple(sample for sample in samples if sample.part == part)
    rates = [rate for sample in own if (rate := sample.rate_bytes_per_s) is not None]
    known = [sample.cached for sample in own if sample.cached is not None]
    interval = _interval(rates)
    if interval is not None:
        low, high = interval.low * (1 - METHOD_RATIO), interval.high * (1 + METHOD_RATIO)
        interval = replace(
            interval, low=low, high=high, method=f"{interval.method}, ± {100 * METHOD_RATIO:g} % of the method"
        )
    return PartResult(part, own, median(rates) if rates else None, interval, any(known) if known else None)


def _interval(values: Sequence[float]) -> Interval | None:
    return median_interval(values, level=LEVEL) if len(values) >= shortest_median_sample(LEVEL) else None


def _rates(parts: Mapping[Part, PartResult]) -> dict[Part, float]:
    """Return the rates of all parts that can limit the copy: a read from the page cache cannot."""
    return {
        part: result.rate_bytes_per_s
        for part, result in parts.items()
        if part != "copy" and result.rate_bytes_per_s is not None and not result.cached
    }


def _smallest(parts: Mapping[Part, PartResult], description: PathDescription) -> Part | None:
    rates = _rates(parts)
    if not rates:
        return None
    smallest = min(rates, key=lambda part: rates[part])
    if smallest != "mover" or "network" not in rates:
        return smallest
    limit, _ = _network_limit(parts["network"].samples, description)
    ratio = CONNECTION_MOVER_RATIO if limit in _CONNECTION_LIMITS else MOVER_RATIO
    return "network" if rates["mover"] >= ratio * rates["network"] else "mover"


def _limit(
    smallest: Part, parts: Mapping[Part, PartResult], description: PathDescription
) -> tuple[Limit, tuple[str, ...]]:
    samples = parts[smallest].samples
    rate, max_rate = parts[smallest].rate_bytes_per_s, description.max_rate_bytes_per_s
    end: Side = "source" if smallest == "read" else "destination"
    at_server = smallest in ("read", "write") and end in description.servers
    limited = smallest in ("network", "mover") or at_server
    if max_rate is not None and limited and rate and rate >= MAX_RATE_RATIO * max_rate:
        return "max-rate", ()
    if at_server:
        for side, use in _cpu_uses(samples).items():
            if use.is_limit:
                return _CPU_LIMITS[side], (use.phrase,)
        return "source-server" if end == "source" else "destination-server", ()
    match smallest:
        case "network":
            return _network_limit(samples, description)
        case "read" | "write":
            use = cpu_use(samples, end, activity=_disk_activity(samples))
            disk: Limit = "source-disk" if end == "source" else "destination-disk"
            return (_CPU_LIMITS[end], (use.phrase,)) if use.is_limit else (disk, ())
        case _:
            for side, use in _cpu_uses(samples).items():
                if use.is_limit:
                    return _CPU_LIMITS[side], (use.phrase,)
            return "mover", ()


_CPU_LIMITS: Mapping[Side, Limit] = {
    "source": "source-cpu",
    "destination": "destination-cpu",
    "client": "client-cpu",
}


def _network_limit(samples: Sequence[PartSample], description: PathDescription) -> tuple[Limit, tuple[str, ...]]:
    found = network_evidence(samples)
    activities: Mapping[Side, float | None] = {
        "source": found.sender_activity,
        "destination": found.receiver_activity,
    }
    for side, activity in activities.items():
        use = cpu_use(samples, side, activity=activity)
        if use.is_limit:
            return _CPU_LIMITS[side], (use.phrase,)
    for ratio, limit, name in (
        (found.receive_window_ratio, "receive-window", "the receive window"),
        (found.send_buffer_ratio, "send-buffer", "the send buffer"),
    ):
        if ratio is not None and ratio >= STALLED_RATIO:
            reason = f"{name} stopped the sender for {100 * min(ratio, 1.0):.0f} % of the time"
            return "receive-window" if limit == "receive-window" else "send-buffer", (reason,)
    if (
        found.scaling is not None
        and found.scaling >= SCALING_RATIO
        and found.retransmit_ratio is not None
        and found.retransmit_ratio >= RETRANSMIT_RATIO
    ):
        return "loss", (
            f"{100 * found.retransmit_ratio:.2g} % of the bytes were retransmitted",
            f"{description.connections} connections reach {found.scaling:.1f} times the rate of one",
        )
    return "link", ()


def _disk_activity(samples: Sequence[PartSample]) -> float | None:
    found = [
        activity
        for sample in samples
        if (activity := thread_activity(sample.detail, int(sample.detail.get("threads") or 1), sample.duration_s))
        is not None
    ]
    return median(found) if found else None


def _cpu_uses(samples: Sequence[PartSample]) -> dict[Side, CpuUse]:
    sides: tuple[Side, ...] = ("source", "destination", "client")
    return {side: cpu_use(samples, side) for side in sides}


def _loss(smallest: Part | None, parts: Mapping[Part, PartResult]) -> tuple[float | None, Interval | None]:
    """Return the loss of the copy from the medians, with an interval from its values in the rounds."""
    copy = parts.get("copy")
    if smallest is None or copy is None or copy.rate_bytes_per_s is None:
        return None, None
    smallest_rate = parts[smallest].rate_bytes_per_s
    assert smallest_rate is not None
    by_round = {sample.round: sample.rate_bytes_per_s for sample in parts[smallest].samples}
    losses = [
        1 - rate / of_round
        for sample in copy.samples
        if (rate := sample.rate_bytes_per_s) is not None and (of_round := by_round.get(sample.round))
    ]
    return 1 - copy.rate_bytes_per_s / smallest_rate, _interval(losses)


def _shared(parts: Mapping[Part, PartResult], description: PathDescription) -> tuple[CopyPrediction, ...]:
    """Return predictions for resources that several parts use, the one nearest to the copy first."""
    copy = parts["copy"]
    assert copy.rate_bytes_per_s is not None
    measured = copy.rate_bytes_per_s
    rates = {part: rate for part, result in parts.items() if (rate := result.rate_bytes_per_s) is not None}
    found: list[CopyPrediction] = []

    def add(resource: str | None, candidates: Sequence[Part], evidence: str) -> None:
        used = tuple(part for part in candidates if part in rates)
        if len(used) > 1:
            found.append(CopyPrediction(resource, used, harmonic_sum([rates[part] for part in used]), evidence))

    uses = {side: use for side, use in _cpu_uses(copy.samples).items() if use.is_limit}
    if uses and description.same_machine:
        add("the CPUs of the machine", ("read", "mover", "write"), next(iter(uses.values())).phrase)
    elif uses:
        sides: Mapping[Side, tuple[Part, ...]] = {
            "source": ("read", "mover"),
            "destination": ("mover", "write"),
            "client": ("read", "write"),
        }
        if description.servers:
            # One host reads and writes.
            sides = dict.fromkeys(uses, ("read", "write"))
        for side, use in uses.items():
            add(f"the CPU of {description.host(side)}", sides[side], use.phrase)
    if description.shared_disk is not None:
        add("one disk", ("read", "write"), f"both directories are on device {description.shared_disk}")
    if not uses and description.shared_disk is None:
        add(None, ("read", "mover", "write"), "no CPU was busy")
    return tuple(sorted(found, key=lambda one: abs(one.rate_bytes_per_s / measured - 1)))


_PART_NAMES: Mapping[Part, str] = {
    "network": "the network alone",
    "read": "reading at the source",
    "write": "writing at the destination",
    "mover": "the mover from memory to memory",
    "copy": "the copy",
}


def _limit_name(limit: Limit, description: PathDescription) -> str:
    return {
        "link": "the link",
        "loss": "packet loss",
        "receive-window": f"the TCP receive window of {description.destination_host}",
        "send-buffer": f"the TCP send buffer of {description.source_host}",
        "source-disk": f"the storage of {description.source_host}",
        "destination-disk": f"the storage of {description.destination_host}",
        "source-cpu": f"the CPU of {description.source_host}",
        "destination-cpu": f"the CPU of {description.destination_host}",
        "client-cpu": f"the CPU of {description.client_host}",
        "source-server": f"the server {description.source_host}, or the network from it,",
        "destination-server": f"the server {description.destination_host}, or the network to it,",
        "mover": "the mover itself",
        "max-rate": "the option --max-rate",
    }[limit]


def _advice(limit: Limit, parts: Mapping[Part, PartResult], description: PathDescription) -> str | None:
    match limit:
        case "loss":
            control = network_evidence(parts["network"].samples).congestion_control
            return f"Use more connections{'' if control == 'bbr' else ', or the congestion control bbr'}."
        case "receive-window":
            return f"Increase net.ipv4.tcp_rmem of {description.destination_host}, or use more connections."
        case "send-buffer":
            return f"Increase net.ipv4.tcp_wmem of {description.source_host}, or use more connections."
        case "max-rate":
            return "Without it, the path can be faster."
        case _:
            return None


def _summary(
    parts: Mapping[Part, PartResult],
    smallest: Part | None,
    limit: Limit | None,
    evidence: Sequence[str],
    loss: float | None,
    shared: Sequence[CopyPrediction],
    description: PathDescription,
) -> str:
    if smallest is None or limit is None:
        return "No part has a result: the limit is unknown."
    rate = parts[smallest].rate_bytes_per_s
    assert rate is not None
    reason = f" ({'; '.join(evidence)})" if evidence else ""
    sentences = [
        f"The mover itself is the limit: from memory to memory, it reaches {format_rate(rate)}{reason}."
        if limit == "mover"
        else f"{_upper(_limit_name(limit, description))} limits {_PART_NAMES[smallest]} to {format_rate(rate)}{reason}."
    ]
    copy = parts.get("copy")
    if copy is not None and copy.rate_bytes_per_s is not None and loss is not None:
        sentences.append(f"The copy reaches {format_rate(copy.rate_bytes_per_s)}, {100 * (1 - loss):.0f} % of that.")
    if shared:
        sentences.append(_shared_sentence(shared[0]))
    if (advice := _advice(limit, parts, description)) is not None:
        sentences.append(advice)
    return " ".join(sentences)


def _shared_sentence(one: CopyPrediction) -> str:
    names = [_PART_NAMES[part] for part in one.parts]
    listed = f"{', '.join(names[:-1])} and {names[-1]}"
    rate = format_rate(one.rate_bytes_per_s)
    if one.resource is None:
        return f"No shared resource is busy. If {listed} take turns, they reach {rate}."
    return f"{_upper(listed)} use {one.resource} ({one.evidence}). If they take turns, they reach {rate}."


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]


def _notes(
    parts: Mapping[Part, PartResult], smallest: Part | None, limit: Limit | None, description: PathDescription
) -> tuple[str, ...]:
    notes = list(description.notes)
    rates = _rates(parts)
    if smallest is not None:
        for part, rate in rates.items():
            contains = {part, smallest} == {"network", "mover"}
            if part != smallest and not contains and rates[smallest] >= CLOSE_RATIO * rate:
                notes.append(f"{_upper(_PART_NAMES[part])} is almost as slow: {format_rate(rate)}.")
    read = parts.get("read")
    if read is not None and read.cached:
        notes.append(
            "Reading at the source came from the page cache, because the file system has no O_DIRECT. It does not count as a limit."
        )
    network = parts.get("network")
    if network is not None:
        found = network_evidence(network.samples)
        if found.min_rtt_s is not None:
            notes.append(f"Round-trip time: {format_duration(found.min_rtt_s)}.")
        # Losses and windows already explain it.
        if found.scaling is not None and found.scaling >= SCALING_RATIO and limit not in _CONNECTION_LIMITS:
            advice = " More connections can be faster." if limit == "link" else ""
            notes.append(
                f"One connection reaches {100 / found.scaling:.0f} % of the rate of {description.connections} connections.{advice}"
            )
    for result in parts.values():
        notes += [f"{_upper(_PART_NAMES[result.part])} failed: {error}" for error in result.errors]
    copy = parts.get("copy")
    if smallest is not None and copy is not None and (copy.rate_bytes_per_s or 0.0) > FASTER_RATIO * rates[smallest]:
        notes.append(
            "The copy is faster than its smallest part: the rates changed during the measurement, or the copy uses another method."
        )
    if copy is not None and copy.samples:
        sizes = [sample.bytes for sample in copy.samples if sample.error is None]
        if sizes:
            notes.append(f"Copied in each round: {format_bytes(median(sizes))}.")
    return tuple(notes)
