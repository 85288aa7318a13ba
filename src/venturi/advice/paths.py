"""Verdict of a path that `venturi measure` measured part by part."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Mapping

import venturi
from venturi.advice.settings import leave_alone
from venturi.advice.tool_options import option_text
from venturi.advice.verdict import Advice, Cause, Counterfactual, Observed, Setting, TimeFraction, Verdict
from venturi.measure.evaluate import harmonic_sum
from venturi.measure.result import Measurement, Part, PartResult, PathResult, SmallFiles
from venturi.units import format_bytes, format_duration, format_rate

__all__ = ["advise_measurement", "decide_path", "decide_small_files"]

_CAUSES: Mapping[str, Cause] = {
    "link": "link",
    "loss": "loss",
    "receive-window": "receive-window",
    "send-buffer": "send-buffer",
    "source-disk": "source-disk",
    "destination-disk": "destination-disk",
    "source-cpu": "source-cpu",
    "destination-cpu": "destination-cpu",
    "client-cpu": "source-cpu",
    "mover": "client",
    "max-rate": "rate-limit",
}
"""Limit → cause.

An existing server has no cause, because a client cannot distinguish its disk, its CPU and the network to it.
"""

_NAMES: Mapping[Part, str] = {
    "network": "the network alone",
    "read": "reading at the source",
    "write": "writing at the destination",
    "mover": "the mover from memory to memory",
    "copy": "the copy",
}

_FASTERDATA = "https://fasterdata.es.net/host-tuning/linux/"

RATE_ERROR = 0.12
"""Relative standard error of a part without an interval."""

SMALL_FILE_RATIO = 0.5
"""Minimum fraction of the time for latency, and not bytes, as the limit of small files."""

STREAMS_RATIO = 1.3
"""Minimum ratio of the network rate with several connections to the rate with one, if more streams help."""

COPY_RATIO = 0.7
"""Minimum ratio of the copy to the smallest part. Below it, parts take turns and no single part is the limit."""


def advise_measurement(measurement: Measurement) -> Advice:
    """Return the verdicts of a measurement.

    The first direction represents the run. Each direction and its small files are points.
    """
    verdicts = tuple(decide_path(path) for path in measurement.paths)
    small = tuple(
        found
        for verdict, files in zip(verdicts, measurement.small_files, strict=False)
        if (found := decide_small_files(verdict, files)) is not None
    )
    return Advice(venturi.__version__, "path", verdicts[0], (*verdicts, *small))


def decide_small_files(large: Verdict, files: SmallFiles) -> Verdict | None:
    """Return the verdict of small files, or None if their copy failed.

    Their latency is the bottleneck if they take more than twice as long as the same bytes in a large file.
    """
    if files.duration_s is None or not files.duration_s or not large.rate_bytes_per_s:
        return None
    size = files.files * files.file_bytes
    rate, per_file_s = size / files.duration_s, files.duration_s / files.files
    fraction = max(0.0, 1 - rate / large.rate_bytes_per_s)
    text = f"{format_duration(per_file_s)} per file of {format_bytes(files.file_bytes)}"
    reason = Observed(text, "file-latency", against=fraction < SMALL_FILE_RATIO)
    factors = {**large.factors, "dataset": f"{files.files} files of {format_bytes(files.file_bytes)}"}
    if fraction < SMALL_FILE_RATIO:
        return dataclasses.replace(
            large, factors=factors, rate_bytes_per_s=rate, counterfactual=None, evidence=(reason, *large.evidence)
        )
    resource = "the latency of each file"
    change = "copy several files at the same time"
    return Verdict(
        None, factors, rate, "file-latency", resource, fraction, None, fraction, (reason,),
        (TimeFraction("file-latency", resource, fraction),),
        Counterfactual(change, large.rate_bytes_per_s, rate, large.rate_bytes_per_s, large.resource or "the copy of a large file"),
        (Setting("mover", "", option_text("venturi", "files", 8), change, _FASTERDATA),), leave_alone("file-latency", None),
    )  # fmt: skip


def decide_path(path: PathResult) -> Verdict:
    """Return the verdict of one direction.

    The fraction of the limit is the ratio of the copy to its smallest part, at most 1. The confidence is the
    probability, from the intervals, that this part is smaller than the next one. If the copy is much slower than its
    smallest part, the confidence is multiplied by the fraction.
    """
    rates: dict[Part, float] = {
        part: result.rate_bytes_per_s
        for part, result in path.parts.items()
        if part != "copy" and result.rate_bytes_per_s and not result.cached
    }
    copy = path.parts.get("copy")
    missing = tuple(_NAMES[part] for part, result in path.parts.items() if result.rate_bytes_per_s is None)
    rate = copy.rate_bytes_per_s if copy is not None and copy.rate_bytes_per_s else min(rates.values(), default=None)
    evidence = [
        Observed(f"{_NAMES[part]}: {format_rate(value)}", "unknown")
        for part, value in sorted(rates.items(), key=lambda item: item[1])
    ]
    evidence += _streams(path)
    factors = {"source": path.source, "destination": path.destination, "dataset": "one file"}
    if path.smallest is None or path.limit is None or rate is None:
        return Verdict(
            None, factors, rate, None, "", 0.0, None, 0.0, tuple(evidence), (), probe=_probe(missing), missing=missing
        )
    cause = _CAUSES.get(path.limit)
    if cause is None:
        return Verdict(
            None, factors, rate, None, "", 0.0, None, 0.0, tuple(evidence), (), missing=missing,
            probe="repeat from a host next to the server, which excludes the network to it",
        )  # fmt: skip
    resource = _resource(cause, path)
    smallest = rates[path.smallest]
    fraction = min(1.0, rate / smallest)
    others = {
        part: value for part, value in rates.items() if part != path.smallest and not _contains(part, path.smallest)
    }
    second = min(others, key=lambda part: others[part], default=None)
    fractions = [TimeFraction(cause, resource, fraction)]
    if fraction < 1 and path.shared:
        text = path.shared[0].resource or "parts that take turns"
        fractions.append(TimeFraction("unknown", text, 1 - fraction))
    confidence = _confidence(path.parts[path.smallest], path.parts[second] if second is not None else None)
    decided = fraction >= COPY_RATIO
    if not decided:
        confidence *= fraction
    next_rate = others[second] if second is not None else None
    reasons = [
        Observed(text, cause) for text in (*path.evidence, f"{_NAMES[path.smallest]} reaches {format_rate(smallest)}")
    ]
    found = None
    if next_rate is not None and second is not None:
        error = _relative_error(path.parts[second])
        # Parts that overlap reach the smallest one, and parts that take turns reach the harmonic sum.
        low = harmonic_sum([value for part, value in others.items() if part != "network"] or [next_rate])
        value = next_rate if fraction >= COPY_RATIO else low
        found = Counterfactual(_change(cause, path), max(rate, value), max(rate, min(low, value * (1 - 1.28 * error))),
                               max(rate, value * (1 + 1.28 * error)), _NAMES[second])  # fmt: skip
    second_cause = _CAUSE_OF_PART.get(second) if second is not None else None
    return Verdict(
        point=None,
        factors=factors,
        rate_bytes_per_s=rate,
        cause=cause if decided else None,
        resource=resource if decided else "",
        fraction=fraction if decided else 0.0,
        runner_up=TimeFraction(second_cause, _NAMES[second], min(1.0, rate / others[second]))
        if second is not None and second_cause
        else None,
        confidence=confidence,
        evidence=(*reasons, *evidence),
        fractions=tuple(fractions),
        counterfactual=found if decided else None,
        settings=_settings(cause, path) if decided else (),
        leave_alone=leave_alone(cause, None) if decided else (),
        probe=None if decided and confidence >= 0.8 else _probe(missing),
        missing=missing,
    )


_CAUSE_OF_PART: Mapping[Part, Cause] = {
    "network": "link",
    "read": "source-disk",
    "write": "destination-disk",
    "mover": "client",
}


def _contains(part: Part, other: Part) -> bool:
    """Return whether one part contains the other: the mover uses the network."""
    return {part, other} == {"network", "mover"}


def _streams(path: PathResult) -> list[Observed]:
    """Return the rates of the network with one connection and with several connections."""
    network = path.parts.get("network")
    one = [
        sample.one_connection_bytes_per_s
        for sample in (network.samples if network else ())
        if sample.one_connection_bytes_per_s
    ]
    if network is None or not network.rate_bytes_per_s or not one:
        return []
    single = statistics.median(one)
    helps = network.rate_bytes_per_s >= STREAMS_RATIO * single
    advice = "more streams help" if helps else "more streams do not help"
    text = f"network with one connection: {format_rate(single)}, with several: {format_rate(network.rate_bytes_per_s)}; {advice}"
    return [Observed(text, "receive-window", against=not helps)]


def _resource(cause: Cause, path: PathResult) -> str:
    return {
        "link": f"the network from {path.source} to {path.destination}",
        "loss": "packet loss on the path",
        "receive-window": f"the TCP receive window of {path.destination}",
        "send-buffer": f"the TCP send buffer of {path.source}",
        "source-disk": f"the disk of {path.source}",
        "destination-disk": f"the disk of {path.destination}",
        "source-cpu": f"the CPU of {path.source}",
        "destination-cpu": f"the CPU of {path.destination}",
        "rate-limit": "the option --max-rate",
    }.get(cause, "the mover itself")


def _change(cause: Cause, path: PathResult) -> str:
    return {
        "link": "raise the rate of the network",
        "loss": "remove the packet loss",
        "receive-window": f"raise net.ipv4.tcp_rmem of {path.destination}",
        "send-buffer": f"raise net.ipv4.tcp_wmem of {path.source}",
        "source-disk": f"use a faster disk for {path.source}",
        "destination-disk": f"use a faster disk for {path.destination}",
        "source-cpu": f"give {path.source} more CPU",
        "destination-cpu": f"give {path.destination} more CPU",
        "rate-limit": "raise --max-rate",
    }.get(cause, "use another mover, or more of its processes")


def _settings(cause: Cause, path: PathResult) -> tuple[Setting, ...]:
    size = 2 * 67108864
    streams = Setting("mover", "", option_text("venturi", "streams", 8), "rates of connections add up", _FASTERDATA)
    match cause:
        case "receive-window":
            return (
                Setting(
                    "sysctl",
                    path.destination,
                    f'sysctl -w net.ipv4.tcp_rmem="4096 131072 {size}"',
                    "the window stopped the sender",
                    _FASTERDATA,
                ),
                streams,
            )
        case "send-buffer":
            return (
                Setting(
                    "sysctl",
                    path.source,
                    f'sysctl -w net.ipv4.tcp_wmem="4096 65536 {size}"',
                    "the buffer stopped the sender",
                    _FASTERDATA,
                ),
                streams,
            )
        case "loss":
            return (
                streams,
                Setting(
                    "sysctl",
                    path.source,
                    "sysctl -w net.ipv4.tcp_congestion_control=bbr",
                    "BBR does not slow down after single losses",
                    _FASTERDATA,
                ),
            )
        case "client":
            return (
                Setting(
                    "mover",
                    "",
                    option_text("venturi", "files", 8),
                    "several files at the same time use several cores",
                    _FASTERDATA,
                ),
            )
        case _:
            return (Setting("hardware", "", _change(cause, path), "no other part is slower", _FASTERDATA),)


def _relative_error(part: PartResult) -> float:
    if part.interval is None or not part.rate_bytes_per_s:
        return RATE_ERROR
    # A 90 % interval has 1.645 standard errors on each side.
    return max(0.02, (part.interval.high - part.interval.low) / (2 * 1.645 * part.rate_bytes_per_s))


def _confidence(first: PartResult, second: PartResult | None) -> float:
    """Return the probability that one part is smaller than another, for normal logarithms of their rates."""
    if second is None or not first.rate_bytes_per_s or not second.rate_bytes_per_s:
        return 0.6
    distance = math.log(second.rate_bytes_per_s / first.rate_bytes_per_s)
    error = math.hypot(_relative_error(first), _relative_error(second))
    return min(0.98, 0.5 * (1 + math.erf(distance / (error * math.sqrt(2)))))


def _probe(missing: tuple[str, ...]) -> str:
    if missing:
        return f"repeat with `venturi measure`: {', '.join(missing)} has no result"
    return "repeat with more rounds and a longer time: `venturi measure A B --rounds 10 --time 180s`"
