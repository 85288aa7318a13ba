"""A server that everybody may read and write, shared by the tests of a file."""

import sys
from pathlib import Path

import pytest
from servekit import fill, serving

sys.path.insert(0, str(Path(__file__).parents[1] / "interop"))


@pytest.fixture(scope="module")
def writable(engine, tmp_path_factory):
    """A server with files of all sizes, that may be written to."""
    folder = tmp_path_factory.mktemp("served")
    fill(folder)
    with serving(engine, folder, tmp_path_factory.mktemp("log"), "--write") as server:
        yield server


@pytest.fixture
def own(tmp_path):
    """The client's own files, of all sizes, with `up-` before their names."""
    folder = tmp_path / "own"
    folder.mkdir()
    fill(folder, "up-")
    return folder
