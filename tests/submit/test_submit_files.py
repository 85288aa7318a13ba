"""Submit files of batches of jobs: their content, and their execution by Slurm."""

import os
import shlex
import subprocess
import tomllib

import pytest
from typer.testing import CliRunner

import slurmkit
from testkit import wait_until
from venturi.cli.root import app
from venturi.plan import Parallel, TransferStep, Trial
from venturi.scenario import scenario_from
from venturi.submit import SYSTEMS, SubmitError, list_batches, write_submit_files
from venturi.workload import expand

SCENARIO = """
venturi = 1
name = "sums"
[testbed]
host = { here = {} }
storage = { disk = { host = "here", path = "it's a disk" } }
[mover.sum]
argv = ["sh", "-c", 'cksum < "$1"', "sh", "{source}", ["--level", "{level}"], ["--never", "{never}"]]
options = { level = "integer", never = "integer" }
[workload]
kind = "jobs"
jobs = [2, 4]
workers = ["here"]
slots = 3
repeat = 2
timeout = "90 s"
configuration = { disk = { storage = ["disk"] } }
application = { sums = { mover = "sum", size = "3 kB", options = { level = 7 } } }
[analyse]
against = ["jobs"]
"""

SERVED = """
venturi = 1
name = "served"
[testbed]
host = { server = {}, w1 = {}, w2 = {} }
router = { r = {} }
storage = { disk = { host = "server", path = "disk" } }
service = { xrootd = { kind = "xrootd", host = "server", storage = ["disk"] } }
[testbed.link]
server = { between = ["server", "r"], rate = "20 Mb/s" }
w1 = { between = ["w1", "r"], rate = "100 Mb/s" }
w2 = { between = ["w2", "r"], rate = "100 Mb/s" }
[workload]
kind = "jobs"
jobs = [5]
workers = ["w1", "w2"]
slots = 2
configuration = { server = { storage = ["disk"], service = ["xrootd"] } }
application = { root = { mover = "root-read", size = "400 kB", format = "root", rate = "2 Mb/s", compute = "0.5 s" } }
[analyse]
against = ["jobs"]
"""


def planned(text=SCENARIO, **workload):
    output = tomllib.loads(text)
    output["workload"] |= workload
    return expand(scenario_from(output))


def jobs_of(plan):
    return [
        transfer
        for line in plan.lines
        for trial in line.steps
        if isinstance(trial, Trial)
        for step in trial.steps
        if isinstance(step, Parallel)
        for child in step.children
        for transfer in child
        if isinstance(transfer, TransferStep)
    ]


def test_each_batch_of_the_plan_is_an_array_with_the_commands_of_its_jobs(tmp_path):
    batches = list_batches(planned(), tmp_path)
    assert [len(batch.argv) for batch in batches] == [2, 4, 2, 4]
    assert [batch.at_a_time for batch in batches] == [2, 3, 2, 3]
    disk = tmp_path / "it's a disk"
    for batch in batches:
        for argv in batch.argv:
            # The command has the option with a value, and not the one without.
            assert argv[:4] == ("sh", "-c", 'cksum < "$1"', "sh")
            assert argv[4].startswith(f"{disk}/")
            assert argv[5:] == ("--level", "7")
        assert len({argv[4] for argv in batch.argv}) == len(batch.argv)
    assert len(jobs_of(planned())) == sum(len(batch.argv) for batch in batches)


@pytest.mark.parametrize(("requested", "written"), [("20 s", "20"), ("10 us", "0.00001"), ("0.5 s", "0.5")])
def test_numbers_are_written_in_the_format_of_the_agent(tmp_path, requested, written):
    application = {"root": {**tomllib.loads(SERVED)["workload"]["application"]["root"], "compute": requested}}
    (batch,) = list_batches(planned(SERVED, application=application), tmp_path)
    assert batch.argv[0][4:6] == ("--compute", written)


def test_a_job_that_reads_through_a_server_has_its_url_and_read_rate(tmp_path):
    plan = planned(SERVED)
    (batch,) = list_batches(plan, tmp_path)
    for number, argv in enumerate(batch.argv):
        assert argv[:6] == ("venturi-root", "read", "--rate", "250000", "--compute", "0.5")
        assert argv[6].startswith("root://server.lab.test:")
        assert argv[6].endswith(f"/{number:06d}")
    assert batch.at_a_time == 4


@pytest.mark.parametrize(
    ("server", "name"),
    [
        ({"ssh": "alice@dtn1.example.org"}, "dtn1.example.org"),
        ({"ssh": "ssh://alice@dtn1.example.org:2222"}, "dtn1.example.org"),
        ({"ssh": "dtn1", "address": "dtn1-data.example.org"}, "dtn1-data.example.org"),
        ({"address": "2001:db8::1"}, "[2001:db8::1]"),
    ],
)
def test_a_job_that_reads_from_an_existing_host_has_its_address(tmp_path, server, name):
    document = tomllib.loads(SERVED)
    document["testbed"]["host"]["server"] = server
    (batch,) = list_batches(expand(scenario_from(document)), tmp_path)
    assert batch.argv[0][6].startswith(f"root://{name}:")


