"""Time of a call with a million open transfers in NumPy arrays, and of its simulation as reported by the engine."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

import venturi
from venturi.scenario import Scenario, scenario_from

PAIRS = 100
LOAD = 0.8
BACKBONE_BYTES_PER_S = 12.5e9
SIZES_BYTES = (300e6, 800e6, 1600e6)


def testbed() -> Scenario:
    """Return pairs of hosts with 10 Gb/s each over one backbone of 100 Gb/s, with unlimited disks."""
    hosts = [f"{side}{number}" for side in ("a", "b") for number in range(PAIRS)]
    ends = {"a": "west", "b": "east"}
    links: dict[str, Any] = {
        host: {"between": [host, ends[host[0]]], "rate": "10 Gb/s", "delay": "1 ms"} for host in hosts
    }
    links["backbone"] = {"between": ["west", "east"], "rate": "100 Gb/s", "delay": "5 ms"}
    disk = {"path": "data", "kind": "disk", "size": "1 PB", "read_rate": "100 Gb/s", "write_rate": "100 Gb/s"}
    parts = {
        "host": {host: {} for host in hosts},
        "router": {"west": {}, "east": {}},
        "link": links,
        "storage": {host: {"host": host, **disk} for host in hosts},
        "service": {host: {"kind": "xrootd", "host": host, "storage": [host]} for host in hosts},
    }
    workload = {"kind": "sweep", "mover": "cp", "source": "a0", "destination": "a0", "factors": {"size": ["1 kB"]}}
    return scenario_from({"venturi": 1, "name": "pairs", "testbed": parts, "workload": workload})


def columns(count: int) -> dict[str, Any]:
    """Return Poisson arrivals at 80 % of the backbone."""
    rng = np.random.default_rng(1)
    size_bytes = np.rint(rng.choice(SIZES_BYTES, count) * rng.uniform(0.8, 1.2, count))
    pair = rng.integers(0, PAIRS, count)
    gap_s = float(size_bytes.mean()) / (LOAD * BACKBONE_BYTES_PER_S)
    return {
        "start_s": np.cumsum(rng.exponential(gap_s, count)),
        "source": pair,
        "destination": pair + PAIRS,
        "size_bytes": size_bytes,
        "names": [f"{side}{number}" for side in ("a", "b") for number in range(PAIRS)],
    }


def times_s(scenario: Scenario, given: dict[str, Any]) -> tuple[float, float]:
    """Return the wall times of one call and of its simulation."""
    started_s = time.perf_counter()
    moved = venturi.simulate_transfers(scenario, mover="xrdcp", **given)
    return time.perf_counter() - started_s, moved.engine_s
