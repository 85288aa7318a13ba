"""Servers of the Globus toolkit for the tests that name them, and a folder below theirs."""

import shutil
import tempfile
from pathlib import Path

import pytest
from ftpkit import Server


@pytest.fixture(scope="module")
def root():
    """A folder that the user of the servers reaches and writes to."""
    # In memory where there is some: large files are large.
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="venturi-ftp-", dir=memory if memory.is_dir() else None))
    folder.chmod(0o777)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def server(root):
    """A server for anybody."""
    found = Server(root)
    yield found
    found.stop()


@pytest.fixture
def here(root, monkeypatch):
    """A folder to be in, below that of the server."""
    folder = Path(tempfile.mkdtemp(dir=root))
    folder.chmod(0o777)
    monkeypatch.chdir(folder)
    return folder
