"""A file system whose metadata server is killed: who prepares or copies files on its mount never gets an answer, and the run ends all the same."""

import os
import signal
import tomllib
from pathlib import Path

from testkit import needs_programs, needs_root
from venturi.backend import LabBackend
from venturi.plan import write_plan
from venturi.run import Run, RunWriter
from venturi.scenario import scenario_from
from venturi.workload import expand

pytestmark = [
    needs_root,
    needs_programs("mfsmaster", "mfschunkserver", "mfsmount"),
]
SCENARIO = """
venturi = 1
name = "hanging"
[testbed]
host = { a = {}, b = {} }
storage = { chunks = { host = "b", path = "chunks" }, shared = { host = "a", path = "shared" }, disk = { host = "a", path = "disk" } }
[testbed.link.line]
between = ["a", "b"]
rate = "1 Gb/s"
[testbed.service]
metadata = { kind = "moosefs-master", host = "b" }
objects = { kind = "moosefs-chunkserver", host = "b", storage = ["chunks"], options = { master = "metadata" } }
mount = { kind = "moosefs-mount", host = "a", storage = ["shared"], options = { master = "metadata", chunkservers = "objects", cache = "direct" } }
[workload]
kind = "sweep"
mover = "look"
source = "shared"
destination = "disk"
repeat = 6
cache = "%s"
timeout = "2 s"
factors = { size = ["1 MB"] }
[mover.look]
argv = ["sh", "-c", %s]
"""


def master_pid(labs):
    """Return the PID of the metadata server."""
    for folder in Path("/proc").glob("[0-9]*"):
        words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0") if folder.exists() else [""]
        if words[0].endswith("mfsmaster") and any(word.startswith(str(labs)) for word in words):
            return int(folder.name)
    raise AssertionError("no metadata server")


def carry_out(scenario, tmp_path, engine, labs):
    """Carry a scenario out, and kill the metadata server once two trials are done; return the run and its outcome."""
    write_plan(expand(scenario_from(tomllib.loads(scenario))), tmp_path / "plan.jsonl")
    run = RunWriter.create(tmp_path / "runs", tmp_path / "plan.jsonl", backend="lab")
    killed = []

    def look(progress):
        if progress.trials_done >= 2 and not killed:
            killed.append(master_pid(labs))
            os.kill(killed[0], signal.SIGKILL)

    outcome = LabBackend(scratch=tmp_path / "scratch", engine=engine).carry_out(run, on_progress=look)
    assert killed and (outcome.state, outcome.trials_done) == ("complete", 6)
    return Run.open(run.path)


def test_a_mount_that_hangs_fails_each_trial_in_its_time_and_leaves_nothing(tmp_path, labs, engine):
    with carry_out(SCENARIO % ("cold", '"sleep 0.3", "sh", "{source}"'), tmp_path, engine, labs) as done:
        trials = done.query("SELECT outcome, end_s - start_s AS took_s FROM trials ORDER BY position")
        assert list(trials["outcome"][:2]) == ["ok"] * 2
        assert set(trials["outcome"][-2:]) == {"failed"}
        stalled = done.query("SELECT evidence FROM findings WHERE code = 'prepare-failed'")["evidence"]
    # A preparation is given up when a transfer would have been, of which it knows after as long again at most.
    assert all(2 <= took_s < 10 for took_s in trials["took_s"][-2:])
    assert any("found it still for 2 s" in evidence for evidence in stalled)


def test_a_tool_that_not_even_a_kill_ends_is_left_behind_and_the_run_goes_on(tmp_path, labs, engine):
    # Looks at the mount when it has just lost its server, and waits for it in the kernel.
    words = '"sleep 0.3; exec cp $1 $2", "sh", "{source}", "{destination}"'
    with carry_out(SCENARIO % ("as_is", words), tmp_path, engine, labs) as done:
        outcomes = done.query("SELECT outcome FROM transfers ORDER BY position")["outcome"]
        hung = done.query("SELECT duration_s, error FROM transfers WHERE outcome = 'timeout'")
    assert list(outcomes[:2]) == ["ok"] * 2 and outcomes[-1] == "timeout"
    # Two seconds, and two after SIGTERM and SIGKILL each. What the kernel still knows of the mount may do for a copy in between.
    assert all(6 <= took_s < 8 for took_s in hung["duration_s"])
    assert all("nor when it was killed" in error for error in hung["error"])
