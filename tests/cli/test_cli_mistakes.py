"""What a new user types wrong: one sentence with what was expected, found, where, and what to do next; an exit code; no traceback."""

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


def said(*words: str | Path) -> str:
    """Return the one sentence that a command ends with, in this process."""
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code != 0
    assert isinstance(done.exception, VenturiError), done.exception or done.output
    assert done.stdout == ""
    text = str(done.exception)
    assert text and "Traceback" not in text
    return text


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of the test's own with a scenario, a file that is none, and a run that has not begun."""
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
    }  # a shell, TOML, the engine's own, and JSON itself
    for words, command in _commands(typer.main.get_command(app), []):
        name = " ".join(words)
        assert "Example" in (command.help or ""), name
        options = {option for parameter in command.params for option in parameter.opts}
        assert "--json" in options or name in plain, name


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["run", "nothing.toml"], "found neither; see `venturi study list`, or begin with a copy: venturi study show"),
        (["plan", "runs"], "found a directory; name the file in it"),
        (["run", "runs/mine-1"], "found a run; go on with it: venturi run --resume runs/mine-1"),
        (["report", "mime"], "found no such run (runs there, the newest first: mine-1); give one of them, or another folder"),
        (["report", "mine", "--runs", "none"], "below none/, found no such run (runs there, the newest first: none)"),
        (["plan", "cnaf/cp", "--quick", "--full"], "expected one of --quick and --full, found both; leave one out"),
        (["study", "run", "cnaf/cp", "--quick", "--full"], "expected one of --quick and --full, found both"),
        (["plan", "cnaf/cp", "--submit", "pbs", "-o", "out"], '--submit: expected one of the batch systems slurm, htcondor, found "pbs"'),
        (["calibrate", "mine", "-o", "none/costs.toml"], "none/costs.toml: expected a place that can be written to, found: there is no directory none"),
        (["validate", "mine", "-o", "passwd/below"], "passwd is not a directory; give another"),
        (["ensemble", "wan.toml", "--seeds", "9..1"], "ensemble: --seeds: expected a range upwards"),
        (["ensemble", "wan.toml", "--costs", "passwd"], "passwd: expected a file of costs, found none"),
        (["ensemble", "wan.toml", "--costs", "none"], "none: expected a file of costs, found none that can be read"),
        (["transfer", "submit", "none.txt"], "give its path, or - for standard input"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)  # fmt: skip
def test_what_is_expected_found_and_to_do_next_is_said(home: Path, words: list[str], expected: str) -> None:
    assert expected in said(*words)
    assert not list(home.glob("runs/wan-*")), "nothing is begun"


def lab_that_is_up(id_: str) -> SimpleNamespace:
    return SimpleNamespace(id=id_, name="lab", kept=True, folder=Path("/nowhere"))


@pytest.mark.parametrize(
    ("labs", "words", "expected"),
    [
        ([], ["shell", "a"], "found none; begin one with: venturi lab up SCENARIO"),
        (["one", "two"], ["shell", "a"], "expected one lab that is up, or --lab ID, found one (lab), two (lab); give --lab with one of these"),
        (["one"], ["status", "--lab", "x"], "expected a lab x that is up, found one (lab); give --lab with one of these"),
        (["one"], ["link", "wan", "rate=1"], 'lab link: rate=1: expected a rate such as "10 Gb/s", found "1" without a unit'),
        (["one"], ["link", "wan", "rate"], 'lab link: expected rate=100Mb/s, delay=5ms, jitter=1ms, queue=1MB, loss=0.001, reorder=0.001, up=true or up=false, found "rate"'),
        (["one"], ["link", "wan", "loss=2"], 'up=true or up=false, found "loss=2"'),
    ],
)  # fmt: skip
def test_mistakes_with_a_lab_by_hand_are_told(
    monkeypatch: pytest.MonkeyPatch, labs: list[str], words: list[str], expected: str
) -> None:
    monkeypatch.setattr("venturi.cli.lab.registered", lambda: [lab_that_is_up(id_) for id_ in labs])
    assert expected in said("lab", *words)


def run_cli(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*VENTURI, *words], cwd=home, env=_environment(home), capture_output=True, text=True, timeout=120, check=False
    )


def _environment(home: Path) -> dict[str, str]:
    return os.environ | {"NO_COLOR": "1", "COLUMNS": "100", "VENTURI_TEST": str(home), "TMPDIR": str(home)}


