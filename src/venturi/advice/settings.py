"""Settings for a verdict: the changes that can help, and the settings that are not the limit."""

from __future__ import annotations

import math

from venturi.advice.observe import Observation
from venturi.advice.tool_options import Ability, option_text
from venturi.advice.verdict import Cause, Setting
from venturi.units import format_bytes, format_duration

__all__ = ["change_text", "leave_alone", "probe_of", "settings_of"]

_FASTERDATA = "https://fasterdata.es.net/host-tuning/linux/"
_TCP_TUNING = "https://www.kernel.org/doc/html/latest/networking/ip-sysctl.html"
_CUBIC = "RFC 9438"
_LOSS_MODEL = "Mathis et al. 1997, doi:10.1145/263932.264023"
_PIPELINING = "GFD-R-P.020; report 002"
_CGROUP = "https://docs.kernel.org/admin-guide/cgroup-v2.html#cpu"

BUFFER_FACTOR = 2.0
"""Buffer per byte in flight. Half of a receive buffer is overhead (tcp_adv_win_scale = 1)."""


def _bdp_bytes(one: Observation) -> int:
    """Return the buffer that fills the path as a power of two.

    It is the rate of the slowest link × round trip × overhead.
    """
    rtt_s = max((flow.gauges.get("rtt_s", 0.0) for flow in one.flows), default=0.0) or 0.1
    rates = [link.rate_bytes_per_s for link in one.links if link.rate_bytes_per_s]
    rate = min(rates, default=max(10 * one.rate_bytes_per_s, 1.25e9))
    return int(2 ** math.ceil(math.log2(max(65536.0, BUFFER_FACTOR * rate * rtt_s))))


def change_text(one: Observation, cause: Cause, resource: str) -> str:
    """Return the removal of a limit as a phrase: ``raise net.ipv4.tcp_rmem of b to 4 MiB``."""
    if resource.startswith("other programs"):
        return f"stop {resource}"
    size = format_bytes(_bdp_bytes(one))
    movers = " and ".join(one.movers) or "the mover"
    return {
        "source-disk": f"use a faster disk for storage {one.source_storage} on {one.source}",
        "destination-disk": f"use a faster disk for storage {one.destination_storage} on {one.destination}",
        "source-cpu": f"give {one.source} more CPU",
        "destination-cpu": f"give {one.destination} more CPU",
        "server-cpu": "add server processes",
        "send-buffer": f"raise net.ipv4.tcp_wmem of {one.source} to {size}",
        "receive-window": f"raise net.ipv4.tcp_rmem of {one.destination} to {size}",
        "loss": "remove the packet loss",
        "congestion": "move the other traffic to another time or path",
        "link": f"raise the rate of {resource.removeprefix('the ')}",
        "policer": f"lengthen {resource}",
        "server-slots": "raise the limit of simultaneous transfers",
        "file-latency": f"let {movers} transfer several files at the same time",
        "authentication": "reuse sessions for several files",
        "client": f"let {movers} send more requests at a time",
        "rate-limit": f"remove {resource}",
        "start-up": "move more data in each call",
        "lab": "run on a machine with more cores, or at a smaller scale",
        "unknown": "",
    }[cause]


