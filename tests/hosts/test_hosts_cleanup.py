"""Hosts are clean within a minute after every kind of end of a run, and the resumed run has every trial once.

``tests/hosts/soak.py`` repeats the same cases many times.
"""

import json
import os
import signal
import time

import pytest
from labkit import below

from testkit import name_of, needs_root, wait_until

pytestmark = needs_root

TRIALS = 40
CLEAN_S = 60.0
"""Required time until the hosts have no remains of an ended session."""

SMALL_DISK = "/home/alice/small"
CASES = ("success", "ctrl-c", "kill-controller", "kill-agent", "kill-shell", "kill-ssh", "cut-link", "full-disk")

SCENARIO = """
venturi = 1
name = "{name}"
seed = 1
[testbed.host.a]
ssh = "a"
[testbed.host.b]
ssh = "b"
[testbed.storage.sa]
host = "a"
path = "data"
[testbed.storage.sb]
host = "b"
path = "{path}"
[workload]
kind = "sweep"
mover = "venturi"
source = "sa"
destination = "sb"
repeat = {trials}
[workload.factors]
size = ["20 MB"]
"""

LEFT = (
    f"find ~/.cache/venturi/scratch {SMALL_DISK} -type f 2>/dev/null"
    r" | grep -v -e /sets/ -e '/\.venturi-lock$' || true"
)
"""Files of a run on a host, except those kept for later runs: datasets and the lock of a scratch directory."""


def journal(path):
    """Return the identifiers of the trials in the journal of a run."""
    return [record["trial"] for record in trials(path)]


def trials(path):
    """Return the records of the trials in the journal of a run."""
    if not (path / "journal.jsonl").exists():
        return []
    # The run may be writing the last line.
    complete, _, _ = (path / "journal.jsonl").read_bytes().rpartition(b"\n")
    records = [json.loads(line) for line in complete.splitlines()]
    return [record["trial"] for record in records if "trial" in record]


def processes_of(real_hosts, host, part):
    """Return the PIDs, as seen on the host, of the user's processes whose command line contains a text."""
    return real_hosts.sh(host, f"pgrep -u alice -f -- '{part}' || true", user=False).split()


def end_session(real_hosts, process, how):
    """End a running session, or a part of it, as it can happen to users."""
    match how:
        case "ctrl-c":
            os.killpg(process.pid, signal.SIGINT)
        case "kill-controller":
            os.killpg(process.pid, signal.SIGKILL)
        case "kill-agent" | "kill-shell":
            program = how.removeprefix("kill-")
            killed = {pid for host in "ab" for pid in processes_of(real_hosts, host, f"engine-[^ ]* {program}")}
            assert len(killed) >= 2, "expected a process on each host"
            for pid in killed:
                real_hosts.sh("a", f"kill -9 {pid} || true", user=False)
        case "kill-ssh":
            killed = [pid for pid in below(process.pid) if name_of(pid) == "ssh"]
            assert len(killed) >= 4, "expected a connection of the shell and of the agent to each host"
            for pid in killed:
                os.kill(pid, signal.SIGKILL)
        case "cut-link":
            real_hosts.cut("b")
        case "full-disk":
            real_hosts.sh("b", f"dd if=/dev/zero of={SMALL_DISK}/filler bs=1M 2>/dev/null || true")


def exercise(real_hosts, how, name):
    """Run a scenario, end it, and check hosts and results; return the seconds until both hosts were clean."""
    scenario = real_hosts.work / f"{name}.toml"
    small = how == "full-disk"
    scenario.write_text(SCENARIO.format(name=name, trials=TRIALS, path=f"{SMALL_DISK}/data" if small else "data"))
    if small:
        script = f"mkdir -p {SMALL_DISK} && mount -t tmpfs -o size=60m,uid=2001,mode=755 small {SMALL_DISK}"
        real_hosts.sh("b", script, user=False)
    try:
        return _exercise(real_hosts, how, name, scenario)
    finally:
        if small:
            real_hosts.sh("b", f"umount {SMALL_DISK}", user=False)


def _exercise(real_hosts, how, name, scenario):
    runs = real_hosts.work / "runs"
    process = real_hosts.start_venturi("run", scenario, "--on", "hosts", "--yes", "--runs", runs, "--json")
    try:
        three = lambda: len(journal(next(runs.glob(f"{name}-2*"), runs))) >= 3  # noqa: E731 - a condition to wait for
        wait_until(lambda: three() or process.poll() is not None, "three finished trials", 120)
        assert process.poll() is None, process.communicate()
        end_session(real_hosts, process, how)
        ended_s = time.monotonic()
        if how == "cut-link":
            # No message reaches host b. Its shell and agent exit because they receive nothing.
            real_hosts.wait_for_nothing_left("b", CLEAN_S)
            clean_s = time.monotonic() - ended_s
            real_hosts.repair("b")
        if how in ("ctrl-c", "kill-controller"):
            clean_s = _wait_until_clean(real_hosts, ended_s)
        process.communicate(timeout=300)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    if how not in ("ctrl-c", "kill-controller", "cut-link"):
        # The session continues after it lost a part, so the time starts at its own end.
        clean_s = _wait_until_clean(real_hosts, time.monotonic())
    (path,) = runs.glob(f"{name}-2*")
    if how == "full-disk":
        assert any(not _is_good(record) for record in trials(path)), "the disk was full"
        real_hosts.sh("b", f"rm {SMALL_DISK}/filler")
        real_hosts.venturi("run", "--resume", "--retry-failed", path, "--yes", "--json")
    elif len(journal(path)) < TRIALS:
        real_hosts.venturi("run", "--resume", path, "--yes", "--json")
    good = sorted(record["trial"] for record in trials(path) if _is_good(record))
    assert good == [f"t{number:07d}" for number in range(TRIALS)]
    _wait_until_clean(real_hosts, time.monotonic())
    for host in "ab":
        assert real_hosts.sh(host, LEFT).split() == [], host
    return clean_s


def _is_good(record):
    return all(transfer["outcome"] == "ok" for transfer in record["transfers"])


def _wait_until_clean(real_hosts, since_s):
    """Wait until both hosts have no remains of a session, at most the required time; return the seconds since a moment."""
    for host in "ab":
        real_hosts.wait_for_nothing_left(host, CLEAN_S - (time.monotonic() - since_s))
    return time.monotonic() - since_s


@pytest.mark.parametrize("how", CASES)
def test_an_interrupted_run_leaves_clean_hosts_and_resumes(how, real_hosts):
    exercise(real_hosts, how, how)
