"""What tests of several rooms share: the engine, scratch directories, tiny plans."""

import os
import signal
import sys
from pathlib import Path

import pytest

from testkit import tiny_trials, write_plan
from venturi.backend import find_engine
from venturi.run import RunWriter

# Our programs are beside this Python, also where `.venv/bin/python -m pytest` is all that was typed.
os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"


@pytest.fixture(scope="session", autouse=True)
def _ctrl_c_works():
    """A shell starts what it puts in the background with SIGINT ignored, and tests of Ctrl-C would pass it on."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session", autouse=True)
def _no_proxies():
    """Servers of tests are on this machine, whatever proxies of HTTP whoever runs them has."""
    for name in [name for name in os.environ if name.lower() in ("http_proxy", "https_proxy", "all_proxy")]:
        del os.environ[name]


@pytest.fixture(scope="session")
def engine():
    """Path of the real engine. It is ours and not a capability of the machine: without it tests fail, none is skipped."""
    return find_engine()


@pytest.fixture
def scratch(tmp_path):
    """A scratch directory for agents."""
    path = tmp_path / "scratch"
    path.mkdir()
    return path


@pytest.fixture
def tiny_plan(tmp_path):
    """Return a function that writes a plan of so many trials into the test's directory: see :func:`write_plan`."""

    def make(count=4, **changes):
        return write_plan(tmp_path / "plan.jsonl", tiny_trials(count), **changes)

    return make


@pytest.fixture
def new_run(tmp_path, tiny_plan):
    """Return a function that makes a run and begins its first session."""

    def make(count=4, *, parse=None, **changes):
        run = RunWriter.create(tmp_path / "runs", tiny_plan(count, **changes), backend="hosts", parse=parse)
        run.begin_session({"node1": {"kernel": "6.1"}})
        return run

    return make
