"""The workload `tiers` with a killed server, a cut link or a full disk: failed files do not count, and jobs start on time."""

import os
import signal
import tomllib

import pytest
from faultkit import fill, gridftp_server

from testkit import Gate, needs_programs, needs_root
from venturi.analysis import analyse
from venturi.backend import LabBackend
from venturi.plan import write_plan
from venturi.run import Run, RunWriter
from venturi.scenario import scenario_from
from venturi.workload import expand

pytestmark = [
    needs_root,
    needs_programs("globus-url-copy", "globus-gridftp-server"),
]

FILES, ENOUGH = 12, 6
MACHINE = """
[testbed.router.r-NAME]
[testbed.host.NAME]
site = "NAME"
[testbed.link.NAME]
between = ["r-NAME", "core"]
rate = "50 Mb/s"
delay = "1 ms"
[testbed.link.in-NAME]
between = ["NAME", "r-NAME"]
rate = "1 Gb/s"
[testbed.storage.NAME]
host = "NAME"
path = "disk"
kind = "tmpfs"
size = "32 MiB"
[testbed.service.NAME]
kind = "gridftp"
host = "NAME"
storage = ["NAME"]
"""
SCENARIO = f"""
venturi = 1
name = "tiers"
[measure]
interval = "50 ms"
counters = ["nic"]
[testbed.router.core]
{"".join(MACHINE.replace("NAME", name) for name in ("one", "two", "three"))}
[workload]
kind = "tiers"
mover = "globus-url-copy"
events = {2 * FILES}
event_size = "100 kB"
threshold = {ENOUGH / FILES}
timeout = "TIMEOUT"
[workload.site]
one = {{ tier = 1, share = 0.5, link = "one" }}
two = {{ tier = 2, share = 0.5, link = "two" }}
three = {{ link = "three" }}
[workload.production]
batch = {FILES}
[workload.jobs]
count = 2
upload = "1 kB"
download = "2 kB"
wait_tier1 = "50 ms"
wait_tier2 = "50 ms"
"""
MADE = 2
"""Number of batches, which come before the first file is sent."""


@pytest.fixture
def execute(tmp_path, labs, engine):
    """Return a function that runs the scenario in a lab and opens the run."""
    opened = []

    def work(more="", on_progress=None, timeout_s=60, search=()):
        text = SCENARIO.replace("TIMEOUT", f"{timeout_s} s") + more
        write_plan(expand(scenario_from(tomllib.loads(text))), tmp_path / "plan.jsonl")
        run = RunWriter.create(tmp_path / "runs", tmp_path / "plan.jsonl", backend="lab")
        backend = LabBackend(scratch=tmp_path / "scratch", engine=engine, search=list(map(str, search)))
        outcome = backend.execute(run, on_progress=on_progress)
        assert outcome.state == "complete" and outcome.trials_done == outcome.trials_total
        opened.append(Run.open(run.path))
        return opened[-1]

    yield work
    for run in opened:
        run.close()


@pytest.fixture
def gate(tmp_path):
    """A gate that opens for two files."""
    return Gate(tmp_path / "gate", 2, "globus-url-copy")


def once_two_are_sent(gate, act):
    """Return a progress callback that acts once, when two files are sent, and then opens the gate."""
    acted = []

    def look(progress):
        if progress.trials_done >= MADE + 2 and not acted:
            acted.append(act())
            gate.open()

    return look


def files_and_jobs(run):
    """Return the replicated files and the jobs, each by end time."""
    columns = run.query("SELECT factor_phase AS phase, outcome, start_s, end_s FROM trials ORDER BY end_s")
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    files, jobs = ([row for row in rows if row["phase"] == phase] for phase in ("replication", "analysis"))
    assert (len(files), len(jobs)) == (FILES, 2)
    return files, jobs


def reached_s(run):
    """Return the time at which the report states that enough of all files had arrived."""
    section = next(section for section in analyse(run).sections if section.name == "tiers")
    table = next(table for table in section.tables if table.name == "tier-threshold")
    return table.rows[0][[column.name for column in table.columns].index("reached_s")]


def check_nothing_arrives_from_then_on(run):
    """Check that too few files arrived: jobs started after the last attempt, and the report has no threshold time."""
    files, jobs = files_and_jobs(run)
    arrived = [row for row in files if row["outcome"] == "ok"]
    assert 1 <= len(arrived) < ENOUGH
    assert {row["outcome"] for row in files[len(arrived) :]} == {"failed"}
    assert min(job["start_s"] for job in jobs) >= files[-1]["end_s"]
    assert reached_s(run) is None


def test_files_lost_to_a_killed_server_do_not_count_and_jobs_start_after_all_attempts(execute, labs, gate):
    kill = once_two_are_sent(gate, lambda: os.kill(gridftp_server(labs, "one"), signal.SIGKILL))
    run = execute(on_progress=kill, search=[gate.directory])
    check_nothing_arrives_from_then_on(run)
    assert ("service-exited", "one") in {(found.code, found.subject) for found in run.findings()}


def test_files_that_do_not_fit_on_a_full_disk_do_not_count(execute, labs, gate):
    run = execute(on_progress=once_two_are_sent(gate, lambda: fill(labs, "one")), search=[gate.directory])
    check_nothing_arrives_from_then_on(run)
    sizes = run.query(
        "SELECT received_bytes, requested_bytes FROM transfers WHERE outcome <> 'ok' AND factor_phase = 'replication'"
    )
    assert (sizes["received_bytes"] < sizes["requested_bytes"]).all()


def test_a_cut_link_loses_files_and_jobs_wait_until_enough_files_arrive(execute):
    cut = "".join(
        f'[[testbed.change]]\nat = "{at} s"\nlink = "two"\nup = {up}\n' for at, up in ((0.5, "false"), (12.5, "true"))
    )
    run = execute(cut, timeout_s=4)
    restored_s = run.query("SELECT max(time_s) AS s FROM events WHERE kind = 'network-change'")["s"][0]
    files, jobs = files_and_jobs(run)
    lost = [row for row in files if row["outcome"] != "ok"]
    assert lost and all(row["start_s"] < restored_s for row in lost)
    enough = [row for row in files if row["outcome"] == "ok"][ENOUGH - 1]
    assert restored_s < enough["end_s"] <= min(job["start_s"] for job in jobs)
    assert {job["outcome"] for job in jobs} == {"ok"}
    assert reached_s(run) == pytest.approx(enough["end_s"] - min(row["start_s"] for row in files), abs=0.05)
