"""Runs on hosts behind real `sshd` processes of the tests."""

import os
import signal
import stat
import time
from pathlib import Path

import pytest
from sshkit import Sshd, far_away, needs_sshd, new_key, write_ssh_config

from testkit import Gate, living_processes, name_of, tiny_trials, wait_until, write_plan
from venturi.backend import HostsBackend, run_controller
from venturi.backend.engine import Engine
from venturi.errors import BackendError
from venturi.run import Run, RunWriter

pytestmark = needs_sshd


@pytest.fixture
def servers(tmp_path, monkeypatch):
    """Two servers, which ssh knows as `node1` and `node2`."""
    key = new_key(tmp_path)
    found = {name: Sshd(tmp_path / name, key) for name in ("node1", "node2")}
    monkeypatch.setenv("VENTURI_SSH", write_ssh_config(tmp_path, found, key))
    monkeypatch.delenv("VENTURI_SCRATCH", raising=False)
    monkeypatch.setattr(run_controller, "PROGRESS_INTERVAL_S", 0.0)
    yield {name: server.start() for name, server in found.items()}
    for server in found.values():
        server.stop()


@pytest.fixture
def execute(tmp_path, engine):
    def work(plan_or_run, *, on_progress=None, **options):
        is_run = isinstance(plan_or_run, RunWriter)
        run = plan_or_run if is_run else RunWriter.create(tmp_path / "runs", plan_or_run, backend="hosts")
        outcome = HostsBackend(engine=engine, **options).execute(run, on_progress=on_progress)
        return outcome, Run.open(run.path)

    return work


def plan_over_ssh(tmp_path, count, names=("node1",), **changes):
    """Write a plan with ``count`` trials on each of these hosts."""
    hosts = {name: {"ssh": name, "memory_bytes": None} for name in names}
    storages = {f"on-{name}": {"host": name, "path": "data"} for name in names}
    lines = [
        line
        for number, name in enumerate(names)
        for line in tiny_trials(count, storage=f"on-{name}", host=name, actor=f"at-{name}", first=number * count)
    ]
    return write_plan(tmp_path / "plan.jsonl", lines, hosts=hosts, storages=storages, **changes)


@pytest.fixture
def gate(tmp_path):
    """A gate that opens for three trials."""
    return Gate(tmp_path / "gate", 3)


def wait_until_gone(server):
    """Wait until the processes of a host end after their connection is closed."""
    wait_until(
        lambda: all("sshd" in name_of(pid) for pid in living_processes(server.directory)), "all but the server to end"
    )


def test_a_host_gets_the_engine_runs_its_trials_and_is_left_without_processes(tmp_path, servers, execute, engine):
    outcome, run = execute(plan_over_ssh(tmp_path, 4))
    assert (outcome.state, outcome.trials_done) == ("complete", 4)
    (copy,) = servers["node1"].engines
    assert copy.name == Engine.at(engine).remote_name
    assert copy.read_bytes() == engine.read_bytes()
    assert stat.S_IMODE(copy.stat().st_mode) == 0o700
    assert run.table("transfers")["host"].tolist() == ["node1"] * 4
    environment = run.environment()["node1"]
    # All use one clock, so the interval from the round trips must contain the offset 0.
    assert abs(float(environment["clock.offset_s"])) <= float(environment["clock.uncertainty_s"])
    assert 0 < float(environment["clock.uncertainty_s"]) < 1
    assert environment["scratch"] == f"{servers['node1'].home}/.cache/venturi/scratch"
    assert [path.name for path in Path(environment["scratch"]).rglob("0*")] == [
        "000000"
    ]  # the dataset, without destinations
    wait_until_gone(servers["node1"])


def test_an_existing_engine_is_not_copied_again_and_a_damaged_engine_is(tmp_path, servers, execute, engine):
    execute(plan_over_ssh(tmp_path, 1))
    (copy,) = servers["node1"].engines
    made = copy.stat().st_mtime_ns, copy.stat().st_ino
    execute(plan_over_ssh(tmp_path, 1))
    assert (copy.stat().st_mtime_ns, copy.stat().st_ino) == made
    content = bytearray(engine.read_bytes())
    content[-1] ^= 1
    copy.write_bytes(content)
    execute(plan_over_ssh(tmp_path, 1))
    assert copy.read_bytes() == engine.read_bytes()


def test_another_build_of_the_engine_has_another_name_and_both_are_kept(tmp_path, servers, execute, engine):
    execute(plan_over_ssh(tmp_path, 1))
    other = tmp_path / "other-engine"
    other.write_bytes(engine.read_bytes() + b"\0")
    other.chmod(0o700)
    run = RunWriter.create(tmp_path / "runs", plan_over_ssh(tmp_path, 1), backend="hosts")
    HostsBackend(engine=other).execute(run)
    assert {copy.name for copy in servers["node1"].engines} == {
        Engine.at(path).remote_name for path in (engine, other)
    }


