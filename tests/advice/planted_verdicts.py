"""Runs with one transfer and planted counters, as kernels, links and processes would report them under a known limit."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from venturi.run import Run, RunWriter

START_S, INTERVAL_S = 1.0, 0.1


@dataclass(frozen=True)
class Planted:
    """One download of `files` files from host `a` (with the server) to host `b` (with the mover).

    Rates are per second of the transfer. The connection exists for the fraction `open_part` of the transfer time. The
    sender is busy for the fraction `busy` of the connection time.
    """

    rate_bytes_per_s: float = 5e6
    duration_s: float = 10.0
    rtt_s: float = 0.02
    min_rtt_s: float = 0.02
    busy: float = 1.0
    window_limited: float = 0.0
    buffer_limited: float = 0.0
    retransmitted: float = 0.0
    cwnd_bytes: int = 200_000
    window_bytes: int = 3_000_000
    send_buffer_bytes: int = 400_000
    waiting_bytes: int = 0
    open_part: float = 1.0
    files: int = 1
    link_rate_bytes_per_s: float = 25e6
    link_busy: float | None = None
    other_bytes_per_s: float = 0.0
    queue_drops: float = 0.0
    loss_drops: float = 0.0
    queue_high_bytes: float = 500_000.0
    counters: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Host → counter → increase per second."""
    cpu_limit_cores: Mapping[str, float] = field(default_factory=dict)
    sysctls: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    service_options: Mapping[str, Any] = field(default_factory=lambda: {"auth": "none"})
    read_bytes_per_s: float | None = None
    network: bool = True
    sockets: bool = True
    mover: str = "globus-url-copy"
    findings: tuple[str, ...] = ()


QUIET = {
    "cgroup.pressure.io.some_s": 0.0,
    "process.server.ftp.busiest_thread_s": 0.1,
    "process.server.ftp.run_wait_s": 0.0,
    "process.mover.busiest_thread_s": 0.1,
    "process.mover.run_wait_s": 0.0,
}
"""Counters of a host without any waiting."""


def planted_run(base: Path, world: Planted) -> Run:
    """Write the run and open it."""
    base.mkdir(parents=True, exist_ok=True)
    plan = base / "plan.jsonl"
    step = {
        "step": "trial",
        "id": "t0000000",
        "point": 0,
        "repetition": 0,
        "block": 0,
        "factors": {"files": 1},
        "steps": [],
    }
    plan.write_text(f"{json.dumps(_header(world))}\n{json.dumps({'actor': 'sweep', 'host': 'b', 'steps': [step]})}\n")
    with RunWriter.create(base / "runs", plan, backend="lab" if world.network else "hosts") as writer:
        storages = {"src": {"device": "/dev/sda"}, "dst": {"device": "/dev/sdb"}}
        writer.start_session({host: {"storages": storages} for host in ("a", "b")})
        writer.trial(_trial(world), "b")
        if world.sockets:
            _sockets(writer, world)
        _samples(writer, world)
        writer.finish("complete")
        path = writer.path
    return Run.open(path)


def _header(world: Planted) -> dict[str, Any]:
    lab = {"site": None, "cpus": None, "memory_limit_bytes": None, "sysctls": dict(world.sysctls)}
    hosts = {
        host: {"ssh": None, "memory_bytes": None,
               "lab": {**lab, "cpu_limit_cores": world.cpu_limit_cores.get(host)} if world.network else None}
        for host in ("a", "b")
    }  # fmt: skip
    rate = 8 * world.link_rate_bytes_per_s
    link = {"rate_bit_per_s": rate, "delay_s": world.min_rtt_s / 2, "jitter_s": 0.0, "queue_bytes": 500_000, "loss": None,
            "reorder_probability": 0.0, "overhead_bytes": 0, "up": True}  # fmt: skip
    network = {
        "interfaces": {f"{host}.eth0": {"host": host, "device": "eth0", "address": f"10.77.0.{number}", "mtu": 1500, "offload": True}
                       for number, host in enumerate(("a", "b"), start=1)},
        "routers": [], "routes": {}, "changes": [],
        "links": {"a>b": {"from": "a.eth0", "to": "b.eth0", **link}, "b>a": {"from": "b.eth0", "to": "a.eth0", **link}},
    }  # fmt: skip
    service = {"kind": "gridftp", "host": "a", "interface": "a.eth0", "storages": ["src"], "after": [], "ports": [2811],
               "service_ports": {}, "options": dict(world.service_options)}  # fmt: skip
    spec = (
        None
        if world.read_bytes_per_s is None
        else {"kind": "disk", "size_bytes": 10**9, "read_bytes_per_s": world.read_bytes_per_s}
    )
    return {
        "format": "venturi-plan", "version": 2, "name": "planted", "seed": 1, "scale": 1.0,
        "scenario": {"venturi": 1, "name": "planted", "workload": {"kind": "sweep", "repeat": 1}},
        "hosts": hosts,
        "storages": {"src": {"host": "a", "path": "src", "spec": spec}, "dst": {"host": "b", "path": "dst", "spec": None}},
        "services": {"ftp": service}, "network": network if world.network else None, "datasets": {}, "draws": {}, "pools": {},
        "calls": {"call": {"mover": world.mover, "argv": [world.mover], "options": dict(world.options), "requires": [],
                           "timeout_s": 60.0, "capture": False, "expect": "destination"}},
        "measure": {"interval_s": INTERVAL_S, "counters": ["cpu", "tcp"]},
        "totals": {"trials": 1, "transfers": 1, "bytes": 0, "disk_bytes": {}},
    }  # fmt: skip


