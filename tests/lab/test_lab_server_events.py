"""The run has the reports of tools and servers: pipelining and data connections as the server sees them, and the cost of GSI."""

import dataclasses
import tomllib

import numpy as np
import pytest

from testkit import needs_programs, needs_root
from venturi.analysis.control import control_sessions
from venturi.analysis.servers import server_counts
from venturi.backend import LabBackend
from venturi.plan import write_plan
from venturi.run import Run, RunWriter
from venturi.scenario import scenario_from
from venturi.testbed import server_events
from venturi.workload import expand

pytestmark = [
    needs_root,
    needs_programs("globus-url-copy", "globus-gridftp-server", "tcpdump"),
]

FILES = 50
TESTBED = """
venturi = 1
name = "evidence"
[testbed.host.a]
[testbed.host.b]
[testbed.host.c]
[testbed.router.r]
[testbed.link]
a-r = { between = ["a", "r"], rate = "1 Gb/s", rtt = "1 ms" }
b-r = { between = ["b", "r"], rate = "1 Gb/s", rtt = "1 ms" }
c-r = { between = ["c", "r"], rate = "1 Gb/s", rtt = "1 ms" }
[testbed.storage]
source = { host = "a", path = "source" }
sink = { host = "b", path = "sink" }
[measure]
interval = "off"
counters = []
"""
PIPELINING = """
[testbed.service]
out = { kind = "gridftp", host = "a", storage = ["source"], options = { trace = "packets" } }
in = { kind = "gridftp", host = "b", storage = ["sink"] }
[mover.folder]
argv = ["globus-url-copy", "-fast", "-pp", "{source}", "{destination}"]
protocols = ["ftp"]
lists = true
[workload]
kind = "sweep"
source = "source"
destination = "sink"
repeat = 1
files_per_call = 50
order = "given"
[workload.options]
files_as = "list"
[workload.sweep]
zip = [["mover", "client", "fast", "pipelining"]]
[workload.factors]
size = ["10 kB"]
mover = ["globus-url-copy", "globus-url-copy", "globus-url-copy", "globus-url-copy", "folder"]
client = ["c", "c", "c", "b", "c"]
fast = [false, true, true, true, true]
pipelining = [false, false, true, true, false]
"""
AUTHENTICATION = """
[testbed.service]
anonymous = { kind = "gridftp", host = "a", storage = ["source"] }
gsi = { kind = "gridftp", host = "a", storage = ["source"], options = { auth = "gsi" }, ports = [2911] }
[workload]
kind = "sweep"
source = "source"
destination = "sink"
client = "b"
mover = "globus-url-copy"
repeat = 15
[workload.factors]
size = ["0 B"]
source_service = ["anonymous", "gsi"]
"""


@pytest.fixture
def execute(tmp_path, parent, engine):
    """Return a function that runs a scenario in a lab and opens the run."""
    opened = []

    def work(text):
        plan = expand(scenario_from(tomllib.loads(text)))
        write_plan(plan, tmp_path / "plan.jsonl")
        run = RunWriter.create(tmp_path / "runs", tmp_path / "plan.jsonl", backend="lab")
        outcome = LabBackend(scratch=tmp_path / "scratch", engine=engine).execute(run)
        assert outcome.state == "complete"
        opened.append(Run.open(run.path))
        return opened[-1]

    yield work
    for run in opened:
        run.close()


def test_the_server_log_shows_pipelining_and_reuse_of_data_connections(execute):
    run = execute(TESTBED + PIPELINING)
    assert set(run.query("SELECT outcome FROM transfers")["outcome"]) == {"ok"}
    seen = {one.trial: one for one in control_sessions(run) if one.service == "out"}
    one_a_file, active, listed, local, directory = (seen[f"t{number:07d}"] for number in range(5))
    # A list is sent sequentially regardless of the options, and so is every transfer with a local end.
    assert [one.most_outstanding for one in (one_a_file, active, listed, local)] == [1, 1, 1, 1]
    assert directory.most_outstanding >= 5
    assert (one_a_file.data_channels, active.data_channels) == (FILES, 1)
    assert [one.transfers for one in (one_a_file, active, listed, local)] == [FILES] * 4
    assert [one.logins for one in seen.values()] == [1] * 5
    others = [one for one in control_sessions(run) if one.service == "in"]
    assert len(others) == 4 and {one.most_outstanding for one in others} == {None}  # a log does not show it
    assert {one.user for one in others} == {"anonymous"}


