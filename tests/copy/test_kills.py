"""Short runs of `kills.py`, and regression tests for its findings."""

import shutil
import stat
import tempfile
from pathlib import Path

import kills
import pytest
from copykit import copy, leftovers

from testkit import needs_programs

SEED = 20
"""Seed of the moments; another seed is another test."""


@pytest.fixture
def memory():
    """Yield a directory in memory if possible, because files are large; the user of a server can access it."""
    shared = Path("/dev/shm")
    directory = Path(tempfile.mkdtemp(prefix="venturi-kills-", dir=shared if shared.is_dir() else None))
    directory.chmod(0o755)
    yield directory
    shutil.rmtree(directory)


@pytest.mark.parametrize(
    "method",
    [
        pytest.param("from:globus", marks=needs_programs("globus-gridftp-server")),
        "to:serve-ftp",
        "from:serve-http",
    ],
)
def test_the_same_command_completes_a_copy_after_random_kills_of_client_or_server(engine, memory, method):
    output = []
    tree = {"large": {"large": (129 << 20) + 5}, "small": 60}
    wrong = kills.kill(engine, memory, 2, SEED, [method], output.append, **tree)
    assert wrong == [], output


@pytest.fixture
def unfinished(engine, memory):
    """Yield a function that resumes an upload to our server that lacks one file and modes, as after a kill."""
    (memory / "source" / "inner").mkdir(parents=True)
    for name, mode in (("program", 0o750), ("inner/secret", 0o600), ("last", 0o644)):
        (memory / "source" / name).write_bytes(b"x")
        (memory / "source" / name).chmod(mode)
    (memory / "source" / "inner").chmod(0o700)
    (memory / "copy" / "last").mkdir(parents=True)
    server = kills.Ours(engine, memory, "--listen")
    words = ["-r", "-T", memory / "source", server.url(memory / "copy")]
    copy(engine, *words, code=3)
    (memory / "copy" / "last").rmdir()
    for name, mode in (("program", 0o644), ("inner/secret", 0o644), ("inner", 0o755)):
        (memory / "copy" / name).chmod(mode)
    yield lambda: copy(engine, *words)
    server.kill()


def modes(directory):
    return {path.relative_to(directory): stat.S_IMODE(path.stat().st_mode) for path in directory.rglob("*")}


def test_a_resumed_upload_sets_modes_that_a_kill_left_unset(memory, unfinished):
    unfinished()
    assert modes(memory / "copy") == modes(memory / "source")
    assert leftovers(memory) == []
