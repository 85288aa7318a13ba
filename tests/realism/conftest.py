"""Fixtures of the realism suite: a folder for its labs, and labs that are gone when those who use them end."""

import shutil
import tempfile
from pathlib import Path

import pytest
from ground import Ground

from venturi.backend import find_engine


@pytest.fixture(scope="session")
def labs_folder():
    """A folder that all users may enter, as servers in a lab are not always root."""
    folder = Path(tempfile.mkdtemp(prefix="venturi-realism-"))
    folder.chmod(0o755)
    yield folder
    assert not [path for path in folder.rglob("*") if path.is_file()], "a lab has left files"
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def bring_up(labs_folder):
    """Return a function that brings a lab up, which is taken down after the last test of the file."""
    grounds = []

    def up(text, **options):
        grounds.append(Ground.up(text, engine=find_engine(), parent=labs_folder, **options))
        return grounds[-1]

    yield up
    assert [problem for ground in grounds for problem in ground.down()] == []


def pytest_collection_modifyitems(items):
    """Mark all that is here: it measures."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.alone)
