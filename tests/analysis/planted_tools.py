"""Runs of network and disk tools with planted results: one call per trial, from host ``a`` to ``b`` or on ``a`` alone."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from planted_lab import NETWORK, SEGMENT

from venturi.mover import ToolReport
from venturi.run import Run, RunWriter

RTT_S = 0.020
LINK_BIT_PER_S = 100e6
"""Properties of the route from a to b in NETWORK: four delays of 5 ms, and the slower of its two links."""


@dataclass(frozen=True)
class ToolOutput:
    """One design point: the call, and the output of each of its trials.

    ``seconds`` has one value per trial. ``window_bytes`` and ``flow_bytes_per_s`` apply to each connection. ``held`` is
    the fraction of its time in which the window limited it. Without connections, the kernels counted nothing.
    """

    mover: str
    size_bytes: int
    seconds: Sequence[float]
    options: Mapping[str, Any] = field(default_factory=dict)
    tool: Mapping[str, Any] = field(default_factory=dict)
    connections: int = 0
    window_bytes: int = 0
    flow_bytes_per_s: float = 0.0
    held: float = 0.0
    congestion_control: str | None = "cubic"
    closed_only: bool = False
    at: str = "a>b"


def tool_run(base: Path, points: Sequence[ToolOutput], scenario: Mapping[str, Any] | None = None) -> Run:
    """Write the run and open it."""
    base.mkdir(parents=True, exist_ok=True)
    trials = [
        (number, one, repetition) for number, one in enumerate(points) for repetition in range(len(one.seconds))
    ]
    plan = base / "plan.jsonl"
    plan.write_text("\n".join(json.dumps(line) for line in _plan(points, trials, scenario or {})) + "\n")
    reports = {f"t{serial:07d}": _report(one.tool) for serial, (_, one, _) in enumerate(trials)}

    def parse(call: Mapping[str, Any], record: Mapping[str, Any]) -> ToolReport | None:
        return reports[record["trial"]]

    with RunWriter.create(base / "runs", plan, backend="lab", parse=parse) as writer:
        writer.start_session({"a": {}, "b": {}, "network": {}})
        now = 1.0
        for serial, (number, one, repetition) in enumerate(trials):
            now = _trial(writer, serial, number, one, one.seconds[repetition], now)
        for host in ("a", "b"):
            for tick in range(int(now) + 3):
                writer.sample({"time_s": float(tick), "counters": {"cpu.user_s": float(tick)}}, host)
        writer.finish("complete")
        path = writer.path
    return Run.open(path)


def _report(tool: Mapping[str, Any]) -> ToolReport | None:
    if not tool:
        return None
    return ToolReport(
        tool.get("tool_bytes"), tool.get("tool_rate_bytes_per_s"), received_bytes=tool.get("tool_received_bytes"),
        detail=tool.get("tool", {}),
    )  # fmt: skip


def _plan(points: Sequence[ToolOutput], trials: Sequence[Any], scenario: Mapping[str, Any]) -> list[dict[str, Any]]:
    lab = {
        "site": None,
        "cpus": None,
        "cpu_limit_cores": None,
        "memory_limit_bytes": 2**25,
        "congestion_control": "reno",
    }
    header = {
        "format": "venturi-plan", "version": 2, "name": "tools", "seed": 1, "scale": 1.0,
        "scenario": {"venturi": 1, "name": "tools", "workload": {"kind": "sweep", "repeat": 1}, "analyse": {"against": ["streams"]}, **scenario},
        "hosts": {h: {"ssh": None, "memory_bytes": None, "lab": lab} for h in ("a", "b")},
        "storages": {"disk": {"host": "a", "path": "disk", "spec": {"kind": "disk", "size_bytes": 2**30, "read_bytes_per_s": 5e7, "write_bytes_per_s": 2e7}},
                   "far": {"host": "b", "path": "far", "spec": None}},
        "services": {"server": {"kind": "any", "host": "b", "interface": "b.eth0", "storages": ["far"], "after": [], "ports": [1], "service_ports": {}, "options": {}}},
        "network": NETWORK, "datasets": {}, "draws": {}, "pools": {},
        "calls": {f"c{n}": {"mover": one.mover, "argv": [one.mover], "options": dict(one.options), "requires": [], "timeout_s": 60.0, "capture": False,
                            "expect": "nothing"} for n, one in enumerate(points)},
        "measure": {"interval_s": 0.1, "counters": ["cpu", "tcp"]},
        "totals": {"trials": len(trials), "transfers": len(trials), "bytes": 0, "disk_bytes": {}},
    }  # fmt: skip
    steps = [
        {"step": "trial", "id": f"t{serial:07d}", "point": number, "repetition": repetition, "block": repetition,
         "factors": {"mover": one.mover, "size_bytes": one.size_bytes, **one.options}, "steps": []}
        for serial, (number, one, repetition) in enumerate(trials)
    ]  # fmt: skip
    return [header, *({"actor": "sweep", "host": "a", "steps": [step]} for step in steps)]


def _trial(writer: RunWriter, serial: int, number: int, one: ToolOutput, seconds: float, now: float) -> float:
    name, far = f"t{serial:07d}", one.at == "a>b"
    transfer = {
        "trial": name, "actor": "sweep", "slot": 0, "call": f"c{number}", "mover": one.mover,
        "source": "disk:f" if one.mover in ("fio-read", "read", "globus-url-copy") else "zero:", "source_via": None,
        "destination": "far:g" if far else "disk:g", "destination_via": "server/any" if far else None, "files": 1,
        "requested_bytes": one.size_bytes, "received_bytes": None, "intended_s": None, "start_s": now, "end_s": now + seconds,
        "duration_s": seconds, "outcome": "ok", "exit_code": 0, "signal": None, "error": None, "user_s": 0.01, "system_s": 0.01, "stdout": "said" if one.tool else None, "stderr": "",
        "labels": {},
    }  # fmt: skip
    record = {"trial": name, "actor": "sweep", "start_s": now - 0.001, "end_s": now + seconds, "outcome": "ok", "cache": None,
              "transfers": [transfer], "findings": []}  # fmt: skip
    writer.trial(record, "a")
    for connection in range(one.connections):
        _connection(writer, one, 20_000 + 100 * serial + connection, now, seconds)
    return now + seconds + 0.2


def _connection(writer: RunWriter, one: ToolOutput, port: int, now: float, seconds: float) -> None:
    own, other = f"10.77.0.1:{port}", f"10.77.0.2:{port}"
    size = int(one.tool.get("kernel_bytes", one.tool.get("tool_bytes", one.size_bytes))) // one.connections
    base = {"state": "established", "mss_bytes": SEGMENT, "cwnd_bytes": 10**7, "send_window_bytes": one.window_bytes, "rtt_s": RTT_S, "min_rtt_s": RTT_S,
            "delivery_bytes_per_s": one.flow_bytes_per_s, "congestion_control": one.congestion_control, "retransmitted_bytes": 0}  # fmt: skip

    def seen(fraction: float, *, closed: bool) -> dict[str, Any]:
        moved = round(fraction * size)
        busy = {
            "busy_s": fraction * seconds,
            "receive_window_limited_s": one.held * fraction * seconds,
            "send_buffer_limited_s": 0.0,
        }
        return {
            **base,
            **busy,
            "local": own,
            "remote": other,
            "closed": closed,
            "sent_bytes": moved + 2,
            "acked_bytes": moved + 2,
            "received_bytes": 1,
        }

    if not one.closed_only:
        writer.sockets({"time_s": now + seconds / 2, "sockets": [seen(0.5, closed=False)]}, "a")
    writer.sockets({"time_s": now + seconds, "sockets": [seen(1.0, closed=True)]}, "a")
    back = {
        **seen(1.0, closed=True),
        "local": other,
        "remote": own,
        "acked_bytes": 1,
        "sent_bytes": 1,
        "received_bytes": size + 1,
    }
    writer.sockets({"time_s": now + seconds, "sockets": [back]}, "b")
