"""Fixtures of the realism suite: a directory for its labs, and labs that are removed after their last use."""

import shutil
import tempfile
from pathlib import Path

import pytest
from lab_rig import LabRig

from venturi.backend import find_engine


@pytest.fixture(scope="session")
def labs_directory():
    """A directory that all users can enter, because servers in a lab do not always run as root."""
    directory = Path(tempfile.mkdtemp(prefix="venturi-realism-"))
    directory.chmod(0o755)
    yield directory
    assert not [path for path in directory.rglob("*") if path.is_file()], "a lab has left files"
    shutil.rmtree(directory)


@pytest.fixture(scope="module")
def bring_up(labs_directory):
    """Return a function that starts a lab, which is stopped after the last test of the file."""
    rigs = []

    def up(text, **options):
        rigs.append(LabRig.up(text, engine=find_engine(), parent=labs_directory, **options))
        return rigs[-1]

    yield up
    assert [problem for rig in rigs for problem in rig.down()] == []


def pytest_collection_modifyitems(items):
    """Mark all tests of this directory as measurements, which run alone."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.alone)
