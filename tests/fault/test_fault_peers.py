"""Peers exchange files while links, servers and the controller fail: failures are recorded, and no trial is counted twice."""

import json
import os
import signal
import subprocess
import sys
import time
import tomllib
from collections import Counter

import pytest
from faultkit import fill, gridftp_server

from testkit import needs_programs, needs_root
from venturi.backend import LabBackend
from venturi.plan import trials, write_plan
from venturi.run import Run, RunWriter
from venturi.scenario import scenario_from
from venturi.workload import expand

pytestmark = [
    needs_root,
    needs_programs("globus-url-copy", "globus-gridftp-server", "scp", "sshd"),
]

TOP = """
venturi = 1
name = "peers"
[measure]
interval = "50 ms"
counters = ["nic"]
[testbed.router]
core = {}
one = {}
two = {}
[testbed.link]
one = { between = ["one", "core"], rate = "100 Mb/s", delay = "1 ms" }
two = { between = ["two", "core"], rate = "50 Mb/s", delay = "1 ms" }
"""
MACHINE = """
[testbed.host.NAME]
site = "SITE"
[testbed.link.NAME]
between = ["NAME", "ROUTER"]
rate = "1 Gb/s"
[testbed.storage.NAME]
host = "NAME"
path = "disk"
[testbed.service.NAME]
kind = "KIND"
host = "NAME"
storage = ["NAME"]
"""
WORKLOAD = """
[workload]
kind = "peers"
mover = "MOVER"
sizes = ["50 kB", "100 kB"]
pause = "50 ms"
timeout = "2 s"
[workload.site]
One = { link = "one" }
Two = { link = "two" }
"""


def scenario_text(mover, kind, more):
    """Return a scenario of two machines at One and one at Two."""
    shells = "".join(
        MACHINE.replace("NAME", name).replace("SITE", site).replace("ROUTER", site.lower()).replace("KIND", kind)
        for name, site in (("a", "One"), ("b", "One"), ("c", "Two"))
    )
    text = WORKLOAD.replace("MOVER", mover)
    head, _, tail = text.partition("[workload.site]")
    return TOP + shells + head + more + "\n[workload.site]" + tail


@pytest.fixture
def execute(tmp_path, labs, engine):
    """Return a function that runs a scenario in a lab and opens the run."""
    opened = []

    def work(text, on_progress=None):
        write_plan(expand(scenario_from(tomllib.loads(text))), tmp_path / "plan.jsonl")
        run = RunWriter.create(tmp_path / "runs", tmp_path / "plan.jsonl", backend="lab")
        outcome = LabBackend(scratch=tmp_path / "scratch", engine=engine).execute(run, on_progress=on_progress)
        assert outcome.state == "complete"
        opened.append(Run.open(run.path))
        return opened[-1]

    yield work
    for run in opened:
        run.close()


def rows_of(run):
    """Return the transfers by start time, as dictionaries with labels."""
    rows = run.query("SELECT *, labels->>'partner' AS partner FROM transfers ORDER BY start_s")
    return [{name: values[index] for name, values in rows.items()} for index in range(len(rows["trial"]))]


def test_a_killed_server_fails_only_its_transfers_and_the_rest_of_the_run_continues(execute, labs):
    done = []

    def kill(progress):
        if progress.trials_done >= 4 and not done:
            done.append(os.kill(gridftp_server(labs, "c"), signal.SIGKILL))

    run = execute(scenario_text("globus-url-copy", "gridftp", "duration = '12 s'"), kill)
    (ended_s,) = run.query("SELECT time_s FROM events WHERE kind = 'service-exited'")["time_s"]
    after = [row for row in rows_of(run) if row["start_s"] > ended_s]
    # Both machines at One have only c as a partner. c uses their servers, which still run.
    assert {row["outcome"] for row in after if row["partner"] == "c"} == {"failed"}
    assert {row["outcome"] for row in after if row["host"] == "c"} == {"ok"}
    assert ("service-exited", "c") in {(found.code, found.subject) for found in run.findings()}
    assert max(row["start_s"] for row in after) > ended_s + 1


