"""Connections to hosts: ssh to servers of the tests, connection prefixes, and failures."""

import os
import re
import shutil
import socket
import stat
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sshkit import Sshd, needs_sshd, new_key, write_ssh_config

from testkit import free_port, living_processes, needs_root, wait_until
from venturi.backend import shell_client
from venturi.backend.connection import Connection, open_shell, resolve_ssh
from venturi.backend.engine import Engine, find_engines
from venturi.errors import BackendError


@pytest.fixture
def engines(engine):
    return find_engines(engine)


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A server that ssh knows as `node1`."""
    key = new_key(tmp_path)
    server = Sshd(tmp_path / "node1", key)
    monkeypatch.setenv("VENTURI_SSH", write_ssh_config(tmp_path, {"node1": server}, key))
    yield server.start()
    server.stop()


def open_with(connect, engines, **options):
    return open_shell(Connection.to("a", connect=connect), engines, **options)


def fails(connection, engines, **options):
    """Return the one-line message of a connection that fails."""
    with pytest.raises(BackendError) as caught:
        open_shell(connection, engines, **options).kill()
    text = str(caught.value)
    assert "\n" not in text
    return text


@pytest.mark.parametrize("target", ["", "-oProxyCommand=touch x", "-l", "a b", "a\tb"])
def test_a_destination_that_ssh_could_parse_as_an_option_is_rejected(target):
    with pytest.raises(BackendError, match=r'testbed.host.a.ssh: expected a destination such as "user@host", found'):
        Connection.to("a", ssh=target)


def test_the_destination_follows_the_end_of_options_marker(monkeypatch):
    monkeypatch.setenv("VENTURI_SSH", "-F 'my config' -p 2222")
    command = Connection.to("a", ssh="alice@dtn1").command("echo $HOME")
    assert command[:5] == ["ssh", "-F", "my config", "-p", "2222"]
    assert command[-3:] == ["--", "alice@dtn1", "exec sh -c 'echo $HOME'"]
    monkeypatch.setenv("VENTURI_SSH", "-F 'my")
    with pytest.raises(BackendError, match="VENTURI_SSH: expected arguments of ssh"):
        Connection.to("a", ssh="alice@dtn1")


def test_a_host_has_one_connection_method():
    with pytest.raises(BackendError, match="expected `ssh` or `connect`, found both"):
        Connection.to("a", ssh="b", connect=["env"])
    for words in ([], ["env", ""]):
        with pytest.raises(BackendError, match=r"testbed.host.a.connect: expected words"):
            Connection.to("a", connect=words)
    assert Connection.to("a").is_local


@needs_sshd
def test_the_ssh_configuration_gives_host_port_and_user(server):
    destination = resolve_ssh("node1")
    assert (destination.host, destination.port) == ("127.0.0.1", server.port)
    assert resolve_ssh("alice@somewhere").user == "alice"


@needs_sshd
def test_one_login_probes_the_host_copies_the_engine_and_starts_the_shell(server, engines, engine):
    steps = []
    with open_shell(Connection.to("node1", ssh="node1"), engines, on_step=steps.append) as shell:
        assert server.logins() == 1
        (copy,) = server.engines
        assert shell.engine == str(copy)
        assert copy.read_bytes() == engine.read_bytes()
        assert stat.S_IMODE(copy.stat().st_mode) == stat.S_IMODE(copy.parent.stat().st_mode) == 0o700
        assert (shell.address, shell.node_name) == ("127.0.0.1", os.uname().nodename)
        assert shell.run(["printenv", "HOME"], timeout_s=10).stdout == f"{server.home}\n"
        assert Path(shell.session).is_dir()
    assert len(steps) == 1
    assert steps[0].startswith("copying the engine to node1 (")
    assert not Path(shell.session).exists()
    with open_shell(Connection.to("node1", ssh="node1"), engines, on_step=steps.append):
        assert (len(steps), server.logins()) == (1, 2)


@needs_sshd
def test_another_login_shell_and_its_greeting_are_tolerated(server, engines, tmp_path):
    (server.home / ".ssh").mkdir()
    (server.home / ".ssh" / "rc").write_text("echo Welcome to this host\n")
    with open_shell(Connection.to("node1", ssh="node1"), engines) as shell:
        assert shell.run(["true"], timeout_s=10).returncode == 0


@needs_sshd
def test_each_failure_of_ssh_is_one_line_with_cause_and_next_step(server, engines, tmp_path, monkeypatch):
    node1 = Connection.to("node1", ssh="node1")
    with open_shell(node1, engines):
        pass
    server.stop()
    assert "node1: cannot connect: connection refused" in fails(node1, engines)
    assert "Start an SSH server there" in fails(node1, engines)
    server.new_host_key()
    server.start()
    message = fails(node1, engines)
    assert "node1: cannot connect: its host key has changed" in message
    assert "ssh-keygen -R" in message
    key = tmp_path / "key"
    strict = {"StrictHostKeyChecking": "yes", "UserKnownHostsFile": tmp_path / "no_hosts"}
    monkeypatch.setenv("VENTURI_SSH", write_ssh_config(tmp_path, {"node1": server}, key, **strict))
    message = fails(Connection.to("node1", ssh="node1"), engines)
    assert "node1: cannot connect: its host key is unknown" in message
    assert "Connect once with `ssh node1`" in message
    other = tmp_path / "other"
    other.mkdir()
    known = {"UserKnownHostsFile": tmp_path / "new_hosts"}
    monkeypatch.setenv("VENTURI_SSH", write_ssh_config(tmp_path, {"node1": server}, new_key(other), **known))
    assert "node1: cannot connect: the login was rejected" in fails(Connection.to("node1", ssh="node1"), engines)
    message = fails(Connection.to("lost", ssh="no-such-host.invalid"), engines)
    assert "lost: cannot connect: its name is unknown" in message
    assert "no-such-host.invalid" in message


def test_a_server_that_does_not_reply_causes_a_timeout(engines, tmp_path, monkeypatch):
    """The port accepts connections but never sends a byte."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("VENTURI_SSH", f"-F none -p {silent.getsockname()[1]} -o ConnectTimeout=1")
        message = fails(Connection.to("slow", ssh="127.0.0.1"), engines)
    assert "slow: cannot connect: it does not respond" in message
    assert "Check the network, its firewalls and the MTU" in message


