"""One scenario of a study gives one plan for existing hosts, the lab and the simulation."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from venturi.cli.root import app
from venturi.study import studies, study

BACKENDS = ("hosts", "lab", "sim")
FIVE = ("cnaf/gridftp-two-nodes", "infn-gpfs/group2", "ani/gridftp", "fiu/xrootd", "alice/matrix")
"""One study of each report."""


@pytest.fixture
def plan(tmp_path, monkeypatch):
    """Return a function that runs ``venturi plan``."""
    monkeypatch.setenv("VENTURI_SCRATCH", str(tmp_path / "scratch"))
    monkeypatch.chdir(tmp_path)
    return lambda *words: CliRunner().invoke(app, ["plan", *words])


@pytest.mark.parametrize("size", [["--quick"], []])
@pytest.mark.parametrize("name", FIVE)
def test_a_portable_study_has_the_same_plan_for_every_backend(plan, name, size):
    plans = {}
    for backend in BACKENDS:
        done = plan(name, *size, "--portable", "--on", backend, "--lines")
        assert done.exit_code == 0, done.stderr
        plans[backend] = done.stdout_bytes
    assert plans["hosts"].count(b"\n") > 1
    assert plans["hosts"] == plans["lab"] == plans["sim"]


@pytest.mark.parametrize("name", FIVE)
def test_the_hosts_backend_uses_the_portable_variant_by_default(plan, name):
    assert plan(name, "--quick", "--on", "hosts", "--lines").stdout_bytes == (
        plan(name, "--quick", "--portable", "--lines").stdout_bytes
    )


def test_the_five_studies_cover_the_five_reports():
    assert [study(name).document for name in FIVE] == ["000", "001", "002", "003", "004"]


@pytest.mark.parametrize("name", studies())
def test_the_portable_variant_does_not_depend_on_the_backend(name):
    chosen = study(name)
    for size in ({"quick": True}, {"full": True}, {}):
        assert len({chosen.overrides(portable=True, on=on, **size) for on in (None, *BACKENDS)}) == 1


def test_the_default_simulation_has_the_published_scale_and_the_portable_one_the_lab_scale(plan):
    usual, portable = (
        json.loads(plan("fiu/xrootd", *more, "--on", "sim", "--lines").stdout.partition("\n")[0])
        for more in ((), ("--portable",))
    )
    assert (usual["scale"], portable["scale"]) == (1.0, 0.05)
    assert "oss" in usual["hosts"]
    assert "oss" not in portable["hosts"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["fiu/dgt", "--quick", "--on", "hosts"], "--on: testbed.service.metadata: MooseFS runs only in a lab"),
        (["cnaf/cp", "--quick", "--on", "moon"], '--on: expected one of hosts, lab, sim, found "moon"'),
        (["cnaf/cp", "--on", "lab", "--hosts", "mine.toml"], "--hosts: expected --on hosts, found --on lab"),
    ],
)
def test_a_plan_that_its_backend_cannot_run_is_rejected(plan, words, message):
    done = plan(*words)
    assert done.exit_code == 1
    assert message in str(done.exception)
    assert len(str(done.exception).splitlines()) == 1


def test_only_studies_have_a_portable_variant(plan, tmp_path):
    (tmp_path / "my.toml").write_text("venturi = 1\n")
    done = plan("my.toml", "--portable")
    assert "only studies have a portable variant" in str(done.exception)
