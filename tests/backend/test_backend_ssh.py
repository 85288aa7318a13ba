"""Real `sshd` processes of our own: own keys, own ports on the loopback, own home directories."""

import os
import shutil
import signal
import socket
import stat
import subprocess
import time
from pathlib import Path

import pytest

from testkit import (
    Gate,
    free_port,
    living_processes,
    make_room_for_sshd,
    name_of,
    tiny_trials,
    wait_until,
    write_plan,
)
from venturi.backend import HostsBackend, campaign
from venturi.backend.engine import Engine
from venturi.errors import BackendError
from venturi.run import Run, RunWriter

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
pytestmark = pytest.mark.skipif(SSHD is None, reason="no sshd: install openssh-server to test hosts behind SSH")


class Sshd:
    """A server on a port of its own, whose users have a home of its own."""

    def __init__(self, folder, key):
        self.folder, self.home = folder, folder / "home"
        self.home.mkdir(parents=True)
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / "host_key"], check=True)
        shutil.copy(key.with_suffix(".pub"), folder / "authorized_keys")
        self.port = free_port()
        settings = {
            "ListenAddress": "127.0.0.1", "Port": self.port, "HostKey": folder / "host_key", "PidFile": "none",
            "AuthorizedKeysFile": folder / "authorized_keys", "UsePAM": "no", "StrictModes": "no",
            "PasswordAuthentication": "no", "PermitRootLogin": "prohibit-password", "PrintMotd": "no",
            "MaxStartups": "100", "SetEnv": f"HOME={self.home} VENTURI_TEST={folder}",
        }  # fmt: skip
        (folder / "sshd_config").write_text("".join(f"{key} {value}\n" for key, value in settings.items()))
        self.process = None

    def start(self):
        make_room_for_sshd()
        log = (self.folder / "log").open("ab")
        command = [SSHD, "-D", "-e", "-f", self.folder / "sshd_config"]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        log.close()
        deadline_s = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return self
            except OSError:
                assert self.process.poll() is None, (self.folder / "log").read_text()
                assert time.monotonic() < deadline_s, (self.folder / "log").read_text()

    def sessions(self):
        """Return the PIDs of the servers of its connections."""
        found, queue = [], [self.process.pid]
        while queue:
            pid = queue.pop()
            for task in Path(f"/proc/{pid}/task").glob("*/children"):
                children = [int(child) for child in task.read_text().split()]
                servers = [pid for pid in children if Path(f"/proc/{pid}/comm").read_text().startswith("sshd")]
                found += servers
                queue += servers
        return found

    def cut(self):
        """Cut all connections, as a network that breaks."""
        for pid in self.sessions():
            os.kill(pid, signal.SIGKILL)

    def stop(self):
        if self.process is not None:
            self.cut()
            self.process.kill()
            self.process.wait()
            self.process = None

    @property
    def engines(self):
        return sorted((self.home / ".cache" / "venturi").glob("engine-*"))


@pytest.fixture
def servers(tmp_path, monkeypatch):
    """Two servers, `node1` and `node2`, that the user's ssh knows by name."""
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    found = {name: Sshd(tmp_path / name, key) for name in ("node1", "node2")}
    config = "".join(
        f"Host {name}\n  HostName 127.0.0.1\n  Port {server.port}\n  IdentityFile {key}\n  IdentitiesOnly yes\n"
        f"  UserKnownHostsFile {tmp_path / 'known_hosts'}\n  StrictHostKeyChecking accept-new\n  LogLevel ERROR\n"
        for name, server in found.items()
    )
    (tmp_path / "ssh_config").write_text(config)
    monkeypatch.setenv("VENTURI_SSH", f"-F '{tmp_path / 'ssh_config'}'")
    monkeypatch.delenv("VENTURI_SCRATCH", raising=False)
    monkeypatch.setattr(campaign, "PROGRESS_INTERVAL_S", 0.0)
    yield {name: server.start() for name, server in found.items()}
    for server in found.values():
        server.stop()


