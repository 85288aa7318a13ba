"""Submit files of batches of jobs: what is in them, and that Slurm runs it."""

import getpass
import os
import shlex
import shutil
import signal
import socket
import subprocess
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from testkit import free_port, wait_until
from venturi.cli.root import app
from venturi.plan import Parallel, Transfer, Trial
from venturi.scenario import scenario_from
from venturi.submit import SYSTEMS, SubmitError, batches_of, write_submit_files
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
    told = tomllib.loads(text)
    told["workload"] |= workload
    return expand(scenario_from(told))


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
        if isinstance(transfer, Transfer)
    ]


def test_each_batch_of_the_plan_is_an_array_with_the_command_of_each_of_its_jobs(tmp_path):
    batches = batches_of(planned(), tmp_path)
    assert [len(batch.argv) for batch in batches] == [2, 4, 2, 4]
    assert [batch.at_a_time for batch in batches] == [2, 3, 2, 3]
    disk = tmp_path / "it's a disk"
    for batch in batches:
        for argv in batch.argv:
            # The option that is set is there, the one without a value is not.
            assert argv[:4] == ("sh", "-c", 'cksum < "$1"', "sh")
            assert argv[4].startswith(f"{disk}/")
            assert argv[5:] == ("--level", "7")
        assert len({argv[4] for argv in batch.argv}) == len(batch.argv)
    assert len(jobs_of(planned())) == sum(len(batch.argv) for batch in batches)


@pytest.mark.parametrize(("asked", "written"), [("20 s", "20"), ("10 us", "0.00001"), ("0.5 s", "0.5")])
def test_numbers_are_written_as_the_agent_writes_them(tmp_path, asked, written):
    application = {"root": {**tomllib.loads(SERVED)["workload"]["application"]["root"], "compute": asked}}
    (batch,) = batches_of(planned(SERVED, application=application), tmp_path)
    assert batch.argv[0][4:6] == ("--compute", written)


def test_a_job_that_reads_through_a_server_has_its_url_and_its_pace(tmp_path):
    plan = planned(SERVED)
    (batch,) = batches_of(plan, tmp_path)
    host = plan.header.services["xrootd"].doors["root"].split("/")[2].split(":")[0]
    for number, argv in enumerate(batch.argv):
        assert argv[:6] == ("venturi-root", "read", "--rate", "250000", "--compute", "0.5")
        assert argv[6].startswith(f"root://{host}:")
        assert argv[6].endswith(f"/{number:06d}")
    assert batch.at_a_time == 4


@pytest.mark.parametrize("system", SYSTEMS)
def test_the_files_of_every_system_name_each_other_and_the_number_of_jobs(tmp_path, system):
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


def test_prepared_by_its_script_a_job_does_what_the_plan_says(tmp_path):
    files = write_submit_files(planned(), "htcondor", tmp_path / "out", scratch=tmp_path)
    subprocess.run(["bash", files[1]], check=True)
    data = sorted((tmp_path / "it's a disk").rglob("0*"))
    assert [path.stat().st_size for path in data] == [3000] * 4
    said = subprocess.run(
        ["bash", "job.sh", "batch-0002.jobs", "3"], cwd=tmp_path / "out", check=True, capture_output=True
    )
    assert (
        said.stdout == subprocess.run(["cksum"], input=data[3].read_bytes(), check=True, capture_output=True).stdout
    )
    none = subprocess.run(
        ["bash", "job.sh", "batch-0002.jobs", "4"], cwd=tmp_path / "out", capture_output=True, check=False
    )
    assert (none.returncode, none.stdout) == (2, b"")


def test_what_cannot_be_handed_to_a_batch_system_is_refused_in_a_sentence(tmp_path):
    sweep = {
        "kind": "sweep",
        "mover": "cp",
        "source": "disk",
        "destination": "disk",
        "factors": {"files": [1], "size": ["1 kB"]},
    }
    told = {**tomllib.loads(SCENARIO), "workload": sweep, "analyse": {}}
    with pytest.raises(SubmitError, match='expected a scenario of the workload "jobs"'):
        batches_of(expand(scenario_from(told)), tmp_path)
    computing = {"sums": {"mover": "sum", "size": "3 kB", "compute": "1 s"}}
    with pytest.raises(SubmitError, match="found one that computes after its command"):
        batches_of(planned(application=computing), tmp_path)
    with pytest.raises(SubmitError, match='expected one of the batch systems slurm, htcondor, found "pbs"'):
        write_submit_files(planned(), "pbs", tmp_path / "out", scratch=tmp_path)
    assert not (tmp_path / "out").exists()


