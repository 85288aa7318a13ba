"""The client of the host shell with the real shell of this machine."""

import asyncio
import os
import signal
import socket
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from testkit import free_port, needs_root, wait_until
from venturi.backend import shell_client
from venturi.backend.connection import Connection, open_shell
from venturi.backend.engine import find_engines
from venturi.backend.shell_client import ShellCallbacks, ShellError, ShellLostError
from venturi.errors import BackendError
from venturi.testbed.host_shell import HostShell


@pytest.fixture
def lost():
    """Reasons of lost connections."""
    return []


@pytest.fixture
def ended():
    """Servers that exited without a stop request."""
    return []


@pytest.fixture
def shell(engine, lost, ended, tmp_path):
    callbacks = ShellCallbacks(lambda *server: ended.append(server), lost.append)
    with open_shell(Connection.to("here"), cache=str(tmp_path / "cache"), callbacks=callbacks) as shell:
        yield shell


def test_a_remote_shell_is_a_host_shell(shell):
    checked: HostShell = shell
    assert (checked.name, checked.privileged) == ("here", os.geteuid() == 0)
    assert Path(checked.engine).is_file()
    assert shell.session.parent == shell.cache / "sessions"


def test_commands_have_input_output_exit_code_variables_and_a_directory(shell, tmp_path):
    result = shell.run(
        ["sh", "-c", "echo $X; pwd; cat; exit 3"],
        timeout_s=10,
        environment={"X": "ü"},
        directory=tmp_path,
        stdin="in",
    )
    assert (result.returncode, result.stdout) == (3, f"ü\n{tmp_path}\nin")
    assert shell.run(["sh", "-c", "kill -9 $$"], timeout_s=10).returncode == -signal.SIGKILL
    assert shell.run(["no-such-program"], timeout_s=10).returncode == 127


def test_a_command_that_takes_too_long_is_killed(shell):
    started_s = time.monotonic()
    with pytest.raises(subprocess.TimeoutExpired) as caught:
        shell.run(["sleep", "60"], timeout_s=0.5)
    assert time.monotonic() - started_s < 20
    assert isinstance(caught.value, BackendError)
    assert str(caught.value).startswith("here: expected `sleep 60` to end within 0.5 s")


def test_a_cancelled_wait_for_a_result_does_not_disturb_other_commands(shell, tmp_path):
    """A cancelled wait once ended the thread that reads records, so all later commands waited until their timeouts."""
    hold = tmp_path / "hold"
    os.mkfifo(hold)

    async def cancel_wait():
        result = shell.submit("run", argv=["cat", str(hold)], timeout_s=60)
        task = asyncio.ensure_future(asyncio.wrap_future(result))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return result

    result = asyncio.run(cancel_wait())
    hold.write_text("x")
    assert result.result(60)["stdout"] == "x"
    assert shell.run(["echo", "still there"], timeout_s=30).stdout == "still there\n"


