"""Modules that the start of a command must not load, because their import delays the first connection to a host."""

import subprocess
import sys

SLOW_MODULES = {"duckdb", "numpy", "scipy", "matplotlib", "pandas", "venturi.srm.manager", "venturi.testbed.lab.lab"}
SCENARIO = """
venturi = 1
name = "start"
seed = 1
[testbed.host.a]
[testbed.storage.sa]
host = "a"
path = "data"
[workload]
kind = "sweep"
mover = "cp"
source = "sa"
destination = "sa"
[workload.factors]
size = ["1 kB"]
"""
PROGRAM = """
import sys
from pathlib import Path
import venturi.backend.hosts
import venturi.cli.run
from venturi.cli.root import app
from venturi.plan import write_plan
from venturi.run import RunWriter
from venturi.scenario import load_scenario
from venturi.workload import expand
plan = expand(load_scenario(Path(sys.argv[1])))
write_plan(plan, Path("plan.jsonl"))
with RunWriter.create(Path("runs"), Path("plan.jsonl"), backend="hosts"):
    print(*sys.modules)
"""


def test_a_new_run_on_hosts_loads_no_tables_and_no_lab_before_it_connects(tmp_path):
    scenario = tmp_path / "start.toml"
    scenario.write_text(SCENARIO)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(scenario)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    loaded = set(done.stdout.split())
    assert "venturi.workload.trials" in loaded
    assert loaded & SLOW_MODULES == set()
