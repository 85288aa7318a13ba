"""`venturi advise --apply`: the change of a verdict removes its limit, and the rate agrees with the prediction."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from planted_verdicts import Planted, planted_run
from test_verdicts_in_lab import CASES, Group, Path_

from venturi.advice import Verdict, advise
from venturi.advice.change import changed_scenario
from venturi.backend import SimBackend
from venturi.errors import PlanError
from venturi.plan import write_plan
from venturi.run import Run, RunWriter
from venturi.scenario import Scenario, load_scenario, scenario_from
from venturi.workload import expand

VENTURI = Path(sys.executable).with_name("venturi")


def simulated(scenario: Scenario, base: Path, engine: Path) -> tuple[Run, Verdict]:
    """Simulate a scenario and return its run and verdict."""
    base.mkdir()
    write_plan(expand(scenario), base / "plan.jsonl")
    writer = RunWriter.create(base / "runs", base / "plan.jsonl", backend="sim")
    assert SimBackend(engine=engine).execute(writer).state == "complete"
    run = Run.open(writer.path)
    return run, advise(run).run


@pytest.mark.parametrize(("group", "path"), CASES)
def test_applying_the_change_of_a_verdict_removes_its_limit(
    tmp_path: Path, engine: Path, group: Group, path: Path_
) -> None:
    if not path.simulated:
        pytest.skip(f"the simulator has no {path.cause}")
    if path.cause == "client":
        pytest.skip("the simulator has the requests as a cost, not as the option")
    alone = Group(group.mover, group.kind, group.at, (), (path,), group.options, group.costs)
    (tmp_path / "scenario.toml").write_text(alone.toml())
    run, before = simulated(load_scenario(tmp_path / "scenario.toml"), tmp_path / "before", engine)
    document, change = changed_scenario(run.header["scenario"], before)
    _, after = simulated(scenario_from(document), tmp_path / "after", engine)
    assert change
    assert document["name"] == "verdicts-applied"
    assert before.rate_bytes_per_s
    assert after.rate_bytes_per_s > 1.15 * before.rate_bytes_per_s, (change, after.fractions)
    assert (after.cause, after.resource) != (before.cause, before.resource) or after.fraction < before.fraction


SCENARIO = """
venturi = 1
name = "applied"
[testbed.host.a]
[testbed.host.b]
[testbed.link.wan]
between = ["a", "b"]
rate = "100 Mb/s"
rtt = "10 ms"
[testbed.storage]
data = { host = "a", path = "data", kind = "disk", size = "1 GB", read_rate = "1 MB/s" }
copies = { host = "b", path = "copies" }
[testbed.service.ftp]
kind = "gridftp"
host = "a"
storage = ["data"]
[workload]
kind = "sweep"
mover = "globus-url-copy"
source = "data"
destination = "copies"
[workload.factors]
size = ["20 MB"]
"""


def test_the_command_compares_the_prediction_with_the_measured_rate(tmp_path: Path) -> None:
    (tmp_path / "slow.toml").write_text(SCENARIO)
    done = subprocess.run(
        [VENTURI, "advise", "slow.toml", "--on", "sim", "--apply", "--json"],
        cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    result = json.loads(done.stdout)
    applied = result["applied"]
    assert result["verdict"]["cause"] == "source-disk"
    assert applied["change"] == "storage data without read_rate"
    assert applied["inside"] is True
    assert applied["measured_bytes_per_s"] > 5 * result["verdict"]["rate_bytes_per_s"]
    assert Run.open(tmp_path / applied["run"]).header["scenario"]["name"] == "applied-applied"


def test_a_run_without_a_verdict_is_not_changed(tmp_path: Path) -> None:
    run = planted_run(tmp_path, Planted(sockets=False, counters={}))
    with pytest.raises(PlanError, match="does not show the limit"):
        changed_scenario(run.header["scenario"], advise(run).run)


def test_a_storage_can_have_the_name_of_its_kind(tmp_path: Path) -> None:
    """The resource is a phrase: "the disk of storage data on here" does not name the storage ``disk``."""
    verdict = advise(planted_run(tmp_path, Planted(sockets=False, counters={}))).run
    scenario = {
        "name": "two", "workload": {},
        "testbed": {"storage": {name: {"host": "here", "read_rate": "1 MB/s"} for name in ("disk", "data")}},
    }  # fmt: skip
    for name, other in (("data", "disk"), ("disk", "data")):
        found = replace(verdict, cause="source-disk", resource=f"the disk of storage {name} on here")
        changed, text = changed_scenario(scenario, found)
        assert text == f"storage {name} without read_rate"
        assert "read_rate" in changed["testbed"]["storage"][other]
        assert "read_rate" not in changed["testbed"]["storage"][name]


def test_advise_cannot_apply_changes_to_runs_on_hosts_or_to_paths(tmp_path: Path) -> None:
    run = planted_run(tmp_path, Planted(network=False, rate_bytes_per_s=20e6, rtt_s=0.036, retransmitted=0.001))
    done = subprocess.run([VENTURI, "advise", run.path, "--apply"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "found one on hosts" in " ".join(done.stderr.split())
    done = subprocess.run(
        [VENTURI, "advise", tmp_path, tmp_path, "--apply"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "two directories" in " ".join(done.stderr.split())
