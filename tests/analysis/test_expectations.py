"""Links and limits of a scenario compared with the existing hosts of a real run."""

import os

import pytest

from venturi.analysis import analyse
from venturi.backend import HostsBackend
from venturi.plan import write_plan
from venturi.run import Run, RunWriter
from venturi.scenario import load_scenario
from venturi.workload import expand

CORES = len(os.sched_getaffinity(0))

SCENARIO = """
venturi = 1
name = "two"
seed = 1
scale = 0.5
[testbed.host.a]
connect = ["env", "HOME={home}/a"]
address = "127.0.0.1"
cpu_limit = {cores}
[testbed.host.b]
connect = ["env", "HOME={home}/b"]
address = "127.0.0.1"
[testbed.router.r]
[testbed.link.lan]
between = ["a", "r"]
rate = "900 Gb/s"
delay = "0 ms"
[testbed.link.wan]
between = ["r", "b"]
rate = "{rate}"
delay = "{delay}"
[testbed.storage.sa]
host = "a"
path = "data"
[testbed.storage.sb]
host = "b"
path = "data"
[workload]
kind = "sweep"
mover = "venturi"
source = "sa"
destination = "sb"
repeat = 2
[workload.factors]
size = ["4 MB"]
"""


@pytest.fixture
def findings_of(engine, tmp_path):
    """Return a function that runs the scenario on this machine and returns the findings ``testbed-differs``."""

    def work(**values):
        for name in ("a", "b"):
            (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / "two.toml").write_text(SCENARIO.format(home=tmp_path, **values))
        write_plan(expand(load_scenario(tmp_path / "two.toml")), tmp_path / "plan.jsonl")
        run = RunWriter.create(tmp_path / "runs", tmp_path / "plan.jsonl", backend="hosts")
        outcome = HostsBackend(engine=engine).execute(run)
        assert (outcome.state, outcome.failed) == ("complete", 0)
        with Run.open(run.path) as result:
            return [finding for finding in analyse(result).findings if finding.code == "testbed-differs"]

    return work


def test_each_deviation_is_a_note_with_the_expected_and_the_found_value(findings_of):
    found = findings_of(rate="100 kb/s", delay="12.5 ms", cores=CORES + 3)
    texts = {(finding.subject, finding.evidence.partition(", found ")[0]) for finding in found}
    assert texts == {
        ("host a", f"expected {CORES + 3} CPU cores"),
        ("links lan, wan", "expected an RTT of 25 ms between a and b"),
        ("links lan, wan", "expected at most 100 kb/s from a to b"),
    }
    assert {finding.severity for finding in found} == {"note"}


def test_a_testbed_that_meets_its_expectations_has_no_finding(findings_of):
    assert findings_of(rate="900 Gb/s", delay="0 ms", cores=CORES) == []
