"""A server that all clients can read and write, shared by the tests of a file."""

import sys
from pathlib import Path

import pytest
from servekit import fill, serving

sys.path.insert(0, str(Path(__file__).parents[1] / "interop"))


@pytest.fixture(scope="module")
def writable(engine, tmp_path_factory):
    """A writable server with files of all sizes."""
    directory = tmp_path_factory.mktemp("served")
    fill(directory)
    with serving(engine, directory, tmp_path_factory.mktemp("log"), "--write") as server:
        yield server


@pytest.fixture
def own(tmp_path):
    """The client's own files, of all sizes, with the prefix `up-`."""
    directory = tmp_path / "own"
    directory.mkdir()
    fill(directory, "up-")
    return directory
