"""Small systems with a known limit, and runs of planted costs."""

from __future__ import annotations

import copy
import dataclasses
from pathlib import Path
from typing import Any

from venturi.backend import SimBackend
from venturi.backend.sim import engine_assumptions
from venturi.cost import CostParameters
from venturi.plan import read_header, write_plan
from venturi.run import Run, RunWriter
from venturi.scenario import scenario_from
from venturi.workload import expand

# Payload of a packet of 1500 bytes with the headers of IPv4 and TCP with timestamps (RFC 791, RFC 9293, RFC 7323).
PAYLOAD = (1500 - 52) / 1500

DOCUMENT: dict[str, Any] = {
    "venturi": 1,
    "name": "small",
    "testbed": {
        "host": {"a": {}, "b": {}},
        "link": {"wan": {"between": ["a", "b"], "rate": "10 Gb/s", "rtt": "2 ms"}},
        "storage": {
            "data": {"host": "a", "path": "data", "kind": "disk", "size": "10 TB", "read_rate": "80 Gb/s"},
            "copies": {"host": "b", "path": "copies", "kind": "disk", "size": "10 TB", "write_rate": "80 Gb/s"},
        },
        "service": {"web": {"kind": "nginx", "host": "a", "storage": ["data"]}},
        "cost": {"mover": {"curl": {"start": "10 ms", "start_core": "0 s"}}},
    },
    "workload": {
        "kind": "sweep",
        "mover": "curl",
        "source": "data",
        "destination": "copies",
        "factors": {"size": ["100 MB"]},
    },
}


def changed(**parts: Any) -> dict[str, Any]:
    """Return the document with values at paths such as ``testbed__link__wan__rate``."""
    document = copy.deepcopy(DOCUMENT)
    for path, value in parts.items():
        *above, last = path.split("__")
        table = document
        for key in above:
            table = table.setdefault(key, {})
        table[last] = value
    return document


def measured_run(base: Path, document: dict[str, Any], cost: CostParameters) -> Run:
    """Return a run of a scenario as measured in a lab with these costs. Its plan does not contain them."""
    base.mkdir(parents=True, exist_ok=True)
    plan = base / "plan.jsonl"
    write_plan(expand(scenario_from(document)), plan)
    world = engine_assumptions(dataclasses.replace(read_header(plan), cost=cost))
    with RunWriter.create(base / "runs", plan, backend="lab") as run:
        assert SimBackend(assumptions=world).execute(run).state == "complete"
    return Run.open(run.path)
