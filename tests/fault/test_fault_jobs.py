"""Batches of jobs in a lab whose KDC dies, and then their server within a batch."""

import os
import shutil
import signal
import tempfile
import tomllib
from pathlib import Path

import pytest

from venturi.analysis.batches import batches
from venturi.backend import LabBackend
from venturi.plan import write_plan
from venturi.run import Run, RunWriter
from venturi.scenario import scenario_from
from venturi.testbed.lab import registered, sweep
from venturi.workload import expand

pytestmark = [
    pytest.mark.skipif(
        os.geteuid() != 0 or not os.access("/dev/net/tun", os.R_OK | os.W_OK), reason="needs root and /dev/net/tun"
    ),
    pytest.mark.skipif(
        any(shutil.which(tool) is None for tool in ("xrootd", "xrdcp", "kinit")),
        reason="needs xrootd, xrdcp and kinit",
    ),
]

SCENARIO = """
venturi = 1
name = "jobs"
[testbed]
host = { server = {}, w1 = {}, w2 = {} }
router = { r = {} }
storage = { disk = { host = "server", path = "disk" } }
[testbed.service]
kdc = { kind = "kdc", host = "server" }
xrootd = { kind = "xrootd", host = "server", storage = ["disk"], options = { auth = "krb5", kdc = "kdc" } }
[testbed.link]
server = { between = ["server", "r"], rate = "20 Mb/s", rtt = "1 ms" }
w1 = { between = ["w1", "r"], rate = "100 Mb/s", rtt = "1 ms" }
w2 = { between = ["w2", "r"], rate = "100 Mb/s", rtt = "1 ms" }
[workload]
kind = "jobs"
jobs = [4]
workers = ["w1", "w2"]
slots = 4
repeat = 3
timeout = "4 s"
interval = "0.2 s"
[workload.configuration.server]
storage = ["disk"]
service = ["xrootd"]
[workload.application.bytes]
mover = "xrdcp"
size = "1 MB"
[measure]
interval = "100 ms"
counters = ["nic"]
[analyse]
against = ["jobs"]
"""


@pytest.fixture
def labs(monkeypatch):
    """A folder for labs that all users may enter; it is empty at the end."""
    base = Path(tempfile.mkdtemp(prefix="venturi-test-"))
    base.chmod(0o755)
    monkeypatch.setenv("VENTURI_LAB", str(base))
    yield base
    sweep(base)
    assert registered(base) == []
    assert list(base.iterdir()) == []
    base.rmdir()


def carried_out(tmp_path, engine, on_progress=None):
    write_plan(expand(scenario_from(tomllib.loads(SCENARIO))), tmp_path / "plan.jsonl")
    run = RunWriter.create(tmp_path / "runs", tmp_path / "plan.jsonl", backend="lab")
    outcome = LabBackend(scratch=tmp_path / "scratch", engine=engine).carry_out(run, on_progress=on_progress)
    assert (outcome.state, outcome.trials_done) == ("complete", outcome.trials_total)
    return Run.open(run.path)


def pid_of(labs, program):
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if words[0].endswith(program) and any(str(labs) in word for word in words):
            return int(folder.name)
    raise AssertionError(f"no {program} of this lab")


def test_a_dead_kdc_fails_nobody_with_a_ticket_and_a_dead_server_fails_its_batch_which_counts_nowhere(
    tmp_path, labs, engine
):
    killed = []

    def look(progress):
        for least, program in ((2, "krb5kdc"), (4, "xrootd")):
            if progress.trials_done >= least and program not in killed:
                killed.append(program)
                os.kill(pid_of(labs, program), signal.SIGKILL)

    run = carried_out(tmp_path, engine, look)
    found = batches(run)
    assert killed == ["krb5kdc", "xrootd"]
    assert [batch.failed for batch in found] == [0, 0, 4]
    assert found[-1].wall_s is None
    for batch in found[:2]:
        # 4 MB through 20 Mb/s take 1.6 s at least; heads and what is under way at the ends are the difference.
        assert batch.wall_s > 1.6
        counted = batch.slice.whole.mean * (len(batch.rate_bit_per_s) * 0.2) / 8
        assert 0.7 * batch.moved_bytes < counted < 1.2 * batch.moved_bytes
    ended = run.query("SELECT DISTINCT subject FROM findings WHERE code = 'service-ended' ORDER BY subject")[
        "subject"
    ]
    assert len(ended) == 2
    jobs = run.query(
        "SELECT count(*) AS n, count(DISTINCT (trial, slot)) AS d FROM transfers WHERE point IS NOT NULL"
    )
    assert int(jobs["n"][0]) == int(jobs["d"][0]) == 12