def _trial(world: Planted) -> dict[str, Any]:
    bytes_ = int(world.rate_bytes_per_s * world.duration_s)
    end_s = START_S + world.duration_s
    transfer = {
        "trial": "t0000000", "actor": "sweep", "slot": 0, "call": "call", "mover": world.mover, "source": "src:f", "source_via": "ftp/ftp",
        "destination": "dst:f", "destination_via": None, "files": world.files, "requested_bytes": bytes_, "received_bytes": bytes_,
        "start_s": START_S, "end_s": end_s, "duration_s": world.duration_s, "outcome": "ok", "user_s": 0.1, "system_s": 0.2,
    }  # fmt: skip
    findings = [{"code": code, "subject": "b", "evidence": "planted", "advice": "none"} for code in world.findings]
    return {"trial": "t0000000", "actor": "sweep", "start_s": START_S, "end_s": end_s, "outcome": "ok", "point": 0, "repetition": 0,
            "block": 0, "position": 0, "factors": {"files": 1}, "cache": None, "transfers": [transfer], "findings": findings}  # fmt: skip


def _sockets(writer: RunWriter, world: Planted) -> None:
    life_s = world.duration_s * world.open_part
    number = max(2, round(life_s / INTERVAL_S))
    for host, local, remote in (("a", "10.77.0.1:5000", "10.77.0.2:6000"), ("b", "10.77.0.2:6000", "10.77.0.1:5000")):
        for step in range(1, number + 1):
            time_s = START_S + (world.duration_s - life_s) + life_s * step / number
            own = _sender(world, life_s * step / number, life_s) if host == "a" else _receiver(world, step / number)
            writer.sockets(
                {"time_s": time_s, "sockets": [{"local": local, "remote": remote, "closed": step == number, **own}]},
                host,
            )


def _sender(world: Planted, elapsed_s: float, life_s: float) -> dict[str, Any]:
    moved = int(world.rate_bytes_per_s * world.duration_s * elapsed_s / life_s)
    busy_s = elapsed_s * world.busy
    return {
        "sent_bytes": int(moved * (1 + world.retransmitted)), "acked_bytes": moved, "received_bytes": 0,
        "retransmitted_bytes": int(moved * world.retransmitted), "busy_s": busy_s,
        "receive_window_limited_s": busy_s * world.window_limited, "send_buffer_limited_s": busy_s * world.buffer_limited,
        "rtt_s": world.rtt_s, "min_rtt_s": world.min_rtt_s, "cwnd_bytes": world.cwnd_bytes, "mss_bytes": 1448,
        "send_window_bytes": world.window_bytes, "send_buffer_bytes": world.send_buffer_bytes,
    }  # fmt: skip


def _receiver(world: Planted, part: float) -> dict[str, Any]:
    return {
        "sent_bytes": 0, "acked_bytes": 0, "received_bytes": int(world.rate_bytes_per_s * world.duration_s * part),
        "retransmitted_bytes": 0, "busy_s": 0.0, "receive_window_limited_s": 0.0, "send_buffer_limited_s": 0.0,
        "rtt_s": world.rtt_s, "min_rtt_s": world.min_rtt_s, "receive_buffer_bytes": 2 * world.window_bytes,
        "receive_queue_bytes": world.waiting_bytes,
    }  # fmt: skip


def _samples(writer: RunWriter, world: Planted) -> None:
    carried = world.rate_bytes_per_s * (1 + world.retransmitted) + world.other_bytes_per_s
    packets = carried / 1448
    busy = carried / world.link_rate_bytes_per_s if world.link_busy is None else world.link_busy
    growth: dict[str, Mapping[str, float]] = {host: dict(world.counters.get(host, {})) for host in ("a", "b")}
    if world.network:
        growth["network"] = {
            "link.a>b.bytes": carried, "link.a>b.packets": packets, "link.a>b.busy_s": busy,
            "link.a>b.queue_drops": packets * world.queue_drops, "link.a>b.loss_drops": packets * world.loss_drops,
        }  # fmt: skip
    number = round(world.duration_s / INTERVAL_S) + 2
    for host, rates in growth.items():
        for step in range(number):
            time_s = START_S - INTERVAL_S + step * INTERVAL_S
            counters = {name: rate * step * INTERVAL_S for name, rate in rates.items()}
            if host == "network":
                counters["link.a>b.queue_high_bytes"] = world.queue_high_bytes
            if counters:
                writer.sample({"time_s": time_s, "counters": counters}, host)