@pytest.mark.parametrize("system", SYSTEMS)
def test_the_submit_files_of_every_batch_system_have_matching_names_and_job_counts(tmp_path, system):
    files = write_submit_files(planned(), system, tmp_path / "out", scratch=tmp_path)
    assert all(file.is_file() for file in files)
    ending = SYSTEMS[system][0]
    submit = files[0].read_text()
    for number, jobs in enumerate([2, 4, 2, 4], 1):
        one = tmp_path / "out" / f"batch-{number:04d}.{ending}"
        assert one.name in submit
        assert f"{one.stem}.jobs" in one.read_text()
        assert len(one.with_suffix(".jobs").read_text().splitlines()) == jobs
        size = f"--array=0-{jobs - 1}%{min(3, jobs)}" if system == "slurm" else f"\nqueue {jobs}\n"
        assert size in one.read_text()
    for script in (tmp_path / "out").glob("*.sh"):
        assert subprocess.run(["bash", "-n", script], check=False).returncode == 0


def test_a_job_runs_the_command_of_the_plan_after_the_prepare_script(tmp_path):
    files = write_submit_files(planned(), "htcondor", tmp_path / "out", scratch=tmp_path)
    subprocess.run(["bash", files[1]], check=True)
    data = sorted((tmp_path / "it's a disk").rglob("0*"))
    assert [path.stat().st_size for path in data] == [3000] * 4
    message = subprocess.run(
        ["bash", "job.sh", "batch-0002.jobs", "3"], cwd=tmp_path / "out", check=True, capture_output=True
    )
    assert (
        message.stdout
        == subprocess.run(["cksum"], input=data[3].read_bytes(), check=True, capture_output=True).stdout
    )
    none = subprocess.run(
        ["bash", "job.sh", "batch-0002.jobs", "4"], cwd=tmp_path / "out", capture_output=True, check=False
    )
    assert (none.returncode, none.stdout) == (2, b"")


def test_unsupported_workloads_and_batch_systems_are_rejected_with_a_message(tmp_path):
    sweep = {
        "kind": "sweep",
        "mover": "cp",
        "source": "disk",
        "destination": "disk",
        "factors": {"files": [1], "size": ["1 kB"]},
    }
    output = {**tomllib.loads(SCENARIO), "workload": sweep, "analyse": {}}
    with pytest.raises(SubmitError, match='expected the workload "jobs"'):
        list_batches(expand(scenario_from(output)), tmp_path)
    computing = {"sums": {"mover": "sum", "size": "3 kB", "compute": "1 s"}}
    with pytest.raises(SubmitError, match="found a job with later computing"):
        list_batches(planned(application=computing), tmp_path)
    with pytest.raises(SubmitError, match='expected one of the batch systems slurm, htcondor, found "pbs"'):
        write_submit_files(planned(), "pbs", tmp_path / "out", scratch=tmp_path)
    assert not (tmp_path / "out").exists()


def test_the_command_line_writes_submit_files_and_reports_a_missing_option(tmp_path):
    scenario = tmp_path / "sums.toml"
    scenario.write_text(SCENARIO)
    words = ["plan", str(scenario), "--submit", "slurm", "--scratch", str(tmp_path)]
    lacking = CliRunner().invoke(app, words)
    assert isinstance(lacking.exception, Exception)
    assert "--submit, found none" in str(lacking.exception) + lacking.output
    written = CliRunner().invoke(app, [*words, "-o", str(tmp_path / "out")])
    assert written.exit_code == 0, written.output
    assert (tmp_path / "out" / "submit.sh").is_file()


@pytest.fixture
def slurm():
    """Environment of the clients of Slurm on this machine."""
    with slurmkit.slurm() as variables:
        yield variables


@slurmkit.needs_slurm
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: slurmd starts jobs of users")
def test_slurm_runs_the_jobs_of_a_batch(tmp_path, slurm):
    plan = planned(jobs=[4], repeat=1)
    files = write_submit_files(plan, "slurm", tmp_path / "out", scratch=tmp_path)
    subprocess.run(["bash", files[1]], check=True)
    message = subprocess.run(["bash", files[0]], env=slurm, check=True, capture_output=True, text=True).stdout
    (number,) = [line.rpartition(" ")[2] for line in message.splitlines()]
    ended = ["squeue", "-h", "-j", number]
    wait_until(
        lambda: not subprocess.run(ended, env=slurm, capture_output=True, check=False).stdout.strip(), "the jobs"
    )
    for job, path in enumerate(sorted((tmp_path / "it's a disk").rglob("0*"))):
        sum_ = subprocess.run(["cksum"], input=path.read_bytes(), check=True, capture_output=True).stdout
        assert (tmp_path / "out" / f"batch-0001.{job}.out").read_bytes() == sum_
        assert (tmp_path / "out" / f"batch-0001.{job}.err").read_bytes() == b""
    assert shlex.split((tmp_path / "out" / "batch-0001.jobs").read_text().splitlines()[0])[0] == "sh"
