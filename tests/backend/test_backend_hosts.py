import json
import os
import signal
import stat
import threading

import pytest

from testkit import Gate, call_of, children_of, living_processes, tiny_trials, transfer_step, words_of, write_plan
from venturi.backend import HostsBackend, RunProgress, find_engine, run_controller
from venturi.errors import BackendError, PlanError
from venturi.run import Run, RunWriter


@pytest.fixture
def execute(tmp_path, engine, scratch):
    """Return a function that runs a plan, in a new or a given run, and returns outcome and run."""

    def work(plan_or_run, *, on_progress=None, engine=engine):
        is_run = isinstance(plan_or_run, RunWriter)
        run = plan_or_run if is_run else RunWriter.create(tmp_path / "runs", plan_or_run, backend="hosts")
        backend = HostsBackend(scratch=scratch, engine=engine)
        # If the controller hangs, stop it, so that the test fails at its assertions.
        watchdog = threading.Timer(240, os.kill, (os.getpid(), signal.SIGTERM))
        watchdog.start()
        try:
            return backend.execute(run, on_progress=on_progress), Run.open(run.path)
        finally:
            watchdog.cancel()
            watchdog.join()

    return work


def script(path, text):
    """Write a program."""
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(stat.S_IRWXU)
    return path


def agent_script(path, engine, text):
    """Write an engine whose agent is a script and whose shell is real."""
    return script(path, f'[ "$1" = shell ] && exec {engine} "$@"\n{text}')


def agent_pids():
    """Return the PIDs of the agents that this process has started."""
    return [pid for pid in children_of(os.getpid()) if words_of(pid)[1:2] == ["agent"]]


def agent_pid():
    """Return the PID of the only agent that this process has started."""
    (pid,) = agent_pids()
    return pid


class At:
    """Call a function once, when a number of trials is done."""

    def __init__(self, trials, act):
        self.trials, self.act, self.acted = trials, act, False

    def __call__(self, progress):
        if progress.trials_done >= self.trials and not self.acted:
            self.acted = True
            self.act()


@pytest.fixture(autouse=True)
def _show_everything(monkeypatch):
    """Report progress after every record, so that a test can act at an exact trial."""
    monkeypatch.setattr(run_controller, "PROGRESS_INTERVAL_S", 0.0)


def test_every_trial_of_a_plan_runs_once_and_its_bytes_are_counted(execute, tiny_plan):
    outcome, run = execute(tiny_plan(6))
    assert (outcome.state, outcome.trials_done, outcome.trials_total) == ("complete", 6, 6)
    assert (outcome.failed, outcome.restarts) == (0, 0)
    assert run.state == "complete"
    rows = run.table("transfers")
    assert rows["trial"].tolist() == [f"t{number:07d}" for number in range(6)]
    assert rows["position"].tolist() == list(range(6))
    assert rows["received_bytes"].tolist() == [100_000] * 6
    assert rows["factor_half"].tolist() == [0, 1] * 3
    assert (rows["end_s"] - rows["start_s"] == pytest.approx(rows["duration_s"], abs=1e-6)) and (
        rows["start_s"] > 0
    ).all()
    assert run.environment()["node1"]["clock.offset_s"] == "0.0"
    assert int(run.environment()["node1"]["memory_bytes"]) > 0


def test_samples_are_taken_while_trials_run(execute, tmp_path):
    lines = [*tiny_trials(2), {"actor": "sweep", "host": "node1", "steps": [{"step": "pause", "duration_s": 1.0}]}]
    _, run = execute(write_plan(tmp_path / "plan.jsonl", lines, interval_s=0.02))
    samples = run.query(
        "SELECT counter, max(value) - min(value) AS grown, count(*) AS n FROM samples GROUP BY counter"
    )
    counters = dict(zip(samples["counter"], zip(samples["grown"], samples["n"], strict=True), strict=True))
    assert sum(counters[f"cpu.{name}_s"][0] for name in ("user", "system", "idle", "iowait", "steal")) > 0.1
    assert counters["memory.available_bytes"][1] >= 10


