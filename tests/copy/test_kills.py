"""What `kills.py` does for hours, for seconds; and what it found."""

import shutil
import stat
import tempfile
from pathlib import Path

import kills
import pytest
from copykit import copy, leftovers

from testkit import needs_programs

SEED = 20
"""Of the moments; another one is another test."""


@pytest.fixture
def memory():
    """A folder in memory where there is some, for large files are large; a server's user reaches it."""
    shared = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="venturi-kills-", dir=shared if shared.is_dir() else None))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize(
    "way",
    [
        pytest.param("from:globus", marks=needs_programs("globus-gridftp-server")),
        "to:serve-ftp",
        "from:serve-http",
    ],
)
def test_killed_at_random_moments_client_or_server_the_same_command_has_all_there(engine, memory, way):
    told = []
    tree = {"large": {"large": (129 << 20) + 5}, "small": 60}
    wrong = kills.kill(engine, memory, 2, SEED, [way], told.append, **tree)
    assert wrong == [], told


@pytest.fixture
def unfinished(engine, memory):
    """A tree that was uploaded to our server but for one file, and what lacks its mode as after a kill; yields a function that goes on."""
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


def modes(folder):
    return {path.relative_to(folder): stat.S_IMODE(path.stat().st_mode) for path in folder.rglob("*")}


def test_what_was_killed_between_its_name_and_its_mode_gets_the_mode(memory, unfinished):
    unfinished()
    assert modes(memory / "copy") == modes(memory / "source")
    assert leftovers(memory) == []
