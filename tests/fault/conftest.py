"""What tests of faults share: labs in a folder that must be empty at the end."""

import tempfile
from pathlib import Path

import pytest

from venturi.backend import campaign
from venturi.testbed.lab import registered, sweep


@pytest.fixture
def labs(monkeypatch):
    """A folder for labs that all users may enter; it is empty at the end."""
    base = Path(tempfile.mkdtemp(prefix="venturi-test-"))
    base.chmod(0o755)
    monkeypatch.setenv("VENTURI_LAB", str(base))
    # Progress is told with every record: what a test does when so many trials are done is not up to a tenth of a second late.
    monkeypatch.setattr(campaign, "PROGRESS_INTERVAL_S", 0.0)
    yield base
    sweep(base)
    assert registered(base) == []
    assert list(base.iterdir()) == []
    base.rmdir()
