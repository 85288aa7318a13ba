"""Fixtures for tests of faults: labs in a directory that must be empty at the end."""

import tempfile
from pathlib import Path

import pytest

from venturi.backend import run_controller
from venturi.testbed.lab import registered, sweep


@pytest.fixture
def labs(monkeypatch):
    """A directory for labs that all users can enter; it must be empty at the end."""
    base = Path(tempfile.mkdtemp(prefix="venturi-test-"))
    base.chmod(0o755)
    monkeypatch.setenv("VENTURI_LAB", str(base))
    # Report progress with every record, so that tests act on a number of trials without a delay of up to 0.1 s.
    monkeypatch.setattr(run_controller, "PROGRESS_INTERVAL_S", 0.0)
    yield base
    sweep(base)
    assert registered(base) == []
    assert list(base.iterdir()) == []
    base.rmdir()
