import json
import os
import signal
import stat
import threading
from pathlib import Path

import pytest

from testkit import Gate, call_of, living_processes, tiny_trials, transfer_step, write_plan
from venturi.backend import HostsBackend, Progress, campaign, find_engine
from venturi.errors import BackendError, PlanError
from venturi.run import Run, RunWriter


@pytest.fixture
def carry_out(tmp_path, engine, scratch):
    """Return a function that carries a plan out, in a new run or a given one, and returns outcome and run."""

    def work(plan_or_run, *, on_progress=None, engine=engine):
        is_run = isinstance(plan_or_run, RunWriter)
        run = plan_or_run if is_run else RunWriter.create(tmp_path / "runs", plan_or_run, backend="hosts")
        backend = HostsBackend(scratch=scratch, engine=engine)
        # A campaign that hangs is stopped, and the test fails by what it finds then.
        watchdog = threading.Timer(240, os.kill, (os.getpid(), signal.SIGTERM))
        watchdog.start()
        try:
            return backend.carry_out(run, on_progress=on_progress), Run.open(run.path)
        finally:
            watchdog.cancel()
            watchdog.join()

    return work


def script(path, text):
    """Write a program."""
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(stat.S_IRWXU)
    return path


def children_of(pid):
    """Return the PIDs of the children of a process."""
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for task in tasks for child in task.read_text().split()]


def agent_pid():
    """Return the PID of the one agent that this process has started."""
    (pid,) = [
        pid for pid in children_of(os.getpid()) if (Path(f"/proc/{pid}/comm").read_text()) == "venturi-engine\n"
    ]
    return pid


class At:
    """Do something once, when so many trials are done."""

    def __init__(self, trials, act):
        self.trials, self.act, self.acted = trials, act, False

    def __call__(self, progress):
        if progress.trials_done >= self.trials and not self.acted:
            self.acted = True
            self.act()


@pytest.fixture(autouse=True)
def _show_everything(monkeypatch):
    """Let progress come after every record, so that a test can act at an exact trial."""
    monkeypatch.setattr(campaign, "PROGRESS_INTERVAL_S", 0.0)


def test_every_trial_of_a_plan_is_carried_out_once_and_its_bytes_are_counted(carry_out, tiny_plan):
    outcome, run = carry_out(tiny_plan(6))
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


def test_samples_are_taken_while_trials_run(carry_out, tmp_path):
    lines = [*tiny_trials(2), {"actor": "sweep", "host": "node1", "steps": [{"step": "pause", "duration_s": 1.0}]}]
    _, run = carry_out(write_plan(tmp_path / "plan.jsonl", lines, interval_s=0.02))
    samples = run.query(
        "SELECT counter, max(value) - min(value) AS grown, count(*) AS n FROM samples GROUP BY counter"
    )
    counters = dict(zip(samples["counter"], zip(samples["grown"], samples["n"], strict=True), strict=True))
    assert sum(counters[f"cpu.{name}_s"][0] for name in ("user", "system", "idle", "iowait", "steal")) > 0.1
    assert counters["memory.available_bytes"][1] >= 10


def test_without_a_scratch_directory_data_sets_are_kept_beside_the_runs(tmp_path, engine, tiny_plan, monkeypatch):
    monkeypatch.delenv("VENTURI_SCRATCH", raising=False)
    run = RunWriter.create(tmp_path / "runs", tiny_plan(2), backend="hosts")
    HostsBackend(engine=engine).carry_out(run)
    assert (tmp_path / "runs" / "scratch" / "data" / "set" / "000000").stat().st_size == 100_000


def test_a_scratch_directory_that_was_given_is_kept(carry_out, scratch, tiny_plan):
    carry_out(tiny_plan(2))
    assert (scratch / "data" / "set" / "000000").stat().st_size == 100_000
    assert not list((scratch / "data").glob("out/*"))  # but no destination of a transfer


@pytest.fixture
def gate(tmp_path):
    """Return a function that makes a gate behind so many trials."""
    return lambda free: Gate(tmp_path / "gate", free)


def kill_agent_and_open(gate):
    """Return what kills the one agent, and lets its successor do the rest."""

    def act():
        os.kill(agent_pid(), signal.SIGKILL)
        gate.open()

    return act


def test_ctrl_c_leaves_a_run_that_is_carried_on_with(carry_out, tiny_plan, gate):
    held = gate(5)
    plan = tiny_plan(30, calls=held.calls)
    outcome, run = carry_out(plan, on_progress=At(5, lambda: os.kill(os.getpid(), signal.SIGINT)))
    assert outcome.state == run.state == "stopped"
    done = run.finished_trials()
    assert len(done) == 5
    assert (run.path / "transfers.parquet").exists()
    held.open()
    outcome, run = carry_out(RunWriter.resume(run.path))
    assert outcome.state == run.state == "complete"
    rows = run.table("transfers")
    assert sorted(rows["trial"]) == [f"t{number:07d}" for number in range(30)]
    assert set(rows["trial"][rows["session"] == 1]) == done