def test_logged_bytes_agree_with_received_bytes_and_extra_files_of_a_directory_are_detected(execute):
    run = execute(TESTBED + PIPELINING)
    counts = server_counts(run)
    # All endpoints behind services: five at the source, four at the sink. The directory also contains the file list of
    # the dataset.
    assert (counts.compared, counts.disagreeing) == (9, 1)
    assert counts.endpoint == "sink:out/t0000004-000000"
    assert counts.logged_bytes > counts.held_bytes == FILES * 10_000
    rows = run.query(
        """SELECT detail->>'command' AS command, count(*) AS n, min((detail->>'start_s')::DOUBLE) AS first_s,
                  min((detail->>'end_s')::DOUBLE - (detail->>'start_s')::DOUBLE) AS least_s
           FROM events WHERE kind = 'server-transfer' AND detail->>'endpoint' LIKE '%/00%' GROUP BY ALL ORDER BY ALL"""
    )
    assert dict(zip(rows["command"], rows["n"], strict=True)) == {"RETR": 5 * FILES, "STOR": 4 * FILES}
    spans = run.query("SELECT min(start_s) AS start_s, max(end_s) AS end_s FROM transfers")
    assert (rows["first_s"] >= spans["start_s"][0]).all() and (rows["least_s"] >= 0).all()


def test_one_run_compares_the_duration_of_transfers_with_and_without_authentication(execute):
    run = execute(TESTBED + AUTHENTICATION)
    took = {
        service: run.query(
            "SELECT duration_s FROM transfers WHERE outcome = 'ok' AND factor_source_service = ?", [service]
        )["duration_s"]
        for service in ("anonymous", "gsi")
    }
    assert [len(values) for values in took.values()] == [15, 15]
    assert all(len(set(values)) == 15 for values in took.values())
    assert np.median(took["gsi"]) / np.median(took["anonymous"]) > 2
    logins = [one for one in control_sessions(run) if one.service == "gsi"]
    assert len(logins) == 15 and {one.logins for one in logins} == {1}


def test_truncated_control_lines_are_reported_as_a_finding(execute, monkeypatch):
    monkeypatch.setattr(server_events, "MAX_CONTROL_LINES", 7)
    run = execute(TESTBED + AUTHENTICATION.replace("repeat = 15", "repeat = 1"))
    assert run.query("SELECT count(*) AS n FROM events WHERE kind = 'control'")["n"][0] == 7
    (output,) = [one for one in run.findings() if one.code == "control-trace-truncated"]
    assert (output.subject, output.evidence.split()[:3]) == ("lines of control connections", ["the", "first", "7"])


def test_an_interrupted_session_keeps_the_server_log(tmp_path, parent, engine):
    scenario = scenario_from(tomllib.loads(TESTBED + AUTHENTICATION))
    write_plan(expand(scenario), tmp_path / "plan.jsonl")
    run = RunWriter.create(tmp_path / "runs", tmp_path / "plan.jsonl", backend="lab")

    def interrupt(progress):
        if progress.trials_done >= 3:
            raise RuntimeError("the spectator has fallen off the chair")

    with pytest.raises(RuntimeError):
        LabBackend(scratch=tmp_path / "scratch", engine=engine).execute(run, on_progress=interrupt)
    with Run.open(run.path) as broken:
        assert broken.state == "stopped"
        done = broken.query("SELECT count(*) AS n FROM transfers")["n"][0]
        logged = broken.query("SELECT count(*) AS n FROM events WHERE kind = 'server-transfer'")["n"][0]
        assert logged >= done >= 3
        assert [dataclasses.asdict(one)["logins"] for one in control_sessions(broken)][:3] == [1, 1, 1]