def test_a_missing_or_failing_prefix_is_named(engines):
    message = fails(Connection.to("a", connect=["no-such-launcher"]), engines)
    assert message == "a: cannot start no-such-launcher (No such file or directory); install it, or correct `connect`"
    message = fails(Connection.to("a", connect=["sh", "-c", "echo no such pod >&2; exit 3", "x"]), engines)
    assert message.startswith("a: cannot run a command on the host: exit code 3: no such pod. Check `sh -c")


def test_a_shell_starts_through_any_prefix(engines, tmp_path):
    home = tmp_path / "home 'x' $y"
    home.mkdir()
    for connect in (["env", f"HOME={home}"], ["sh", "-c", 'HOME="$0" exec "$@"', str(home)]):
        with open_with(connect, engines) as shell:
            assert shell.engine.startswith(f"{home}/.cache/venturi/engine-")
            assert shell.run(["printenv", "HOME"], timeout_s=10).stdout.strip() == str(home)


@needs_root
def test_a_network_namespace_can_be_a_separate_host(engines, tmp_path):
    namespace_owner = subprocess.Popen(["unshare", "--net", "sleep", "600"])
    try:
        own, made = Path("/proc/self/ns/net"), Path(f"/proc/{namespace_owner.pid}/ns/net")
        wait_until(lambda: made.readlink() != own.readlink(), "a namespace")
        prefix = ["nsenter", "--net", "--target", str(namespace_owner.pid), "env", f"HOME={tmp_path}"]
        with open_with(prefix, engines) as shell:
            found = shell.run(["readlink", "/proc/self/ns/net"], timeout_s=10).stdout.strip()
            assert found == str(made.readlink())
    finally:
        namespace_owner.kill()
        namespace_owner.wait()


def test_an_engine_of_another_architecture_is_not_copied(engine, tmp_path):
    content = bytearray(engine.read_bytes()[:4096])
    content[18:20] = (0xB7).to_bytes(2, "little")
    other = tmp_path / "engine"
    other.write_bytes(content)
    other.chmod(0o700)
    assert Engine.at(other).machine == "aarch64"
    message = fails(Connection.to("a", connect=["env", f"HOME={tmp_path}"]), {"aarch64": Engine.at(other)})
    machine = os.uname().machine
    assert message.startswith(f"a: expected a host with Linux on aarch64, found Linux on {machine}. ")
    assert f"VENTURI_ENGINE_{machine.upper()}" in message
    assert not (tmp_path / ".cache").exists()


def test_engines_of_other_architectures_are_found_next_to_the_engine_or_by_a_variable(engine, tmp_path, monkeypatch):
    own = tmp_path / "venturi-engine"
    shutil.copy(engine, own)
    for name, number in (("venturi-engine-aarch64", 0xB7), ("elsewhere", 0xF3)):
        (tmp_path / name).write_bytes(b"\x7fELF".ljust(18, b"\0") + number.to_bytes(2, "little"))
    monkeypatch.setenv("VENTURI_ENGINE_RISCV64", str(tmp_path / "elsewhere"))
    found = {machine: one.path.name for machine, one in find_engines(own).items()}
    assert found == {
        os.uname().machine: "venturi-engine", "aarch64": "venturi-engine-aarch64", "riscv64": "elsewhere"
    }  # fmt: skip


def on_tmpfs(directory, options):
    """Return a prefix that mounts an empty file system on a directory for one command only."""
    script = 'mount -t tmpfs -o "$0" tmpfs "$1" && shift && exec "$@"'
    return ["unshare", "--mount", "sh", "-c", script, options, str(directory)]


