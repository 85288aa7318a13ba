"""Write a run of a million transfers and ten million samples, to measure sealing and reporting.

    python bench/analysis_data.py DIRECTORY [--transfers 1000000] [--samples 10000000]

The transfers are a sweep over files, size and mover. Their duration is set-up time plus size / rate, with a few per cent
of log-normal noise and a few failures, so that fits and figures have data. A trial has one transfer per file, up to 10.
Like a killed run, the run has no tables, and the last line of the journal is incomplete.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import random
from pathlib import Path

COUNTERS = ("cpu.user_s", "cpu.system_s", "cpu.idle_s", "cpu.iowait_s", "nic.eth0.rx_bytes", "nic.eth0.tx_bytes",
            "disk.sda.read_bytes", "disk.sda.write_bytes", "memory.available_bytes", "memory.dirty_bytes")  # fmt: skip
FILES = (1, 2, 5, 10)
SIZES_BYTES = (10**5, 10**6, 10**7, 10**8, 10**9)
MOVERS = {"cp": (0.001, 2.0e9), "xrdcp": (0.08, 8.0e8), "globus-url-copy": (0.35, 9.0e8)}
"""Mover → set-up time in seconds, rate in bytes/s."""
EPOCH_UNIX_NS = 1_780_000_000 * 10**9


def write_plan(path: Path, trials: int) -> list[dict]:
    """Write a plan of the first ``trials`` trials of the repeated sweep; return their properties."""
    points = [
        {"files": files, "size_bytes": size, "mover": mover}
        for files, size, mover in itertools.product(FILES, SIZES_BYTES, MOVERS)
    ]
    calls = {mover: {"mover": mover, "options": {}, "argv": [mover, "{source}", "{destination}"], "requires": [mover],
                     "timeout_s": 600.0, "capture": False, "expect": "destination"} for mover in MOVERS}  # fmt: skip
    header = {
        "format": "venturi-plan", "version": 1, "name": "synthetic", "seed": 1, "scale": 1.0,
        "scenario": {
            "venturi": 1, "name": "synthetic", "seed": 1,
            "workload": {"kind": "sweep", "factors": {"files": list(FILES), "mover": list(MOVERS)}},
            "analyse": {"confidence": 0.95, "against": ["files", "size"], "families": "all", "criterion": "aicc"},
        },
        "hosts": {"node1": {"ssh": None, "memory_bytes": None}}, "storages": {"data": {"host": "node1", "path": "data"}},
        "datasets": {}, "calls": calls, "draws": {}, "pools": {},
        "measure": {"interval_s": 0.1, "counters": ["cpu", "disk", "memory", "nic"]},
        "totals": {"trials": trials, "transfers": 0, "bytes": 0, "disk_bytes": {"data": 0}},
    }  # fmt: skip
    entries = []
    with path.open("w") as plan:
        plan.write(json.dumps(header) + "\n")
        for number in range(trials):
            point = number % len(points)
            factors = points[point]
            transfer = {"step": "transfer", "call": factors["mover"], "slot": 0, "source": "data:a",
                        "destination": "data:b", "files": 1, "bytes": factors["size_bytes"]}  # fmt: skip
            step = {"step": "trial", "id": f"t{number:07d}", "point": point, "repetition": number // len(points),
                    "block": number // len(points), "factors": factors, "steps": [transfer]}  # fmt: skip
            plan.write(json.dumps({"actor": "sweep", "host": "node1", "steps": [step]}) + "\n")
            entries.append({key: step[key] for key in ("point", "repetition", "block", "factors")})
    return entries


def transfer(trial: str, slot: int, factors: dict, start_s: float, duration_s: float, failed: bool) -> dict:
    """Return one transfer in the form of the journal."""
    size = factors["size_bytes"]
    return {
        "trial": trial, "actor": "sweep", "slot": slot, "call": factors["mover"], "mover": factors["mover"],
        "source": f"data:sets/{size}/{slot:06d}", "destination": f"data:out/{trial}/{slot:06d}", "files": 1,
        "requested_bytes": size, "received_bytes": 0 if failed else size, "tool_bytes": None, "intended_s": None,
        "start_s": start_s, "end_s": start_s + duration_s, "duration_s": duration_s,
        "outcome": "failed" if failed else "ok", "exit_code": int(failed), "signal": None,
        "error": "Connection reset by peer" if failed else None, "user_s": 0.001, "system_s": size / 4e9,
        "max_rss_bytes": 4_000_000, "minor_faults": 200, "major_faults": 0, "voluntary_switches": 12,
        "involuntary_switches": 3, "read_call_bytes": size, "write_call_bytes": size, "read_disk_bytes": None,
        "write_disk_bytes": size, "stdout": None, "stderr": None, "labels": {},
    }  # fmt: skip


def write_journal(path: Path, entries: list[dict], transfers: int, random_: random.Random) -> float:
    """Write the journal; return the time of the run, in seconds."""
    now_s, written = 0.0, 0
    session = {"number": 1, "time_unix_ns": EPOCH_UNIX_NS, "backend": "hosts", "hosts": {"node1": {"kernel": "6.1"}}}
    with path.open("w", buffering=2**20) as journal:
        journal.write(line({"session": session}))
        for number, entry in enumerate(entries):
            trial, factors = f"t{number:07d}", entry["factors"]
            setup_s, rate = MOVERS[factors["mover"]]
            typical_s = setup_s + factors["size_bytes"] * factors["files"] / rate
            rows = []
            for slot in range(min(factors["files"], transfers - written)):
                duration_s = typical_s * random_.lognormvariate(0, 0.05)
                rows.append(transfer(trial, slot, factors, now_s, duration_s, random_.random() < 0.001))
            end_s = max(row["end_s"] for row in rows)
            head = {"trial": trial, "actor": "sweep", "start_s": now_s, "end_s": end_s, "outcome": "ok", "cache": None,
                    "findings": [], "position": number, "session": 1, "host": "node1", **entry}  # fmt: skip
            text = line({"trial": {**head, "transfers": rows}})
            journal.write(text)
            written += len(rows)
            now_s = end_s + 0.005
            if written == transfers:
                break
        journal.write(text[: len(text) // 2])
    return now_s


def line(content: dict) -> str:
    """Return a line in the form of the writer of a run."""
    return json.dumps(content, separators=(",", ":")) + "\n"


def write_samples(path: Path, samples: int, duration_s: float, random_: random.Random) -> None:
    """Write ``samples`` counter values at even intervals over the run."""
    moments = samples // len(COUNTERS)
    totals = dict.fromkeys(COUNTERS, 0)
    with path.open("w", buffering=2**20) as lines:
        for moment in range(moments):
            for counter in COUNTERS:
                totals[counter] += int(random_.random() * 1e6)
            time_s = moment * duration_s / moments
            what = {"values": list(totals.values())} if moment else {"counters": totals}
            lines.write(line({"host": "node1", "time_s": time_s, "set": "0f5ec1", **what}))


def write_run(path: Path, transfers: int, samples: int) -> None:
    """Write the run as if it had been killed at its end."""
    random_ = random.Random(1)
    path.mkdir(parents=True)
    trials = -(-transfers * len(FILES) // sum(FILES)) + len(FILES) * len(SIZES_BYTES) * len(MOVERS)
    entries = write_plan(path / "plan.jsonl", trials)
    duration_s = write_journal(path / "journal.jsonl", entries, transfers, random_)
    write_samples(path / "samples.jsonl", samples, duration_s, random_)
    (path / "events.jsonl").touch()
    info = {"format": "venturi-run", "version": 1, "name": "synthetic", "created_unix_ns": EPOCH_UNIX_NS,
            "plan_sha256": hashlib.sha256((path / "plan.jsonl").read_bytes()).hexdigest(), "state": "running",
            "backend": "hosts"}  # fmt: skip
    (path / "run.json").write_text(json.dumps(info))


def main() -> None:
    """Write the run."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--transfers", type=int, default=1_000_000)
    parser.add_argument("--samples", type=int, default=10_000_000)
    options = parser.parse_args()
    write_run(options.directory, options.transfers, options.samples)


if __name__ == "__main__":
    main()