def settings_of(one: Observation, cause: Cause, resource: str) -> tuple[Setting, ...]:
    """Return the settings that can remove a limit."""
    size = _bdp_bytes(one)

    def mover(ability: Ability, number: int, reason: str, source: str) -> list[Setting]:
        return [Setting("mover", "", option_text(name, ability, number), reason, source) for name in one.movers]

    match cause:
        case "receive-window" | "send-buffer":
            receiving = cause == "receive-window"
            name, host = ("tcp_rmem", one.destination) if receiving else ("tcp_wmem", one.source)
            default = "131072" if receiving else "65536"
            core = "rmem_max" if receiving else "wmem_max"
            found = [
                Setting("sysctl", host or "", f'sysctl -w net.ipv4.{name}="4096 {default} {size}" net.core.{core}={size}',
                        "the buffer is smaller than the bandwidth-delay product", _FASTERDATA),
                *mover("streams", 4, "each connection has its own buffer", _FASTERDATA),
            ]  # fmt: skip
            if "window_bytes" in one.options:
                found += mover("window", size, "a fixed buffer size disables automatic tuning", _TCP_TUNING)
            return tuple(found)
        case "loss":
            return (
                *mover("streams", 8, "each connection recovers on its own, so the rates add up", _LOSS_MODEL),
                Setting("sysctl", one.source or "", "sysctl -w net.ipv4.tcp_congestion_control=bbr net.core.default_qdisc=fq",
                        "BBR does not slow down after single losses", _FASTERDATA),
                Setting("hardware", "", "find the lossy hop: error counters of interfaces, optics, and path tests in both directions",
                        "a clean path has less than 1 loss in 10⁶ packets", _FASTERDATA),
            )  # fmt: skip
        case "link":
            return (Setting("hardware", "", f"a faster link instead of {resource}, or several paths",
                            "the link is full: no setting of a host helps", _CUBIC),)  # fmt: skip
        case "congestion":
            return (Setting("hardware", "", f"schedule the transfers at other times, or reserve a part of {resource}",
                            "other traffic takes the rest of the link", _CUBIC),
                    *mover("streams", 4, "more connections get a larger part of the rate; other traffic gets less", _LOSS_MODEL))  # fmt: skip
        case "policer":
            return (
                Setting("sysctl", one.source or "", "tc qdisc replace dev DEVICE root fq maxrate RATE",
                        "a sender that paces below the limit loses no packets", _FASTERDATA),
                Setting("hardware", "", f"a queue of one bandwidth-delay product instead of {resource}",
                        "short queues drop bursts before TCP can slow down", _CUBIC),
            )  # fmt: skip
        case "source-disk" | "destination-disk":
            host, storage = (
                (one.source, one.source_storage)
                if cause == "source-disk"
                else (one.destination, one.destination_storage)
            )
            found = [
                Setting(
                    "hardware",
                    host or "",
                    f"faster or more disks for {storage}",
                    "the disk is the limit",
                    _FASTERDATA,
                )
            ]
            if cause == "source-disk":
                device = one.device(host, storage) or "DEVICE"
                found.append(Setting("sysctl", host or "", f"blockdev --setra 16384 /dev/{device}",
                                     "longer read-ahead helps disks with seeks", _FASTERDATA))  # fmt: skip
            return tuple(found)
        case "source-cpu" | "destination-cpu" | "lab":
            host = one.destination if cause == "destination-cpu" else one.source
            if "quota" in resource:
                return (Setting("service", host or "", "raise cpu.max of the control group (cpu_limit of a lab host)",
                                "the quota stops the processes", _CGROUP),)  # fmt: skip
            if cause == "lab":
                return (
                    Setting(
                        "scenario",
                        "",
                        "scale = 0.1",
                        "smaller rates need less CPU on the machine of the lab",
                        "docs/concepts/lab.md",
                    ),
                )
            if resource.startswith("other programs"):
                return (
                    Setting("service", host or "", f"stop {resource}", "they use the CPU time of the cores", _CGROUP),
                )
            return (*mover("files", 4, "several threads or processes use several cores", _FASTERDATA),
                    Setting("hardware", host or "", "faster cores, or a cipher with hardware support", "one core is full", _FASTERDATA))  # fmt: skip
        case "server-cpu":
            return tuple(
                Setting(
                    "service",
                    host,
                    f"more processes or ports of the service {name}",
                    "one process uses one core",
                    _FASTERDATA,
                )
                for name, host in one.services.items()
            )
        case "server-slots":
            return tuple(
                Setting(
                    "service",
                    host,
                    f"raise the limit of simultaneous clients of {name}",
                    "transfers wait for a slot",
                    _FASTERDATA,
                )
                for name, host in one.services.items()
            )
        case "file-latency":
            return (*mover("pipelining", 32, "commands overlap with data", _PIPELINING),
                    *mover("files", 8, "files wait at the same time", _PIPELINING))  # fmt: skip
        case "authentication":
            return tuple(mover("pipelining", 32, "one session moves many files", _PIPELINING))
        case "client":
            return (*mover("requests", 256, "requests in flight × size is the window of the tool", _FASTERDATA),
                    *mover("files", 4, "files wait at the same time", _PIPELINING))  # fmt: skip
        case "rate-limit":
            return (Setting("mover" if "service" not in resource else "service", "", f"remove {resource}",
                            "the configured rate is reached", "docs/reference/movers.md"),)  # fmt: skip
        case "start-up":
            return (
                Setting(
                    "scenario",
                    "",
                    "larger files, or several files per call",
                    "the session starts once per call",
                    _PIPELINING,
                ),
            )
        case _:
            return ()


_KNOBS: tuple[tuple[str, frozenset[Cause], str], ...] = (
    ("TCP buffers", frozenset({"receive-window", "send-buffer"}), "windows did not stop the sender"),
    ("congestion control", frozenset({"loss", "congestion", "policer", "link"}), "the path did not limit the sender"),
    ("number of streams", frozenset({"loss", "receive-window", "send-buffer", "congestion", "client", "policer"}),
     "one connection is not the limit"),
    ("pipelining and concurrent files", frozenset({"file-latency", "authentication", "client", "server-slots", "start-up"}),
     "files do not wait for round trips"),
    ("disks", frozenset({"source-disk", "destination-disk"}), "no process waits for a disk"),
    ("CPU", frozenset({"source-cpu", "destination-cpu", "server-cpu", "lab"}), "the CPU is not busy"),
)  # fmt: skip


def leave_alone(cause: Cause, runner_up: Cause | None) -> tuple[str, ...]:
    """Return the settings that are not the limit, with reasons."""
    return tuple(
        f"{name}: {reason}" for name, causes, reason in _KNOBS if cause not in causes and runner_up not in causes
    )


def probe_of(one: Observation, first: Cause, second: Cause | None) -> str:
    """Return the measurement that decides between two causes."""
    pair = {first, second}
    path = f"venturi measure {one.source or 'A'}:DIR {one.destination or 'B'}:DIR"
    rtt_s = max((flow.gauges.get("min_rtt_s", 0.0) for flow in one.flows), default=0.0)
    if pair & {"source-disk", "destination-disk"}:
        return f"{path} measures each disk alone and the network without disks"
    if pair & {"source-cpu", "destination-cpu", "server-cpu", "lab"}:
        return "repeat with the counters `process` and `pressure`, on a machine without other work"
    if pair & {"loss", "congestion", "link", "policer", "receive-window", "send-buffer"}:
        return f"repeat with 1, 4 and 16 streams: a full link keeps its rate, windows and losses scale; or {path}"
    if pair & {"file-latency", "client", "authentication", "start-up", "server-slots"}:
        trip = f" (round trip {format_duration(rtt_s)})" if rtt_s else ""
        return f"repeat with one large file, and with twice the files in parallel{trip}"
    return path
