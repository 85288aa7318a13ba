"""A file system whose metadata server is killed: who prepares or copies files on its mount never gets an answer, and the run ends all the same."""

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


# Takes the labs' folder, a file for its count of calls and the transfer's places, of which it copies the first to the second if there are two. The third call kills the metadata server, so that what comes before and after it does not hang on who looks when.
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


def carry_out(cache, places, tmp_path, engine, labs):
    """Carry the scenario out with a tool that kills the metadata server in its third call; return the run."""
    (tmp_path / "tool.py").write_text(TOOL)
    argv = [sys.executable, f"{tmp_path}/tool.py", f"{labs}", f"{tmp_path}/calls", *places]
    write_plan(expand(scenario_from(tomllib.loads(SCENARIO % (cache, json.dumps(argv))))), tmp_path / "plan.jsonl")
    run = RunWriter.create(tmp_path / "runs", tmp_path / "plan.jsonl", backend="lab")
    outcome = LabBackend(scratch=tmp_path / "scratch", engine=engine).carry_out(run)
    assert (outcome.state, outcome.trials_done) == ("complete", 6)
    return Run.open(run.path)


def test_a_mount_that_hangs_fails_each_trial_in_its_time_and_leaves_nothing(tmp_path, labs, engine):
    with carry_out("cold", ["{source}"], tmp_path, engine, labs) as done:
        trials = done.query("SELECT outcome, end_s - start_s AS took_s FROM trials ORDER BY position")
        assert list(trials["outcome"][:2]) == ["ok"] * 2
        assert set(trials["outcome"][-2:]) == {"failed"}
        stalled = done.query("SELECT evidence FROM findings WHERE code = 'prepare-failed'")["evidence"]
    # A preparation is given up when a transfer would have been, of which it knows after as long again at most.
    assert all(4 <= took_s < 16 for took_s in trials["took_s"][-2:])
    assert any("found it still for 4 s" in evidence for evidence in stalled)


def test_a_tool_that_not_even_a_kill_ends_is_left_behind_and_the_run_goes_on(tmp_path, labs, engine):
    with carry_out("as_is", ["{source}", "{destination}"], tmp_path, engine, labs) as done:
        outcomes = done.query("SELECT outcome FROM transfers ORDER BY position")["outcome"]
        hung = done.query("SELECT duration_s, error FROM transfers WHERE outcome = 'timeout'")
    assert list(outcomes[:3]) == ["ok", "ok", "timeout"]
    # Four seconds, and two after SIGTERM and SIGKILL each.
    assert all(8 <= took_s < 12 for took_s in hung["duration_s"])
    assert all("nor when it was killed" in error for error in hung["error"])
