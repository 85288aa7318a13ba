"""`venturi transfer` as a user types it: what it says where there is nothing, where words are off, and of one."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from managedkit import VENTURI, copies, make_files, submitted
from typer.testing import CliRunner

from venturi.cli.root import app
from venturi.managed import Queue


def transfer(*words):
    """Return what a command says, the error that it ends with included."""
    done = CliRunner().invoke(app, ["transfer", *map(str, words)])
    return done, done.output + (str(done.exception) if done.exception else "")


def typed(*words):
    """Return what a command in a process of its own says."""
    return subprocess.run([*VENTURI, "transfer", *map(str, words)], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("words", [["status"], ["status", 1], ["run"], ["run", 1], ["cancel", 1], ["list"]], ids=str)
@pytest.mark.parametrize("there", [True, False])
def test_where_there_is_no_job_that_is_said_and_how_to_make_one(tmp_path, words, there):
    folder = tmp_path / "queue"
    if there:
        Queue(folder, create=True).close()
    done, said = transfer(*words, "--queue", folder)
    assert done.exit_code != 0
    assert f"{folder}: " in said
    assert "there is no job" in said
    assert said.endswith("make one with: venturi transfer submit LIST")
    assert folder.exists() == there


def test_a_job_that_there_is_not_is_told_with_those_that_there_are(tmp_path):
    queue = submitted(tmp_path, copies(tmp_path, make_files(tmp_path / "in", 1)))
    done, said = transfer("status", 7, "--queue", queue.folder)
    assert done.exit_code != 0
    assert said.endswith("expected one of the jobs 1, found 7")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["/no/list"], "expected a list of transfers that can be read: No such file or directory"),
        (["/a", "/a"], 'the command line: expected two different ends, found "/a" twice'),
        (["/a", "http://"], "the command line: expected"),
        (["/a", "foo://h/a", "--mover", "cp"], "the command line: expected ends that cp reaches"),
        (["/a", "/b", "--mover", "teleport"], 'the command line: expected one of the movers'),
        (["/a", "/b", "--option", "streams=4"], "--option: expected --mover beside it"),
        (["/a", "/b", "--backoff", "2"], "--backoff: expected"),
        (["/a", "/b", "--retries", "-1"], "retries: expected a whole number from 0 to 1000, found -1"),
        (["/a", "/b", "--run"], "engine"),
        (["/a", "/b", "--detach"], "engine"),
    ],
    ids=str,
)  # fmt: skip
def test_what_is_not_submitted_leaves_no_queue(tmp_path, monkeypatch, words, why):
    monkeypatch.setenv("VENTURI_ENGINE", str(tmp_path / "none"))
    done, said = transfer("submit", *words, "--queue", tmp_path / "queue")
    assert done.exit_code != 0
    assert why in said
    # There is no list to mend, and no line, where two ends were given.
    assert len(words) == 1 or ("line 1" not in said and "the list" not in said)
    assert not list(tmp_path.iterdir())


def test_an_end_that_no_mover_reaches_is_told_with_its_line(tmp_path):
    path = tmp_path / "my.list"
    path.write_text("/a /b\n/c foo://h/c\n")
    done, said = transfer("submit", path, "--mover", "cp", "--queue", tmp_path / "queue")
    assert done.exit_code != 0
    assert "my.list, line 2: expected ends that cp reaches" in said
    assert said.endswith("nothing was submitted; mend the list and submit it again")


def test_files_that_are_not_there_are_told_at_once_each_with_its_line(tmp_path):
    (there,) = make_files(tmp_path / "in", 1)
    path = tmp_path / "my.list"
    path.write_text(f"{there} {tmp_path}/a\nnone {tmp_path}/b\n{there} {there.parent}\n{there.parent} {tmp_path}/c\n")
    done, said = transfer("submit", path, "--queue", tmp_path / "queue")
    assert done.exit_code != 0
    assert [line.partition(": ")[2] for line in said.splitlines()[:3]] == [
        f"expected a source that is there, found {Path.cwd()}/none: No such file or directory",
        f"expected the path of a file as destination, found the folder {there.parent}; add the name of the file",
        f"expected a file as source, found the folder {there.parent}; list its files, a line each",
    ]
    assert "line 1" not in said
    assert said.endswith("nothing was submitted; mend the list and submit it again")
    assert not (tmp_path / "queue").exists()
    _, said = transfer("submit", tmp_path / "none", tmp_path / "x", "--queue", tmp_path / "queue")
    assert said.startswith(f"the command line: expected a source that is there, found {tmp_path}/none: No such file")


def test_what_is_behind_a_server_is_not_asked_for_at_once(tmp_path):
    done, _ = transfer("submit", "http://no-such-host.invalid/x", tmp_path / "x", "--queue", tmp_path / "queue")
    assert done.exit_code == 0


def test_one_is_told_in_the_singular(tmp_path):
    (gone,) = make_files(tmp_path / "in", 1)
    queue = ("--queue", tmp_path / "queue")
    handed = typed("submit", gone, tmp_path / "x", *queue)
    gone.unlink()
    ran, told = typed("run", *queue), typed("status", "--failed", *queue)
    assert handed.stdout == "job 1: 1 transfer\n"
    assert ran.returncode == 3
    assert "job 1: 0 of 1 transfer done" in ran.stderr
    assert "no-such-file after 1 try: " in told.stdout
    assert "1, 0 retries among them" in told.stdout
    assert re.search(r"in 1 call *$", told.stdout, re.MULTILINE)


@pytest.mark.parametrize("command", ["submit", "run", "status", "cancel", "list"])
def test_the_help_of_every_command_shows_how_it_is_typed(command):
    _, said = transfer(command, "--help")
    assert f"venturi transfer {command}" in said.partition("Example")[2]


def test_a_command_waits_for_no_import_that_only_others_need():
    heavy = ["numpy", "duckdb", "pydantic", "scipy", "matplotlib"]
    asked = f"import sys, venturi.cli.root, venturi.cli.transfer; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", asked], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"
