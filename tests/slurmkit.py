"""Slurm on one machine for tests, with its own authentication, configuration and ports."""

import getpass
import os
import shutil
import signal
import socket
import subprocess
from contextlib import contextmanager
from pathlib import Path

import pytest

from testkit import free_port, wait_until

_PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue")
_MISSING = next((program for program in _PROGRAMS if shutil.which(program) is None), None)

needs_slurm = pytest.mark.skipif(_MISSING is not None, reason=f"not installed: {_MISSING} (slurm-wlm, munge)")

_CONFIGURATION = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmUser={user}
AuthInfo=socket={directory}/munge.socket
StateSaveLocation={directory}/state
SlurmdSpoolDir={directory}/spool
SlurmctldPidFile={directory}/ctld.pid
SlurmdPidFile={directory}/d.pid
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


@contextmanager
def slurm():
    """Run Slurm; the value is the environment of its clients, with ``SLURM_CONF``."""
    directory = Path("/tmp") / f"venturi-slurm-{os.getpid()}"  # socket paths must be short
    directory.mkdir(mode=0o755)
    host = socket.gethostname().partition(".")[0]
    known = {"host": host, "ports": [free_port(), free_port()], "user": getpass.getuser(), "directory": directory}
    (directory / "slurm.conf").write_text(_CONFIGURATION.format(**known))
    (directory / "key").write_bytes(os.urandom(128))
    (directory / "key").chmod(0o600)
    variables = {**os.environ, "SLURM_CONF": str(directory / "slurm.conf")}
    munged = ["munged", "-F", "--force", f"--socket={directory}/munge.socket", f"--key-file={directory}/key"]
    munged += [
        f"--pid-file={directory}/munge.pid",
        f"--log-file={directory}/munge.log",
        f"--seed-file={directory}/munge.seed",
    ]
    daemons = []

    def start(argv):
        with (directory / f"{argv[0]}.out").open("wb") as out:
            daemons.append(subprocess.Popen(argv, env=variables, stdout=out, stderr=out, start_new_session=True))

    def idle():
        message = subprocess.run(
            ["sinfo", "-h", "-o", "%t"], env=variables, capture_output=True, text=True, check=False
        )
        return message.stdout.strip() == "idle"

    try:
        start(munged)
        wait_until((directory / "munge.socket").exists, "munged")
        start(["slurmctld", "-D"])
        start(["slurmd", "-D", "-N", host])
        wait_until(idle, "an idle node")
        yield variables
    finally:
        for daemon in reversed(daemons):
            daemon.send_signal(signal.SIGTERM)
        for daemon in reversed(daemons):
            daemon.wait(timeout=20)
        shutil.rmtree(directory)