@pytest.fixture
def carry_out(tmp_path, engine):
    def work(plan_or_run, *, on_progress=None, **options):
        is_run = isinstance(plan_or_run, RunWriter)
        run = plan_or_run if is_run else RunWriter.create(tmp_path / "runs", plan_or_run, backend="hosts")
        outcome = HostsBackend(engine=engine, **options).carry_out(run, on_progress=on_progress)
        return outcome, Run.open(run.path)

    return work


def plan_over_ssh(tmp_path, count, names=("node1",), **changes):
    """Write a plan of so many trials on each of these hosts."""
    hosts = {name: {"ssh": name, "memory_bytes": None} for name in names}
    places = {f"on-{name}": {"host": name, "path": "data"} for name in names}
    lines = [
        line
        for number, name in enumerate(names)
        for line in tiny_trials(count, place=f"on-{name}", host=name, actor=f"at-{name}", first=number * count)
    ]
    return write_plan(tmp_path / "plan.jsonl", lines, hosts=hosts, places=places, **changes)


@pytest.fixture
def gate(tmp_path):
    """A gate behind three trials."""
    return Gate(tmp_path / "gate", 3)


def wait_until_gone(server):
    """Wait for the processes of a host to end; they notice the end of their connection by themselves."""
    wait_until(
        lambda: all("sshd" in name_of(pid) for pid in living_processes(server.folder)), "all but the server to end"
    )


def test_a_host_gets_the_engine_carries_out_its_part_and_is_left_clean(tmp_path, servers, carry_out, engine):
    outcome, run = carry_out(plan_over_ssh(tmp_path, 4))
    assert (outcome.state, outcome.trials_done) == ("complete", 4)
    (copy,) = servers["node1"].engines
    assert copy.name == Engine.at(engine).remote_name
    assert copy.read_bytes() == engine.read_bytes()
    assert stat.S_IMODE(copy.stat().st_mode) == 0o700
    assert run.table("transfers")["host"].tolist() == ["node1"] * 4
    environment = run.environment()["node1"]
    # One clock: the true offset is 0, so the interval that the round trips prove must hold 0.
    assert abs(float(environment["clock.offset_s"])) <= float(environment["clock.uncertainty_s"])
    assert 0 < float(environment["clock.uncertainty_s"]) < 1
    assert environment["scratch"] == f"{servers['node1'].home}/.cache/venturi/scratch"
    assert [path.name for path in Path(environment["scratch"]).rglob("0*")] == [
        "000000"
    ]  # the data set, no destination
    wait_until_gone(servers["node1"])


def test_an_engine_that_is_there_is_not_sent_again_and_a_damaged_one_is(tmp_path, servers, carry_out, engine):
    carry_out(plan_over_ssh(tmp_path, 1))
    (copy,) = servers["node1"].engines
    made = copy.stat().st_mtime_ns, copy.stat().st_ino
    carry_out(plan_over_ssh(tmp_path, 1))
    assert (copy.stat().st_mtime_ns, copy.stat().st_ino) == made
    content = bytearray(engine.read_bytes())
    content[-1] ^= 1
    copy.write_bytes(content)
    carry_out(plan_over_ssh(tmp_path, 1))
    assert copy.read_bytes() == engine.read_bytes()


def test_another_build_of_the_engine_has_another_name_and_both_stay(tmp_path, servers, carry_out, engine):
    carry_out(plan_over_ssh(tmp_path, 1))
    other = tmp_path / "other-engine"
    other.write_bytes(engine.read_bytes() + b"\0")
    other.chmod(0o700)
    run = RunWriter.create(tmp_path / "runs", plan_over_ssh(tmp_path, 1), backend="hosts")
    HostsBackend(engine=other).carry_out(run)
    assert {copy.name for copy in servers["node1"].engines} == {
        Engine.at(path).remote_name for path in (engine, other)
    }