def test_without_a_scratch_directory_datasets_are_kept_with_the_runs(tmp_path, engine, tiny_plan, monkeypatch):
    monkeypatch.delenv("VENTURI_SCRATCH", raising=False)
    run = RunWriter.create(tmp_path / "runs", tiny_plan(2), backend="hosts")
    HostsBackend(engine=engine).execute(run)
    assert (tmp_path / "runs" / "scratch" / "data" / "set" / "000000").stat().st_size == 100_000


def test_a_given_scratch_directory_is_kept(execute, scratch, tiny_plan):
    execute(tiny_plan(2))
    assert (scratch / "data" / "set" / "000000").stat().st_size == 100_000
    assert not list((scratch / "data").glob("out/*"))  # but no destination of a transfer


@pytest.fixture
def gate(tmp_path):
    """Return a function that creates a gate, which opens for a number of calls."""
    return lambda free: Gate(tmp_path / "gate", free)


def kill_agent_and_open(gate):
    """Return a function that kills the only agent and lets its successor finish."""

    def act():
        os.kill(agent_pid(), signal.SIGKILL)
        gate.open()

    return act


def test_ctrl_c_stops_a_run_that_can_be_resumed(execute, tiny_plan, gate):
    held = gate(5)
    plan = tiny_plan(30, calls=held.calls)
    outcome, run = execute(plan, on_progress=At(5, lambda: os.kill(os.getpid(), signal.SIGINT)))
    assert outcome.state == run.state == "stopped"
    done = run.finished_trials()
    assert len(done) == 5
    assert (run.path / "transfers.parquet").exists()
    held.open()
    outcome, run = execute(RunWriter.resume(run.path))
    assert outcome.state == run.state == "complete"
    rows = run.table("transfers")
    assert sorted(rows["trial"]) == [f"t{number:07d}" for number in range(30)]
    assert set(rows["trial"][rows["session"] == 1]) == done


def test_a_signal_ends_a_long_running_mover(execute, tmp_path, monkeypatch):
    monkeypatch.setenv("VENTURI_TEST", str(tmp_path))
    tool = script(tmp_path / "slow", 'sleep 600 & sleep 600; cp "$1" "$2"\n')
    plan = write_plan(
        tmp_path / "plan.jsonl", tiny_trials(2), calls={"cp": call_of([str(tool), "{source}", "{destination}"])}
    )
    stop = lambda progress: progress.factors and os.kill(os.getpid(), signal.SIGTERM)  # noqa: E731
    outcome, run = execute(plan, on_progress=stop)
    assert (outcome.state, outcome.trials_done) == ("stopped", 0)
    assert run.finished_trials() == frozenset()
    assert living_processes(tmp_path) == []


def test_signal_handlers_are_restored_after_a_run(execute, tiny_plan):
    before = signal.getsignal(signal.SIGINT)
    execute(tiny_plan(1))
    assert signal.getsignal(signal.SIGINT) is before


def test_a_killed_agent_is_restarted_and_the_run_continues(execute, tiny_plan, gate):
    held = gate(4)
    outcome, run = execute(tiny_plan(20, calls=held.calls), on_progress=At(4, kill_agent_and_open(held)))
    assert (outcome.state, outcome.restarts) == ("complete", 1)
    assert sorted(run.table("transfers")["trial"]) == [f"t{number:07d}" for number in range(20)]
    (finding,) = run.findings()
    assert (finding.code, finding.host) == ("agent-restarted", "node1")
    assert "killed by signal 9" in finding.evidence