def test_a_message_tells_a_file_as_it_is(home: Path) -> None:
    """``:x:`` is a picture to some terminals."""
    assert 'found "root:x:0:0:root"' in run_cli(home, "plan", "passwd").stderr


def test_what_fails_for_one_reason_in_many_members_is_told_once(home: Path, engine: Path) -> None:
    done = run_cli(home, "ensemble", "wan.toml", "--seeds", "1..3", "--figure", "x=SELECT none")
    assert done.returncode == 3
    failed, ended = done.stderr.splitlines()
    assert failed.startswith(
        "failed: seed 1, and 2 others: figure x: expected SQL over the tables of a run, found SELECT none: Binder Error"
    )
    assert ended.startswith("0 of 3 members, in runs/wan-ensemble-")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_ensemble_that_is_stopped_says_where_it_is_and_how_to_go_on(home: Path, engine: Path, number: int) -> None:
    process = subprocess.Popen(
        [*VENTURI, "ensemble", "wan.toml", "--seeds", "1..5000", "--workers", "1"],
        cwd=home, env=_environment(home), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    wait_until(lambda: any(path.stat().st_size for path in home.glob("runs/*/members.jsonl")), "a member")
    process.send_signal(number)
    _, talk = process.communicate(timeout=60)
    (there,) = home.glob("runs/wan-ensemble-*")
    assert process.returncode == 130
    assert (
        talk.strip()
        == f"stopped; what is done stays; go on with: the same command with --directory runs/{there.name}"
    )
    assert sorted(path.name for path in there.iterdir()) == ["ensemble.json", "lock", "members.jsonl"]
    assert living_processes(home) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_command_that_keeps_nothing_ends_in_order_by_ctrl_c_and_by_sigterm(home: Path, number: int) -> None:
    (home / "wan.toml").write_text(WAN.replace("REPEAT", "3000000"), encoding="utf-8")
    process = subprocess.Popen(
        [*VENTURI, "run", "wan.toml", "--on", "sim"],
        cwd=home, env=_environment(home), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    # The plan is being written: it takes minutes.
    wait_until(lambda: any(path.stat().st_size > 1000 for path in home.glob("tmp*/plan.jsonl")), "the plan to grow")
    process.send_signal(number)
    _, talk = process.communicate(timeout=60)
    assert (process.returncode, talk) == (130, "venturi: stopped; the same command does it from the beginning\n")
    assert not list(home.glob("tmp*")) and not list(home.glob("runs/wan-*"))


@pytest.mark.parametrize("command", ["copy", "serve"])
def test_what_the_engine_carries_out_is_called_as_it_is_typed(home: Path, command: str) -> None:
    for option in ("-h", "--help"):
        told = run_cli(home, command, option)
        assert told.returncode == 0
        assert f"Usage: venturi {command} [OPTIONS]" in told.stdout
        assert f"\n  venturi {command} " in told.stdout, "an example"
        assert "venturi-engine" not in told.stdout


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["copy"], "Usage: venturi copy [OPTIONS] SRC... DST"),
        (["copy", "passwd"], "venturi copy: SRC DST: expected a source and a destination; see --help, found one place"),
        (["copy", "fpt://h/x", "x"], "expected a path, or a URL of file, ftp, gsiftp, sshftp, http, https, dav or davs, found a place of `fpt:`"),
        (["copy", "nothing", "x"], "venturi copy: nothing: expected a file or directory, found No such file or directory"),
        (["copy", "passwd", "no/x"], "no: expected a directory to copy into, found No such file or directory; make it, or say --mkpath"),
        (["copy", "runs", "x"], "expected a file, found a directory; say --recursive to copy directories"),
        (["copy", "--streams", "4", "passwd", "x"], "venturi copy: --streams: expected a place at a server"),
        (["copy", "ftp://127.0.0.1:1/x", "x"], "found no answer of 127.0.0.1:1: Connection refused"),
        (["serve"], "Usage: venturi serve [OPTIONS] DIRECTORY"),
        (["serve", "nothing"], "venturi serve: nothing: expected a directory to serve, found No such file or directory"),
        (["serve", "runs", "--listen", "2811"], "expected an address and a port, such as 127.0.0.1:2811, or [::]:2811 for all addresses"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)  # fmt: skip
def test_mistakes_with_copy_and_serve_are_told(home: Path, words: list[str], expected: str) -> None:
    done = run_cli(home, *words)
    assert done.returncode in {1, 2, 3}
    assert expected in done.stderr
    assert not (home / "x").exists()
