"""What tests of faults share: labs in a folder that must be empty at the end."""

import tempfile
from pathlib import Path

import pytest

from venturi.testbed.lab import registered, sweep


@pytest.fixture
def labs(monkeypatch):
    """A folder for labs that all users may enter; it is empty at the end."""
    base = Path(tempfile.mkdtemp(prefix="venturi-test-"))
    base.chmod(0o755)
    monkeypatch.setenv("VENTURI_LAB", str(base))
    yield base
    sweep(base)
    assert registered(base) == []
    assert list(base.iterdir()) == []
    base.rmdir()
