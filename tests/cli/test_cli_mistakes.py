"""Common mistakes of new users: the message names location, problem and next step, without a traceback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import typer.main
from typer.testing import CliRunner

from testkit import living_processes, wait_until, write_plan
from venturi.cli.reference import _commands
from venturi.cli.root import app
from venturi.errors import VenturiError
from venturi.run import RunWriter

VENTURI = [sys.executable, "-c", "from venturi.cli import main; main()"]
WAN = """
venturi = 1
name = "wan"
[testbed.host.a]
[testbed.host.b]
[testbed.link.wan]
between = ["a", "b"]
rate = "1 Gb/s"
delay = "10 ms"
[testbed.storage.from]
host = "a"
path = "from"
[testbed.storage.to]
host = "b"
path = "to"
[testbed.service.x]
kind = "xrootd"
host = "a"
storage = ["from"]
[workload]
kind = "sweep"
mover = "xrdcp"
source = "from"
destination = "to"
repeat = REPEAT
[workload.factors]
files = [1]
size = ["1 MB"]
"""


def printed(*words: str | Path) -> str:
    """Run a command in this process and return its error message."""
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code != 0
    assert isinstance(done.exception, VenturiError), done.exception or done.output
    assert done.stdout == ""
    text = str(done.exception)
    assert text and "Traceback" not in text
    return text


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a scenario, a file that is not a scenario, and a run that has not started."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wan.toml").write_text(WAN.replace("REPEAT", "2"), encoding="utf-8")
    (tmp_path / "passwd").write_text("root:x:0:0:root\n", encoding="utf-8")
    plan = write_plan(tmp_path / "plan.jsonl", [])
    RunWriter.create("runs", plan, backend="hosts", path=Path("runs/mine-1")).close()
    return tmp_path


def test_every_command_that_prints_a_result_has_an_example_and_json() -> None:
    plain = {
        "lab shell",
        "testbed wlcg",
        "copy",
        "serve",
        "schema",
    }  # their output is a shell, TOML, that of the engine, or JSON itself
    for words, command in _commands(typer.main.get_command(app), []):
        name = " ".join(words)
        assert "Example" in (command.help or ""), name
        options = {option for parameter in command.params for option in parameter.opts}
        assert "--json" in options or name in plain, name


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["run", "nothing.toml"], "found neither; see `venturi study list`, or start from a copy: venturi study show"),
        (["plan", "runs"], "found a directory; name a file in it"),
        (["run", "runs/mine-1"], "found a run; resume it with: venturi run --resume runs/mine-1"),
        (["report", "mime"], "found no such run (newest runs: mine-1); name one of them, or another directory"),
        (["report", "mine", "--runs", "none"], "below none/, found no such run (newest runs: none)"),
        (["plan", "cnaf/cp", "--quick", "--full"], "expected one of --quick and --full, found both; omit one"),
        (["study", "run", "cnaf/cp", "--quick", "--full"], "expected one of --quick and --full, found both"),
        (["plan", "cnaf/cp", "--submit", "pbs", "-o", "out"], '--submit: expected one of the batch systems slurm, htcondor, found "pbs"'),
        (["calibrate", "mine", "-o", "none/costs.toml"], "none/costs.toml: directory none does not exist"),
        (["validate", "mine", "-o", "passwd/below"], "passwd is not a directory; choose another path"),
        (["ensemble", "wan.toml", "--seeds", "9..1"], "ensemble: --seeds: expected an increasing range"),
        (["ensemble", "wan.toml", "--costs", "passwd"], "passwd: expected a cost file, found"),
        (["ensemble", "wan.toml", "--costs", "none"], "none: cannot read the cost file"),
        (["transfer", "submit", "none.txt"], "name a readable file, or - for standard input"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)  # fmt: skip
def test_mistakes_are_reported_with_expectation_value_and_next_step(
    home: Path, words: list[str], expected: str
) -> None:
    assert expected in printed(*words)
    assert not list(home.glob("runs/wan-*")), "nothing is begun"


def lab_that_is_up(id_: str) -> SimpleNamespace:
    return SimpleNamespace(id=id_, name="lab", active=True, directory=Path("/nowhere"))


@pytest.mark.parametrize(
    ("labs", "words", "expected"),
    [
        ([], ["shell", "a"], "found none; start one with: venturi lab up SCENARIO"),
        (["one", "two"], ["shell", "a"], "--lab ID, found one (lab), two (lab); name one of them with --lab"),
        (["one"], ["status", "--lab", "x"], "lab x to be up, found one (lab); name one of them with --lab"),
        (["one"], ["link", "wan", "rate=1"], 'lab link: rate=1: expected a rate such as "10 Gb/s", found "1" without a unit'),
        (["one"], ["link", "wan", "rate"], 'lab link: expected rate=100Mb/s, delay=5ms, jitter=1ms, queue=1MB, loss=0.001, reorder=0.001, up=true or up=false, found "rate"'),
        (["one"], ["link", "wan", "loss=2"], 'up=true or up=false, found "loss=2"'),
    ],
)  # fmt: skip
def test_mistakes_with_lab_commands_are_reported(
    monkeypatch: pytest.MonkeyPatch, labs: list[str], words: list[str], expected: str
) -> None:
    monkeypatch.setattr("venturi.cli.lab.registered", lambda: [lab_that_is_up(id_) for id_ in labs])
    assert expected in printed("lab", *words)


def run_cli(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*VENTURI, *words], cwd=home, env=_environment(home), capture_output=True, text=True, timeout=120, check=False
    )


def _environment(home: Path) -> dict[str, str]:
    return os.environ | {"NO_COLOR": "1", "COLUMNS": "100", "VENTURI_TEST": str(home), "TMPDIR": str(home)}


def test_a_message_quotes_file_content_unchanged(home: Path) -> None:
    """Some terminals display ``:x:`` as a picture."""
    assert 'found "root:x:0:0:root"' in run_cli(home, "plan", "passwd").stderr


def test_an_equal_failure_of_many_ensemble_members_is_reported_once(home: Path, engine: Path) -> None:
    done = run_cli(home, "ensemble", "wan.toml", "--seeds", "1..3", "--figure", "x=SELECT none")
    assert done.returncode == 3
    failed, ended = done.stderr.splitlines()
    assert failed.startswith(
        "failed: seed 1, and 2 others: figure x: expected SQL over the tables of a run, found SELECT none: Binder Error"
    )
    assert ended.startswith("0 of 3 members, in runs/wan-ensemble-")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_ensemble_prints_its_directory_and_how_to_resume(home: Path, engine: Path, number: int) -> None:
    process = subprocess.Popen(
        [*VENTURI, "ensemble", "wan.toml", "--seeds", "1..5000", "--workers", "1"],
        cwd=home, env=_environment(home), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    wait_until(lambda: any(path.stat().st_size for path in home.glob("runs/*/members.jsonl")), "a member")
    process.send_signal(number)
    _, error_text = process.communicate(timeout=60)
    (there,) = home.glob("runs/wan-ensemble-*")
    assert process.returncode == 130
    assert (
        error_text.strip()
        == f"interrupted; finished members are kept. To resume, run the same command with --directory runs/{there.name}"
    )
    assert sorted(path.name for path in there.iterdir()) == ["ensemble.json", "lock", "members.jsonl"]
    assert living_processes(home) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupting_the_creation_of_a_plan_leaves_no_files(home: Path, number: int) -> None:
    (home / "wan.toml").write_text(WAN.replace("REPEAT", "3000000"), encoding="utf-8")
    process = subprocess.Popen(
        [*VENTURI, "run", "wan.toml", "--on", "sim"],
        cwd=home, env=_environment(home), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    # The plan is being written, which takes minutes.
    wait_until(lambda: any(path.stat().st_size > 1000 for path in home.glob("tmp*/plan.jsonl")), "the plan to grow")
    process.send_signal(number)
    _, error_text = process.communicate(timeout=60)
    assert (process.returncode, error_text) == (130, "venturi: interrupted. Run the command again to start over.\n")
    assert not list(home.glob("tmp*")) and not list(home.glob("runs/wan-*"))


@pytest.mark.parametrize("command", ["copy", "serve"])
def test_the_help_of_engine_commands_uses_the_venturi_command_name(home: Path, command: str) -> None:
    for option in ("-h", "--help"):
        completed = run_cli(home, command, option)
        assert completed.returncode == 0
        assert f"Usage: venturi {command} [OPTIONS]" in completed.stdout
        assert f"\n  venturi {command} " in completed.stdout, "an example"
        assert "venturi-engine" not in completed.stdout


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["copy"], "Usage: venturi copy [OPTIONS] SRC... DST"),
        (["copy", "passwd"], "venturi copy: SRC DST: expected a source and a destination; see --help, found one path"),
        (["copy", "fpt://h/x", "x"], "expected a path or a URL (file, ftp, gsiftp, sshftp, http, https, dav, davs), found a `fpt:` URL"),
        (["copy", "nothing", "x"], "venturi copy: nothing: expected a file or directory, found No such file or directory"),
        (["copy", "passwd", "no/x"], "no: expected a directory to copy into, found No such file or directory; create it, or add --mkpath"),
        (["copy", "runs", "x"], "expected a file, found a directory; add --recursive to copy directories"),
        (["copy", "--streams", "4", "passwd", "x"], "venturi copy: --streams: expected a server as source or destination, found local paths"),
        (["copy", "ftp://127.0.0.1:1/x", "x"], "cannot connect to 127.0.0.1:1: Connection refused"),
        (["serve"], "Usage: venturi serve [OPTIONS] DIRECTORY"),
        (["serve", "nothing"], "venturi serve: nothing: expected a directory to serve, found No such file or directory"),
        (["serve", "runs", "--listen", "2811"], "expected an address and a port, such as 127.0.0.1:2811, or [::]:2811 for all addresses"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)  # fmt: skip
def test_mistakes_with_copy_and_serve_are_reported(home: Path, words: list[str], expected: str) -> None:
    done = run_cli(home, *words)
    assert done.returncode in {1, 2, 3}
    assert expected in done.stderr
    assert not (home / "x").exists()
