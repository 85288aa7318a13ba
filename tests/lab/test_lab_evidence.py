"""What tools and servers say of a run is in the run: pipelining and data channels as the server sees them, the cost of GSI."""

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
from venturi.testbed.lab import evidence
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
speaks = ["ftp"]
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
def carry_out(tmp_path, parent, engine):
    """Return a function that carries a scenario out in a lab, and opens the run."""
    opened = []

    def work(text):
        plan = expand(scenario_from(tomllib.loads(text)))
        write_plan(plan, tmp_path / "plan.jsonl")
        run = RunWriter.create(tmp_path / "runs", tmp_path / "plan.jsonl", backend="lab")
        outcome = LabBackend(scratch=tmp_path / "scratch", engine=engine).carry_out(run)
        assert outcome.state == "complete"
        opened.append(Run.open(run.path))
        return opened[-1]

    yield work
    for run in opened:
        run.close()


def test_the_server_sees_who_pipelines_and_who_keeps_data_channels(carry_out):
    run = carry_out(TESTBED + PIPELINING)
    assert set(run.query("SELECT outcome FROM transfers")["outcome"]) == {"ok"}
    seen = {one.trial: one for one in control_sessions(run) if one.service == "out"}
    one_a_file, kept, listed, local, folder = (seen[f"t{number:07d}"] for number in range(5))
    # A list is sent one after the other whatever is asked for, and so is everything that has a local end.
    assert [one.most_outstanding for one in (one_a_file, kept, listed, local)] == [1, 1, 1, 1]
    assert folder.most_outstanding >= 5
    assert (one_a_file.data_channels, kept.data_channels) == (FILES, 1)
    assert [one.transfers for one in (one_a_file, kept, listed, local)] == [FILES] * 4
    assert [one.logins for one in seen.values()] == [1] * 5
    others = [one for one in control_sessions(run) if one.service == "in"]
    assert len(others) == 4 and {one.most_outstanding for one in others} == {None}  # a log cannot tell
    assert {one.user for one in others} == {"anonymous"}


def test_what_servers_logged_agrees_with_what_receivers_hold_and_hidden_files_of_a_folder_are_found_out(carry_out):
    run = carry_out(TESTBED + PIPELINING)
    counts = server_counts(run)
    # All ends behind doors: five at the source, four at the sink. The folder has the list of the data set in it, too.
    assert (counts.compared, counts.disagreeing) == (9, 1)
    assert counts.endpoint == "sink:out/t0000004-000000"
    assert counts.logged_bytes > counts.held_bytes == FILES * 10_000
    rows = run.query(
        """SELECT detail->>'command' AS command, count(*) AS n, min((detail->>'start_s')::DOUBLE) AS first_s,
                  min((detail->>'end_s')::DOUBLE - (detail->>'start_s')::DOUBLE) AS least_s
           FROM events WHERE kind = 'server-transfer' AND detail->>'endpoint' LIKE '%/00%' GROUP BY ALL ORDER BY ALL"""
    )
    assert dict(zip(rows["command"], rows["n"], strict=True)) == {"RETR": 5 * FILES, "STOR": 4 * FILES}
    began = run.query("SELECT min(start_s) AS start_s, max(end_s) AS end_s FROM transfers")
    assert (rows["first_s"] >= began["start_s"][0]).all() and (rows["least_s"] >= 0).all()


def test_authentication_costs_as_a_distribution_in_one_run(carry_out):
    run = carry_out(TESTBED + AUTHENTICATION)
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


def test_lines_beyond_what_a_session_keeps_are_told_to_be_missing(carry_out, monkeypatch):
    monkeypatch.setattr(evidence, "MAX_CONTROL_LINES", 7)
    run = carry_out(TESTBED + AUTHENTICATION.replace("repeat = 15", "repeat = 1"))
    assert run.query("SELECT count(*) AS n FROM events WHERE kind = 'control'")["n"][0] == 7
    (told,) = [one for one in run.findings() if one.code == "control-trace-cut"]
    assert (told.subject, told.evidence.split()[:3]) == ("lines of control channels", ["the", "first", "7"])


def test_a_session_that_breaks_off_has_what_the_servers_saw(tmp_path, parent, engine):
    scenario = scenario_from(tomllib.loads(TESTBED + AUTHENTICATION))
    write_plan(expand(scenario), tmp_path / "plan.jsonl")
    run = RunWriter.create(tmp_path / "runs", tmp_path / "plan.jsonl", backend="lab")

    def interrupt(progress):
        if progress.trials_done >= 3:
            raise RuntimeError("the spectator has fallen off the chair")

    with pytest.raises(RuntimeError):
        LabBackend(scratch=tmp_path / "scratch", engine=engine).carry_out(run, on_progress=interrupt)
    with Run.open(run.path) as broken:
        assert broken.state == "stopped"
        done = broken.query("SELECT count(*) AS n FROM transfers")["n"][0]
        logged = broken.query("SELECT count(*) AS n FROM events WHERE kind = 'server-transfer'")["n"][0]
        assert logged >= done >= 3
        assert [dataclasses.asdict(one)["logins"] for one in control_sessions(broken)][:3] == [1, 1, 1]
