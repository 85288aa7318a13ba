"""Fixtures of the lab's tests: a parent folder of their own, and that nothing is left when they end."""

import shutil
import tempfile
from pathlib import Path

import pytest
from labkit import traces

from venturi.testbed.lab import Lab, registered, sweep


@pytest.fixture
def parent(monkeypatch):
    """A folder for labs that all users may enter, and that is empty at the end; what the machine looked like is compared.

    Not below pytest's own folder: that belongs to one user alone, and each pytest that starts makes it so again.
    """
    base = Path(tempfile.mkdtemp(prefix="venturi-test-"))
    base.chmod(0o755)
    folder = base / "labs"
    folder.mkdir()
    monkeypatch.setenv("VENTURI_LAB", str(folder))
    before = traces(folder)
    yield folder
    sweep(folder)
    assert registered(folder) == []
    assert traces(folder) == before
    shutil.rmtree(base)


@pytest.fixture
def bring_up(parent, engine):
    """Return a function that brings a lab up, which is taken down when the test ends."""
    labs = []

    def up(header, **options):
        lab = Lab.up(header, engine=engine, parent=parent, **options)
        labs.append(lab)
        return lab

    yield up
    problems = [problem for lab in labs for problem in lab.down()]
    assert problems == []
