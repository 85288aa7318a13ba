"""Commands in real processes with real files: exit codes, stdout and stderr."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from html.parser import HTMLParser
from pathlib import Path

import pytest
from typer.testing import CliRunner

from testkit import Gate
from venturi.cli.progress import LINE_INTERVAL_S
from venturi.cli.root import app

VENTURI = [sys.executable, "-c", "from venturi.cli import main; main()"]
TIMEOUT_S = 120

SCENARIO = """
venturi = 1
name = "tiny"
seed = 1
[testbed.host.here]
[testbed.storage.disk]
host = "here"
path = "tiny"
[workload]
kind = "sweep"
mover = "cp"
source = "disk"
destination = "disk"
repeat = 3
[workload.factors]
files = [1, 2, 3, 4]
size = ["10 kB", "100 kB", "1 MB"]
"""

SLOW = """
venturi = 1
name = "slow"
seed = 1
[testbed.host.here]
[testbed.storage.disk]
host = "here"
path = "slow"
[mover.slow]
argv = ARGV
[workload]
kind = "sweep"
mover = "slow"
source = "disk"
destination = "disk"
repeat = 30
[workload.factors]
files = [1]
size = ["1 kB"]
"""


@pytest.fixture
def gate(tmp_path):
    """The mover of ``slow.toml``: three trials pass, and the rest after the gate opens."""
    return Gate(tmp_path / "gate", 3)


@pytest.fixture
def venturi(tmp_path, engine, gate):
    """Return a function that runs commands in the directory of the test."""

    def run(*words):
        return subprocess.run(
            [*VENTURI, *words],
            cwd=tmp_path,
            env=_environment(tmp_path),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )

    (tmp_path / "tiny.toml").write_text(SCENARIO, encoding="utf-8")
    (tmp_path / "slow.toml").write_text(SLOW.replace("ARGV", json.dumps(gate.argv)), encoding="utf-8")
    return run


def _environment(tmp_path):
    return os.environ | {"VENTURI_SCRATCH": str(tmp_path / "scratch"), "NO_COLOR": "1", "COLUMNS": "100"}


@pytest.fixture(scope="module")
def finished(tmp_path_factory, engine):
    """A directory with two runs of the tiny scenario, the second with the name ``again``."""
    home = tmp_path_factory.mktemp("finished")
    (home / "tiny.toml").write_text(SCENARIO, encoding="utf-8")
    for words in (["run", "tiny.toml"], ["run", "tiny.toml", "--set", "name=again"]):
        done = subprocess.run(
            [*VENTURI, *words], cwd=home, env=_environment(home), capture_output=True, text=True, timeout=TIMEOUT_S
        )
        assert done.returncode == 0, done.stderr
    return home


def _in(home, *words):
    return subprocess.run(
        [*VENTURI, *words], cwd=home, env=_environment(home), capture_output=True, text=True, timeout=TIMEOUT_S
    )


def test_help_names_every_command(venturi):
    text = venturi("--help").stdout
    for command in ("run", "plan", "report", "compare", "fit", "study", "doctor", "schema"):
        assert command in text
        assert venturi(command, "--help").returncode == 0


def test_help_does_not_import_analysis_dependencies():
    timed = [sys.executable, "-X", "importtime", *VENTURI[1:], "--help"]
    timing = subprocess.run(timed, check=True, capture_output=True, text=True).stderr
    imported = {line.rpartition("|")[2].strip() for line in timing.splitlines()}
    assert "venturi.scenario" in imported
    assert not {"numpy", "duckdb", "scipy", "matplotlib"} & imported


@pytest.mark.parametrize(
    "words",
    [[], ["run"], ["plan"], ["report"], ["compare"], ["fit"], ["study"], ["study", "run"], ["doctor"], ["schema"]],
)
def test_the_short_option_shows_the_help_of_every_command(words):
    short, long = (CliRunner().invoke(app, [*words, option]) for option in ("-h", "--help"))
    assert short.exit_code == 0
    assert short.stdout == long.stdout
    assert "Usage: " in short.stdout


def test_version_prints_the_package_version(venturi):
    from venturi import __version__

    assert venturi("--version").stdout == f"venturi {__version__}\n"


def test_doctor_finds_the_engine_and_reports_it_in_json(venturi):
    checks = json.loads(venturi("doctor", "--json").stdout)
    assert {check["name"]: check["state"] for check in checks}["engine"] == "ok"


def test_plan_prints_totals_and_its_lines_are_reproducible(venturi):
    counted = json.loads(venturi("plan", "tiny.toml", "--json").stdout)
    assert (counted["trials"], counted["transfers"], counted["fits"]) == (36, 90, True)
    assert counted["bytes"] == 3 * (1 + 2 + 3 + 4) * (10_000 + 100_000 + 1_000_000)
    first, second = (venturi("plan", "tiny.toml", "--lines").stdout for _ in range(2))
    assert first == second
    assert len(first.splitlines()) == 1 + 36


def test_a_plan_that_does_not_fit_is_rejected_before_the_run_is_created(venturi, tmp_path):
    words = ["tiny.toml", "--set", 'workload.factors.size=["9 PB"]']
    planned = venturi("plan", *words)
    assert planned.returncode == 1
    assert "free" in planned.stderr and "scratch" in planned.stderr
    assert venturi("run", *words).returncode == 1
    assert not (tmp_path / "runs").exists()


def test_report_writes_text_page_tables_figures_and_json(finished):
    done = _in(finished, "report", "tiny", "--csv", "tables", "--png", "figures")
    assert done.returncode == 0, done.stderr
    assert "B/s" in done.stdout and "venturi advise runs/tiny-" in done.stdout
    page = next(finished.glob("runs/tiny-*/report.html")).read_text(encoding="utf-8")
    HTMLParser().feed(page)
    assert list((finished / "tables").glob("*.csv"))
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in (finished / "figures").glob("*.png"))
    assert list((finished / "figures").glob("*.png"))
    analysis = json.loads(_in(finished, "report", "tiny", "--json").stdout)
    assert analysis["format"] == "venturi-analysis"
    assert len(analysis["points"]) == 12


def test_a_report_is_plain_text_without_a_terminal(finished):
    assert "\x1b[" not in _in(finished, "report", "tiny").stdout


def test_two_runs_are_compared(finished):
    done = _in(finished, "compare", "tiny", "again", "--json")
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["points"]) == 12
    assert _in(finished, "compare", "tiny", "again").returncode == 0


def test_fit_predicts_inside_and_rejects_outside_the_measured_range(finished):
    inside = json.loads(_in(finished, "fit", "tiny", "--against", "files", "--at", "2.5", "--json").stdout)
    assert (inside["format"], inside["version"], len(inside["curves"])) == ("venturi-fit", 1, 3)
    assert all(curve["predictions"][0]["throughput_bytes_per_s"] > 0 for curve in inside["curves"])
    outside = _in(finished, "fit", "tiny", "--against", "files", "--at", "400")
    assert outside.returncode == 1
    assert "400" in outside.stderr and "extrapol" in outside.stderr
    assert _in(finished, "fit", "tiny", "--against", "files", "--at", "400", "--extrapolate").returncode == 0


def test_fit_with_an_unknown_factor_names_the_factors_of_the_run(finished):
    done = _in(finished, "fit", "tiny", "--against", "streams")
    assert done.returncode == 1
    assert "files" in done.stderr and "Traceback" not in done.stderr


def test_study_show_prints_a_valid_scenario(venturi, tmp_path):
    text = venturi("study", "show", "cnaf/cp", "--scenario").stdout
    (tmp_path / "copy.toml").write_text(text, encoding="utf-8")
    assert json.loads(venturi("plan", "copy.toml", "--json", "--scratch", ".").stdout)["trials"] == 13_200
    assert "cnaf/cp" in venturi("study", "list").stdout
    assert "000-E03" in venturi("study", "show", "cnaf/cp").stdout


def test_schema_is_a_json_schema_that_accepts_the_studies(venturi):
    import jsonschema

    from venturi.scenario.document import read_document
    from venturi.study import studies

    schema = json.loads(venturi("schema").stdout)
    for study in studies().values():
        # A file can omit required keys that its included files have.
        jsonschema.validate(read_document(study.scenario_path, ()).data, schema)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["run", "nothing.toml"], "nothing.toml"),
        (["run", "tiny.toml", "--on", "moon"], 'expected one of hosts, lab, sim, found "moon"'),
        (["run", "tiny.toml", "--set", "workload.repeet=3"], "did you mean"),
        (["run", "tiny.toml", "--quick"], "only studies have a quick variant"),
        (["report", "nothing"], "expected the path of a run"),
        (["study", "run", "cnaf/pc"], 'did you mean "cnaf/cp"?'),
        (["run", "--resume", "tiny.toml"], "expected the path of a run"),
        (["run", "--resume", "cnaf/cp"], "expected the path of a run"),
        (["run", "cnaf/pc"], 'did you mean the study "cnaf/cp"?'),
        (["fit", "tiny", "--at", "3"], "--against"),
        (["fit", "tiny", "--family", "lineer"], "did you mean linear?"),
        (["plan", "tiny.toml", "--set", 'analyse.families=["lineer"]'], "did you mean linear?"),
        (
            ["plan", "tiny.toml", "-o", "nowhere/plan.jsonl"],
            "nowhere/plan.jsonl: cannot write: No such file or directory; choose another path",
        ),
        (["run", "tiny.toml", "--scratch", "tiny.toml/below"], "tiny.toml is not a directory"),
        (["run", "tiny.toml", "--scratch", "/proc/nothing"], "choose another directory with --scratch"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_invalid_arguments_give_a_message_and_code_1(venturi, words, expected):
    done = venturi(*words)
    assert done.returncode == 1
    assert expected in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_stops_the_children_and_prints_how_to_resume(venturi, tmp_path, gate, number):
    process = subprocess.Popen(
        [*VENTURI, "run", "slow.toml"], cwd=tmp_path, env=_environment(tmp_path),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    _wait_for_trials(tmp_path, 3)
    process.send_signal(number)
    _, error_text = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 130
    gate.open()
    assert "venturi run --resume" in error_text
    (path,) = (tmp_path / "runs").glob("slow-*")
    assert json.loads((path / "run.json").read_text())["state"] == "stopped"
    resumed = venturi("run", "--resume", "slow.toml", "--json")
    assert resumed.returncode == 0, resumed.stderr
    assert json.loads(resumed.stdout)["trials_done"] == 30
    trials = [json.loads(line)["trial"]["trial"] for line in _journal(path) if "trial" in json.loads(line)]
    assert len(trials) == len(set(trials)) == 30


def test_failed_transfers_give_code_3_and_a_reason(venturi):
    done = venturi(
        "run",
        "slow.toml",
        "--set",
        "workload.repeat=2",
        "--set",
        'mover.slow.argv=["sh", "-c", "echo broken >&2; exit 7"]',
    )
    assert done.returncode == 3
    report = venturi("report", "slow")
    assert report.returncode == 0, report.stderr
    assert "broken" in report.stdout


def test_run_prints_why_transfers_failed(venturi):
    failing = [
        "slow.toml",
        "--set",
        'mover.slow.argv=["sh", "-c", "echo broken >&2; exit 7"]',
        "--set",
        "workload.repeat=2",
    ]
    done = venturi("run", *failing)
    assert done.returncode == 3
    assert "2 of 2 trials have failed transfers; the first: slow failed" in done.stderr
    assert "broken" in done.stderr
    as_json = venturi("run", *failing, "--json")
    assert as_json.returncode == 3
    assert "broken" in json.loads(as_json.stdout)["first_failure"]


def test_failed_trials_are_retried_on_request_and_the_report_mentions_it(venturi, tmp_path):
    command = f"test -e {tmp_path}/mended && cp $1 $2"
    failing = f'mover.slow.argv=["sh", "-c", "{command}", "sh", "{{source}}", "{{destination}}"]'
    few = ["slow.toml", "--set", failing, "--set", "workload.repeat=2"]
    first = venturi("run", *few)
    assert first.returncode == 3
    (path,) = (tmp_path / "runs").iterdir()
    assert f"venturi run --resume --retry-failed {path.relative_to(tmp_path)}" in first.stderr
    assert "all trials are done" in venturi("run", "--resume", *few).stderr
    alone = venturi("run", "--retry-failed", *few)
    assert alone.returncode == 1 and "--retry-failed: expected --resume" in alone.stderr
    repaired = venturi("run", "--resume", "--retry-failed", "slow", "--json")
    assert repaired.returncode == 3, "still broken"
    assert json.loads(repaired.stdout)["trials_failed"] == 2
    (tmp_path / "mended").touch()
    again = venturi("run", "--resume", "--retry-failed", "slow")
    assert again.returncode == 0, again.stderr
    assert "0 of 2 trials done, running 2 failed trials again" in again.stderr
    assert "all trials are done" in venturi("run", "--resume", "--retry-failed", "slow").stderr
    assert "failed-trials-retried" in venturi("report", "slow", "--json").stdout


def test_a_scenario_sets_the_number_of_retries_of_failed_trials(venturi, tmp_path):
    """The tool fails in its first two calls, in a run of four trials with up to three attempts each."""
    command = f"echo x >> {tmp_path}/calls; test $(wc -l < {tmp_path}/calls) -gt 2 && cp $1 $2"
    failing = f'mover.slow.argv=["sh", "-c", "{command}", "sh", "{{source}}", "{{destination}}"]'
    done = venturi("run", "slow.toml", "--set", failing, "--set", "workload.repeat=4", "--set", "workload.retries=2")
    assert done.returncode == 0, done.stderr
    assert "2 trials failed, the first as slow failed" in done.stderr
    assert len((tmp_path / "calls").read_text().split()) == 4 + 2, (
        "what went well is not carried out again, nor twice"
    )
    assert "failed-trials-retried" in venturi("report", "slow", "--json").stdout
    never = failing.replace("-gt 2", "-gt 99")
    ended = venturi("run", "slow.toml", "--set", never, "--set", "workload.repeat=1", "--set", "workload.retries=2")
    assert ended.returncode == 3
    assert len((tmp_path / "calls").read_text().split()) == 6 + 3


def test_a_study_with_failed_transfers_is_still_reported(venturi):
    done = venturi(
        "study", "run", "cnaf/cp", "--quick", "--json", "--set", "workload.repeat=1", "--set", "workload.mover=broken",
        "--set", "workload.factors.files=[1,2]", "--set", 'mover.broken.argv=["false", "{source}", "{destination}"]',
    )  # fmt: skip
    assert done.returncode == 3, done.stderr
    assert json.loads(done.stdout)["counts"]["transfers_ok"] == 0


def test_a_complete_run_is_not_run_again(finished):
    done = _in(finished, "run", "--resume", "tiny.toml")
    assert done.returncode == 0, done.stderr
    assert "all trials are done" in done.stderr
    assert json.loads(_in(finished, "run", "--resume", "tiny.toml", "--json").stdout)["trials_done"] == 36


def test_resume_rejects_a_changed_scenario(finished):
    changed = _in(finished, "run", "--resume", "tiny.toml", "--set", "workload.repeat=9")
    assert changed.returncode == 1
    assert "workload.repeat was 3, is 9" in changed.stderr
    assert "venturi run --resume runs/tiny-" in changed.stderr


def test_a_run_is_resumed_in_the_scratch_directory_that_it_started_with(venturi, tmp_path, gate):
    process = subprocess.Popen(
        [*VENTURI, "run", "slow.toml", "--scratch", "one"], cwd=tmp_path, env=_environment(tmp_path),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    _wait_for_trials(tmp_path, 1)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=TIMEOUT_S)
    gate.open()
    other = venturi("run", "--resume", "slow.toml", "--scratch", "two")
    assert other.returncode == 1
    assert "expected the scratch directory that it started with" in other.stderr and "/one" in other.stderr
    assert (
        venturi("run", "--resume", "slow.toml").returncode == 0
    )  # although $VENTURI_SCRATCH names another directory
    assert (tmp_path / "one" / "slow").is_dir()
    assert not (tmp_path / "two").exists()
    assert not (tmp_path / "scratch").exists()


def test_a_second_run_in_the_same_scratch_directory_is_rejected_and_leaves_no_empty_run(venturi, tmp_path):
    process = subprocess.Popen(
        [*VENTURI, "run", "slow.toml"], cwd=tmp_path, env=_environment(tmp_path),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    _wait_for_trials(tmp_path, 1)
    second = venturi("run", "tiny.toml")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=TIMEOUT_S)
    assert second.returncode == 1
    assert re.search(r"to be free, found that run slow-\S+ of \S+ .* uses ", second.stderr), second.stderr
    assert "--scratch" in second.stderr
    assert not list((tmp_path / "runs").glob("tiny-*"))


def test_a_run_is_found_by_a_name_that_is_not_a_valid_file_name(venturi):
    named = ["tiny.toml", "--set", "name=a day/night test", "--set", "workload.repeat=1"]
    assert venturi("run", *named).returncode == 0
    assert venturi("report", "a day/night test").returncode == 0
    assert "all trials are done" in venturi("run", "--resume", *named).stderr


def test_a_run_is_not_compared_with_itself(finished):
    done = _in(finished, "compare", "tiny", "tiny")
    assert done.returncode == 1
    assert "expected different runs" in done.stderr


@pytest.mark.parametrize(
    "words", [["report", "tiny", "--csv", "/proc/x"], ["compare", "tiny", "again", "--html", "/proc/x"]]
)
def test_an_output_path_that_cannot_be_written_is_reported_after_the_result(finished, words):
    done = _in(finished, *words)
    assert done.returncode == 1
    assert "/proc/x: cannot write" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout


@pytest.mark.parametrize(
    "words", [["report", "tiny"], ["report", "tiny", "--json"], ["schema"], ["plan", "tiny.toml"]]
)
def test_a_full_disk_for_standard_output_is_reported(finished, words):
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*VENTURI, *words], cwd=finished, env=_environment(finished), stdout=full, stderr=subprocess.PIPE, text=True,
            timeout=TIMEOUT_S,
        )  # fmt: skip
    assert done.returncode != 0
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr


def test_sizes_for_predictions_need_a_unit(finished):
    assert "without a unit" in _in(finished, "fit", "tiny", "--against", "size", "--at", "50").stderr
    three = _in(finished, "fit", "tiny", "--against", "size", "--at", "500 kB")
    assert three.returncode == 1
    assert "expected at least 4 points, found 3" in three.stderr
    sizes = 'workload.factors.size=["10 kB", "100 kB", "400 kB", "1 MB"]'
    few = ["--set", "name=sizes", "--set", sizes, "--set", "workload.factors.files=[1]"]
    assert _in(finished, "run", "tiny.toml", *few).returncode == 0
    done = _in(finished, "fit", "sizes", "--against", "size", "--at", "500 kB")
    assert done.returncode == 0, done.stderr
    assert "at 500 kB:" in done.stdout
    assert "expected a number of files" in _in(finished, "fit", "tiny", "--against", "files", "--at", "few").stderr


@pytest.mark.parametrize("columns", ["40", ""])
def test_no_number_is_truncated_on_a_narrow_terminal(finished, columns):
    narrow = subprocess.run(
        [*VENTURI, "report", "tiny", "--full"], cwd=finished, env=_environment(finished) | {"COLUMNS": columns}, capture_output=True,
        text=True, timeout=TIMEOUT_S,
    )  # fmt: skip
    assert narrow.returncode == 0, narrow.stderr
    assert "…" not in narrow.stdout


@pytest.mark.parametrize(("module", "words"), [("typer", ["--version"]), ("tomllib", ["run", "--help"])])
def test_ctrl_c_while_the_program_is_loading_leaves_no_traceback(tmp_path, module, words):
    """An import of the command line or of a command raises the interrupt, so that the test is deterministic."""
    (tmp_path / f"{module}.py").write_text("raise KeyboardInterrupt", encoding="utf-8")
    done = subprocess.run(
        [*VENTURI, *words], cwd=tmp_path, env=os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
        capture_output=True, text=True, timeout=TIMEOUT_S,
    )  # fmt: skip
    assert done.returncode == 130
    (line,) = done.stderr.splitlines()
    assert line.startswith("venturi: interrupted")


def test_progress_without_a_terminal_does_not_print_a_line_for_each_trial(venturi):
    """Dropping the cache before each trial must not print a line per trial."""
    started_s = time.monotonic()
    done = venturi("run", "tiny.toml", "--set", "workload.cache=cold", "--set", "name=quiet")
    assert done.returncode == 0, done.stderr
    # On a slow machine, there are additional lines at fixed intervals.
    now_and_then = int((time.monotonic() - started_s) / LINE_INTERVAL_S)
    assert len([line for line in done.stderr.splitlines() if " trials · " in line]) <= 8 + now_and_then, done.stderr


def _journal(path: Path):
    return (path / "journal.jsonl").read_text(encoding="utf-8").splitlines()


def _wait_for_trials(home: Path, count: int) -> None:
    """Wait until the journal of the only run below ``home`` has this many trials."""
    end_s = time.monotonic() + TIMEOUT_S
    while time.monotonic() < end_s:
        if (
            sum(
                '"trial"' in line
                for path in home.glob("runs/*/journal.jsonl")
                for line in path.read_text().splitlines()
            )
            >= count
        ):
            return
        os.sched_yield()
    raise AssertionError(f"no {count} trials within {TIMEOUT_S} s")
