"""A run whose controller and agent are killed repeatedly: no trial is lost or counted twice."""

import json
import multiprocessing
import os
import random
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from testkit import call_of, children_of, living_processes, name_of, tiny_trials, wait_until, words_of, write_plan
from venturi.backend import HostsBackend, run_controller
from venturi.errors import AgentExitedError
from venturi.run import Run, RunWriter

KILLS = 100
TRIALS = 40
SEED = 20260101
LATEST_KILL_S = 0.3
"""Latest time of a kill. A session takes about 0.25 s, so kills also hit its start and its end."""


def control(run, plan, scratch, engine, token):
    """Create or resume the run, as a controller process."""
    os.environ["VENTURI_TEST"] = token
    run_controller.RESTART_DELAYS_S = (0.0,)  # do not wait for a connection that could come back
    writer = (
        RunWriter.resume(run)
        if (run / "run.json").exists()
        else RunWriter.create(run, plan, backend="hosts", path=run)
    )
    with suppress(AgentExitedError):  # killed at its start or too often in sequence: the next session resumes
        HostsBackend(scratch=scratch, engine=engine).execute(writer)


def agent_of(controller):
    """Return the PID of the agent of a controller, or None if it has none."""
    agents = (child for child in children_of(controller) if words_of(child)[1:2] == ["agent"])  # not the host shell
    return next(agents, None)


def check(run, path):
    """Check that a finished run has the planned trials, each complete and exactly once."""
    planned = [f"t{number:07d}" for number in range(TRIALS)]
    lines = [json.loads(line) for line in (path / "journal.jsonl").read_bytes().splitlines()]
    trials = [line["trial"] for line in lines if "trial" in line]
    assert sorted(trial["trial"] for trial in trials) == planned
    assert [trial["position"] for trial in trials] == list(range(TRIALS))
    assert all(len(trial["transfers"]) == 1 for trial in trials)
    rows = run.query("SELECT trial, outcome, received_bytes FROM transfers ORDER BY trial")
    assert rows["trial"].tolist() == planned
    assert set(zip(rows["outcome"], rows["received_bytes"], strict=True)) == {("ok", 100_000)}
    assert run.state == "complete"


def test_a_run_killed_a_hundred_times_neither_loses_nor_repeats_a_trial(tmp_path, engine, scratch):
    random_ = random.Random(SEED)
    plan = write_plan(tmp_path / "plan.jsonl", tiny_trials(TRIALS))
    # It imports once and forks, so that kills hit the run instead of the start of Python.
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload(["venturi.backend"])
    kills = {"controller": 0, "agent": 0}
    sessions = finished = 0
    while True:
        run = tmp_path / f"run-{finished}"
        sessions += 1
        controller = server.Process(target=control, args=(run, plan, scratch, engine, str(tmp_path)))
        controller.start()
        while sum(kills.values()) < KILLS:
            controller.join(random_.uniform(0, LATEST_KILL_S))
            if not controller.is_alive():
                break
            victim = "controller" if kills["controller"] <= kills["agent"] else "agent"
            pid = controller.pid if victim == "controller" else agent_of(controller.pid)
            if pid is not None:
                with suppress(ProcessLookupError):  # the agent has exited
                    os.kill(pid, signal.SIGKILL)
                    kills[victim] += 1
        controller.join(60)
        assert controller.exitcode in (0, -signal.SIGKILL)
        if (run / "run.json").exists() and Run.open(run).state == "complete":
            check(Run.open(run), run)
            finished += 1
            if sum(kills.values()) == KILLS:
                break
        elif run.exists() and not (run / "run.json").exists():
            finished += 1  # killed before the directory was a run: start another
    assert min(kills.values()) == KILLS // 2
    assert sessions > KILLS // 2
    wait_until(lambda: not living_processes(tmp_path), "all processes to end")
    assert not list((scratch / "data").glob("out/*"))


@pytest.mark.parametrize("victim", ["controller", "agent"])
def test_a_mover_does_not_outlive_a_killed_controller_or_agent(tmp_path, engine, scratch, victim):
    """The mover runs for long and has a child, which only its environment identifies."""
    call = call_of(
        ["sh", "-c", "sleep 600 & sleep 600", "{source}", "{destination}"], requires=["sh"], timeout_s=900.0
    )
    plan = write_plan(tmp_path / "plan.jsonl", tiny_trials(1), calls={"cp": call})
    server = multiprocessing.get_context("forkserver")
    controller = server.Process(target=control, args=(tmp_path / "run", plan, scratch, engine, str(tmp_path)))
    controller.start()
    wait_until(lambda: any(name_of(pid) == "sleep" for pid in living_processes(tmp_path)), "the mover to run")
    agent = agent_of(controller.pid)
    movers = [pid for pid in living_processes(tmp_path) if name_of(pid) in ("sh", "sleep")]
    os.kill(controller.pid if victim == "controller" else agent, signal.SIGKILL)
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in movers), "the mover to end")
    if victim == "agent":
        os.kill(controller.pid, signal.SIGKILL)
    controller.join()
    wait_until(lambda: not living_processes(tmp_path), "all processes to end")
