"""`venturi tune` as a user runs it: simulated and real probes, an own controller, and errors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tuningkit import SCENARIO
from typer.testing import CliRunner

from venturi import simulate
from venturi.cli.root import app

VENTURI = Path(sys.executable).parent / "venturi"

LOCAL = """
venturi = 1
name = "local"

[testbed.host.here]

[testbed.storage.disk]
host = "here"
path = "data"

[workload]
kind = "sweep"
mover = "venturi"
source = "disk"
destination = "disk"
files_per_call = 2
factors.size = ["1 MB"]
"""

OWN = '''
from dataclasses import dataclass

from venturi.tuning import StopTuning, TunedSettings


@dataclass(frozen=True)
class Two:
    """Try two streams, then stop."""

    name: str = "two"
    summary: str = "Two streams."
    source: str = "this file"

    def first(self, path):
        return TunedSettings(streams=2)

    def next(self, path, history):
        return StopTuning(f"tried {len(history)}")
'''


@pytest.fixture
def tune(tmp_path, monkeypatch):
    """Return a function that runs the command in a directory with the scenarios."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "far.toml").write_text(SCENARIO)
    (tmp_path / "local.toml").write_text(LOCAL)

    def run(*words):
        return CliRunner().invoke(app, ["tune", *words])

    return run


