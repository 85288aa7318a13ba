"""Runs of open-loop workloads with planted transfers and counters of links."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from venturi.run import Run, RunWriter

MB = 1e6


@dataclass(frozen=True)
class Moved:
    """One transfer of a flow between two sites, whose storages have the same names."""

    source: str
    destination: str
    intended_s: float
    start_s: float
    end_s: float
    size_bytes: float = MB
    flow: str = "f"
    traced_s: float | None = None
    outcome: str = "ok"


def even(
    rate_per_s: float, end_s: float, took_s: float, source: str, destination: str, flow: str = "f"
) -> list[Moved]:
    """Return transfers of 1 MB at even intervals, in the middle of each, that all take the same time."""
    gap = 1 / rate_per_s
    starts = [gap * (number + 0.5) for number in range(round(end_s * rate_per_s))]
    return [Moved(source, destination, start, start, start + took_s, flow=flow) for start in starts]


def one_by_one(
    rate_per_s: float, end_s: float, took_s: float, source: str, destination: str, flow: str = "f"
) -> list[Moved]:
    """Return transfers of 1 MB at even intervals that run one after another: an overloaded server."""
    starts = [number / rate_per_s for number in range(round(end_s * rate_per_s))]
    return [Moved(source, destination, at, took_s * n, took_s * (n + 1), flow=flow) for n, at in enumerate(starts)]


def flow(source: str, destination: str, mb_per_s: float, end_s: float, **more: Any) -> dict[str, Any]:
    """Return a flow of a scenario with a rate in MB/s."""
    return {
        "source": [source], "destination": [destination], "of": "flow", "rate": f"{8e6 * mb_per_s!r} b/s",
        "start": "0 s", "end": f"{end_s} s", "size": ["1 MB"], **more,
    }  # fmt: skip


def load_run(
    base: Path, moved: Sequence[Moved], flows: Mapping[str, Mapping[str, Any]] | None = None, *,
    rates: Mapping[str, float] | None = None, links: Sequence[str] = (), counters: Mapping[str, Sequence[tuple[float, float]]] | None = None,
    done: int | None = None, link_bit_per_s: float = 1e9,
) -> Run:  # fmt: skip
    """Write the run of an inject workload, or of a replay without ``flows``, and open it.

    ``rates`` has the rate of each flow in bit/s. ``links`` names sites with a link to a router; ``counters`` has
    (time, bytes) of a link such as ``a>core``.
    """
    kind = {"kind": "inject", "mover": "cp", "flow": dict(flows)} if flows else {"kind": "replay", "mover": "cp"}
    sites = list(dict.fromkeys(site for one in moved for site in (one.source, one.destination)))
    header = {
        "format": "venturi-plan", "version": 2, "name": "load", "seed": 1, "scale": 1.0,
        "scenario": {"venturi": 1, "name": "load", "workload": kind},
        "hosts": {site: {"ssh": None, "memory_bytes": None} for site in sites},
        "storages": {site: {"host": site, "path": site} for site in sites}, "datasets": {}, "draws": {}, "pools": {},
        "calls": {"cp": {"mover": "cp", "argv": ["cp"], "options": {}, "requires": [], "timeout_s": 600.0, "capture": False, "expect": "destination"}},
        "measure": {"interval_s": 1.0, "counters": []}, **(_network(links, link_bit_per_s) if links else {}),
        "totals": {"trials": len(moved), "transfers": len(moved), "bytes": 0, "disk_bytes": {}},
    }  # fmt: skip
    points = {
        key: number for number, key in enumerate(dict.fromkeys((m.flow, m.source, m.destination) for m in moved))
    }
    lines = [json.dumps(header)]
    for number, one in enumerate(moved):
        factors: dict[str, Any] = {"files": 1, "source": one.source, "destination": one.destination}
        if flows:
            factors |= {"flow": one.flow, "requested_bit_per_s": (rates or {})[one.flow]}
        step = {"step": "trial", "id": f"t{number:07d}", "point": points[one.flow, one.source, one.destination],
                "repetition": number, "block": number, "factors": factors, "steps": []}  # fmt: skip
        lines.append(json.dumps({"actor": f"a{number}", "host": one.source, "steps": [step]}))
    base.mkdir(parents=True, exist_ok=True)
    (base / "plan.jsonl").write_text("\n".join(lines) + "\n")
    with RunWriter.create(base / "runs", base / "plan.jsonl", backend="lab" if links else "hosts") as writer:
        writer.start_session({site: {} for site in sites} | ({"network": {}} if links else {}))
        for number, one in enumerate(moved[: len(moved) if done is None else done]):
            writer.trial(_record(number, one), one.source)
        for link, values in (counters or {}).items():
            for time_s, value in values:
                writer.sample({"time_s": time_s, "counters": {f"link.{link}.bytes": value}}, "network")
        writer.finish("complete" if done is None else "stopped")
        path = writer.path
    return Run.open(path)


def _record(number: int, one: Moved) -> dict[str, Any]:
    size = int(one.size_bytes)
    ok = one.outcome == "ok"
    transfer = {
        "trial": f"t{number:07d}", "actor": f"a{number}", "slot": 0, "call": "cp", "source": f"{one.source}:x", "destination": f"{one.destination}:y",
        "files": 1, "requested_bytes": size, "received_bytes": size if ok else 0, "intended_s": one.intended_s, "start_s": one.start_s,
        "end_s": one.end_s, "duration_s": one.end_s - one.start_s, "outcome": one.outcome, "exit_code": 0 if ok else 1, "signal": None,
        "error": None if ok else "refused", "user_s": 0.0, "system_s": 0.0, "labels": {} if one.traced_s is None else {"traced_s": one.traced_s},
    }  # fmt: skip
    return {"trial": f"t{number:07d}", "actor": f"a{number}", "start_s": one.start_s, "end_s": one.end_s, "outcome": "ok", "cache": None,
            "transfers": [transfer], "findings": []}  # fmt: skip


def _network(sites: Sequence[str], rate_bit_per_s: float) -> dict[str, Any]:
    """Return a star of sites around a router."""
    link = {"rate_bit_per_s": rate_bit_per_s, "delay_s": 0.001, "queue_bytes": 10**6, "overhead_bytes": 0, "up": True}
    links = {}
    for site in sites:
        links[f"{site}>core"] = {"from": f"{site}.eth0", "to": "core", **link}
        links[f"core>{site}"] = {"from": "core", "to": f"{site}.eth0", **link}
    interfaces = {f"{site}.eth0": {"host": site, "device": "eth0", "address": f"10.0.0.{n + 1}", "mtu": 1500} for n, site in enumerate(sites)}  # fmt: skip
    return {
        "network": {
            "interfaces": interfaces, "routers": ["core"], "links": links,
            "routes": {"core": {f"{site}.eth0": f"core>{site}" for site in sites}}, "changes": [],
        },
        "services": {},
    }  # fmt: skip
