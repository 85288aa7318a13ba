"""Fixtures for tests with Globus servers: a server, and directories below its root."""

import shutil
import tempfile
from pathlib import Path

import pytest
from ftpkit import Server


@pytest.fixture(scope="module")
def root():
    """Yield a directory that the user of the servers can access and write."""
    # Use memory if possible, because large files are large.
    memory = Path("/dev/shm")
    directory = Path(tempfile.mkdtemp(prefix="venturi-ftp-", dir=memory if memory.is_dir() else None))
    directory.chmod(0o777)
    yield directory
    shutil.rmtree(directory)


@pytest.fixture(scope="module")
def server(root):
    """Yield a server for anonymous users."""
    found = Server(root)
    yield found
    found.stop()


@pytest.fixture
def here(root, monkeypatch):
    """Return the working directory, below the server's directory."""
    directory = Path(tempfile.mkdtemp(dir=root))
    directory.chmod(0o777)
    monkeypatch.chdir(directory)
    return directory