def test_ctrl_c_ends_a_mover_that_runs_for_long(carry_out, tmp_path, monkeypatch):
    monkeypatch.setenv("VENTURI_TEST", str(tmp_path))
    tool = script(tmp_path / "slow", 'sleep 600 & sleep 600; cp "$1" "$2"\n')
    plan = write_plan(
        tmp_path / "plan.jsonl", tiny_trials(2), calls={"cp": call_of([str(tool), "{source}", "{destination}"])}
    )
    stop = lambda progress: progress.factors and os.kill(os.getpid(), signal.SIGTERM)  # noqa: E731
    outcome, run = carry_out(plan, on_progress=stop)
    assert (outcome.state, outcome.trials_done) == ("stopped", 0)
    assert run.finished_trials() == frozenset()
    assert living_processes(tmp_path) == []


def test_signals_mean_again_afterwards_what_they_meant_before(carry_out, tiny_plan):
    before = signal.getsignal(signal.SIGINT)
    carry_out(tiny_plan(1))
    assert signal.getsignal(signal.SIGINT) is before


def test_an_agent_that_is_killed_is_started_again_and_the_campaign_goes_on(carry_out, tiny_plan, gate):
    held = gate(4)
    outcome, run = carry_out(tiny_plan(20, calls=held.calls), on_progress=At(4, kill_agent_and_open(held)))
    assert (outcome.state, outcome.restarts) == ("complete", 1)
    assert sorted(run.table("transfers")["trial"]) == [f"t{number:07d}" for number in range(20)]
    (finding,) = run.findings()
    assert (finding.code, finding.host) == ("agent-restarted", "node1")
    assert "killed by signal 9" in finding.evidence


def test_an_agent_that_dies_again_and_again_ends_the_campaign_which_can_be_resumed(
    carry_out, tmp_path, tiny_plan, engine, monkeypatch, gate
):
    monkeypatch.setattr(campaign, "RESTART_DELAYS_S", (0.0,))
    count = tmp_path / "count"
    # Says hello as the real one does, and dies when it is told what to do.
    dying = script(
        tmp_path / "dying", f"echo x >> {count}; {engine} agent < /dev/null; read -r line; echo why >&2; kill -9 $$\n"
    )
    with pytest.raises(BackendError, match=r"node1: expected the agent to be ready, found its end: .*signal 9.*why"):
        carry_out(tiny_plan(2), engine=dying)
    assert len(count.read_text().split()) == 1  # it never worked: the plan is not begun

    once = tmp_path / "once"
    dying = script(
        tmp_path / "later", f"echo x >> {count}; [ -e {once} ] && exit 7; touch {once}; exec {engine} agent\n"
    )
    count.unlink()
    held = gate(3)
    run = RunWriter.create(tmp_path / "runs", tiny_plan(8, calls=held.calls), backend="hosts")
    with pytest.raises(BackendError, match=r"node1: .* ended 4 times in a row.*mend the cause.* then resume"):
        carry_out(run, engine=dying, on_progress=At(3, lambda: os.kill(agent_pid(), signal.SIGKILL)))
    assert len(count.read_text().split()) == 1 + campaign.MAX_RESTARTS_WITHOUT_PROGRESS
    assert Run.open(run.path).state == "stopped"
    held.open()
    outcome, again = carry_out(RunWriter.resume(run.path))
    assert outcome.state == "complete"
    assert sorted(again.table("transfers")["trial"]) == [f"t{number:07d}" for number in range(8)]


def test_a_plan_that_does_not_fit_on_the_disk_is_refused_before_anything_is_done(carry_out, tiny_plan, scratch):
    totals = {"trials": 1, "transfers": 1, "bytes": 1, "disk_bytes": {"data": 10**18}}
    with pytest.raises(
        PlanError, match=r"data \(data\) on node1: expected 1e\+03 PB of free space|expected .*PB of free"
    ):
        carry_out(tiny_plan(1, totals=totals))
    assert list(scratch.rglob("0*")) == []


def test_what_lies_on_the_disk_already_needs_no_room_again(carry_out, tiny_plan, scratch):
    """A data set of the scratch directory given is counted as there: only what is still to be made must fit."""
    carry_out(tiny_plan(1))
    status = os.statvfs(scratch)
    free = status.f_bavail * status.f_frsize
    present = (scratch / "data/set/000000").stat().st_size
    totals = {"trials": 1, "transfers": 1, "bytes": 1, "disk_bytes": {"data": present}}
    assert present < free
    assert carry_out(tiny_plan(1, totals=totals))[0].state == "complete"