def test_the_command_line_writes_them_and_says_what_it_lacks(tmp_path):
    scenario = tmp_path / "sums.toml"
    scenario.write_text(SCENARIO)
    words = ["plan", str(scenario), "--submit", "slurm", "--scratch", str(tmp_path)]
    lacking = CliRunner().invoke(app, words)
    assert isinstance(lacking.exception, Exception)
    assert "expected -o FOLDER beside --submit" in str(lacking.exception) + lacking.output
    written = CliRunner().invoke(app, [*words, "-o", str(tmp_path / "out")])
    assert written.exit_code == 0, written.output
    assert (tmp_path / "out" / "submit.sh").is_file()


SLURM = ("munged", "slurmctld", "slurmd", "sbatch", "squeue")
NO_SLURM = next(
    (f"not installed: {program} (slurm-wlm, munge)" for program in SLURM if shutil.which(program) is None), None
)

SLURM_CONF = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmUser={user}
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/ctld.pid
SlurmdPidFile={folder}/d.pid
ProctrackType=proctrack/pgid
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
SchedulerParameters=sched_min_interval=0,batch_sched_delay=0
ReturnToService=2
NodeName={host} NodeAddr=127.0.0.1 CPUs=4 State=UNKNOWN
PartitionName=all Nodes={host} Default=YES State=UP
"""


@pytest.fixture
def slurm(tmp_path):
    """A Slurm of one machine with its own authentication, configuration and ports; returns the variables that lead to it."""
    folder = Path("/tmp") / f"venturi-slurm-{os.getpid()}"  # the path of a socket is short
    folder.mkdir(mode=0o755)
    host = socket.gethostname().partition(".")[0]
    known = {"host": host, "ports": [free_port(), free_port()], "user": getpass.getuser(), "folder": folder}
    (folder / "slurm.conf").write_text(SLURM_CONF.format(**known))
    (folder / "key").write_bytes(os.urandom(128))
    (folder / "key").chmod(0o600)
    variables = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}
    munged = ["munged", "-F", "--force", f"--socket={folder}/munge.socket", f"--key-file={folder}/key"]
    munged += [f"--pid-file={folder}/munge.pid", f"--log-file={folder}/munge.log", f"--seed-file={folder}/munge.seed"]
    daemons = []

    def begin(argv):
        with (folder / f"{argv[0]}.out").open("wb") as out:
            daemons.append(subprocess.Popen(argv, env=variables, stdout=out, stderr=out, start_new_session=True))

    def idle():
        said = subprocess.run(["sinfo", "-h", "-o", "%t"], env=variables, capture_output=True, text=True, check=False)
        return said.stdout.strip() == "idle"

    try:
        begin(munged)
        wait_until((folder / "munge.socket").exists, "munged")
        begin(["slurmctld", "-D"])
        begin(["slurmd", "-D", "-N", host])
        wait_until(idle, "an idle node")
        yield variables
    finally:
        for daemon in reversed(daemons):
            daemon.send_signal(signal.SIGTERM)
        for daemon in reversed(daemons):
            daemon.wait(timeout=20)
        shutil.rmtree(folder)


@pytest.mark.skipif(NO_SLURM is not None, reason=str(NO_SLURM))
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: slurmd starts jobs of users")
def test_slurm_runs_the_jobs_of_a_batch_as_they_are_written(tmp_path, slurm):
    plan = planned(jobs=[4], repeat=1)
    files = write_submit_files(plan, "slurm", tmp_path / "out", scratch=tmp_path)
    subprocess.run(["bash", files[1]], check=True)
    said = subprocess.run(["bash", files[0]], env=slurm, check=True, capture_output=True, text=True).stdout
    (number,) = [line.rpartition(" ")[2] for line in said.splitlines()]
    ended = ["squeue", "-h", "-j", number]
    wait_until(
        lambda: not subprocess.run(ended, env=slurm, capture_output=True, check=False).stdout.strip(), "the jobs"
    )
    for job, path in enumerate(sorted((tmp_path / "it's a disk").rglob("0*"))):
        sum_ = subprocess.run(["cksum"], input=path.read_bytes(), check=True, capture_output=True).stdout
        assert (tmp_path / "out" / f"batch-0001.{job}.out").read_bytes() == sum_
        assert (tmp_path / "out" / f"batch-0001.{job}.err").read_bytes() == b""
    assert shlex.split((tmp_path / "out" / "batch-0001.jobs").read_text().splitlines()[0])[0] == "sh"
