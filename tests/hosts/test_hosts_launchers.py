"""Hosts behind commands other than ssh: ``srun``, ``podman exec``, and a launcher that ignores signals."""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import pytest

import slurmkit
from testkit import needs_root, wait_until
from venturi.run import Run

pytestmark = needs_root

VENTURI = Path(sys.executable).parent / "venturi"
TRIALS = 10_000
"""More trials than any machine finishes before a test ends the run."""

SCENARIO = """
venturi = 1
name = "launched"
seed = 1
[testbed.host.a]
[testbed.host.b]
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
repeat = {trials}
[workload.factors]
size = ["1 MB"]
"""

LIMIT = 4096
"""Limit of open files and processes of a container."""

# Ctrl-C on a terminal also reaches a launcher, and some launchers do not forward signals.
STUBBORN = """\
#!/bin/sh
trap '' INT TERM HUP QUIT
"$@"
"""


@pytest.fixture
def launched(tmp_path):
    """Return a function that starts a run whose hosts have connection prefixes; its processes are stopped at the end."""
    tmp_path.chmod(0o755)
    for host in "ab":
        (tmp_path / host).mkdir(mode=0o777)

    def start(prefixes, *, trials, before=(), environment=None, address="127.0.0.1"):
        (tmp_path / "launched.toml").write_text(SCENARIO.format(trials=trials))
        lines = [
            f"{host} = {{ connect = {json.dumps(prefix)}, address = {json.dumps(address)}, cache = {json.dumps(str(tmp_path / host))} }}\n"
            for host, prefix in prefixes.items()
        ]
        (tmp_path / "hosts.toml").write_text("".join(lines))
        argv = [*before, VENTURI, "run", "launched.toml", "--hosts", "hosts.toml", "--yes", "--json"]
        return subprocess.Popen(
            [str(word) for word in argv], cwd=tmp_path, env=environment, text=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip

    return start


def finish(process, path):
    """Wait for a run, and check that all its transfers succeeded and all its processes exited."""
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, f"{out}\n{err}"
    wait_until(lambda: not left(path), "the processes of the run to end", 90)
    sessions = [session for host in "ab" for session in (path / host / "sessions").glob("2*")]
    assert sessions == []


def left(path):
    """Return the processes of engines in the cache directories of a test."""
    found = subprocess.run(["pgrep", "-f", f"{path}/[ab]/engine-"], capture_output=True, text=True, check=False)
    return found.stdout.split()


def interrupt(process, path, how):
    """End a run before it completes."""
    wait_until(
        lambda: (
            any(b'"trial"' in file.read_bytes() for file in path.glob("runs/*/journal.jsonl"))
            or process.poll() is not None
        ),
        "a finished trial",
        120,
    )
    assert process.poll() is None, process.communicate()
    os.killpg(process.pid, how)
    process.communicate(timeout=120)
    wait_until(lambda: not left(path), "the processes of the run to end", 90)


@slurmkit.needs_slurm
def test_nodes_of_a_slurm_job_can_be_hosts(tmp_path, launched):
    srun = ["srun", "--overlap", "--unbuffered", "-n1"]
    with slurmkit.slurm() as variables:
        salloc = ["salloc", "--quiet", "-N1", "-n1"]
        hosts = {"a": srun, "b": srun}
        finish(launched(hosts, trials=3, before=salloc, environment=variables), tmp_path)
        interrupt(launched(hosts, trials=TRIALS, before=salloc, environment=variables), tmp_path, signal.SIGINT)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_launcher_that_ignores_signals_leaves_nothing(tmp_path, launched, how):
    launcher = tmp_path / "launcher"
    launcher.write_text(STUBBORN)
    launcher.chmod(0o755)
    interrupt(launched({host: [str(launcher)] for host in "ab"}, trials=TRIALS), tmp_path, how)


def test_hosts_can_use_ipv6_only(tmp_path, launched):
    finish(launched({host: ["env"] for host in "ab"}, trials=1, address="::1"), tmp_path)
    (run,) = tmp_path.glob("runs/*")
    assert Run.open(run).environment()["a"]["path.b.family"] == "ipv6"


def test_containers_can_be_hosts(tmp_path, launched):
    if shutil.which("podman") is None:
        pytest.skip("not installed: podman")
    with ExitStack() as stack:
        prefixes = {host: stack.enter_context(Container(tmp_path, host)) for host in "ab"}
        finish(launched(prefixes, trials=3), tmp_path)


class Container:
    """Container with the programs of this machine and a directory of the test; its value is its connection prefix."""

    def __init__(self, tmp_path, name):
        self._tmp_path = tmp_path
        root = tmp_path / f"root-{name}"
        for directory in ("usr", "proc", "sys", "dev", "tmp", "etc", str(tmp_path).lstrip("/")):
            (root / directory).mkdir(parents=True)
        for directory in ("bin", "sbin", "lib", "lib64"):
            (root / directory).symlink_to(f"usr/{directory}")
        runtime = ["--runtime=runc"] if shutil.which("runc") else []
        self._state = Path(tempfile.mkdtemp(prefix="venturi-podman-"))  # podman rejects a long path
        self._podman = ["podman", *runtime, "--cgroup-manager=cgroupfs", "--storage-driver=vfs",
                        f"--root={self._state}/store", f"--runroot={self._state}/run"]  # fmt: skip
        self._name = name
        self._root = root

    def _run(self, *arguments):
        return subprocess.run([*self._podman, *arguments], capture_output=True, text=True, timeout=120, check=False)

    def __enter__(self):
        # The defaults of podman can be above the limits of this machine.
        limits = {"nofile": resource.RLIMIT_NOFILE, "nproc": resource.RLIMIT_NPROC}
        hard = {name: resource.getrlimit(limit)[1] for name, limit in limits.items()}
        limits = [f"--ulimit={name}={LIMIT if limit < 0 else min(LIMIT, limit)}" for name, limit in hard.items()]
        started = self._run(
            "run", "--detach", f"--name={self._name}", "--network=host", *limits,
            "-v", "/usr:/usr:ro", "-v", f"{self._tmp_path}:{self._tmp_path}",
            "--rootfs", str(self._root), "/bin/sleep", "3600",
        )  # fmt: skip
        if started.returncode != 0:
            self.__exit__()
            pytest.skip(f"podman cannot start a container here: {started.stderr.strip()}")
        return [*self._podman, "exec", "-i", self._name]

    def __exit__(self, *exception):
        self._run("rm", "--force", "--time", "0", self._name)
        # podman cleans up in the background.
        wait_until(self._is_removed, "the state of podman to be removed")

    def _is_removed(self):
        shutil.rmtree(self._state, ignore_errors=True)
        return not self._state.exists()