def test_two_hosts_work_together_and_their_times_lie_on_one_axis(tmp_path, servers, carry_out):
    plan = plan_over_ssh(tmp_path, 4, ("node1", "node2"))
    lines = plan.read_text().splitlines()
    signal_ = '{"actor":"at-node1","host":"node1","steps":[{"step":"signal","counter":"done","add":7}]}'
    wait = '{"actor":"at-node2","host":"node2","steps":[{"step":"wait","counter":"done","until":7}]}'
    plan.write_text("\n".join([lines[0], wait, *lines[1:5], signal_, *lines[5:]]) + "\n")
    outcome, run = carry_out(plan)
    assert (outcome.state, outcome.trials_done) == ("complete", 8)
    rows = run.query(
        "SELECT host, min(start_s) AS first_s, max(end_s) AS last_s FROM transfers GROUP BY host ORDER BY host"
    )
    slack_s = sum(float(facts["clock.uncertainty_s"]) for facts in run.environment().values())
    assert rows["first_s"][1] > rows["last_s"][0] - slack_s
    assert 0 < rows["first_s"][0] < rows["last_s"][1] < run.query("SELECT 3600.0 AS s")["s"][0]


def test_a_campaign_over_ssh_that_was_stopped_is_carried_on_with(tmp_path, servers, carry_out, gate):
    asked = []

    def stop(progress):
        if progress.trials_done >= 3 and not asked:
            asked.append(os.kill(os.getpid(), signal.SIGINT))

    outcome, run = carry_out(plan_over_ssh(tmp_path, 40, calls=gate.calls), on_progress=stop)
    assert (outcome.state, outcome.trials_done) == ("stopped", 3)
    wait_until_gone(servers["node1"])
    gate.open()
    outcome, run = carry_out(RunWriter.resume(run.path))
    assert outcome.state == "complete"
    assert sorted(run.table("transfers")["trial"]) == [f"t{number:07d}" for number in range(40)]


def test_a_connection_that_breaks_is_made_again_and_no_trial_is_lost(tmp_path, servers, carry_out, gate):
    cuts = []

    def cut(progress):
        if progress.trials_done >= 3 and not cuts:
            cuts.append(servers["node1"].sessions())
            servers["node1"].cut()
            gate.open()

    outcome, run = carry_out(plan_over_ssh(tmp_path, 60, calls=gate.calls), on_progress=cut)
    assert cuts[0]
    assert (outcome.state, outcome.restarts) == ("complete", 1)
    assert sorted(run.table("transfers")["trial"]) == [f"t{number:07d}" for number in range(60)]
    assert [finding.code for finding in run.findings() if finding.code.startswith("agent")] == ["agent-restarted"]
    wait_until_gone(servers["node1"])


def test_a_host_that_stays_away_ends_the_campaign_which_can_be_resumed(
    tmp_path, servers, carry_out, monkeypatch, gate
):
    monkeypatch.setattr(campaign, "RESTART_DELAYS_S", (0.0,))

    def vanish(progress):
        if progress.trials_done >= 3:
            servers["node1"].stop()

    run = RunWriter.create(tmp_path / "runs", plan_over_ssh(tmp_path, 60, calls=gate.calls), backend="hosts")
    with pytest.raises(BackendError, match=r"node1: .*(?:refused|reset).*then resume"):
        carry_out(run, on_progress=vanish)
    assert Run.open(run.path).state == "stopped"
    assert len(Run.open(run.path).finished_trials()) == 3
    gate.open()
    servers["node1"].start()
    outcome, read = carry_out(RunWriter.resume(run.path))
    assert outcome.state == "complete"
    assert sorted(read.table("transfers")["trial"]) == [f"t{number:07d}" for number in range(60)]


def test_a_host_that_cannot_be_reached_is_said_by_name_before_anything_is_done(tmp_path, servers, carry_out):
    servers["node2"].stop()
    with pytest.raises(BackendError, match=r"node2: cannot be reached: .*refused.*try `ssh -o BatchMode=yes node2`"):
        carry_out(plan_over_ssh(tmp_path, 2, ("node1", "node2")))


def test_a_scratch_directory_that_was_given_is_used_and_kept_there(tmp_path, servers, carry_out):
    carry_out(plan_over_ssh(tmp_path, 1), scratch="my scratch")
    assert (servers["node1"].home / "my scratch" / "data" / "set" / "000000").stat().st_size == 100_000