def test_two_hosts_work_together_on_a_common_time_axis(tmp_path, servers, execute):
    plan = plan_over_ssh(tmp_path, 4, ("node1", "node2"))
    lines = plan.read_text().splitlines()
    signal_ = '{"actor":"at-node1","host":"node1","steps":[{"step":"signal","counter":"done","add":7}]}'
    wait = '{"actor":"at-node2","host":"node2","steps":[{"step":"wait","counter":"done","until":7}]}'
    plan.write_text("\n".join([lines[0], wait, *lines[1:5], signal_, *lines[5:]]) + "\n")
    outcome, run = execute(plan)
    assert (outcome.state, outcome.trials_done) == ("complete", 8)
    rows = run.query(
        "SELECT host, min(start_s) AS first_s, max(end_s) AS last_s FROM transfers GROUP BY host ORDER BY host"
    )
    slack_s = sum(float(properties["clock.uncertainty_s"]) for properties in run.environment().values())
    assert rows["first_s"][1] > rows["last_s"][0] - slack_s
    assert 0 < rows["first_s"][0] < rows["last_s"][1] < run.query("SELECT 3600.0 AS s")["s"][0]


def test_a_stopped_run_over_ssh_can_be_resumed(tmp_path, servers, execute, gate):
    requested = []

    def stop(progress):
        if progress.trials_done >= 3 and not requested:
            requested.append(os.kill(os.getpid(), signal.SIGINT))

    outcome, run = execute(plan_over_ssh(tmp_path, 40, calls=gate.calls), on_progress=stop)
    assert (outcome.state, outcome.trials_done) == ("stopped", 3)
    wait_until_gone(servers["node1"])
    gate.open()
    outcome, run = execute(RunWriter.resume(run.path))
    assert outcome.state == "complete"
    assert sorted(run.table("transfers")["trial"]) == [f"t{number:07d}" for number in range(40)]


def test_a_broken_connection_is_restored_without_losing_a_trial(tmp_path, servers, execute, gate):
    cuts = []

    def cut(progress):
        if progress.trials_done >= 3 and not cuts:
            cuts.append(servers["node1"].sessions())
            servers["node1"].cut()
            gate.open()

    outcome, run = execute(plan_over_ssh(tmp_path, 60, calls=gate.calls), on_progress=cut)
    assert cuts[0]
    assert (outcome.state, outcome.restarts) == ("complete", 1)
    assert sorted(run.table("transfers")["trial"]) == [f"t{number:07d}" for number in range(60)]
    assert [finding.code for finding in run.findings() if finding.code.startswith("agent")] == ["agent-restarted"]
    wait_until_gone(servers["node1"])


def test_a_host_that_stays_unreachable_ends_the_run_which_can_be_resumed(
    tmp_path, servers, execute, monkeypatch, gate
):
    monkeypatch.setattr(run_controller, "RESTART_DELAYS_S", (0.0,))

    def vanish(progress):
        if progress.trials_done >= 3:
            servers["node1"].stop()

    run = RunWriter.create(tmp_path / "runs", plan_over_ssh(tmp_path, 60, calls=gate.calls), backend="hosts")
    with pytest.raises(BackendError, match=r"node1: .*(?:refused|reset).*[Tt]hen resume"):
        execute(run, on_progress=vanish)
    assert Run.open(run.path).state == "stopped"
    assert len(Run.open(run.path).finished_trials()) == 3
    gate.open()
    servers["node1"].start()
    outcome, read = execute(RunWriter.resume(run.path))
    assert outcome.state == "complete"
    assert sorted(read.table("transfers")["trial"]) == [f"t{number:07d}" for number in range(60)]


def test_an_unreachable_host_is_reported_by_name(tmp_path, servers, execute):
    servers["node2"].stop()
    with pytest.raises(BackendError, match=r"node2: cannot connect: .*refused.*`ssh -o BatchMode=yes node2 true`"):
        execute(plan_over_ssh(tmp_path, 2, ("node1", "node2")))


def test_a_given_scratch_directory_is_used_and_kept_on_the_host(tmp_path, servers, execute):
    execute(plan_over_ssh(tmp_path, 1), scratch="my scratch")
    assert (servers["node1"].home / "my scratch" / "data" / "set" / "000000").stat().st_size == 100_000


def test_a_distant_host_is_ready_after_two_logins_and_few_round_trips(tmp_path, servers, execute, monkeypatch):
    """Probe and shell use one login, the agent another.

    Both start together, and ssh itself needs about 10 round trips of 100 ms.
    """
    names = ("node1", "node2")
    execute(plan_over_ssh(tmp_path, 1, names))
    before = [servers[name].logins() for name in names]
    far = far_away(tmp_path, 0.05)
    monkeypatch.setenv("VENTURI_SSH", write_ssh_config(tmp_path, servers, tmp_path / "key", **far))
    started_s, ready_s = time.monotonic(), []

    def show(progress):
        if not ready_s and progress.message == "" and progress.trials_done == 0:
            ready_s.append(time.monotonic() - started_s)

    outcome, run = execute(plan_over_ssh(tmp_path, 2, names), on_progress=show)
    assert (outcome.state, outcome.failed) == ("complete", 0)
    assert [servers[name].logins() for name in names] == [count + 2 for count in before]
    assert 1.0 < ready_s[0] < 5.0
    for properties in run.environment().values():
        assert 0.04 < float(properties["clock.uncertainty_s"]) < 0.2
        assert abs(float(properties["clock.offset_s"])) < float(properties["clock.uncertainty_s"])
