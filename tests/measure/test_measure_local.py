"""`venturi measure` from the command line on this machine: result, saved files, errors, and signals."""

import json
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from pathkit import leftovers, sessions_in

from testkit import wait_until
from venturi.measure import Endpoint, MeasureOptions, measure

VENTURI = Path(sys.executable).with_name("venturi")


@pytest.fixture
def directories(tmp_path):
    """Two directories with a user file in each."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mine").write_text("keep")
    yield tmp_path / "a", tmp_path / "b"
    for name in ("a", "b"):
        assert [path.name for path in (tmp_path / name).iterdir()] == ["mine"]
        assert (tmp_path / name / "mine").read_text() == "keep"
    assert leftovers(tmp_path) == []


def start(*arguments, cwd):
    return subprocess.Popen(
        [VENTURI, "measure", *map(str, arguments)], cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def run(*arguments, cwd):
    process = start(*arguments, cwd=cwd)
    out, err = process.communicate(timeout=180)
    return process.returncode, out, err


@pytest.mark.alone
def test_a_measurement_between_two_local_directories_is_complete_and_saved(directories, tmp_path):
    a, b = directories
    code, out, err = run("--time", "15 s", "--json", a, b, cwd=tmp_path)
    assert code == 0, err
    result = json.loads(out)
    [path] = result["paths"]
    assert result["complete"] is True
    assert set(path["parts"]) == {"read", "write", "mover", "copy"}
    for part in path["parts"].values():
        assert part["interval"]["n"] == 5
        assert part["interval"]["low"] <= part["rate_bytes_per_s"] <= part["interval"]["high"]
    assert path["smallest"] in ("read", "write", "mover")
    saved = tmp_path / result["saved"]
    assert json.loads((saved / "measure.json").read_text())["paths"][0]["summary"] == path["summary"]
    scenario = tomllib.loads((saved / "scenario.toml").read_text())
    assert scenario["testbed"]["storage"]["source"]["path"] == f"{a}/venturi"
    assert scenario["testbed"]["storage"]["destination"]["path"] == f"{b}/venturi"
    done = subprocess.run([VENTURI, "plan", saved / "scenario.toml"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "15" in next(line for line in done.stdout.splitlines() if line.startswith("trials"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{a}", "{tmp}/absent"], "absent: expected a directory, found no such path"),
        (["{a}/mine", "{b}"], "mine: expected a directory, found a file"),
        (["{a}", "/proc"], "/proc: cannot create a directory"),
        (["gopher://dtn/x", "{b}"], "expected a URL with one of the schemes"),
        (["{a}", "{b}", "--time", "1 s"], "--time: expected at least 15 s, found 1 s"),
        (["{a}", "{b}", "--ports", "9-5"], "--ports: expected a range"),
        (["{a}", "{b}", "--max-bytes", "1 MB"], "--max-bytes: expected at least"),
        (["{a}", "{b}", "--rounds", "100"], "--time: expected at least"),
        (["{a}", "{b}", "--runs", "/proc/runs"], "/proc/runs: cannot write"),
        (["no-such-host.invalid:/tmp", "{b}"], "no-such-host.invalid"),
    ],
)
def test_invalid_endpoints_and_options_name_the_problem(directories, tmp_path, arguments, message):
    a, b = directories
    code, out, err = run(*(word.format(a=a, b=b, tmp=tmp_path) for word in arguments), cwd=tmp_path)
    assert (code, out) == (1, "")
    assert message in " ".join(err.split()), err
    assert "Traceback" not in err
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_during_the_rounds_keeps_the_result_and_removes_all_files(directories, tmp_path, number):
    a, b = directories
    process = start(a, b, "--json", cwd=tmp_path)
    # In the second round, each part has at least one sample.
    for line in process.stderr:
        if line.startswith("round 2"):
            break
    sessions = sessions_in(tmp_path)
    assert leftovers("/nonexistent", sessions)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    result = json.loads(out)
    assert (result["complete"], result["rounds"], result["failure"]) == (False, 1, "interrupted")
    assert all(part["interval"] is None for part in result["paths"][0]["parts"].values())
    assert leftovers(tmp_path, sessions) == []


def test_files_are_removed_after_a_killed_controller(directories, tmp_path):
    a, b = directories
    process = start(a, b, cwd=tmp_path)
    for line in process.stderr:
        if line.startswith("round 1"):
            break
    sessions = sessions_in(tmp_path)
    assert leftovers("/nonexistent", sessions)
    process.kill()
    process.communicate()
    # The shell gets end of file on its input.
    wait_until(lambda: leftovers(tmp_path, sessions) == [], "no files")


def test_progress_reports_each_round_with_its_results(directories):
    a, b = directories
    seen = []
    measure(Endpoint(str(a)), Endpoint(str(b)), MeasureOptions(time_s=8.0, rounds=2), seen.append)
    assert [progress.round for progress in seen if progress.round] == [1] * 4 + [2] * 4
    parts = seen[-1].paths[0].parts
    assert {part: len(result.samples) for part, result in parts.items()} == {
        "read": 1,
        "write": 2,
        "mover": 2,
        "copy": 2,
    }
