"""The metadata server of a file system is killed, so preparations and copies on its mount hang. The run still ends."""

import json
import sys
import tomllib

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
timeout = "4 s"
factors = { size = ["1 MB"] }
[mover.look]
argv = %s
"""


# The arguments are the directory of the labs, a file that counts the calls, and the paths of the transfer. With two
# paths, it copies the first to the second. The third call kills the metadata server, so that the order of events is
# deterministic.
TOOL = """
import os, shutil, signal, sys, time
from pathlib import Path
labs, calls, *places = sys.argv[1:]
with open(calls, "a") as file:
    file.write(".")
if os.path.getsize(calls) == 3:
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\\0")
        except OSError:
            continue
        if words[0].endswith("mfsmaster") and any(word.startswith(labs) for word in words):
            os.kill(int(folder.name), signal.SIGKILL)
            break
    else:
        sys.exit("no metadata server")
    time.sleep(1.5)  # the kernel knows the mount's attributes for a second
if len(places) == 2:
    shutil.copyfile(*places)
"""


def execute(cache, storages, tmp_path, engine, labs):
    """Run the scenario with a tool that kills the metadata server in its third call; return the run."""
    (tmp_path / "tool.py").write_text(TOOL)
    argv = [sys.executable, f"{tmp_path}/tool.py", f"{labs}", f"{tmp_path}/calls", *storages]
    write_plan(expand(scenario_from(tomllib.loads(SCENARIO % (cache, json.dumps(argv))))), tmp_path / "plan.jsonl")
    run = RunWriter.create(tmp_path / "runs", tmp_path / "plan.jsonl", backend="lab")
    outcome = LabBackend(scratch=tmp_path / "scratch", engine=engine).execute(run)
    assert (outcome.state, outcome.trials_done) == ("complete", 6)
    return Run.open(run.path)


def test_a_hanging_mount_fails_each_trial_in_bounded_time_and_leaves_nothing(tmp_path, labs, engine):
    with execute("cold", ["{source}"], tmp_path, engine, labs) as done:
        trials = done.query("SELECT outcome, end_s - start_s AS took_s FROM trials ORDER BY position")
        assert list(trials["outcome"][:2]) == ["ok"] * 2
        assert set(trials["outcome"][-2:]) == {"failed"}
        stalled = done.query("SELECT evidence FROM findings WHERE code = 'prepare-failed'")["evidence"]
    # A preparation has the timeout of a transfer. It can notice the timeout up to the same time later.
    assert all(4 <= took_s < 16 for took_s in trials["took_s"][-2:])
    assert any("no progress for 4 s" in evidence for evidence in stalled)


def test_a_mover_that_cannot_be_killed_is_abandoned_and_the_run_continues(tmp_path, labs, engine):
    with execute("as_is", ["{source}", "{destination}"], tmp_path, engine, labs) as done:
        outcomes = done.query("SELECT outcome FROM transfers ORDER BY position")["outcome"]
        hung = done.query("SELECT duration_s, error FROM transfers WHERE outcome = 'timeout'")
    assert list(outcomes[:3]) == ["ok", "ok", "timeout"]
    # 4 s timeout, and 2 s each after SIGTERM and SIGKILL.
    assert all(8 <= took_s < 12 for took_s in hung["duration_s"])
    assert all("did not exit when killed" in error for error in hung["error"])