@needs_root
@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ("noexec", r"no program can run there \(noexec\)"),
        ("ro", "Read-only file system"),
        ("size=1M", "cannot copy the engine to .*No space left on device"),
    ],
)
def test_a_cache_that_cannot_hold_the_engine_is_named_with_the_reason(engines, tmp_path, options, reason):
    cache = tmp_path / "cache"
    cache.mkdir()
    message = fails(Connection.to("a", connect=on_tmpfs(cache, options)), engines, cache=str(cache))
    assert re.search(reason, message), message
    assert "testbed.host.a.cache" in message


@needs_root
@pytest.mark.parametrize("options", ["noexec", "ro", "size=1M"])
def test_without_a_usable_home_directory_the_temporary_directory_is_used(engines, tmp_path, options):
    home, temporary = tmp_path / "home", tmp_path / "tmp"
    home.mkdir()
    temporary.mkdir()
    prefix = [*on_tmpfs(home, options), "env", f"HOME={home}", f"TMPDIR={temporary}"]
    with open_with(prefix, engines) as shell:
        assert str(shell.cache) == f"{temporary}/venturi-{os.geteuid()}"
        assert stat.S_IMODE(Path(shell.cache).stat().st_mode) == 0o700


@needs_root
def test_a_directory_of_another_user_is_not_used(engines, tmp_path):
    cache = tmp_path / "cache"
    cache.mkdir()
    os.chown(cache, 65534, 65534)
    message = fails(Connection.to("a", connect=["env"]), engines, cache=str(cache))
    assert f"{cache}: it belongs to another user" in message


def test_old_engines_are_removed_and_the_newest_are_kept(engines, tmp_path):
    cache = tmp_path / "cache"
    cache.mkdir()
    for number in range(5):
        old = cache / f"engine-{number:016x}"
        old.write_text("old")
        os.utime(old, (number, number))
    with open_with(["env"], engines, cache=str(cache)) as shell:
        kept = sorted(path.name for path in cache.glob("engine-*"))
    assert kept == sorted(["engine-0000000000000003", "engine-0000000000000004", Path(shell.engine).name])


STUBBORN = """#!/usr/bin/env python3
# As srun: ignores signals, and leaves the stdin of its command open when it dies.
import os, signal, subprocess, sys, threading
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
read_end, write_end = os.pipe()
holder = subprocess.Popen(["sleep", "600"], pass_fds=[write_end], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL, start_new_session=True)
command = subprocess.Popen(sys.argv[1:], stdin=read_end, start_new_session=True)
os.close(read_end)
open(os.environ["HOLDER"], "w").write(str(holder.pid))
def forward():
    while data := os.read(0, 65536):
        os.write(write_end, data)
threading.Thread(target=forward, daemon=True).start()
sys.exit(command.wait())
"""


def test_a_shell_ends_after_silence_even_if_its_launcher_keeps_stdin_open(engines, tmp_path, monkeypatch):
    launcher = tmp_path / "srun"
    launcher.write_text(STUBBORN)
    launcher.chmod(0o700)
    monkeypatch.setenv("HOLDER", str(tmp_path / "holder"))
    monkeypatch.setenv("VENTURI_TEST", str(tmp_path))
    shell = open_with([str(launcher), "env", f"HOME={tmp_path}"], engines, silence_s=2.0)
    try:
        server = shell.start(["sleep", "600"], log=shell.session / "log")
        assert server.poll() is None
        shell.kill()
        holder = int((tmp_path / "holder").read_text())
        wait_until(lambda: living_processes(tmp_path) == [holder], "the shell and its server to end")
        assert not Path(shell.session).exists()
    finally:
        os.kill(int((tmp_path / "holder").read_text()), 9)


def test_heartbeats_keep_a_silent_session_alive(engines, tmp_path, monkeypatch):
    monkeypatch.setattr(shell_client, "HEARTBEAT_INTERVAL_S", 0.2)
    with open_with(["env", f"HOME={tmp_path}"], engines, silence_s=2.0) as shell:
        time.sleep(4.0)
        assert shell.run(["echo", "there"], timeout_s=10).stdout == "there\n"


def test_a_hundred_hosts_behind_a_prefix_are_ready(engines, tmp_path):
    """`bench/hosts.py` measures the time."""
    connect = ["env", f"HOME={tmp_path}"]
    with ThreadPoolExecutor(8) as pool:
        shells = list(
            pool.map(lambda number: open_shell(Connection.to(f"h{number}", connect=connect), engines), range(100))
        )
        assert len({shell.session for shell in shells}) == 100
        list(pool.map(lambda shell: shell.close(), shells))


def test_a_connection_to_a_port_without_a_listener_fails(engines, monkeypatch):
    monkeypatch.setenv("VENTURI_SSH", f"-F none -p {free_port()}")
    assert "connection refused" in fails(Connection.to("a", ssh="127.0.0.1"), engines)
