"""Fixtures of the lab tests: a parent directory, and a check that nothing remains."""

import shutil
import tempfile
from pathlib import Path

import pytest
from labkit import traces

from venturi.testbed.lab import Lab, registered, sweep


@pytest.fixture
def parent(monkeypatch):
    """A directory for labs that all users can enter. At the end, it must be empty, and the machine must be as before.

    It is not below pytest's directory, because each start of pytest restricts that directory to one user.
    """
    base = Path(tempfile.mkdtemp(prefix="venturi-test-"))
    base.chmod(0o755)
    directory = base / "labs"
    directory.mkdir()
    monkeypatch.setenv("VENTURI_LAB", str(directory))
    before = traces(directory)
    yield directory
    sweep(directory)
    assert registered(directory) == []
    assert traces(directory) == before
    shutil.rmtree(base)


@pytest.fixture
def bring_up(parent, engine):
    """Return a function that starts a lab, which is stopped at the end of the test."""
    labs = []

    def up(header, **options):
        lab = Lab.up(header, engine=engine, parent=parent, **options)
        labs.append(lab)
        return lab

    yield up
    problems = [problem for lab in labs for problem in lab.down()]
    assert problems == []
