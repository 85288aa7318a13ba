"""`sshftp:` outside of the matrix: several sessions, an unreachable server, a rejected user."""

import os
import socket
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import interop_ssh
import pytest

from testkit import needs_programs, wait_until

pytestmark = needs_programs("globus-gridftp-server", "ssh", "ssh-keygen", "sshd")

FILES = 300


@dataclass
class Reached:
    """An sshd, and the environment of its clients."""

    directory: Path
    port: int
    environment: dict[str, str]

    def url(self, path):
        return f"sshftp://127.0.0.1:{self.port}{path}"


@pytest.fixture(scope="module")
def reached():
    """An sshd with its own keys."""
    if lacks := interop_ssh.lacks("venturi"):
        pytest.skip(lacks)
    with tempfile.TemporaryDirectory(prefix="venturi-ssh-") as name:
        directory = Path(name)
        # Anonymous users have the account "nobody" if root started the server. It cannot enter pytest's own
        # directories.
        directory.chmod(0o755)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        with (directory / "log").open("wb") as log:
            process = subprocess.Popen(
                interop_ssh.build_sshd_argv(directory, port), stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        wait_until(lambda: b"listening" in (directory / "log").read_bytes(), "the sshd to listen", 20)
        yield Reached(directory, port, os.environ | interop_ssh.environment(directory, os.environ["PATH"]))
        process.terminate()
        process.wait(20)


def copy(engine, reached, *arguments, **changes):
    """Run a copy; return its exit code and its output."""
    environment = reached.environment | changes
    done = subprocess.run([engine, "copy", *arguments], env=environment, stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=60, check=False)  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def test_trees_are_copied_in_both_directions_over_several_sessions(engine, reached, tmp_path):
    local_dir, there = tmp_path / "here", reached.directory / "there"
    local_dir.mkdir()
    there.mkdir()
    there.chmod(0o777)
    for number in range(FILES):
        (local_dir / f"file {number}").write_text(str(number) * number)
    assert copy(engine, reached, "-r", "--concurrency", "3", str(local_dir), reached.url(f"{there}/")) == (0, "")
    code, output = copy(
        engine, reached, "-r", "--concurrency", "3", reached.url(f"{there}/here"), str(tmp_path / "again")
    )
    assert (code, output) == (0, "")
    for number in range(FILES):
        assert (tmp_path / f"again/file {number}").read_text() == str(number) * number


def test_error_messages_of_ssh_are_reported(engine, reached, tmp_path):
    settings = reached.directory / "ssh_config"
    kept = settings.read_text()
    settings.write_text(kept.replace(f"{reached.directory}/user", "/none"))
    code, output = copy(engine, reached, reached.url("/etc/hostname"), str(tmp_path / "x"))
    settings.write_text(kept)
    assert code == 1
    assert "Permission denied" in output


@pytest.mark.skipif(Path("/etc/grid-security/sshftp").exists(), reason="this host has a server that ssh starts")
def test_a_missing_server_program_is_reported_and_another_can_be_named(engine, reached, tmp_path):
    script = reached.directory / "home/.globus/sshftp"
    script.rename(script.with_name("away"))
    code, output = copy(engine, reached, reached.url("/etc/hostname"), str(tmp_path / "x"))
    elsewhere = copy(engine, reached, reached.url("/etc/hostname"), str(tmp_path / "x"),
                     GLOBUS_REMOTE_SSHFTP=str(script.with_name("away")))  # fmt: skip
    script.with_name("away").rename(script)
    assert code == 1
    assert "neither ~/.globus/sshftp nor /etc/grid-security/sshftp is here" in output
    assert elsewhere[0] == 0, elsewhere
