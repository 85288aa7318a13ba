"""Simulated runs with known costs and scatter: GridFTP over a long path."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from venturi.backend import SimBackend
from venturi.backend.sim import engine_assumptions
from venturi.cost import CostParameters, MoverCost, MoverRule, ServiceCost
from venturi.plan import read_header, write_plan
from venturi.run import Run, RunWriter
from venturi.scenario import scenario_from
from venturi.workload import expand

MOVER = "globus-url-copy"


def scenario(rtt: str, **factors: Any) -> dict[str, Any]:
    """Return a sweep of downloads from one GridFTP server over one link of 10 Gb/s."""
    return {
        "venturi": 1,
        "name": f"planted-{rtt.replace(' ', '')}",
        "testbed": {
            "host": {"client": {}, "server": {}},
            "link": {"wan": {"between": ["client", "server"], "rate": "10 Gb/s", "rtt": rtt}},
            "storage": {"data": {"host": "server", "path": "data"}, "here": {"host": "client", "path": "here"}},
            "service": {"gridftp": {"kind": "gridftp", "host": "server", "storage": ["data"]}},
        },
        "workload": {
            "kind": "sweep",
            "mover": MOVER,
            "client": "client",
            "source": "data",
            "source_service": "gridftp",
            "destination": "here",
            "repeat": 6,
            "factors": {"files": [1, 4], "size": ["1 kB", "1 MB", "10 MB", "40 MB", "100 MB"], **factors},
        },
    }


def planted(mover: Mapping[str, float], service: Mapping[str, float]) -> CostParameters:
    """Return the cost parameters of the mover and of the server."""
    return CostParameters((MoverRule(MOVER, MoverCost(**mover)),), {"gridftp": ServiceCost(**service)})  # type: ignore[arg-type]


class Scattered(RunWriter):
    """A run whose times have lognormal scatter."""

    scatter, seed = 0.0, 0

    def trial(self, record: Mapping[str, Any], host: str) -> str | None:
        for transfer in record["transfers"]:
            deviates = np.random.default_rng([self.seed, len(self.finished), transfer["slot"]])
            transfer["duration_s"] *= math.exp(self.scatter * deviates.normal())
        return super().trial(record, host)


def simulated_run(
    base: Path,
    document: dict[str, Any],
    cost: CostParameters,
    *,
    scatter: float = 0.0,
    seed: int = 0,
    backend: str = "lab",
) -> Run:
    """Return a run of a scenario as measured in a world with these costs. Its plan does not contain them."""
    base.mkdir(parents=True, exist_ok=True)
    plan = base / f"{document['name']}-{seed}.jsonl"
    write_plan(expand(scenario_from(document)), plan)
    world = engine_assumptions(dataclasses.replace(read_header(plan), cost=cost))
    with Scattered.create(base / "runs", plan, backend=backend) as run:
        assert isinstance(run, Scattered)
        run.scatter, run.seed = scatter, seed
        SimBackend(assumptions=world).execute(run)
    return Run.open(run.path)