def test_a_repeatedly_failing_agent_ends_the_run_which_can_be_resumed(
    execute, tmp_path, tiny_plan, engine, monkeypatch, gate
):
    monkeypatch.setattr(run_controller, "RESTART_DELAYS_S", (0.0,))
    count = tmp_path / "count"
    # It sends a hello as the real agent does, and dies when it receives the plan.
    dying = agent_script(
        tmp_path / "dying",
        engine,
        f"echo x >> {count}; {engine} agent < /dev/null; read -r line; echo why >&2; kill -9 $$\n",
    )
    with pytest.raises(BackendError, match=r"node1: the agent exited before it was ready: .*signal 9.*why"):
        execute(tiny_plan(2), engine=dying)
    assert len(count.read_text().split()) == 1  # it never worked, so the plan has not started

    once = tmp_path / "once"
    dying = agent_script(
        tmp_path / "later", engine, f"echo x >> {count}; [ -e {once} ] && exit 7; touch {once}; exec {engine} agent\n"
    )
    count.unlink()
    held = gate(3)
    run = RunWriter.create(tmp_path / "runs", tiny_plan(8, calls=held.calls), backend="hosts")
    with pytest.raises(BackendError, match=r"node1: .* exited 4 times in a row.*resume"):
        execute(run, engine=dying, on_progress=At(3, lambda: os.kill(agent_pid(), signal.SIGKILL)))
    assert len(count.read_text().split()) == 1 + run_controller.MAX_RESTARTS_WITHOUT_PROGRESS
    assert Run.open(run.path).state == "stopped"
    held.open()
    outcome, again = execute(RunWriter.resume(run.path))
    assert outcome.state == "complete"
    assert sorted(again.table("transfers")["trial"]) == [f"t{number:07d}" for number in range(8)]


def test_a_plan_that_does_not_fit_on_the_disk_is_rejected_before_the_first_write(execute, tiny_plan, scratch):
    totals = {"trials": 1, "transfers": 1, "bytes": 1, "disk_bytes": {"data": 10**18}}
    with pytest.raises(
        PlanError, match=r"data \(data\) on node1: expected 1e\+03 PB of free space|expected .*PB of free"
    ):
        execute(tiny_plan(1, totals=totals))
    assert list(scratch.rglob("0*")) == []


def test_existing_datasets_need_no_additional_space(execute, tiny_plan, scratch):
    """A dataset in the given scratch directory counts as present, so only missing files need space."""
    execute(tiny_plan(1))
    status = os.statvfs(scratch)
    free = status.f_bavail * status.f_frsize
    present = (scratch / "data/set/000000").stat().st_size
    totals = {"trials": 1, "transfers": 1, "bytes": 1, "disk_bytes": {"data": present}}
    assert present < free
    assert execute(tiny_plan(1, totals=totals))[0].state == "complete"


def test_a_message_of_the_agent_is_shown_unchanged(execute, tmp_path, engine):
    """A plan that the agent cannot run ends with the message of the agent, without a restart."""
    steps = [transfer_step("cp", "nowhere:file", "data:out", 1)]
    plan = write_plan(tmp_path / "plan.jsonl", [{"actor": "sweep", "host": "node1", "steps": steps}])
    with pytest.raises(BackendError, match="nowhere"):
        execute(plan)


def test_an_engine_of_another_protocol_is_rejected(execute, tmp_path, tiny_plan, engine):
    hello = json.dumps({"record": "hello", "protocol": 99, "engine": "9.9", "pid": 1, "clock": {}, "properties": {}})
    other = agent_script(tmp_path / "other", engine, f"echo '{hello}'; cat > /dev/null\n")
    with pytest.raises(BackendError, match=r"node1: expected an engine of protocol 1, found protocol 99 \(9.9\)"):
        execute(tiny_plan(1), engine=other)


def test_an_engine_with_no_usable_output_is_rejected(execute, tmp_path, tiny_plan, engine):
    other = agent_script(tmp_path / "other", engine, "echo hello; echo cannot do this >&2; exit 3\n")
    with pytest.raises(
        BackendError, match=r"the agent exited before its first record \(exit code 3\): cannot do this"
    ):
        execute(tiny_plan(1), engine=other)


def test_an_engine_is_found_by_its_variable_or_the_error_explains_how_to_set_it(monkeypatch, tmp_path):
    mine = script(tmp_path / "mine", "")
    monkeypatch.setenv("VENTURI_ENGINE", str(mine))
    assert find_engine() == mine
    monkeypatch.setenv("VENTURI_ENGINE", str(tmp_path / "none"))
    with pytest.raises(BackendError, match=r"VENTURI_ENGINE: expected the path of venturi-engine, found .*none"):
        find_engine()
    monkeypatch.delenv("VENTURI_ENGINE")
    monkeypatch.setattr("venturi.backend.engine._candidates", lambda: iter(()))
    with pytest.raises(BackendError, match="run `cargo build --release`, or set VENTURI_ENGINE"):
        find_engine()