def test_a_message_of_the_agent_is_shown_as_it_is(carry_out, tmp_path, engine):
    """A plan that the agent cannot carry out ends with the agent's own words, not with a restart."""
    steps = [transfer_step("cp", "nowhere:file", "data:out", 1)]
    plan = write_plan(tmp_path / "plan.jsonl", [{"actor": "sweep", "host": "node1", "steps": steps}])
    with pytest.raises(BackendError, match="nowhere"):
        carry_out(plan)


def test_an_engine_of_another_protocol_is_refused(carry_out, tmp_path, tiny_plan):
    hello = json.dumps({"record": "hello", "protocol": 99, "engine": "9.9", "pid": 1, "clock": {}, "facts": {}})
    other = script(tmp_path / "other", f"echo '{hello}'; cat > /dev/null\n")
    with pytest.raises(BackendError, match=r"node1: expected an engine of protocol 1, found protocol 99 \(9.9\)"):
        carry_out(tiny_plan(1), engine=other)


def test_an_engine_that_says_nothing_sensible_is_refused(carry_out, tmp_path, tiny_plan):
    other = script(tmp_path / "other", "echo hello; echo cannot do this >&2; exit 3\n")
    with pytest.raises(
        BackendError, match=r"expected the agent's hello, found its end \(exit code 3\): cannot do this"
    ):
        carry_out(tiny_plan(1), engine=other)


def test_an_engine_is_found_by_its_variable_or_explained(monkeypatch, tmp_path):
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


def test_a_tool_that_is_missing_is_said_before_the_first_trial_and_the_rest_goes_on(carry_out, tmp_path):
    lines = list(tiny_trials(3))
    lines[1]["steps"][0]["steps"][1]["call"] = "gone"
    calls = {"cp": call_of(["cp", "{source}", "{destination}"]), "gone": call_of(["no-such-tool"])}
    said = []
    plan = write_plan(tmp_path / "plan.jsonl", lines, calls=calls)
    outcome, run = carry_out(plan, on_progress=lambda progress: said.append((progress.trials_done, progress.message)))
    assert (0, "no-such-tool is not on node1: its transfers are recorded as missing, the rest goes on") in said
    assert outcome.state == "complete"
    assert run.query("SELECT outcome FROM transfers ORDER BY trial")["outcome"].tolist() == ["ok", "missing", "ok"]


def test_progress_grows_to_the_whole_plan(carry_out, tiny_plan):
    seen: list[Progress] = []
    carry_out(tiny_plan(10), on_progress=seen.append)
    assert (seen[0].trials_done, seen[0].trials_total, seen[0].bytes_total) == (0, 10, 1_000_000)
    assert [progress.trials_done for progress in seen] == sorted(progress.trials_done for progress in seen)
    last = seen[-1]
    assert (last.trials_done, last.bytes_done, last.remaining_s) == (10, 1_000_000, 0.0)
    assert last.rate_bytes_per_s > 0
    assert {"files", "size_bytes", "half"} == set(last.factors)
    assert any("preparing node1" in progress.message for progress in seen)


def test_two_hosts_on_one_machine_share_counters_but_no_places(carry_out, tmp_path, scratch):
    """An actor on one host waits for what an actor on the other signals."""
    hosts = {name: {"ssh": None, "memory_bytes": None} for name in ("node1", "node2")}
    places = {f"on-{name}": {"host": name, "path": "data"} for name in hosts}
    first, second = [
        list(tiny_trials(5, place=f"on-{host}", host=host, actor=f"sweep-{host}", first=first))
        for host, first in (("node1", 0), ("node2", 5))
    ]
    for line in first:
        line["steps"].append({"step": "signal", "counter": "copied", "add": 1})
    waiting = {"actor": "sweep-node2", "host": "node2", "steps": [{"step": "wait", "counter": "copied", "until": 4}]}
    plan = write_plan(tmp_path / "plan.jsonl", [waiting, *first, *second], hosts=hosts, places=places)
    outcome, run = carry_out(plan)
    assert outcome.state == "complete"
    rows = run.query(
        "SELECT host, min(start_s) AS first_s, max(end_s) AS last_s FROM transfers GROUP BY host ORDER BY host"
    )
    fourth_s = run.query("SELECT end_s FROM transfers WHERE trial = 't0000003'")["end_s"][0]
    assert rows["host"].tolist() == ["node1", "node2"]
    assert rows["first_s"][1] > fourth_s
    assert {path.relative_to(scratch).parts[0] for path in scratch.rglob("000000")} == {"node1", "node2"}


