"""`sshftp:` beside what the matrix moves: several sessions, a server that is not there, a user who may not come in."""

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
    """An sshd, and what has a client reach it."""

    folder: Path
    port: int
    environment: dict[str, str]

    def url(self, path):
        return f"sshftp://127.0.0.1:{self.port}{path}"


@pytest.fixture(scope="module")
def reached():
    """An sshd with keys of its own."""
    if lacks := interop_ssh.lacks("venturi"):
        pytest.skip(lacks)
    with tempfile.TemporaryDirectory(prefix="venturi-ssh-") as name:
        folder = Path(name)
        # Anonymous users of a server that root has started are nobody, whom pytest's own folders keep out.
        folder.chmod(0o755)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                interop_ssh.argv_of_sshd(folder, port), stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        wait_until(lambda: b"listening" in (folder / "log").read_bytes(), "the sshd to listen", 20)
        yield Reached(folder, port, os.environ | interop_ssh.environment(folder, os.environ["PATH"]))
        process.terminate()
        process.wait(20)


def copy(engine, reached, *words, **changes):
    """Run a copy; return its code and what it said."""
    environment = reached.environment | changes
    done = subprocess.run([engine, "copy", *words], env=environment, stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=60, check=False)  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def test_trees_go_both_ways_over_several_sessions(engine, reached, tmp_path):
    here, there = tmp_path / "here", reached.folder / "there"
    here.mkdir()
    there.mkdir()
    there.chmod(0o777)
    for number in range(FILES):
        (here / f"file {number}").write_text(str(number) * number)
    assert copy(engine, reached, "-r", "--concurrency", "3", str(here), reached.url(f"{there}/")) == (0, "")
    code, said = copy(
        engine, reached, "-r", "--concurrency", "3", reached.url(f"{there}/here"), str(tmp_path / "again")
    )
    assert (code, said) == (0, "")
    for number in range(FILES):
        assert (tmp_path / f"again/file {number}").read_text() == str(number) * number


def test_what_ssh_says_is_told(engine, reached, tmp_path):
    settings = reached.folder / "ssh_config"
    kept = settings.read_text()
    settings.write_text(kept.replace(f"{reached.folder}/user", "/none"))
    code, said = copy(engine, reached, reached.url("/etc/hostname"), str(tmp_path / "x"))
    settings.write_text(kept)
    assert code == 1
    assert "Permission denied" in said


@pytest.mark.skipif(Path("/etc/grid-security/sshftp").exists(), reason="this host has a server that ssh starts")
def test_a_host_without_a_server_says_what_it_lacks_and_another_can_be_named(engine, reached, tmp_path):
    script = reached.folder / "home/.globus/sshftp"
    script.rename(script.with_name("away"))
    code, said = copy(engine, reached, reached.url("/etc/hostname"), str(tmp_path / "x"))
    elsewhere = copy(engine, reached, reached.url("/etc/hostname"), str(tmp_path / "x"),
                     GLOBUS_REMOTE_SSHFTP=str(script.with_name("away")))  # fmt: skip
    script.with_name("away").rename(script)
    assert code == 1
    assert "neither ~/.globus/sshftp nor /etc/grid-security/sshftp is here" in said
    assert elsewhere[0] == 0, elsewhere
