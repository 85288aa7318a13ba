"""Runs between hosts: services on existing hosts, remote files, lost connections, other runs, targets of a site."""

import fcntl
import os
import signal
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
from sshkit import Sshd, needs_sshd, new_key, write_ssh_config

from testkit import (
    Gate,
    children_of,
    free_port,
    living_processes,
    needs_root,
    tiny_trials,
    wait_until,
    words_of,
    write_plan,
)
from venturi.backend import HostsBackend, connection, host_testbed, run_controller, shell_client
from venturi.backend.active_runs import DIRECTORY_VARIABLE
from venturi.errors import BackendError, PlanError, ScenarioError
from venturi.plan import write_plan as write_expanded
from venturi.run import Run, RunWriter
from venturi.scenario import load_scenario
from venturi.workload import expand

SCENARIO = """
venturi = 1
name = "two"
seed = 1
[testbed.host.a]
connect = ["env", "HOME={home}/a"]
address = "127.0.0.1"
[testbed.host.b]
connect = ["env", "HOME={home}/b"]
address = "127.0.0.1"
{more_of_b}
[testbed.storage.sa]
host = "a"
path = "data"
[testbed.storage.sb]
host = "b"
path = "data"
{service}
[workload]
kind = "sweep"
mover = "venturi"
source = "{source}"
destination = "{destination}"
repeat = {repeat}
[workload.factors]
size = ["100 kB"]
files = [1]
"""

SERVE = """
[testbed.service.serve]
kind = "venturi-serve"
host = "b"
storage = ["sb"]
"""


@pytest.fixture(autouse=True)
def _show_everything(monkeypatch):
    """Report progress after every record, so that a test can act at an exact trial."""
    monkeypatch.setattr(run_controller, "PROGRESS_INTERVAL_S", 0.0)


@pytest.fixture
def new_two_hosts_run(tmp_path):
    """Return a function that creates a run between the hosts `a` and `b`, each with its own home."""

    def make(*, source="sa", destination="sb", repeat=4, service=SERVE, more_of_b="", change=lambda text: text):
        for name in ("a", "b"):
            (tmp_path / name).mkdir(exist_ok=True)
        text = SCENARIO.format(
            home=tmp_path, source=source, destination=destination, repeat=repeat, service=service, more_of_b=more_of_b
        )
        (tmp_path / "two.toml").write_text(change(text))
        write_expanded(expand(load_scenario(tmp_path / "two.toml")), tmp_path / "plan.jsonl")
        return RunWriter.create(tmp_path / "runs", tmp_path / "plan.jsonl", backend="hosts")

    return make


@pytest.fixture
def execute(engine):
    def work(run, *, on_progress=None, **options):
        outcome = HostsBackend(engine=engine, **options).execute(run, on_progress=on_progress)
        return outcome, Run.open(run.path)

    return work


def shell_pids(host):
    """Return the PIDs of the shells of a host that this process has started."""
    found = []
    for pid in children_of(os.getpid()):
        words = words_of(pid)
        if "shell" in words and any(f"-{host}-" in word for word in words):
            found.append(pid)
    return found


