"""Small runs of an emulated testbed with planted results: two hosts and two links, with their sockets and counters.

:class:`World` determines everything. Each transfer moves its bytes evenly over its duration, on one data connection and
one control connection. The kernels of both hosts and the links count the same bytes, unless the world has other values.
No clock is read.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from venturi.run import Finding, Run, RunWriter

SEGMENT = 1448
HEADERS = 52
BLOCK = 262_144
CONTROL = (2_000, 3_000)
"""Bytes that a client sends to and receives from each server on a control connection."""
RATE_BIT_PER_S = 100e6
HOST_COUNTERS = {
    "cpu.user_s": 1.5, "cpu.system_s": 0.5, "cpu.idle_s": 2.0, "cpu.iowait_s": 0.0, "cgroup.cpu.user_s": 0.25,
    "cgroup.cpu.system_s": 0.25, "disk.sda.write_bytes": 5e6, "disk.loop0.write_bytes": 5e6,
}  # fmt: skip
"""Increase per second: half of four cores are busy; the host itself uses a quarter of its two cores."""


@dataclass(frozen=True)
class World:
    """The planted values. Fractions are of the bytes moved."""

    seconds: Callable[[Mapping[str, Any], str], float] = lambda factors, direction: 1.0
    bidirectional: bool = False
    source: Callable[[Mapping[str, Any]], str] = lambda factors: "src"
    destination: Callable[[Mapping[str, Any]], str] = lambda factors: "dst"
    source_service: Callable[[Mapping[str, Any]], str] = lambda factors: "ga"
    destination_service: str | None = "gb"
    kernel_misses: float = 0.0
    wire_extra: float = 0.0
    sent_again: float = 0.0
    unwatched: tuple[str, ...] = ()
    fails: Callable[[Mapping[str, Any], int], bool] = lambda factors, slot: False
    window_bytes: int | None = None
    closed_late_s: float = 0.0
    counters: Mapping[str, Mapping[str, float]] = field(
        default_factory=lambda: dict.fromkeys(("a", "b"), HOST_COUNTERS)
    )
    """Host → counter → increase per second."""
    scale: float = 1.0
    scenario: Mapping[str, Any] = field(default_factory=dict)
    findings: Sequence[Finding] = ()


def link(start_node: str, end: str, rate: float | None = RATE_BIT_PER_S, delay_s: float = 0.005) -> dict[str, Any]:
    return {"from": start_node, "to": end, "rate_bit_per_s": rate, "delay_s": delay_s, "jitter_s": 0.0, "queue_bytes": 125_000,
            "loss": None, "reorder_probability": 0.0, "overhead_bytes": 0, "up": True}  # fmt: skip


NETWORK = {
    "interfaces": {f"{h}.eth0": {"host": h, "device": "eth0", "address": f"10.77.0.{i}", "mtu": 1500, "offload": True}
                   for i, h in enumerate(("a", "b"), start=1)},
    "routers": ["r"],
    "links": {"a>r": link("a.eth0", "r"), "r>b": link("r", "b.eth0", 2 * RATE_BIT_PER_S), "b>r": link("b.eth0", "r"),
              "r>a": link("r", "a.eth0", 2 * RATE_BIT_PER_S)},
    "routes": {"r": {"a.eth0": "r>a", "b.eth0": "r>b"}},
    "changes": [],
}  # fmt: skip


def lab_run(
    base: Path, points: Sequence[Mapping[str, Any]], world: World | None = None, *, repeat: int = 4, name: str = "lab"
) -> Run:
    """Write the run and open it."""
    world = world or World()
    base.mkdir(parents=True, exist_ok=True)
    trials = [(point, repetition) for repetition in range(repeat) for point in range(len(points))]
    plan = base / "plan.jsonl"
    plan.write_text("\n".join(_plan(points, trials, repeat, world, name)) + "\n")
    with RunWriter.create(base / "runs", plan, backend="lab") as writer:
        metadata = {"cpu": {"usable": 4}}
        writer.start_session({"a": metadata, "b": metadata, "network": {"lab": {"packages": {"server": "1.2-3"}}}})
        now, moved = 1.0, []
        for number, (point, _) in enumerate(trials):
            record, now, own = _trial(number, points[point], now, world)
            writer.trial(record, "a")
            moved += own
        for host in ("a", "b"):
            _sockets(writer, host, moved, world)
        _samples(writer, now, moved, world)
        for finding in world.findings:
            writer.finding(finding)
        writer.finish("complete")
        path = writer.path
    return Run.open(path)


def _plan(
    points: Sequence[Mapping[str, Any]], trials: Sequence[tuple[int, int]], repeat: int, world: World, name: str
) -> list[str]:
    lab = {"site": None, "cpus": [0, 1], "cpu_limit_cores": None, "memory_limit_bytes": None}
    service = {
        "kind": "gridftp",
        "interface": "a.eth0",
        "storages": ["src"],
        "after": [],
        "ports": [2811],
        "service_ports": {},
    }
    header = {
        "format": "venturi-plan", "version": 2, "name": name, "seed": 1, "scale": world.scale,
        "scenario": {"venturi": 1, "name": name, "workload": {"kind": "sweep", "repeat": repeat, "mover": "globus-url-copy"},
                     "analyse": {"against": ["files", "size", "streams"], "families": "all", "criterion": "aicc"},
                     **world.scenario},
        "hosts": {h: {"ssh": None, "memory_bytes": None, "lab": lab} for h in ("a", "b")},
        "storages": {p: {"host": h, "path": p, "spec": None}
                   for p, h in (("src", "a"), ("dst", "b"), ("gpfs", "a"), ("tmp", "a"))},
        "services": {"ga": {**service, "host": "a", "options": {"auth": "gsi"}}, "plain": {**service, "host": "a", "options": {"auth": "none"}},
                     "gb": {**service, "host": "b", "options": {"auth": "gsi"}}},
        "network": NETWORK, "datasets": {}, "draws": {}, "pools": {},
        "calls": {"guc": {"mover": "globus-url-copy", "argv": ["guc"], "options": {"window_bytes": world.window_bytes}, "requires": [],
                          "timeout_s": 60.0, "capture": False, "expect": "destination"}},
        "measure": {"interval_s": 0.1, "counters": ["cpu", "tcp"]},
        "totals": {"trials": len(trials), "transfers": 0, "bytes": 0, "disk_bytes": {}},
    }  # fmt: skip
    lines = [json.dumps(header)]
    for number, (point, repetition) in enumerate(trials):
        step = {"step": "trial", "id": f"t{number:07d}", "point": point, "repetition": repetition, "block": repetition,
                "factors": points[point], "steps": []}  # fmt: skip
        lines.append(json.dumps({"actor": "sweep", "host": "a", "steps": [step]}))
    return lines


@dataclass(frozen=True)
class _Moved:
    """The bytes of one transfer in flight."""

    sender: str
    receiver: str
    start_s: float
    end_s: float
    bytes: int
    port: int

    @property
    def framed(self) -> int:
        return self.bytes + 17 * math.ceil(self.bytes / BLOCK)


def _trial(
    number: int, factors: Mapping[str, Any], now: float, world: World
) -> tuple[dict[str, Any], float, list[_Moved]]:
    transfers, moved, end = [], [], now
    directions = ("forward", "reverse") if world.bidirectional else ("forward",)
    for slot, direction in itertools.product(range(factors.get("files", 1)), directions):
        size, failed = factors["size_bytes"], world.fails(factors, slot)
        seconds = world.seconds({**factors, "trial": number, "slot": slot}, direction)
        ends = [
            (world.source(factors), world.source_service(factors)),
            (world.destination(factors), world.destination_service),
        ]
        if direction == "reverse":
            ends.reverse()
        hosts = [{"ga": "a", "plain": "a", "gb": "b"}.get(str(service), "a") for _, service in ends]
        if hosts[0] != hosts[1]:
            port = 20_000 + (1_000 * number + 2 * slot + (direction == "reverse")) % 40_000
            moved.append(_Moved(hosts[0], hosts[1], now, now + seconds, 0 if failed else size, port))
        transfers.append({
            "trial": f"t{number:07d}", "actor": "sweep", "slot": slot, "call": "guc", "source": f"{ends[0][0]}:f",
            "source_via": ends[0][1] and f"{ends[0][1]}/gsiftp", "destination": f"{ends[1][0]}:g", "destination_via": ends[1][1] and f"{ends[1][1]}/gsiftp",
            "files": 1, "requested_bytes": size, "received_bytes": 0 if failed else size, "intended_s": None, "start_s": now,
            "end_s": now + seconds, "duration_s": seconds, "outcome": "failed" if failed else "ok", "exit_code": int(failed),
            "signal": None, "error": "cut" if failed else None, "user_s": 0.01, "system_s": 0.01,
            "labels": {"direction": direction} if world.bidirectional else {},
        })  # fmt: skip
        end = max(end, now + seconds)
    record = {"trial": f"t{number:07d}", "actor": "sweep", "start_s": now - 0.001, "end_s": end, "outcome": "ok", "cache": None,
              "transfers": transfers, "findings": []}  # fmt: skip
    return record, end + 0.2, moved


def _sockets(writer: RunWriter, host: str, moved: Sequence[_Moved], world: World) -> None:
    """Write the sockets of each transfer as this host sees them.

    A data connection has a sample at half time. A control connection also exists.
    """
    for one in moved:
        if host in world.unwatched or host not in (one.sender, one.receiver):
            continue
        other = one.receiver if host == one.sender else one.sender
        addresses = {h: i for i, h in enumerate(("a", "b"), start=1)}
        names = [f"10.77.0.{addresses[h]}:{one.port}" for h in (host, other)]
        counted = round(one.framed * (1 - world.kernel_misses)) if one.bytes else 0
        out, into = (counted + 2, 1) if host == one.sender else (1, counted + 1)
        again = round(out * world.sent_again) if host == one.sender else 0
        base = {"local": names[0], "remote": names[1], "state": "established", "congestion_control": "cubic", "mss_bytes": SEGMENT,
                "cwnd_bytes": 90_000, "send_window_bytes": 70_000, "rtt_s": 0.012, "min_rtt_s": 0.010}  # fmt: skip
        middle = {**base, "closed": False, "sent_bytes": (out + again) // 2, "acked_bytes": out // 2 or 1, "received_bytes": into // 2,
                  "retransmitted_bytes": again // 2, "busy_s": 0.4, "receive_window_limited_s": 0.1, "delivery_bytes_per_s": 9e6}  # fmt: skip
        last = {**base, "closed": True, "sent_bytes": out + again, "acked_bytes": out, "received_bytes": into, "retransmitted_bytes": again,
                "busy_s": one.end_s - one.start_s, "receive_window_limited_s": 0.25 * (one.end_s - one.start_s), "rtt_s": 0.5}  # fmt: skip
        control = {**last, "local": f"{names[0]}1", "remote": f"{names[1]}1", "acked_bytes": CONTROL[0], "received_bytes": CONTROL[1],
                   "retransmitted_bytes": 0}  # fmt: skip
        if not world.closed_late_s:
            writer.sockets({"time_s": (one.start_s + one.end_s) / 2, "sockets": [middle]}, host)
        writer.sockets({"time_s": one.end_s + world.closed_late_s, "sockets": [last, control]}, host)


def _samples(writer: RunWriter, end_s: float, moved: Sequence[_Moved], world: World) -> None:
    """Write counters every 0.1 s.

    Bytes flow evenly over each transfer. There are half as many acknowledgements as packets.
    """
    for tick in range(int(end_s / 0.1) + 5):
        now = tick * 0.1
        link_counts: dict[str, float] = {}
        for names, sender in ((("a>r", "r>b"), "a"), (("b>r", "r>a"), "b")):
            payload = packets = 0.0
            for one in moved:
                fraction = min(max((now - one.start_s) / (one.end_s - one.start_s), 0.0), 1.0)
                segments = fraction * one.framed / SEGMENT
                payload += fraction * (
                    (one.framed * (1 + world.wire_extra) if one.sender == sender else 0.0) + CONTROL[0]
                )
                packets += segments * (1.0 if one.sender == sender else 0.5)
            for name in names:
                link_counts |= {f"link.{name}.bytes": payload + HEADERS * packets, f"link.{name}.packets": packets,
                                f"link.{name}.queue_drops": 0.0, f"link.{name}.loss_drops": 0.0, f"link.{name}.queue_high_bytes": 40_000.0}  # fmt: skip
        emulator = {name: rate * now for name, rate in world.counters.get("network", {}).items()}
        writer.sample({"time_s": now, "counters": link_counts | emulator}, "network")
        for host in ("a", "b"):
            if host in world.unwatched and tick > 2:
                continue
            grown = {name: rate * now for name, rate in world.counters.get(host, {}).items()}
            if grown:
                writer.sample({"time_s": now, "counters": grown}, host)
