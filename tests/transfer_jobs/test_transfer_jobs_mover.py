"""A transfer job as a mover of scenarios, and its report section."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from jobkit import VENTURI

from venturi.analysis import analyse
from venturi.mover import OutputError, movers
from venturi.run import Run

SCENARIO = """
venturi = 1
name = "managed"
[testbed.host.here]
[testbed.storage.disk]
host = "here"
path = "data"
[workload]
kind = "sweep"
source = "disk"
destination = "disk"
repeat = 2
[workload.factors]
mover = ["cp", "managed"]
size = ["300 kB"]
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of cp and of transfer jobs, on this machine."""
    directory = tmp_path_factory.mktemp("managed")
    (directory / "scenario.toml").write_text(SCENARIO)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [*VENTURI, "run", "scenario.toml", "--quiet"],
        cwd=directory,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return Run.open(next((directory / "runs").glob("managed-*")))


def test_a_job_reports_the_bytes_at_the_receiver(run):
    found = run.query(
        "SELECT outcome, tool_bytes, received_bytes, requested_bytes FROM transfers WHERE mover = 'managed'"
    )
    assert list(found["outcome"]) == ["ok", "ok"]
    assert (
        list(found["tool_bytes"]) == list(found["received_bytes"]) == list(found["requested_bytes"]) == [300_000] * 2
    )


def test_the_section_compares_the_duration_of_a_job_with_the_tool_alone(run):
    (section,) = [section for section in analyse(run).sections if section.name == "managed"]
    (table,) = section.tables
    names = [column.name for column in table.columns]
    (row,) = [dict(zip(names, cells, strict=True)) for cells in table.rows]
    mean = run.query("SELECT mover, avg(duration_s) AS s FROM transfers GROUP BY mover ORDER BY mover")["s"]
    assert row["plain_s"] == pytest.approx(mean[0])
    assert row["duration_s"] == pytest.approx(mean[1])
    assert row["extra_per_file_s"] == pytest.approx(mean[1] - mean[0])
    assert row["to_plain_ratio"] == pytest.approx(mean[0] / mean[1])
    # The parts are all of one file and one call here, so their sum cannot exceed the total.
    parts = [row[name] for name in ("start_up_s", "wait_s", "move_s", "verify_s", "overhead_s")]
    assert all(part >= 0 for part in parts)
    assert sum(parts) <= row["duration_s"]
    assert row["verified"] == 1
    assert f"{row['to_plain_ratio']:.0%}" in section.sentence


def test_output_that_is_not_from_a_job_fails_the_transfer():
    for text in ("", "{}", '{"jobs": []}', "venturi: no"):
        with pytest.raises(OutputError):
            movers()["managed"].parse({"stdout": text})