def start_of(pid):
    """Return the start time of a process in clock ticks since boot."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


class Once:
    """Call a function once, when a number of trials is done."""

    def __init__(self, trials, act):
        self.trials, self.act, self.acted = trials, act, False

    def __call__(self, progress):
        if progress.trials_done >= self.trials and not self.acted:
            self.acted = True
            self.act()


@pytest.mark.parametrize(("source", "destination"), [("sa", "sb"), ("sb", "sa")])
def test_files_on_the_other_host_are_created_moved_checked_and_removed(
    new_two_hosts_run, execute, tmp_path, source, destination
):
    outcome, run = execute(new_two_hosts_run(source=source, destination=destination))
    assert (outcome.state, outcome.failed, outcome.trials_done) == ("complete", 0, 4)
    rows = run.table("transfers")
    assert rows["received_bytes"].tolist() == [100_000] * 4
    assert set(rows["host"]) == {"a"}
    assert "receiver-not-checked" not in {finding.code for finding in run.findings()}
    assert [path.name for path in tmp_path.rglob("data/sets/**/0*")] == ["000000"]
    assert [path for path in tmp_path.rglob("data/out/**/*") if path.is_file()] == []
    assert not (run.path / "services").exists()


def test_a_service_is_recorded_with_its_path_and_its_transfers(new_two_hosts_run, execute):
    ports = free_port()
    _, run = execute(new_two_hosts_run(more_of_b=f'open_ports = "{ports}-{ports + 9}"'))
    environment = run.environment()
    assert ports <= int(environment["b"]["services.serve.ports.0"]) <= ports + 9
    assert environment["a"]["path.b.remote_address"] == "127.0.0.1"
    assert 0 < float(environment["a"]["path.b.rtt_s"]) < 1
    assert int(environment["a"]["path.b.path_mtu_bytes"]) > 1000
    assert environment["b"]["connection.kind"] == "connect"
    kinds = run.query("SELECT host, count(*) AS n FROM events WHERE kind = 'server-transfer' GROUP BY host")
    assert (kinds["host"].tolist(), kinds["n"].tolist()) == (["b"], [4])


def test_clocks_are_read_at_the_start_and_at_the_end(new_two_hosts_run, execute):
    _, run = execute(new_two_hosts_run(repeat=1))
    for properties in run.environment().values():
        assert abs(float(properties["clock.offset_s"])) <= float(properties["clock.uncertainty_s"])
    events = run.query(
        "SELECT host, detail->>'drift_s' AS drift, detail->>'uncertainty_s' AS u FROM events WHERE kind = 'clock' ORDER BY host"
    )
    assert events["host"].tolist() == ["a", "b"]
    assert all(abs(float(drift)) < 2 * float(u) + 1e-3 for drift, u in zip(events["drift"], events["u"], strict=True))


def test_service_logs_are_kept_on_request_and_private_keys_are_removed(new_two_hosts_run, execute, tmp_path):
    service = SERVE + 'options = { auth = "gsi" }\n'
    _, run = execute(new_two_hosts_run(service=service), keep_logs=True)
    assert list((run.path / "services" / "serve").iterdir())
    left = [path for path in tmp_path.rglob("*") if path.is_file() and b"PRIVATE KEY" in path.read_bytes()[:4000]]
    assert left == []


def test_without_a_service_an_implicit_service_is_started(new_two_hosts_run, execute):
    outcome, run = execute(new_two_hosts_run(service=""))
    assert (outcome.state, outcome.failed) == ("complete", 0)
    assert run.environment()["b"]["services.venturi-serve-b.kind"] == "venturi-serve"


def test_a_lost_shell_and_its_services_are_restarted_without_losing_a_trial(new_two_hosts_run, execute, tmp_path):
    killed = []

    def kill():
        (pid,) = shell_pids("b")
        killed.append(pid)
        os.kill(pid, signal.SIGKILL)

    outcome, run = execute(new_two_hosts_run(repeat=60), on_progress=Once(3, kill))
    assert killed
    assert (outcome.state, outcome.failed, outcome.trials_done) == ("complete", 0, 60)
    assert sorted(run.table("transfers")["trial"]) == sorted(set(run.table("transfers")["trial"]))
    lost = [finding for finding in run.findings() if finding.code == "shell-lost"]
    assert [finding.host for finding in lost] == ["b"]
    assert "signal 9" in lost[0].evidence
    assert "service-exited" not in {finding.code for finding in run.findings()}


def test_a_host_whose_shell_cannot_restart_ends_the_run_which_can_be_resumed(
    new_two_hosts_run, execute, tmp_path, monkeypatch
):
    monkeypatch.setattr(run_controller, "RESTART_DELAYS_S", (0.0, 0.1))
    hidden = tmp_path / "hidden"

    def vanish():
        (tmp_path / "b").rename(hidden)
        (tmp_path / "b").write_text("no directory")
        os.kill(shell_pids("b")[0], signal.SIGKILL)

    change = lambda text: text.replace("HOME=" + str(tmp_path / "b") + '"', f'HOME={tmp_path}/b"').replace(  # noqa: E731
        'address = "127.0.0.1"\n\n[testbed.storage.sa]',
        f'address = "127.0.0.1"\ncache = "{tmp_path}/b/cache"\n[testbed.storage.sa]',
    )
    run = new_two_hosts_run(repeat=60, change=change)
    with pytest.raises(BackendError, match=r"b: found no directory for the engine: .*Then resume the run"):
        execute(run, on_progress=Once(3, vanish))
    assert Run.open(run.path).state == "stopped"
    (tmp_path / "b").unlink()
    hidden.rename(tmp_path / "b")
    outcome, _ = execute(RunWriter.resume(run.path))
    assert (outcome.state, outcome.trials_done, outcome.failed) == ("complete", 60, 0)


@pytest.fixture
def server(tmp_path, monkeypatch):
    key = new_key(tmp_path)
    server = Sshd(tmp_path / "node1", key)
    monkeypatch.setenv("VENTURI_SSH", write_ssh_config(tmp_path, {"node1": server}, key))
    monkeypatch.delenv("VENTURI_SCRATCH", raising=False)
    yield server.start()
    server.stop()


@needs_sshd
def test_a_silent_connection_is_replaced_after_the_old_agent_has_released_its_lock(
    tmp_path, server, execute, monkeypatch
):
    """The sessions of the server are stopped: nothing is closed and no data arrives, as with a broken network."""
    silence_s = 4.0
    monkeypatch.setattr(connection, "SILENCE_S", silence_s)
    monkeypatch.setattr(host_testbed, "SILENCE_S", silence_s)
    monkeypatch.setattr(run_controller, "SCRATCH_WAIT_S", silence_s + 10.0)
    monkeypatch.setattr(run_controller, "HEARTBEAT_INTERVAL_S", 1.0)
    monkeypatch.setattr(shell_client, "HEARTBEAT_INTERVAL_S", 1.0)
    monkeypatch.setattr(shell_client, "ALIVE_INTERVAL_S", 4.0)
    gate = Gate(tmp_path / "gate", 3)
    frozen = []

    def freeze():
        frozen.extend(server.freeze())
        gate.open()

    plan = write_plan(
        tmp_path / "plan.jsonl",
        tiny_trials(20, storage="data"),
        calls=gate.calls,
        hosts={"node1": {"ssh": "node1", "memory_bytes": None}},
    )
    run = RunWriter.create(tmp_path / "runs", plan, backend="hosts")
    try:
        outcome, run = execute(run, on_progress=Once(3, freeze))
    finally:
        for pid in frozen:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    assert (outcome.state, outcome.trials_done, outcome.failed) == ("complete", 20, 0)
    findings = {finding.code: finding.evidence for finding in run.findings()}
    assert "silent" in findings["shell-lost"]
    wait_until(
        lambda: all("sshd" in Path(f"/proc/{pid}/comm").read_text() for pid in living_processes(server.directory)),
        "the end of the old agent",
    )


@needs_sshd
def test_two_names_of_one_host_with_one_home_do_not_block_each_other(tmp_path, server, execute, monkeypatch):
    key = tmp_path / "key"
    monkeypatch.setenv("VENTURI_SSH", write_ssh_config(tmp_path, {"one": server, "two": server}, key))
    storages = {f"on-{name}": {"host": name, "path": "data"} for name in ("one", "two")}
    lines = [
        line
        for number, name in enumerate(("one", "two"))
        for line in tiny_trials(2, storage=f"on-{name}", host=name, actor=name, first=number * 2)
    ]
    plan = write_plan(
        tmp_path / "plan.jsonl",
        lines,
        storages=storages,
        hosts={name: {"ssh": name, "memory_bytes": None} for name in ("one", "two")},
    )
    outcome, run = execute(RunWriter.create(tmp_path / "runs", plan, backend="hosts"))
    assert (outcome.state, outcome.failed) == ("complete", 0)
    scratch = f"{server.home}/.cache/venturi/scratch"
    assert {properties["scratch"] for properties in run.environment().values()} == {
        f"{scratch}/one",
        f"{scratch}/two",
    }


def shared_plan(tmp_path, prefix_of_b=(), prefix_of_a=(), **changes):
    """Write a plan where `b` reads a file from a storage of `a`, which both hosts share at a path."""
    path = str(tmp_path / "gpfs")
    scenario = {"testbed": {"storage": {"gpfs": {"host": "a", "path": path, "shared": ["b"]}}}}
    hosts = {
        name: {"ssh": None, "connect": [*prefix, "env", f"HOME={tmp_path}/{name}"], "memory_bytes": None}
        for name, prefix in (("a", prefix_of_a), ("b", prefix_of_b))
    }
    for name in ("a", "b", "gpfs"):
        (tmp_path / name).mkdir()
    return write_plan(
        tmp_path / "plan.jsonl",
        tiny_trials(2, storage="gpfs", host="b", actor="b"),
        hosts=hosts,
        scenario=scenario,
        storages={"gpfs": {"host": "a", "path": path}},
        **changes,
    )


def test_a_shared_storage_is_used_locally_by_both_hosts(tmp_path, execute):
    outcome, run = execute(RunWriter.create(tmp_path / "runs", shared_plan(tmp_path), backend="hosts"))
    assert (outcome.state, outcome.failed) == ("complete", 0)
    assert run.table("transfers")["received_bytes"].tolist() == [100_000] * 2
    assert (tmp_path / "gpfs" / "set" / "000000").stat().st_size == 100_000
    assert [path for path in (tmp_path / "gpfs").iterdir() if path.name.startswith(".venturi-shared")] == []


def test_a_repeatedly_lost_shell_ends_the_run(tmp_path, execute):
    """The second trial never ends, and its shell is killed whenever it starts."""
    gate = Gate(tmp_path / "gate", 1)
    run = RunWriter.create(tmp_path / "runs", shared_plan(tmp_path, calls=gate.calls), backend="hosts")

    def kill(progress):
        if progress.trials_done:
            for pid in shell_pids("a"):
                with suppress(ProcessLookupError):  # it has exited meanwhile
                    os.kill(pid, signal.SIGKILL)

    with pytest.raises(BackendError, match=r"a: .*signal 9.* loss 4 in a row without a finished trial\. .*resume"):
        execute(run, on_progress=kill)
    gate.open()
    outcome, finished = execute(RunWriter.resume(run.path))
    assert (outcome.state, outcome.trials_done) == ("complete", 2)
    assert [finding.host for finding in finished.findings() if finding.code == "shell-lost"] == ["a"] * 3


def test_an_interruption_while_a_lost_host_reconnects_ends_the_run_soon(tmp_path, execute):
    """New connections to the host hang after its shell was killed."""
    away = tmp_path / "away"
    prefix = ["sh", "-c", f'test -e {away} && exec sleep 600; exec "$@"', "sh"]
    gate = Gate(tmp_path / "gate", 1)
    plan = shared_plan(tmp_path, prefix_of_a=prefix, calls=gate.calls)
    run = RunWriter.create(tmp_path / "runs", plan, backend="hosts")
    interrupted_s = []

    def act(progress):
        if progress.trials_done and not away.exists():
            away.touch()
            os.kill(shell_pids("a")[0], signal.SIGKILL)
        if progress.message.startswith("lost the connection to a") and not interrupted_s:
            interrupted_s.append(time.monotonic())
            threading.Timer(2.0, os.kill, (os.getpid(), signal.SIGINT)).start()

    outcome, _ = execute(run, on_progress=act)
    # The time limit for establishing a connection is 90 s.
    assert time.monotonic() - interrupted_s[0] < 45
    assert (outcome.state, outcome.trials_done) == ("stopped", 1)


@needs_root
def test_a_shared_storage_with_different_file_systems_is_rejected(tmp_path, execute):
    """The other host has a different file system at that path."""
    mount = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs tmpfs "$0" && exec "$@"', str(tmp_path / "gpfs")]
    plan = shared_plan(tmp_path, mount)
    message = r"testbed\.storage\.gpfs\.shared: expected .*/gpfs of b to be .*/gpfs of a, found another"
    with pytest.raises(BackendError, match=message):
        execute(RunWriter.create(tmp_path / "runs", plan, backend="hosts"))


def test_another_run_on_the_host_is_a_finding_and_a_path_in_its_storage_is_rejected(
    tmp_path, execute, monkeypatch, engine
):
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(tmp_path / "active"))
    gate = Gate(tmp_path / "gate", 1)
    data = tmp_path / "data"

    def new_run(name, path, **changes):
        lines = tiny_trials(2, storage="data")
        plan = write_plan(
            tmp_path / f"{name}.jsonl",
            lines,
            storages={"data": {"host": "node1", "path": str(path)}},
            name=name,
            **changes,
        )
        return RunWriter.create(tmp_path / "runs", plan, backend="hosts")

    first = new_run("first", data, calls=gate.calls)
    started = threading.Event()
    worker = threading.Thread(
        target=HostsBackend(engine=engine, scratch=tmp_path / "scratch-1").execute,
        args=(first,),
        kwargs={"on_progress": lambda progress: started.set() if progress.trials_done else None},
    )
    worker.start()
    try:
        assert started.wait(60)
        second = new_run("second", data / "below")
        with pytest.raises(
            BackendError,
            match=r"node1: expected .*/data/below to be free, found that run first-.* of .* uses .*/data\. Wait until",
        ):
            execute(second, scratch=tmp_path / "scratch-2")
        outcome, run = execute(new_run("third", tmp_path / "other"), scratch=tmp_path / "scratch-3")
        assert outcome.state == "complete"
        (finding,) = [finding for finding in run.findings() if finding.code == "other-run"]
        assert "run first-" in finding.evidence
    finally:
        gate.open()
        worker.join()
    assert list((tmp_path / "active").iterdir()) == []
    assert (tmp_path / "active").stat().st_mode & 0o7777 == 0o1777


def test_files_of_killed_runs_and_invalid_files_are_ignored(tmp_path, execute, monkeypatch, tiny_plan, scratch):
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(tmp_path / "active"))
    (tmp_path / "active").mkdir()
    dead = f'{{"run":"dead","user":"eve","controller":"x","start_unix_s":0,"pid":{os.getpid()},"pid_start":1,"storages":["{scratch}"],"session":"s"}}'
    (tmp_path / "active" / "dead.json").write_text(dead)
    alive = dead.replace('"pid_start":1', f'"pid_start":{start_of(os.getpid())}')
    broken = {
        "broken.json": "{",
        "list.json": "[" * 100_000,
        "path.json": alive.replace(f'["{scratch}"]', "[3]"),
        "time.json": alive.replace('"start_unix_s":0', '"start_unix_s":1e300'),
        "escape.json": alive.replace('"eve"', r'"\u001b[31meve"'),
        "large.json": " " * 2**21 + alive,
    }
    for name, text in broken.items():
        (tmp_path / "active" / name).write_text(text)
    os.mkfifo(tmp_path / "active" / "fifo.json")
    outcome, run = execute(RunWriter.create(tmp_path / "runs", tiny_plan(1), backend="hosts"), scratch=scratch)
    assert outcome.state == "complete"
    assert "other-run" not in {finding.code for finding in run.findings()}
    assert {path.name for path in (tmp_path / "active").iterdir()} == {*broken, "fifo.json"}


def test_targets_are_kept_with_the_run_and_do_not_change_the_plan(tmp_path, execute):
    plan = write_plan(tmp_path / "plan.jsonl", tiny_trials(4))
    targets = tmp_path / "site.toml"
    targets.write_text(f'node1 = {{ connect = ["env", "HOME={tmp_path}/home"], path = "{tmp_path}/fast" }}\n')
    run = RunWriter.create(tmp_path / "runs", plan, backend="hosts")
    plan_before = (run.path / "plan.jsonl").read_bytes()
    stop = Once(2, lambda: os.kill(os.getpid(), signal.SIGINT))
    outcome, _ = execute(run, on_progress=stop, targets=targets)
    assert outcome.state == "stopped"
    targets.unlink()
    outcome, read = execute(RunWriter.resume(run.path))
    assert outcome.state == "complete"
    assert (run.path / "plan.jsonl").read_bytes() == plan_before
    assert (run.path / "hosts.toml").exists()
    assert {properties["scratch"] for properties in read.environment().values()} == {f"{tmp_path}/fast"}
    assert (tmp_path / "home" / ".cache" / "venturi").is_dir()


def test_targets_of_unknown_hosts_are_rejected(tmp_path, execute, tiny_plan):
    (tmp_path / "site.toml").write_text('node7 = { ssh = "x" }\n')
    with pytest.raises(ScenarioError, match='node7: expected one of the hosts of the plan: node1, found "node7"'):
        execute(RunWriter.create(tmp_path / "runs", tiny_plan(1), backend="hosts"), targets=tmp_path / "site.toml")


def test_an_interruption_while_a_host_connects_ends_the_run_immediately(tmp_path, execute):
    hosts = {"node1": {"ssh": None, "connect": ["sh", "-c", "exec sleep 600"], "memory_bytes": None}}
    plan = write_plan(tmp_path / "plan.jsonl", tiny_trials(1), hosts=hosts)
    run = RunWriter.create(tmp_path / "runs", plan, backend="hosts")
    timer = threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT))
    started_s = []

    def interrupt(progress):
        # From here on, the controller handles the signal.
        if progress.message.startswith("preparing") and not started_s:
            started_s.append(time.monotonic())
            timer.start()

    outcome, _ = execute(run, on_progress=interrupt)
    timer.join()
    assert outcome.state == "stopped"
    assert time.monotonic() - started_s[0] < 20


@needs_root
@pytest.mark.parametrize("options", ["ro", "size=64k"])
def test_a_read_only_or_full_directory_is_reported_before_the_first_write(tmp_path, execute, options):
    data = tmp_path / "data"
    data.mkdir()
    mount = [
        "unshare",
        "--mount",
        "sh",
        "-c",
        'mount -t tmpfs -o "$0" tmpfs "$1" && shift && exec "$@"',
        options,
        str(data),
    ]
    plan = write_plan(
        tmp_path / "plan.jsonl",
        tiny_trials(1),
        hosts={"node1": {"ssh": None, "connect": [*mount, "env", f"HOME={tmp_path}"], "memory_bytes": None}},
        storages={"data": {"host": "node1", "path": str(data)}},
    )
    expected = {
        "ro": rf"node1: expected a directory in which \S+ can write at {data} \(tmpfs\), found a read-only file system",
        "size=64k": r"expected 200 kB of free space",
    }[options]
    with pytest.raises((BackendError, PlanError), match=expected):
        execute(RunWriter.create(tmp_path / "runs", plan, backend="hosts"))


def test_a_file_instead_of_a_directory_is_reported(tmp_path, execute):
    (tmp_path / "file").write_text("")
    plan = write_plan(
        tmp_path / "plan.jsonl", tiny_trials(1), storages={"data": {"host": "node1", "path": str(tmp_path / "file")}}
    )
    with pytest.raises(BackendError, match=r"node1: expected a directory at .*/file, found another file"):
        execute(RunWriter.create(tmp_path / "runs", plan, backend="hosts"))


def test_keys_of_a_killed_controller_are_removed_by_the_next_run(new_two_hosts_run, execute, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    dead, alive = tmp_path / "venturi-pki-dead", tmp_path / "venturi-pki-alive"
    for directory in (dead, alive):
        directory.mkdir()
        (directory / "lock").touch()
        os.utime(directory, (0, 0))
    with (alive / "lock").open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        outcome, _ = execute(new_two_hosts_run(repeat=1))
    assert outcome.state == "complete"
    assert list(tmp_path.glob("venturi-pki-*")) == [alive]
