"""`venturi transfer` on the command line: output for empty queues, for invalid arguments, and for one transfer."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from jobkit import VENTURI, copies, make_files, submitted
from typer.testing import CliRunner

from venturi.cli.root import app
from venturi.transfer_jobs import TransferQueue


def transfer(*words):
    """Return the result of a command, and its output with the error message."""
    done = CliRunner().invoke(app, ["transfer", *map(str, words)])
    return done, done.output + (str(done.exception) if done.exception else "")


def typed(*words):
    """Run a command in its own process."""
    return subprocess.run([*VENTURI, "transfer", *map(str, words)], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("words", [["status"], ["status", 1], ["run"], ["run", 1], ["cancel", 1], ["list"]], ids=str)
@pytest.mark.parametrize("there", [True, False])
def test_a_missing_or_empty_queue_is_reported_with_the_command_that_submits_a_job(tmp_path, words, there):
    directory = tmp_path / "queue"
    if there:
        TransferQueue(directory, create=True).close()
    done, printed = transfer(*words, "--queue", directory)
    assert done.exit_code != 0
    assert f"{directory}: " in printed
    assert printed.endswith("venturi transfer submit LIST")
    assert directory.exists() == there


def test_an_unknown_job_is_reported_with_the_existing_jobs(tmp_path):
    queue = submitted(tmp_path, copies(tmp_path, make_files(tmp_path / "in", 1)))
    done, printed = transfer("status", 7, "--queue", queue.directory)
    assert done.exit_code != 0
    assert printed.endswith("expected one of the jobs 1, found 7")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["/no/list"], "cannot read the list of transfers: No such file or directory"),
        (["/a", "/a"], 'the command line: expected two different endpoints, found "/a" twice'),
        (["/a", "http://"], "the command line: expected"),
        (["/a", "foo://h/a", "--mover", "cp"], "the command line: expected local files for cp"),
        (["/a", "/b", "--mover", "teleport"], 'the command line: expected one of the movers'),
        (["/a", "/b", "--option", "streams=4"], "--option: expected --mover"),
        (["/a", "/b", "--backoff", "2"], "--backoff: expected"),
        (["/a", "/b", "--retries", "-1"], "retries: expected a whole number from 0 to 1000, found -1"),
        (["/a", "/b", "--run"], "engine"),
        (["/a", "/b", "--detach"], "engine"),
    ],
    ids=str,
)  # fmt: skip
def test_a_rejected_submission_creates_no_queue(tmp_path, monkeypatch, words, why):
    monkeypatch.setenv("VENTURI_ENGINE", str(tmp_path / "none"))
    done, printed = transfer("submit", *words, "--queue", tmp_path / "queue")
    assert done.exit_code != 0
    assert why in printed
    # For two endpoints on the command line, the message must not mention a list or a line.
    assert len(words) == 1 or ("line 1" not in printed and "the list" not in printed)
    assert not list(tmp_path.iterdir())


def test_an_endpoint_that_the_mover_does_not_support_is_reported_with_its_line(tmp_path):
    path = tmp_path / "my.list"
    path.write_text("/a /b\n/c foo://h/c\n")
    done, printed = transfer("submit", path, "--mover", "cp", "--queue", tmp_path / "queue")
    assert done.exit_code != 0
    assert "my.list, line 2: expected local files for cp" in printed
    assert printed.endswith("nothing was submitted; correct the list and submit it again")


def test_submit_reports_all_invalid_local_paths_together(tmp_path):
    (there,) = make_files(tmp_path / "in", 1)
    path = tmp_path / "my.list"
    path.write_text(f"{there} {tmp_path}/a\nnone {tmp_path}/b\n{there} {there.parent}\n{there.parent} {tmp_path}/c\n")
    done, printed = transfer("submit", path, "--queue", tmp_path / "queue")
    assert done.exit_code != 0
    assert [line.partition(": ")[2] for line in printed.splitlines()[:3]] == [
        f"expected an existing source, found {Path.cwd()}/none: No such file or directory",
        f"expected the path of a file as destination, found the directory {there.parent}; add the name of the file",
        f"expected a file as source, found the directory {there.parent}; list its files, one per line",
    ]
    assert "line 1" not in printed
    assert printed.endswith("nothing was submitted; correct the list and submit it again")
    assert not (tmp_path / "queue").exists()
    _, printed = transfer("submit", tmp_path / "none", tmp_path / "x", "--queue", tmp_path / "queue")
    assert printed.startswith(f"the command line: expected an existing source, found {tmp_path}/none: No such file")


def test_submit_does_not_contact_servers(tmp_path):
    done, _ = transfer("submit", "http://no-such-host.invalid/x", tmp_path / "x", "--queue", tmp_path / "queue")
    assert done.exit_code == 0


def test_a_count_of_one_is_printed_in_the_singular(tmp_path):
    (gone,) = make_files(tmp_path / "in", 1)
    queue = ("--queue", tmp_path / "queue")
    handed = typed("submit", gone, tmp_path / "x", *queue)
    gone.unlink()
    ran, listed = typed("run", *queue), typed("status", "--failed", *queue)
    assert handed.stdout == "job 1: 1 transfer\n"
    assert ran.returncode == 3
    assert "job 1: 0 of 1 transfer done" in ran.stderr
    assert "no-such-file after 1 attempt: " in listed.stdout
    assert "1, including 0 retries" in listed.stdout
    assert re.search(r"in 1 call *$", listed.stdout, re.MULTILINE)


@pytest.mark.parametrize("command", ["submit", "run", "status", "cancel", "list"])
def test_the_help_of_every_command_has_an_example(command):
    _, printed = transfer(command, "--help")
    assert f"venturi transfer {command}" in printed.partition("Example")[2]


def test_transfer_commands_do_not_import_heavy_packages():
    heavy = ["numpy", "duckdb", "pydantic", "scipy", "matplotlib"]
    requested = f"import sys, venturi.cli.root, venturi.cli.transfer; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", requested], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"