def test_files_are_written_read_inspected_and_removed(shell, tmp_path):
    path = tmp_path / "new" / "file"
    shell.put(path, "tëxt", 0o640)
    assert (path.read_text(), path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (
        "tëxt",
        0o640,
        0o700,
    )
    assert shell.get(path) == "tëxt".encode()
    assert (shell.stat(path).kind, shell.stat(path).size_bytes, shell.stat(path).mode) == ("file", 5, 0o640)
    assert shell.exists(path)
    assert shell.make_directory(tmp_path / "one" / "two") is True
    assert shell.make_directory(tmp_path / "one" / "two") is False
    assert shell.list_directory(tmp_path / "new") == [{"name": "file", "kind": "file", "size_bytes": 5}]
    shell.remove(path.parent)
    shell.remove(path.parent)
    assert not shell.exists(path)


def test_large_and_empty_files_are_transferred_unchanged(shell, tmp_path):
    content = os.urandom(20_000_001)
    shell.put(tmp_path / "large", content)
    assert (tmp_path / "large").read_bytes() == content
    assert shell.get(tmp_path / "large") == content
    shell.put(tmp_path / "empty", b"")
    assert shell.get(tmp_path / "empty") == b""


def test_file_errors_are_python_exceptions(shell, tmp_path):
    with pytest.raises(FileNotFoundError, match="none"):
        shell.get(tmp_path / "none")
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        shell.put(tmp_path / "file" / "below", "")
    with pytest.raises(OSError, match="/proc/none"):
        shell.make_directory("/proc/none")


def test_programs_are_found_in_the_path_of_the_host(shell, tmp_path):
    assert shell.which("sh") in ("/bin/sh", "/usr/bin/sh")
    assert shell.which("no-such-program") is None
    assert shell.which("printf").startswith("/")
    assert shell.which("/bin/sh") == "/bin/sh"
    assert shell.which(str(tmp_path / "none")) is None


def test_a_server_runs_until_it_is_stopped_and_its_exit_code_is_known(shell, ended, tmp_path):
    log = tmp_path / "log"
    process = shell.start(["sh", "-c", "echo ready; exec sleep 60"], log=log)
    wait_until(lambda: log.exists() and log.read_text() == "ready\n", "the output of the server")
    assert process.poll() is None
    assert process.log == log
    process.stop()
    assert process.poll() == -signal.SIGTERM
    crashed = shell.start(["sh", "-c", "exit 7"], log=log)
    wait_until(lambda: crashed.poll() is not None, "the end of the server")
    assert crashed.poll() == 7
    assert ended == [(crashed.name, 7, None)]
    crashed.stop()
    with pytest.raises(BackendError, match="no-such-server"):
        shell.start(["no-such-server"], log=log)


def test_ports_listen_and_connect_with_properties_of_the_path(shell):
    (port,) = shell.free_ports(1)
    with shell.listen(port=port, send_bytes=8192) as listener:
        assert listener.port == port
        properties = shell.connect("127.0.0.1", port, count=3, send_bytes=8192, receive_bytes=8192)
    assert len(properties.times_s) == 3
    assert 0 < properties.rtt_s < 1
    assert (properties.remote_address, properties.interface, properties.family) == ("127.0.0.1", "lo", "ipv4")
    assert properties.path_mtu_bytes > 1000
    with pytest.raises(ShellError) as rejected:
        shell.connect("127.0.0.1", port)
    assert rejected.value.kind == "refused"
    with pytest.raises(ShellError) as unresolved:
        shell.connect("no-such-host.invalid", port)
    assert unresolved.value.kind == "unresolved"


def test_a_free_port_can_be_bound_while_programs_start(shell):
    """A starting process briefly holds copies of all sockets of the shell."""
    ended = threading.Event()

    def run():
        while not ended.is_set():
            shell.run(["true"], timeout_s=60)

    with ThreadPoolExecutor(3) as pool:
        try:
            programs = [pool.submit(run) for _ in range(3)]
            for _ in range(200):
                (port,) = shell.free_ports(1, 10_100, 10_999)  # not ephemeral ports, which any client can get
                with shell.listen(port=port):
                    pass
        finally:
            ended.set()
        for program in programs:
            program.result()


def test_free_ports_of_a_range_are_found_and_a_full_range_is_an_error(shell):
    first = free_port()
    assert set(shell.free_ports(1, first, first + 20)) <= set(range(first, first + 21))
    with socket.create_server(("127.0.0.1", first)), pytest.raises(OSError, match=str(first)):
        shell.free_ports(1, first, first)


def test_a_dialogue_returns_the_last_line_of_each_reply(shell):
    def serve(server):
        link, _ = server.accept()
        with link, link.makefile("rw", newline="") as stream:
            stream.write("220-hello\r\n220 ready\r\n")
            stream.flush()
            assert stream.readline() == "NOOP\r\n"
            stream.write("200 fine\r\n")
            stream.flush()

    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as pool:
        served = pool.submit(serve, server)
        assert shell.converse("127.0.0.1", server.getsockname()[1], [None, "NOOP"], 5.0) == ["220 ready", "200 fine"]
        served.result()
    with pytest.raises(ConnectionRefusedError):
        shell.converse("127.0.0.1", free_port(), [], 5.0)


def test_the_clock_offset_of_this_machine_is_within_its_uncertainty(shell):
    offset = shell.clock()
    assert abs(offset.offset_s) <= offset.uncertainty_s < 0.5
    assert shell.clock_offset is offset


def test_threads_share_a_shell_and_slow_commands_do_not_delay_others(shell):
    slow = shell.submit("run", argv=["sleep", "30"], timeout_s=60)
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda number: shell.run(["echo", str(number)], timeout_s=30).stdout, range(50)))
    assert results == [f"{number}\n" for number in range(50)]
    assert not slow.done()


