"""Small runs with planted results, written by ``RunWriter``.

``planted_run`` takes a law (seconds of one transfer, from its factors and a random generator) and writes a run
directory as a backend would. No clock is read: all times follow from the law.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from venturi.run import Finding, Run, RunWriter

Law = Callable[[Mapping[str, Any], np.random.Generator], float]
SHARED_BYTES_PER_S = 1e9


def share_law(factors: Mapping[str, Any], rng: np.random.Generator) -> float:
    """Return the time of a transfer that gets an exact 1/n of the bandwidth, with 2 % of scatter."""
    return factors["size_bytes"] * factors["files"] / SHARED_BYTES_PER_S * (1 + 0.02 * rng.standard_normal())


def product(**factors: Sequence[Any]) -> list[dict[str, Any]]:
    return [dict(zip(factors, values, strict=True)) for values in itertools.product(*factors.values())]


def planted_run(
    base: Path, points: Sequence[Mapping[str, Any]], law: Law = share_law, *, repeat: int = 6, seed: int = 1,
    scenario: Mapping[str, Any] | None = None, fails: Callable[[Mapping[str, Any], int, int], str | None] = lambda f, r, s: None,
    done: int | None = None, per_transfer: Mapping[str, float | Callable[[int], float]] | None = None, samples: bool = False,
    cache: Mapping[str, Any] | None = None, findings: Sequence[Finding] = (), name: str = "planted",
    metadata: Mapping[str, Any] | None = None, order: str = "random", source: str = "gpfs",
) -> Run:  # fmt: skip
    """Write a run and open it.

    ``fails(factors, repetition, slot)`` returns the reason why a transfer fails. ``done`` is the number of trials after
    which the run stops. ``per_transfer`` sets byte counts as fractions of the size, or of the size by slot, such as
    ``{"read_disk_bytes": 0.03}``.
    """
    rng = np.random.default_rng(seed)
    plan = _plan(base, points, repeat, scenario or {}, name, rng, order)
    steps = [step for line in plan.read_text().splitlines()[1:] for step in json.loads(line)["steps"]]
    with RunWriter.create(base / "runs", plan, backend="hosts") as writer:
        writer.start_session({"node1": metadata or {"kernel": "6.1", "cpu": {"model": "planted", "cores": 8}}})
        for finding in findings:
            writer.finding(finding)
        now = 1.0
        for step in steps[: len(steps) if done is None else done]:
            record, now = _trial(step, now, law, rng, fails, per_transfer or {}, cache, source)
            writer.trial(record, "node1")
        if samples:
            _sample(writer, now)
        writer.finish("complete" if done is None else "stopped")
        path = writer.path
    return Run.open(path)


def _plan(
    base: Path, points: Sequence[Mapping[str, Any]], repeat: int, scenario: Mapping[str, Any], name: str,
    rng: np.random.Generator, order: str,
) -> Path:  # fmt: skip
    movers = {mover for point in points for mover in str(point.get("mover", "cp")).split("+")}
    header = {
        "format": "venturi-plan", "version": 2, "name": name, "seed": 1, "scale": 1.0,
        "scenario": {"venturi": 1, "name": name, "workload": {"kind": "sweep", "repeat": repeat},
                     "analyse": {"against": ["files", "size"], "families": "all", "criterion": "aicc"}, **scenario},
        "hosts": {"node1": {"ssh": None, "memory_bytes": None}}, "storages": {"gpfs": {"host": "node1", "path": "gpfs"}}, "datasets": {}, "draws": {}, "pools": {},
        "calls": {mover: {"mover": mover, "argv": [mover], "options": {}, "requires": [mover], "timeout_s": 600.0, "capture": False,
                          "expect": "destination"} for mover in sorted(movers)},
        "measure": {"interval_s": 0.1, "counters": ["cpu", "disk"]},
        "totals": {"trials": len(points) * repeat, "transfers": 0, "bytes": 0, "disk_bytes": {}},
    }  # fmt: skip
    lines = [json.dumps(header)]
    number = 0
    for repetition in range(repeat):
        shuffled = rng.permutation(len(points)) if order == "random" else range(len(points))
        for point in map(int, shuffled):
            step = {"step": "trial", "id": f"t{number:07d}", "point": point, "repetition": repetition, "block": repetition,
                    "factors": points[point], "steps": []}  # fmt: skip
            lines.append(json.dumps({"actor": "sweep", "host": "node1", "steps": [step]}))
            number += 1
    base.mkdir(parents=True, exist_ok=True)
    path = base / "plan.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return path


def _trial(
    step: Mapping[str, Any], now: float, law: Law, rng: np.random.Generator,
    fails: Callable[[Mapping[str, Any], int, int], str | None], fractions: Mapping[str, float | Callable[[int], float]], cache: Mapping[str, Any] | None, source: str
) -> tuple[dict[str, Any], float]:  # fmt: skip
    factors, size = step["factors"], step["factors"]["size_bytes"]
    transfers, end = [], now
    for slot in range(factors.get("files", 1)):
        for call in str(factors.get("mover", "cp")).split("+"):
            duration = max(law({**factors, "call": call}, rng), 1e-6)
            error = fails(factors, step["repetition"], slot)
            transfers.append({
                "trial": step["id"], "actor": "sweep", "slot": slot, "call": call, "source": f"{source}:a", "destination": "gpfs:b",
                "files": 1, "requested_bytes": size, "received_bytes": 0 if error else size, "intended_s": None, "start_s": now,
                "end_s": now + duration, "duration_s": duration, "outcome": "failed" if error else "ok",
                "exit_code": 1 if error else 0, "signal": None, "error": error, "user_s": 0.001, "system_s": size / 2e9,
                "labels": {}, **{key: int((fraction(slot) if callable(fraction) else fraction) * size) for key, fraction in fractions.items()},
            })  # fmt: skip
            end = max(end, now + duration)
    record = {"trial": step["id"], "actor": "sweep", "start_s": now, "end_s": end, "outcome": "ok", "cache": cache,
              "transfers": transfers, "findings": []}  # fmt: skip
    return record, end + 0.01


def _sample(writer: RunWriter, end_s: float) -> None:
    """Write counters that grow evenly: 25 % of 8 cores busy, 100 MB/s written, 50 MB/s read."""
    for moment in np.arange(0.0, end_s, 0.1):
        counters = {"cpu.user_s": 1.0 * moment, "cpu.system_s": 1.0 * moment, "cpu.idle_s": 6.0 * moment,
                    "cpu.iowait_s": 0.0, "disk.sda.write_bytes": 1e8 * moment, "disk.sda.read_bytes": 5e7 * moment,
                    "nic.lo.rx_bytes": 0.0}  # fmt: skip
        writer.sample({"time_s": float(moment), "counters": counters}, "node1")