@pytest.fixture(scope="module")
def far(tmp_path_factory):
    """Return the JSON result of a simulated tuning."""
    directory = tmp_path_factory.mktemp("far")
    (directory / "far.toml").write_text(SCENARIO)
    done = subprocess.run(
        [VENTURI, "tune", "far.toml", "--on", "sim", "--json"],
        cwd=directory, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_found_settings_reach_95_percent_of_an_exhaustive_grid_in_six_probes(far, tmp_path):
    path = tmp_path / "grid.toml"
    grid = 'factors.size = ["100 MB"]\nfactors.concurrency = [1, 2, 4, 8]\nfactors.streams = [1, 4, 16]'
    path.write_text(SCENARIO.replace('factors.size = ["100 MB"]', grid))
    rows = simulate(path).query(
        "SELECT max(requested_bytes / duration_s) AS best FROM transfers WHERE outcome = 'ok'"
    )
    found = max(one["rate_bytes_per_s"] for one in far["probes"] if one["settings"] == far["settings"])
    assert found >= 0.95 * float(rows["best"][0])
    assert len(far["probes"]) <= 6
    assert far["gain"]["low"] > 2


def test_the_rate_of_a_probe_is_that_of_its_transfers(far, tmp_path):
    first = far["probes"][0]
    path = tmp_path / "far.toml"
    path.write_text(SCENARIO)
    rows = simulate(path).query("SELECT requested_bytes / duration_s AS rate FROM transfers")
    # Set-up of the trial and random draws of the seed are the difference.
    assert first["rate_bytes_per_s"] == pytest.approx(float(rows["rate"][0]), rel=0.02)
    assert first["settings"] == {} and first["success"] == 1


def test_the_path_has_the_properties_of_the_testbed(far):
    path = far["path"]
    assert path["rtt_s"] == pytest.approx(0.1)
    # 1448 bytes of data in a packet of 1500, at 95 % of the link.
    assert path["rate_bytes_per_s"] == pytest.approx(125e6 * 1448 / 1500 * 0.95, rel=1e-6)
    assert (path["file_bytes"], path["files"], path["loss"]) == (100e6, 8, None)
    # Half of the default send buffer of 4 MiB.
    assert path["window_bytes"] == 4194304 / 2


def test_the_command_line_has_the_options_of_the_tool(far):
    settings = far["settings"]
    assert far["command"].split()[0] == "globus-url-copy"
    assert f"-cc {settings['concurrency']}" in far["command"]
    assert ("-p " in far["command"]) == ("streams" in settings)


def test_the_first_line_is_the_result_in_at_most_25_words_and_the_output_repeats(tune, tmp_path):
    first, second = (
        subprocess.run(
            [VENTURI, "tune", "far.toml", "--on", "sim", "--controller", "bdp"],
            cwd=tmp_path, capture_output=True, text=True, check=True,
        )
        for _ in range(2)
    )  # fmt: skip
    assert first.stdout == second.stdout
    line = first.stdout.splitlines()[0]
    assert len(line.split()) <= 25 and line.startswith(("Use ", "Keep "))
    assert "globus-url-copy" in first.stdout.splitlines()[-1]
    assert "probe 1: defaults" in first.stderr


def test_a_real_tuning_of_local_copies_has_cpu_and_runs(tune, tmp_path):
    words = ("local.toml", "--on", "hosts", "--max-probes", "2", "--scratch", str(tmp_path / "s"), "--json")
    done = tune(*words)
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert [one["success"] for one in found["probes"]] == [1, 1]
    assert all(one["rate_bytes_per_s"] > 0 and one["cpu_s_per_gb"] > 0 for one in found["probes"])
    assert all(3 <= len(one["rates_bytes_per_s"]) <= 12 for one in found["probes"])
    assert set(found["probes"][1]["settings"]) <= {"concurrency", "block_bytes"}
    assert list((tmp_path / "runs").glob("local-tune-*"))


def test_a_controller_of_a_user_is_one_file(tmp_path):
    (tmp_path / "far.toml").write_text(SCENARIO)
    (tmp_path / "mine.py").write_text(OWN)
    done = subprocess.run(
        [VENTURI, "tune", "far.toml", "--on", "sim", "--controller", "mine:Two", "--json"],
        cwd=tmp_path, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [one["settings"] for one in found["probes"]] == [{}, {"streams": 2}]
    assert (found["controller"], found["reason"]) == ("two", "tried 1")


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (("far.toml", "--controller", "falcon"), ("--controller", "falcon-gradient")),
        (("far.toml", "--controller", "nowhere:Two"), ("--controller", "PYTHONPATH")),
        (("far.toml", "--controller", "json:loads"), ("--controller",)),
        (("local.toml", "--mover", "cp", "--set", "workload.files_per_call=1"), ("workload.mover", "globus-url-copy")),
        (("local.toml", "--set", 'workload.factors.mover=["cp", "venturi"]', "--set", "workload.files_per_call=1"),
         ("workload.mover", "one mover", "--mover")),
        (("far.toml", "--set", 'workload.factors.size=["1 MB", "2 MB"]'), ("workload.factors.size", "--set")),
        (("far.toml", "--time", "0 s"), ("--time",)),
        (("far.toml", "--on", "moon"), ("--on", "sim")),
        (("from", "to", "--on", "sim"), ("--on", "hosts")),
        (("none.toml",), ("none.toml",)),
    ],
)  # fmt: skip
def test_a_mistake_names_the_location_and_the_next_step(tune, words, parts):
    done = tune(*words)
    assert done.exit_code != 0
    text = str(done.exception)
    assert all(part in text for part in parts), text


def test_a_factor_of_a_tunable_option_is_chosen_by_the_controller(tune):
    done = tune(
        "far.toml", "--on", "sim", "--controller", "rclone", "--set", "workload.factors.streams=[1, 2]", "--json"
    )
    assert done.exit_code == 0, done.output
    assert [one["settings"] for one in json.loads(done.stdout)["probes"]] == [{}, {"concurrency": 4, "streams": 1}]


def test_a_workload_without_a_sweep_is_rejected(tune, tmp_path):
    text = SCENARIO.replace('kind = "sweep"', 'kind = "clients"').replace("files_per_call = 8\n", "")
    (tmp_path / "clients.toml").write_text(text.replace('factors.size = ["100 MB"]', 'size = "1 MB"\nclients = [1]'))
    done = tune("clients.toml", "--on", "sim")
    assert done.exit_code != 0 and "workload" in str(done.exception)
