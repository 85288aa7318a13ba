"""A lab run is killed and resumed. It continues at the elapsed time of its plan, and its links have the state of that time."""

import json
import subprocess
import sys
import time

import pytest

from testkit import needs_root
from venturi.run import Run, RunWriter

pytestmark = needs_root

SCENARIO = """
venturi = 1
name = "changes"
[testbed.host]
a = {}
b = {}
[testbed.link]
wire = { between = ["a", "b"], rate = "100 Mb/s", rtt = "1 ms" }
[[testbed.change]]
at = "300 ms"
link = "wire"
up = false
[[testbed.change]]
at = "600 ms"
link = "wire"
up = true
rate = "50 Mb/s"
[[testbed.change]]
at = "4 s"
link = "wire"
rate = "20 Mb/s"
[testbed.storage]
source = { host = "a", path = "source" }
[measure]
interval = "50 ms"
counters = []
[workload]
kind = "sweep"
source = "source"
destination = "source"
mover = "pause"
repeat = 40
[workload.factors]
size = ["1 kB"]
[mover.pause]
argv = ["sh", "-c", 'sleep 0.1; cp "$0" "$1"', "{source}", "{destination}"]
"""
FIRST_CHANGES, LAST_S, SLACK_S = 4, 4.0, 0.3
"""Changes of both directions before the kill; time of the last change; tolerance for a sampling interval and the start."""


def changes_of(path):
    """Return the changes so far, as tuples of time, direction and settings."""
    lines = (path / "events.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines if '"network-change"' in line]
    return [(event["time_s"], event["detail"]["link"], event["detail"]["set"]) for event in events]


def test_a_resumed_run_continues_on_the_timeline_of_its_plan(tmp_path, labs, engine):
    scenario, runs = tmp_path / "changes.toml", tmp_path / "runs"
    scenario.write_text(SCENARIO)
    venturi = [sys.executable, "-c", "from venturi.cli import main; main()", "run"]
    options = ["--on", "lab", "--scratch", str(tmp_path / "scratch"), "--quiet", "--runs", str(runs)]
    first = subprocess.Popen([*venturi, str(scenario), *options], stdout=subprocess.DEVNULL)
    deadline_s = time.monotonic() + 60
    while not (paths := list(runs.glob("*/events.jsonl"))) or len(changes_of(paths[0].parent)) < FIRST_CHANGES:
        assert first.poll() is None and time.monotonic() < deadline_s, "the run ended or hung before it was killed"
        time.sleep(0.02)
    first.kill()
    first.wait()
    path = paths[0].parent
    with RunWriter.resume(path) as run:  # waits until the processes of the first session have exited
        elapsed_s = run.elapsed_s
    assert 0.6 <= elapsed_s < LAST_S - SLACK_S
    again = subprocess.run([*venturi, "--resume", str(path), *options], capture_output=True, text=True, timeout=120)
    assert again.returncode == 0, again.stderr

    with Run.open(path) as run:
        assert run.state == "complete"
        trials = run.query("SELECT trial FROM trials")["trial"].tolist()
        assert len(trials) == len(set(trials)) == 40
    sessions = [
        json.loads(line)["session"]
        for line in (path / "journal.jsonl").read_text().splitlines()
        if '"session":{"n' in line
    ]
    assert [session["elapsed_s"] for session in sessions] == [0, elapsed_s]
    epoch_ns = json.loads((path / "run.json").read_text())["created_unix_ns"]
    started_s = (sessions[1]["time_unix_ns"] - epoch_ns) / 1e9
    for direction in ("a>b", "b>a"):
        before = [change for change in changes_of(path) if change[1] == direction and change[0] < started_s]
        after = [change for change in changes_of(path) if change[1] == direction and change[0] >= started_s]
        assert [what for _, _, what in before] == [{"up": False}, {"up": True, "rate_bit_per_s": 50e6}]
        # The past changes are applied as one state, without the outage. The later change is applied at its planned
        # time.
        assert [what for _, _, what in after] == [{"up": True, "rate_bit_per_s": 50e6}, {"rate_bit_per_s": 20e6}]
        assert after[0][0] == pytest.approx(started_s, abs=SLACK_S)
        assert after[1][0] - after[0][0] == pytest.approx(LAST_S - elapsed_s, abs=1e-3)