def test_an_unknown_command_is_an_invalid_command_error(shell):
    with pytest.raises(ShellError) as caught:
        shell.call("dance")
    assert (caught.value.kind, str(caught.value)[:6]) == ("invalid", "here: ")


def test_a_lost_shell_fails_waiting_commands_ends_its_servers_and_reports_the_reason(shell, lost, tmp_path):
    process = shell.start(["sleep", "600"], log=tmp_path / "log")
    started = tmp_path / "started"
    waiting = shell.submit("run", argv=["sh", "-c", f"touch {started}; exec sleep 600"], timeout_s=700)
    wait_until(started.exists, "the command")
    os.kill(shell.pid, signal.SIGKILL)
    with pytest.raises(BackendError, match=r"here: (the shell ended|the connection to the host shell ended)"):
        waiting.result(30)
    wait_until(lambda: shell.is_lost, "the end of the connection")
    assert "signal 9" in shell.lost_reason
    assert process.poll() == -signal.SIGKILL
    process.stop()
    with pytest.raises(ShellLostError):
        shell.get("/etc/hostname")
    wait_until(lambda: len(lost) == 1, "the callback")
    assert lost == [shell.lost_reason]
    wait_until(lambda: not Path(f"/proc/{process.pid}").exists(), "the server to end")


def test_closing_a_shell_is_not_a_loss_and_removes_the_session(engine, lost, tmp_path):
    shell = open_shell(Connection.to("here"), cache=str(tmp_path), callbacks=ShellCallbacks(lost=lost.append))
    process = shell.start(["sleep", "600"], log=shell.session / "log")
    shell.close()
    shell.close()
    assert lost == []
    assert not Path(shell.session).exists()
    assert not Path(f"/proc/{process.pid}").exists()


def test_a_silent_connection_is_reported_as_lost(engine, lost, tmp_path, monkeypatch):
    monkeypatch.setattr(shell_client, "ALIVE_INTERVAL_S", 0.5)
    shell = open_shell(
        Connection.to("here"), cache=str(tmp_path), silence_s=1.0, callbacks=ShellCallbacks(lost=lost.append)
    )
    os.kill(shell.pid, signal.SIGSTOP)
    children = Path(f"/proc/{shell.pid}/task/{shell.pid}/children").read_text().split()
    for child in children:
        os.kill(int(child), signal.SIGSTOP)
    with pytest.raises(BackendError, match="expected a result of `clock` within"):
        shell.clock(0.1)
    with pytest.raises(ShellLostError, match=r"here: the connection is silent for 1\.5 s"):
        shell.run(["true"], timeout_s=60)
    wait_until(lambda: len(lost) == 1, "the callback")
    for child in children:
        os.kill(int(child), signal.SIGKILL)


def test_an_engine_of_another_protocol_is_rejected(tmp_path):
    hello = '{"record":"hello","protocol":99,"engine":"9.9","pid":1,"directory":"/tmp/x"}'
    other = tmp_path / "other"
    other.write_text(f"#!/bin/sh\necho '{hello}'; cat > /dev/null\n")
    other.chmod(0o700)
    with pytest.raises(
        BackendError, match=r"here: expected an engine with shell protocol 1, found protocol 99 \(9.9\)"
    ):
        open_shell(Connection.to("here"), find_engines(other))


@needs_root
def test_killing_a_shell_does_not_wait_for_a_prefix_that_forks(engine, tmp_path):
    """The shell is a child of `unshare`. It keeps both pipes open when `unshare` is killed."""
    prefix = ["unshare", "--pid", "--fork", "--mount-proc", "env", f"HOME={tmp_path}"]
    shell = open_shell(Connection.to("far", connect=prefix))
    assert shell.run(["sh", "-c", "echo $PPID"], timeout_s=10).returncode == 0
    started_s = time.monotonic()
    shell.kill()
    assert time.monotonic() - started_s < 10
    wait_until(lambda: not Path(shell.session).exists(), "the shell to end with its input")
