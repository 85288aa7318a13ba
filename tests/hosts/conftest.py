"""Fixtures of the tests with real hosts."""

import shutil
import sys
import tempfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "lab"))  # labkit

from hostkit import RealHosts


@pytest.fixture(scope="module")
def real_hosts(engine):
    """Two hosts, ``a`` and ``b``, that host ``c`` reaches by ssh; for all tests of a module."""
    base = Path(tempfile.mkdtemp(prefix="venturi-test-"))
    base.chmod(0o755)
    (base / "labs").mkdir()
    try:
        with RealHosts(engine, base / "labs") as hosts:
            yield hosts
    finally:
        shutil.rmtree(base)