def test_an_agent_that_was_started_again_knows_what_was_signalled_before(carry_out, tmp_path, gate):
    """The signal came before the death, and nobody sends it again."""
    hosts = {name: {"ssh": None, "memory_bytes": None} for name in ("node1", "node2")}
    places = {f"on-{name}": {"host": name, "path": "data"} for name in hosts}
    signals = {"actor": "one", "host": "node1", "steps": [{"step": "signal", "counter": "ready", "add": 1}]}
    waits = {"actor": "two", "host": "node2", "steps": [{"step": "wait", "counter": "ready", "until": 1}]}
    before = tiny_trials(20, place="on-node2", host="node2", actor="two")
    after = tiny_trials(2, place="on-node2", host="node2", actor="two", first=20)
    held, lines = gate(10), [signals, *before, waits, *after]
    plan = write_plan(tmp_path / "plan.jsonl", lines, hosts=hosts, places=places, calls=held.calls)

    def kill():
        works_longer = [
            pid for pid in children_of(os.getpid()) if Path(f"/proc/{pid}/comm").read_text() == "venturi-engine\n"
        ]
        os.kill(max(works_longer), signal.SIGKILL)
        held.open()

    outcome, _ = carry_out(plan, on_progress=At(10, kill))
    assert (outcome.state, outcome.restarts, outcome.trials_done) == ("complete", 1, 22)


@pytest.mark.parametrize("hosts", [("node1", "node1"), ("node1", "node2")])
def test_what_a_trial_counts_is_added_when_it_is_good_and_never_when_it_failed(carry_out, tmp_path, hosts):
    """A wait for two good trials: the first of three has failed."""
    names = sorted(set(hosts))
    places = {f"on-{name}": {"host": name, "path": "data"} for name in names}
    first = list(tiny_trials(3, place="on-node1", host="node1", actor="one"))
    for line in first:
        line["steps"][0]["counts"] = {"good": 1}
    first[0]["steps"][0]["steps"][1]["call"] = "false"
    waits = {"actor": "two", "host": hosts[1], "steps": [{"step": "wait", "counter": "good", "until": 2}]}
    second = tiny_trials(1, place=f"on-{hosts[1]}", host=hosts[1], actor="two", first=3)
    calls = {"cp": call_of(["cp", "{source}", "{destination}"]), "false": call_of(["false"])}
    plan = write_plan(
        tmp_path / "plan.jsonl", [waits, *first, *second], places=places, calls=calls,
        hosts={name: {"ssh": None, "memory_bytes": None} for name in names},
    )  # fmt: skip
    outcome, run = carry_out(plan)
    assert (outcome.state, outcome.trials_done) == ("complete", 4)
    rows = run.query("SELECT outcome, start_s, end_s FROM trials ORDER BY trial")
    assert rows["outcome"].tolist() == ["failed", "ok", "ok", "ok"]
    assert rows["start_s"][3] > rows["end_s"][2]


def test_what_was_counted_before_a_kill_is_counted_when_the_run_is_resumed(carry_out, tmp_path, gate):
    held = gate(2)
    first = list(tiny_trials(40, actor="one"))
    for line in first:
        line["steps"][0]["counts"] = {"good": 1}
    waits = {"actor": "two", "host": "node1", "steps": [{"step": "wait", "counter": "good", "until": 40}]}
    lines = [waits, *first, *tiny_trials(1, actor="two", first=40)]
    plan = write_plan(tmp_path / "plan.jsonl", lines, calls=held.calls)
    outcome, run = carry_out(plan, on_progress=At(2, lambda: os.kill(os.getpid(), signal.SIGINT)))
    assert (outcome.state, outcome.trials_done) == ("stopped", 2)
    run.close()
    held.open()
    resumed = RunWriter.resume(run.path)
    assert resumed.counts == {"good": outcome.trials_done}
    outcome, _ = carry_out(resumed)
    assert (outcome.state, outcome.trials_done) == ("complete", 41)


def test_a_run_is_complete_without_the_trials_whose_time_was_over(carry_out, tmp_path):
    lines = list(tiny_trials(4))
    for line in lines[1:3]:
        line["steps"][0]["until_s"] = 0.0
    lines[3]["steps"][0]["until_s"] = 1e6
    outcome, run = carry_out(write_plan(tmp_path / "plan.jsonl", lines))
    assert (outcome.state, outcome.trials_done, outcome.trials_total) == ("complete", 2, 4)
    assert run.query("SELECT trial FROM trials ORDER BY position")["trial"].tolist() == ["t0000000", "t0000003"]


def test_a_trial_of_a_host_that_the_plan_does_not_name_is_not_passed_over_in_silence(carry_out, tmp_path):
    lines = [*tiny_trials(1), *tiny_trials(1, host="node9", actor="lost", first=1)]
    with pytest.raises(BackendError, match="found that t0000001 was not, of host node9"):
        carry_out(write_plan(tmp_path / "plan.jsonl", lines))
