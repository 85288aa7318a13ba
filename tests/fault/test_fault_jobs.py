"""Batches of jobs in a lab whose KDC is killed, and later one of the two servers during a batch. Other batches succeed."""

import os
import signal
import tomllib
from pathlib import Path

from testkit import needs_programs, needs_root
from venturi.analysis.batches import batches
from venturi.backend import LabBackend
from venturi.plan import write_plan
from venturi.run import Run, RunWriter
from venturi.scenario import scenario_from
from venturi.workload import expand

pytestmark = [
    needs_root,
    needs_programs("xrootd", "xrdcp", "kinit"),
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
other = { kind = "xrootd", host = "server", storage = ["disk"], ports = [1095] }
[testbed.link]
server = { between = ["server", "r"], rate = "20 Mb/s", rtt = "1 ms" }
w1 = { between = ["w1", "r"], rate = "100 Mb/s", rtt = "1 ms" }
w2 = { between = ["w2", "r"], rate = "100 Mb/s", rtt = "1 ms" }
[workload]
kind = "jobs"
jobs = [4]
workers = ["w1", "w2"]
slots = 4
repeat = 2
timeout = "4 s"
interval = "0.2 s"
[workload.configuration.server]
storage = ["disk"]
service = ["xrootd"]
[workload.configuration.other]
storage = ["disk"]
service = ["other"]
[workload.application.bytes]
mover = "xrdcp"
size = "1 MB"
[measure]
interval = "100 ms"
counters = ["nic"]
[analyse]
against = ["jobs"]
"""


def executed(tmp_path, engine, on_progress=None):
    write_plan(expand(scenario_from(tomllib.loads(SCENARIO))), tmp_path / "plan.jsonl")
    run = RunWriter.create(tmp_path / "runs", tmp_path / "plan.jsonl", backend="lab")
    outcome = LabBackend(scratch=tmp_path / "scratch", engine=engine).execute(run, on_progress=on_progress)
    assert (outcome.state, outcome.trials_done) == ("complete", outcome.trials_total)
    return Run.open(run.path)


def pid_of(labs, program, port=None):
    """Return the PID of a program of this lab; if a port is given, its configuration must name the port."""
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            words = (directory / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if not words[0].endswith(program) or not any(str(labs) in word for word in words):
            continue
        files = [Path(word) for word in words if word.endswith(".cfg")]
        if port is None or any(str(port) in file.read_text() for file in files):
            return int(directory.name)
    raise AssertionError(f"no {program} of this lab")


def test_a_killed_kdc_fails_no_client_with_a_ticket_and_a_killed_server_only_its_batch(tmp_path, labs, engine):
    killed = []

    def look(progress):
        # A batch has two parts. The KDC is killed after the first batch, the server that requires tickets during the
        # third.
        for least, program, port in ((2, "krb5kdc", None), (4, "xrootd", 1094)):
            if progress.trials_done >= least and program not in killed:
                killed.append(program)
                os.kill(pid_of(labs, program, port), signal.SIGKILL)

    run = executed(tmp_path, engine, look)
    found = batches(run)
    assert killed == ["krb5kdc", "xrootd"]
    assert [(batch.configuration, batch.repetition, batch.failed) for batch in found] == [
        ("server", 0, 0),
        ("other", 0, 0),
        ("server", 1, 4),
        ("other", 1, 0),
    ]
    assert found[2].wall_s is None
    for batch in (found[0], found[1], found[3]):
        # 4 MB over 20 Mb/s take at least 1.6 s. Headers and bytes in flight at both ends cause the difference.
        assert batch.wall_s > 1.6
        counted = batch.slice.whole.mean * (len(batch.rate_bit_per_s) * 0.2) / 8
        assert 0.7 * batch.moved_bytes < counted < 1.2 * batch.moved_bytes
    ended = run.query("SELECT DISTINCT subject FROM findings WHERE code = 'service-exited' ORDER BY subject")
    assert len(ended["subject"]) == 2
    lost = run.query(
        "SELECT outcome, error, received_bytes FROM transfers WHERE outcome <> 'ok' AND factor_configuration = 'server'"
    )
    # The tool reports an error or reaches the timeout, and no bytes are counted.
    assert set(lost["outcome"]) <= {"failed", "timeout"}
    assert len(lost["outcome"]) == 4
    jobs = run.query(
        "SELECT count(*) AS n, count(DISTINCT (trial, slot)) AS d FROM transfers WHERE point IS NOT NULL"
    )
    assert int(jobs["n"][0]) == int(jobs["d"][0]) == 16