def test_a_cut_link_fails_transfers_until_it_is_restored(execute):
    cut = "\n".join(
        f'[[testbed.change]]\nat = "{at} s"\nlink = "two"\nup = {str(up).lower()}'
        for at, up in ((5, False), (11, True))
    )
    run = execute(scenario_text("globus-url-copy", "gridftp", "duration = '23 s'") + cut)
    changes = run.query("SELECT min(time_s) AS low, max(time_s) AS high FROM events WHERE kind = 'network-change'")
    cut_s, restored_s = float(changes["low"][0]), float(changes["high"][0])
    rows = rows_of(run)
    assert {row["outcome"] for row in rows if row["end_s"] < cut_s} == {"ok"}
    # Each machine had one transfer in flight, with a timeout of 2 s. Transfers that started later have the same
    # timeout.
    meanwhile = [row for row in rows if cut_s < row["end_s"] < restored_s]
    assert "timeout" in {row["outcome"] for row in meanwhile}
    assert "timeout" in {row["outcome"] for row in meanwhile if cut_s < row["start_s"] < restored_s - 2.1}
    assert "ok" not in {row["outcome"] for row in meanwhile if row["start_s"] > cut_s}
    late = [row for row in rows if row["start_s"] > restored_s]
    assert late and {row["outcome"] for row in late} == {"ok"}
    # The time limit is 23 s. No transfer starts later, except after a pause that started earlier.
    assert max(row["start_s"] for row in rows) < 23 + 0.05 + 1
    assert len(rows) < run.header["totals"]["trials"]


def test_a_full_disk_fails_only_transfers_to_that_disk(execute, labs):
    done = []

    def look(progress):
        if progress.trials_done >= 4 and not done:
            done.append(fill(labs, "c"))

    own = '[testbed.storage.c]\nhost = "c"\npath = "disk"'
    text = scenario_text("globus-url-copy", "gridftp", "duration = '12 s'")
    run = execute(text.replace(own, f'{own}\nkind = "tmpfs"\nsize = "32 MiB"'), look)
    rows = rows_of(run)
    to_c = [row for row in rows if row["destination"].startswith("c:")]
    assert {row["outcome"] for row in rows if row not in to_c} == {"ok"}
    failed = [row for row in to_c if row["outcome"] != "ok"]
    assert failed and all(row["received_bytes"] < row["requested_bytes"] for row in failed)
    assert to_c[-1] in failed


def test_a_killed_and_resumed_run_has_every_transfer_once_and_in_order(tmp_path, labs, engine):
    scenario = tmp_path / "peers.toml"
    # All machines know the keys of all others, as in the report.
    text = scenario_text("scp", "sshd", "transfers = 6")
    scenario.write_text(text.replace('timeout = "2 s"', 'timeout = "60 s"'))
    venturi = [sys.executable, "-c", "from venturi.cli import main; main()", "run"]
    options = ["--on", "lab", "--scratch", str(tmp_path / "scratch"), "--quiet"]
    runs = tmp_path / "runs"
    first = subprocess.Popen([*venturi, str(scenario), *options, "--runs", str(runs)], stdout=subprocess.DEVNULL)
    deadline_s = time.monotonic() + 60
    while finished(runs) < 4:
        assert first.poll() is None and time.monotonic() < deadline_s, "the run ended or hung before it was killed"
        time.sleep(0.02)
    first.kill()
    first.wait()
    (path,) = [entry for entry in runs.iterdir() if (entry / "run.json").exists()]
    before = finished(runs)
    assert 4 <= before < 18
    again = subprocess.run([*venturi, "--resume", str(path), *options], capture_output=True, text=True, timeout=120)
    assert again.returncode == 0, again.stderr
    with Run.open(path) as run:
        assert run.state == "complete"
        rows = rows_of(run)
        assert Counter(row["trial"] for row in rows) == Counter(row.trial for row in trials(path / "plan.jsonl"))
        assert {row["outcome"] for row in rows} == {"ok"}
        assert {row["session"] for row in rows} == {1, 2}
        for host in "abc":
            own = [row["factor_direction"] for row in rows if row["host"] == host]
            assert own == own[:2] * 3 and len(set(own[:2])) == 2


def finished(runs):
    """Return the number of trials in the journal of the only run below a directory."""
    for journal in runs.glob("*/journal.jsonl"):
        lines = [line for line in journal.read_bytes().split(b"\n")[:-1] if line]
        return sum("trial" in json.loads(line) for line in lines)
    return 0
