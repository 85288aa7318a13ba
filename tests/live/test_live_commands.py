"""`venturi run --live` and `venturi report --follow` in real processes: to the end of a run, and after kills."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from urllib.error import URLError

import pytest

from testkit import Gate, living_processes, words_of

VENTURI = [sys.executable, "-c", "from venturi.cli import main; main()"]
TRIALS = 6
FREE = 3

SCENARIO = """
venturi = 1
name = "slow"
seed = 1
[testbed.host.here]
[testbed.storage.disk]
host = "here"
path = "slow"
[mover.slow]
argv = ARGV
[measure]
interval = "100 ms"
[workload]
kind = "sweep"
mover = "slow"
source = "disk"
destination = "disk"
repeat = TRIALS
[workload.factors]
files = [1]
size = ["1 kB"]
"""


def wait_until(condition, what, most_s=300.0):
    """Wait for an effect of another process. A poll costs CPU that the commands need, so the pause is long."""
    deadline_s = time.monotonic() + most_s
    while not condition():
        assert time.monotonic() < deadline_s, f"expected {what} within {most_s:g} s"
        time.sleep(0.1)


class Command:
    """A command in its own process, with its output in files."""

    def __init__(self, home, token, *words):
        self._files = [home / f"{words[0]}.{name}" for name in ("out", "err")]
        environment = os.environ | {"VENTURI_SCRATCH": str(home / "scratch"), "NO_COLOR": "1", "VENTURI_TEST": token}
        with self._files[0].open("wb") as out, self._files[1].open("wb") as err:
            self.process = subprocess.Popen([*VENTURI, *words], cwd=home, env=environment, stdout=out, stderr=err)

    @property
    def stdout(self):
        return self._files[0].read_text()

    @property
    def stderr(self):
        return self._files[1].read_text()

    def url(self):
        wait_until(lambda: "live view: " in self.stderr or self.process.poll() is not None, "the URL of the page")
        (url,) = re.findall(r"live view: (\S+)", self.stderr)
        return url

    def snapshot(self):
        """Return the values that the page of this command shows now; None if it is gone."""
        try:
            with urllib.request.urlopen(self.url().replace("/?", "/snapshot?"), timeout=60) as response:
                return json.load(response)
        except (URLError, OSError):
            return None

    def wait_for(self, condition, what):
        """Return the first values of the page that meet a condition."""
        found = []
        wait_until(lambda: found.append(self.snapshot()) or found[-1] is None or condition(found[-1]), what)
        assert found[-1] is not None, self.stderr
        return found[-1]

    def end(self):
        return self.process.wait(300)


@pytest.fixture
def gate(tmp_path):
    return Gate(tmp_path / "gate", FREE)


@pytest.fixture
def start(tmp_path, engine, gate):
    """Return a function that starts a command. At the end of the test, all its processes are killed."""
    text = SCENARIO.replace("ARGV", json.dumps(gate.argv)).replace("TRIALS", str(TRIALS))
    (tmp_path / "slow.toml").write_text(text, encoding="utf-8")
    commands = []

    def run(*words):
        commands.append(Command(tmp_path, str(tmp_path), *words))
        return commands[-1]

    yield run
    for command in commands:
        command.process.kill()
        command.process.wait()


def agent(token):
    """Return the PID of the agent of the run."""
    for pid in living_processes(token):
        if words_of(pid)[1:2] == ["agent"]:
            return pid
    return None


def is_at_gate(values):
    now = values["values"]
    return now["trials_done"] == FREE and len(now["running"]) == 1


def test_the_page_shows_a_run_to_its_end_and_names_a_host_that_is_killed(start, gate, tmp_path):
    run = start("run", "slow.toml", "--live")
    found = run.wait_for(is_at_gate, "a trial at the gate")
    assert (found["values"]["trials_total"], found["values"]["state"]) == (TRIALS, "running")
    assert found["values"]["running"][0]["trial"] == f"t{FREE:07d}"
    assert ["Trials", f"{FREE} done, 1 running, {TRIALS - FREE - 1} left"] in found["shown"]["summary"]
    assert [one["name"] for one in found["values"]["movers"]] == ["slow"]

    os.kill(agent(str(tmp_path)), signal.SIGKILL)
    found = run.wait_for(lambda values: values["shown"]["alerts"], "the loss of the host")
    (alert,) = found["shown"]["alerts"]
    assert alert.startswith("Host here: ")
    assert "killed by signal 9" in alert

    run.wait_for(is_at_gate, "the trial that runs again")
    gate.open()
    last = []
    while (values := run.snapshot()) is not None:
        last.append(values)
        time.sleep(0.1)
    assert run.end() == 0
    assert run.stderr.count("live view: ") == 1
    assert f"{TRIALS}/{TRIALS} trials" in run.stderr
    assert "100 % done" in run.stderr
    # The page stays until its reader has the end, unless this reader is too slow.
    assert last[-1]["values"]["state"] in ("complete", "running")
    if last[-1]["values"]["state"] == "complete":
        assert last[-1]["shown"]["is_over"]
        assert last[-1]["values"]["verdict"]["sentence"]


def test_a_follower_names_a_controller_that_is_killed(start, gate, tmp_path):
    run = start("run", "slow.toml", "--live")
    run.wait_for(is_at_gate, "a trial at the gate")
    follower = start("report", "slow", "--follow", "--live")
    found = follower.wait_for(is_at_gate, "the follower to see the trial at the gate")
    assert f"PID {run.process.pid} on" in found["values"]["controller"]
    run.process.kill()
    run.process.wait()
    assert run.snapshot() is None  # the browser then says that it has no contact
    assert follower.end() == 1
    assert f"No contact to the controller: the controller (PID {run.process.pid} on " in follower.stderr
    assert "venturi run --resume" in follower.stderr
    assert follower.stdout == ""


def test_a_follower_shows_a_run_to_its_end_and_then_its_report(start, gate):
    run = start("run", "slow.toml", "--quiet")
    wait_until(lambda: (gate.directory / str(FREE - 1)).exists(), "a trial at the gate")
    follower = start("report", "slow", "--follow")
    wait_until(lambda: f"{FREE}/{TRIALS} trials" in follower.stderr or follower.process.poll() is not None, "a line")
    gate.open()
    assert run.end() == 0
    assert follower.end() == 0
    assert f"complete · 100 % done · {TRIALS}/{TRIALS} trials" in re.sub(r" [0-9.]+ .?B/s now ·", "", follower.stderr)
    assert "next," in follower.stdout
    assert follower.stderr.count("live view: ") == 0


def test_a_page_of_a_finished_run_needs_follow(start):
    command = start("report", "slow", "--live")
    assert command.end() == 1
    assert "--live: expected --follow" in command.stderr
