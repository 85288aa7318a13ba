"""Writes in flight on a real shell of this machine. A stopped shell shows which calls do not wait for results."""

import os
import signal
from contextlib import contextmanager

import pytest

from venturi.backend.connection import Connection, open_shell
from venturi.backend.pipelined_shell import PipelinedShell


@pytest.fixture
def shell(engine, tmp_path):
    with open_shell(Connection.to("h"), cache=str(tmp_path / "cache")) as shell:
        yield PipelinedShell(shell), shell


@contextmanager
def stopped(shell):
    """Stop the process of a shell, so that it returns no results."""
    pid = int(shell.hello["pid"])
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def test_writes_do_not_wait_for_results_and_later_commands_see_their_files(shell, tmp_path):
    pipelined, real = shell
    listener = pipelined.listen(address="127.0.0.1")
    with stopped(real):
        for number in range(50):
            pipelined.put(tmp_path / "new" / str(number), f"{number}\n")
        pipelined.make_directory(tmp_path / "empty" / "directory")
        listener.close()
    done = pipelined.run(["sh", "-c", f"cat {tmp_path}/new/* | wc -l && ls -d {tmp_path}/*/directory"], timeout_s=60)
    assert (done.returncode, done.stdout.split()) == (0, ["50", str(tmp_path / "empty" / "directory")])
    with real.listen(address="127.0.0.1", port=listener.port) as again:
        assert again.port == listener.port


@pytest.mark.parametrize(
    "command",
    [
        lambda shell, path: shell.get(path / "file"),
        lambda shell, path: shell.exists(path),
        lambda shell, path: shell.remove(path / "file"),
        lambda shell, path: shell.start(["true"], log=path / "log"),
        lambda shell, path: shell.flush(),
    ],
    ids=["get", "exists", "remove", "start", "flush"],
)
def test_a_write_error_is_raised_by_every_later_command(shell, tmp_path, command):
    pipelined, _ = shell
    (tmp_path / "file").write_text("")
    pipelined.put(tmp_path / "file" / "below", "x")
    for _ in range(2):
        with pytest.raises(OSError, match="below") as caught:
            command(pipelined, tmp_path)
        assert caught.value.filename == str(tmp_path / "file" / "below")


def test_the_last_of_several_writes_of_a_file_wins(shell, tmp_path):
    pipelined, _ = shell
    for number in range(20):
        pipelined.put(tmp_path / "file", "x" * number)
    assert pipelined.get(tmp_path / "file") == b"x" * 19


def test_a_file_larger_than_one_command_is_written_completely(shell, tmp_path):
    pipelined, _ = shell
    content = os.urandom(9 << 20)
    pipelined.put(tmp_path / "large", content)
    assert (tmp_path / "large").read_bytes() == content
