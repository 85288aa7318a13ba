"""The doctor checks the real machine."""

import os
import shutil
from pathlib import Path

import pytest

from venturi.backend import find_engine
from venturi.errors import BackendError
from venturi.testbed import examine


def checks(scratch, engine=find_engine):
    return {check.name: check for check in examine(scratch, engine)}


def test_a_missing_engine_is_reported_with_advice(tmp_path):
    def missing():
        raise BackendError("expected the engine, found none")

    check = checks(tmp_path, missing)["engine"]
    assert (check.state, check.group) == ("missing", "needed")
    assert "make setup" in check.advice


def test_an_engine_that_does_not_start_is_reported_as_missing(tmp_path):
    broken = tmp_path / "engine"
    broken.write_text("not a program")
    broken.chmod(0o755)
    assert checks(tmp_path, lambda: broken)["engine"].state == "missing"


def test_a_missing_tool_is_reported_with_its_package_and_its_mover(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    check = checks(tmp_path)["rclone"]
    assert check.state == "missing"
    assert "apt-get install rclone" in check.advice and "mover rclone" in check.advice


@pytest.mark.skipif(os.geteuid() == 0, reason="root can write everywhere")
def test_an_unwritable_scratch_directory_is_reported_as_missing():
    assert checks(Path("/proc/nothing"))["scratch"].state == "missing"


def test_a_scratch_directory_that_does_not_exist_is_accepted_and_not_created(tmp_path):
    scratch = tmp_path / "a" / "b"
    assert checks(scratch)["scratch"].state in ("ok", "limited")
    assert not scratch.exists()


@pytest.mark.parametrize(
    ("scratch", "problem"),
    [("/proc/nothing", "cannot write in /proc"), ("/dev/null/x", "/dev/null is not a directory")],
)
def test_a_scratch_directory_that_cannot_be_created_is_reported_with_the_cause(scratch, problem):
    check = checks(Path(scratch))["scratch"]
    assert check.state == "missing"
    assert problem in check.found


def test_the_engine_is_reported_with_version_profile_target_and_commit(tmp_path):
    engine = tmp_path / "engine"
    engine.write_text(
        '#!/bin/sh\necho \'{"version":"0.1.0","profile":"release","target":"x86_64","commit":"4b877d723149"}\'\n'
    )
    engine.chmod(0o755)
    assert checks(tmp_path, lambda: engine)["engine"].found.startswith("0.1.0 (release, x86_64, commit 4b877d7) at ")


def test_every_failed_check_has_advice(tmp_path):
    assert all(check.advice for check in examine(tmp_path, find_engine) if check.state != "ok")


@pytest.mark.skipif(not list(Path("/usr/lib").glob("*/gfal2-plugins")), reason="needs gfal2")
def test_missing_gfal2_plugins_are_reported_with_their_packages(tmp_path, monkeypatch):
    (installed,) = Path("/usr/lib").glob("*/gfal2-plugins")
    for protocol in ("file", "http"):
        shutil.copy(installed / f"libgfal_plugin_{protocol}.so", tmp_path)
    monkeypatch.setenv("GFAL_PLUGIN_DIR", str(tmp_path))
    check = checks(tmp_path)["gfal2 plugins"]
    assert check.state == "missing"
    assert check.advice.endswith("apt-get install gfal2-plugin-gridftp gfal2-plugin-xrootd gfal2-plugin-srm")
