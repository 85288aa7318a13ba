"""`venturi measure` from this machine to a second shell on it: parts with a network, without root or ssh."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from pathkit import command, leftovers, sessions_in

from testkit import needs_root, wait_until
from venturi.cli.measure_view import path_table
from venturi.errors import MeasureError
from venturi.measure import Endpoint, MeasureOptions, PathResult, measure
from venturi.measure.engine import call_engine
from venturi.measure.hosts import open_hosts

VENTURI = Path(sys.executable).with_name("venturi")
HOSTS = """
other = { connect = ["sh", "-c", 'exec "$@"', "sh"] }
"""


@pytest.fixture
def start(tmp_path):
    """Start `venturi measure` from directory a of the other host to directory b, with its own temporary directory."""
    for name in ("a", "b", "temporary"):
        (tmp_path / name).mkdir()
    (tmp_path / "hosts.toml").write_text(HOSTS)
    environment = {**os.environ, "TMPDIR": str(tmp_path / "temporary")}

    def start(*arguments, **changes):
        argv = [VENTURI, "measure", "--hosts", "hosts.toml", *arguments, f"other:{tmp_path}/a", "./b"]
        return subprocess.Popen(
            [str(word) for word in argv], cwd=tmp_path, env=environment, text=True,
            **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **changes},
        )  # fmt: skip

    yield start
    assert leftovers(tmp_path) == []


def temporary_files(tmp_path):
    return [path.name for path in (tmp_path / "temporary").rglob("*")]


def test_a_killed_controller_leaves_no_key(start, tmp_path):
    process = start()
    for line in process.stderr:
        if line.startswith("round 1"):
            break
    sessions = sessions_in(tmp_path)
    process.kill()
    process.communicate()
    wait_until(lambda: leftovers(tmp_path, sessions) == [], "no files")
    assert [name for name in temporary_files(tmp_path) if name.endswith((".key", ".pem"))] == []


def test_too_few_open_ports_are_an_error_with_the_number(start, tmp_path):
    process = start("--ports", "50320-50325", "--connections", "4")
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out) == (1, "")
    assert "expected at least 7 open ports for 4 data connections, found 50320-50325" in " ".join(err.split())


def test_the_result_is_printed_even_if_it_cannot_be_saved(start, tmp_path):
    process = start("--time", "15 s", "--rounds", "1", "--json", "--runs", "runs")
    for line in process.stderr:
        if line.startswith("round 1"):
            break
    (tmp_path / "runs").write_text("a file is in the way")
    out, err = process.communicate(timeout=120)
    assert process.returncode == 1
    result = json.loads(out)
    assert result["complete"] is True
    assert result["saved"] is None
    assert "Choose another directory with --runs" in err


def test_errors_of_a_copy_report_the_cause_and_not_the_number_of_failures(tmp_path):
    (tmp_path / "a").mkdir()
    endpoint = Endpoint(str(tmp_path / "a"))
    with open_hosts(endpoint, endpoint, lambda step: None) as (host, _), pytest.raises(MeasureError) as caught:
        call_engine(host.shell, ["copy", "--json", tmp_path / "absent", tmp_path / "copy"], timeout_s=30.0)
    assert re.search(r"absent: expected a file or directory, found", str(caught.value))


@needs_root
def test_a_full_file_system_is_an_error_that_names_it(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    command("mount", "-t", "tmpfs", "-o", "size=20m", "none", tmp_path / "b")
    try:
        with pytest.raises(MeasureError, match=r"/b: expected at least 33.6 MB of free space, found 2\d"):
            measure(Endpoint(str(tmp_path / "a")), Endpoint(str(tmp_path / "b")))
    finally:
        command("umount", tmp_path / "b")


@needs_root
def test_a_host_without_memory_for_files_is_noted(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    script = 'mount -t tmpfs -o ro none /dev/shm && exec "$@"'
    other = Endpoint(str(tmp_path / "a"), connect=("unshare", "-m", "sh", "-c", script, "sh"), name="other")
    result = measure(other, Endpoint(str(tmp_path / "b")), MeasureOptions(time_s=8.0, rounds=1))
    assert [note for note in result.paths[0].notes if "in memory" in note and note.startswith("other")]
    assert not [note for note in result.paths[0].notes if "in memory" in note and note.startswith("this machine")]
    assert result.paths[0].parts["mover"].rate_bytes_per_s > 0


def test_brackets_in_a_path_are_not_parsed_as_markup(tmp_path):
    path = PathResult("a:/data/[bold]x", "b:/data", {}, None, None, (), None, None, (), "")
    assert "[bold]x" in str(path_table(path).title)


def test_a_rate_limit_applies_to_network_mover_and_copy_and_is_reported_as_the_limit(start):
    process = start("--max-rate", "40 Mb/s", "--time", "15 s", "--rounds", "2", "--json", "--quiet")
    output, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    (path,) = json.loads(output)["paths"]
    rates = {name: part["rate_bytes_per_s"] for name, part in path["parts"].items()}
    for part in ("network", "mover", "copy"):
        # A short sample has segments in flight at its ends, and the duration of a copy excludes its start-up.
        assert rates[part] <= 5e6 * 1.25, rates
    assert path["limit"] == "max-rate"
    assert "--max-rate" in path["summary"]


def test_a_rate_limit_below_the_minimum_of_the_mover_is_rejected(start):
    process = start("--max-rate", "1 Mb/s")
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "--max-rate: expected at least 8 Mb/s, found 1 Mb/s" in errors
