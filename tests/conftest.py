"""Fixtures for all tests: the engine, scratch directories, tiny plans."""

import os
import signal
import sys
from pathlib import Path

import pytest

from testkit import tiny_trials, write_plan
from venturi.backend import find_engine
from venturi.run import RunWriter

# Puts the programs of this environment on PATH, so that `.venv/bin/python -m pytest` finds them without activation.
os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"


@pytest.fixture(scope="session", autouse=True)
def _ctrl_c_works():
    """Handle SIGINT: shells ignore it for background jobs, and tests of Ctrl-C would inherit that."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session", autouse=True)
def _own_active_runs(tmp_path_factory):
    """Hide other tests that run on this machine, because active runs are a finding."""
    os.environ["VENTURI_ACTIVE_RUNS"] = str(tmp_path_factory.mktemp("active-runs") / "runs")


@pytest.fixture(scope="session", autouse=True)
def _no_proxies():
    """Remove HTTP proxy variables, because the servers of tests are on this machine."""
    for name in [name for name in os.environ if name.lower() in ("http_proxy", "https_proxy", "all_proxy")]:
        del os.environ[name]


@pytest.fixture(scope="session")
def engine():
    """Path of the real engine. If it is missing, tests fail: it is part of Venturi, not a capability of the machine."""
    return find_engine()


@pytest.fixture
def scratch(tmp_path):
    """A scratch directory for agents."""
    path = tmp_path / "scratch"
    path.mkdir()
    return path


@pytest.fixture
def tiny_plan(tmp_path):
    """Return a function that writes a plan with ``count`` trials into the test directory: see :func:`write_plan`."""

    def make(count=4, **changes):
        return write_plan(tmp_path / "plan.jsonl", tiny_trials(count), **changes)

    return make


@pytest.fixture
def new_run(tmp_path, tiny_plan):
    """Return a function that creates a run and starts its first session."""

    def make(count=4, *, parse=None, **changes):
        run = RunWriter.create(tmp_path / "runs", tiny_plan(count, **changes), backend="hosts", parse=parse)
        run.start_session({"node1": {"kernel": "6.1"}})
        return run

    return make