def test_a_missing_tool_is_reported_before_the_first_trial_and_the_run_continues(execute, tmp_path):
    lines = list(tiny_trials(3))
    lines[1]["steps"][0]["steps"][1]["call"] = "gone"
    calls = {"cp": call_of(["cp", "{source}", "{destination}"]), "gone": call_of(["no-such-tool"])}
    printed = []
    plan = write_plan(tmp_path / "plan.jsonl", lines, calls=calls)
    outcome, run = execute(
        plan, on_progress=lambda progress: printed.append((progress.trials_done, progress.message))
    )
    assert (0, "no-such-tool is not on node1: its transfers are recorded as missing; the run continues") in printed
    assert outcome.state == "complete"
    assert run.query("SELECT outcome FROM transfers ORDER BY trial")["outcome"].tolist() == ["ok", "missing", "ok"]


def test_a_plan_whose_only_tool_is_missing_ends_before_its_first_trial(execute, tmp_path):
    plan = write_plan(tmp_path / "plan.jsonl", tiny_trials(3), calls={"cp": call_of(["no-such-tool"])})
    with pytest.raises(BackendError) as caught:
        execute(plan)
    assert str(caught.value) == (
        "node1: no-such-tool was not found, and no trial can run without it; install no-such-tool, or add its directory to"
        " PATH of node1"
    )


def test_progress_increases_to_the_whole_plan(execute, tiny_plan):
    seen: list[RunProgress] = []
    execute(tiny_plan(10), on_progress=seen.append)
    assert (seen[0].trials_done, seen[0].trials_total, seen[0].bytes_total) == (0, 10, 1_000_000)
    assert [progress.trials_done for progress in seen] == sorted(progress.trials_done for progress in seen)
    last = seen[-1]
    assert (last.trials_done, last.bytes_done, last.remaining_s) == (10, 1_000_000, 0.0)
    assert last.rate_bytes_per_s > 0
    assert {"files", "size_bytes", "half"} == set(last.factors)
    assert any("preparing node1" in progress.message for progress in seen)


def test_two_hosts_on_one_machine_share_counters_but_no_storages(execute, tmp_path, scratch):
    """An actor on one host waits for what an actor on the other signals."""
    hosts = {name: {"ssh": None, "memory_bytes": None} for name in ("node1", "node2")}
    storages = {f"on-{name}": {"host": name, "path": "data"} for name in hosts}
    first, second = [
        list(tiny_trials(5, storage=f"on-{host}", host=host, actor=f"sweep-{host}", first=first))
        for host, first in (("node1", 0), ("node2", 5))
    ]
    for line in first:
        line["steps"].append({"step": "signal", "counter": "copied", "add": 1})
    waiting = {"actor": "sweep-node2", "host": "node2", "steps": [{"step": "wait", "counter": "copied", "until": 4}]}
    plan = write_plan(tmp_path / "plan.jsonl", [waiting, *first, *second], hosts=hosts, storages=storages)
    outcome, run = execute(plan)
    assert outcome.state == "complete"
    rows = run.query(
        "SELECT host, min(start_s) AS first_s, max(end_s) AS last_s FROM transfers GROUP BY host ORDER BY host"
    )
    fourth_s = run.query("SELECT end_s FROM transfers WHERE trial = 't0000003'")["end_s"][0]
    assert rows["host"].tolist() == ["node1", "node2"]
    assert rows["first_s"][1] > fourth_s
    assert {path.relative_to(scratch).parts[0] for path in scratch.rglob("000000")} == {"node1", "node2"}


