"""Jobs of a lab are forked by a server on their own worker, and read through its network interface."""

import tomllib

import pytest

from testkit import needs_programs, needs_root
from venturi.analysis import analyse
from venturi.analysis.batches import batches
from venturi.backend import LabBackend
from venturi.plan import write_plan
from venturi.run import Run, RunWriter
from venturi.scenario import scenario_from
from venturi.workload import expand

pytest.importorskip("uproot", reason="not installed: uproot (venturi[root])")
pytest.importorskip("XRootD.client", reason="not installed: xrootd (venturi[root])")
pytestmark = [
    needs_root,
    needs_programs("xrootd"),
]

SCENARIO = """
venturi = 1
name = "jobs"
[testbed]
host = { server = {}, w1 = {}, w2 = {} }
router = { r = {} }
storage = { disk = { host = "server", path = "disk" } }
[testbed.service]
xrootd = { kind = "xrootd", host = "server", storage = ["disk"] }
jobs-w1 = { kind = "root-jobs", host = "w1" }
jobs-w2 = { kind = "root-jobs", host = "w2" }
[testbed.link]
server = { between = ["server", "r"], rate = "100 Mb/s", rtt = "1 ms" }
w1 = { between = ["w1", "r"], rate = "100 Mb/s", rtt = "1 ms" }
w2 = { between = ["w2", "r"], rate = "100 Mb/s", rtt = "1 ms" }
[workload]
kind = "jobs"
jobs = [6]
workers = ["w1", "w2"]
slots = 3
interval = "0.2 s"
cache = "cold"
configuration = { server = { storage = ["disk"], service = ["xrootd"] } }
application = { root = { mover = "root-read", size = "400 kB", unique = 2, format = "root", rate = "2 Mb/s" } }
[measure]
interval = "100 ms"
counters = ["nic"]
[analyse]
against = ["jobs"]
"""


def test_each_worker_reads_its_part_of_a_batch_over_its_own_link(tmp_path, parent, engine):
    write_plan(expand(scenario_from(tomllib.loads(SCENARIO))), tmp_path / "plan.jsonl")
    run = RunWriter.create(tmp_path / "runs", tmp_path / "plan.jsonl", backend="lab")
    LabBackend(scratch=tmp_path / "scratch", engine=engine).execute(run)
    run = Run.open(run.path)
    # The tool reports its fetched bytes, which are less than the file. All counts agree.
    assert not {"tool-count-differs", "bytes-disagree"} & {finding.code for finding in analyse(run).findings}
    (batch,) = batches(run)
    assert batch.failed == 0
    # A job has a rate of 250 kB/s and reads nearly all of its file.
    assert batch.wall_s > 0.9 * 400 / 250
    assert not [cpu for cpu in batch.job_cpu_s if not cpu > 0]
    carried = run.query(
        """SELECT counter, max(value) - min(value) AS bytes FROM samples
           WHERE counter IN ('link.r>w1.bytes', 'link.r>w2.bytes') GROUP BY counter ORDER BY counter"""
    )["bytes"]
    assert len(carried) == 2
    for found in carried:
        assert 0.8 * 1_200_000 < found < 1.2 * 1_200_000