def test_a_restarted_agent_knows_the_signals_sent_before(execute, tmp_path, gate):
    """The signal was sent before the agent died, and no actor sends it again."""
    hosts = {name: {"ssh": None, "memory_bytes": None} for name in ("node1", "node2")}
    storages = {f"on-{name}": {"host": name, "path": "data"} for name in hosts}
    signals = {"actor": "one", "host": "node1", "steps": [{"step": "signal", "counter": "ready", "add": 1}]}
    waits = {"actor": "two", "host": "node2", "steps": [{"step": "wait", "counter": "ready", "until": 1}]}
    before = tiny_trials(20, storage="on-node2", host="node2", actor="two")
    after = tiny_trials(2, storage="on-node2", host="node2", actor="two", first=20)
    held, lines = gate(10), [signals, *before, waits, *after]
    plan = write_plan(tmp_path / "plan.jsonl", lines, hosts=hosts, storages=storages, calls=held.calls)

    def kill():
        os.kill(max(agent_pids()), signal.SIGKILL)
        held.open()

    outcome, _ = execute(plan, on_progress=At(10, kill))
    assert (outcome.state, outcome.restarts, outcome.trials_done) == ("complete", 1, 22)


@pytest.mark.parametrize("hosts", [("node1", "node1"), ("node1", "node2")])
def test_counters_of_a_trial_are_added_only_if_it_succeeds(execute, tmp_path, hosts):
    """An actor waits for two good trials; the first of three fails."""
    names = sorted(set(hosts))
    storages = {f"on-{name}": {"host": name, "path": "data"} for name in names}
    first = list(tiny_trials(3, storage="on-node1", host="node1", actor="one"))
    for line in first:
        line["steps"][0]["counts"] = {"good": 1}
    first[0]["steps"][0]["steps"][1]["call"] = "false"
    waits = {"actor": "two", "host": hosts[1], "steps": [{"step": "wait", "counter": "good", "until": 2}]}
    second = tiny_trials(1, storage=f"on-{hosts[1]}", host=hosts[1], actor="two", first=3)
    calls = {"cp": call_of(["cp", "{source}", "{destination}"]), "false": call_of(["false"])}
    plan = write_plan(
        tmp_path / "plan.jsonl", [waits, *first, *second], storages=storages, calls=calls,
        hosts={name: {"ssh": None, "memory_bytes": None} for name in names},
    )  # fmt: skip
    outcome, run = execute(plan)
    assert (outcome.state, outcome.trials_done) == ("complete", 4)
    rows = run.query("SELECT outcome, start_s, end_s FROM trials ORDER BY trial")
    assert rows["outcome"].tolist() == ["failed", "ok", "ok", "ok"]
    assert rows["start_s"][3] > rows["end_s"][2]


def test_counters_from_before_an_interruption_are_restored_on_resume(execute, tmp_path, gate):
    held = gate(2)
    first = list(tiny_trials(40, actor="one"))
    for line in first:
        line["steps"][0]["counts"] = {"good": 1}
    waits = {"actor": "two", "host": "node1", "steps": [{"step": "wait", "counter": "good", "until": 40}]}
    lines = [waits, *first, *tiny_trials(1, actor="two", first=40)]
    plan = write_plan(tmp_path / "plan.jsonl", lines, calls=held.calls)
    outcome, run = execute(plan, on_progress=At(2, lambda: os.kill(os.getpid(), signal.SIGINT)))
    assert (outcome.state, outcome.trials_done) == ("stopped", 2)
    run.close()
    held.open()
    resumed = RunWriter.resume(run.path)
    assert resumed.counts == {"good": outcome.trials_done}
    outcome, _ = execute(resumed)
    assert (outcome.state, outcome.trials_done) == ("complete", 41)


def test_a_run_is_complete_without_the_trials_whose_deadline_has_passed(execute, tmp_path):
    lines = list(tiny_trials(4))
    for line in lines[1:3]:
        line["steps"][0]["until_s"] = 0.0
    lines[3]["steps"][0]["until_s"] = 1e6
    outcome, run = execute(write_plan(tmp_path / "plan.jsonl", lines))
    assert (outcome.state, outcome.trials_done, outcome.trials_total) == ("complete", 2, 4)
    assert run.query("SELECT trial FROM trials ORDER BY position")["trial"].tolist() == ["t0000000", "t0000003"]


def test_a_trial_of_an_unknown_host_is_an_error(execute, tmp_path):
    lines = [*tiny_trials(1), *tiny_trials(1, host="node9", actor="lost", first=1)]
    with pytest.raises(BackendError, match="found none for t0000001 of host node9"):
        execute(write_plan(tmp_path / "plan.jsonl", lines))
