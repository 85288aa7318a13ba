"""Runs of older versions: a reader never breaks on one."""

import shutil
from pathlib import Path

import duckdb
import numpy as np
import pytest

import venturi.backend
import venturi.run
from venturi.run import Run, RunWriter

STORED = Path(__file__).parents[1] / "data" / "runs"


@pytest.fixture
def version_1(tmp_path):
    """A copy of a run that a Venturi of format version 1 made: stopped once, one transfer refused, one tool missing."""
    return Path(shutil.copytree(STORED / "version-1", tmp_path / "version-1"))


def test_a_run_of_version_1_says_what_it_said_then(version_1):
    with Run.open(version_1) as run:
        assert (run.name, run.version, run.state, run.backend) == ("stored", 1, "complete", "hosts")
        assert run.header["totals"]["trials"] == 6
        assert run.factors == ("files", "size_bytes", "half")
        assert run.finished_trials() == {f"t{number:07d}" for number in range(6)}
        rows = run.table("transfers")
        assert rows["outcome"].tolist() == ["ok", "failed", "ok", "ok", "missing", "ok"]
        assert rows["session"].tolist() == [1, 1, 1, 2, 2, 2]
        np.testing.assert_array_equal(rows["exit_code"], [0, 3, 0, 0, np.nan, 0])
        assert rows["error"][1] == "exit code 3: no thank you"
        assert rows["duration_s"][0] == 0.001126876
        assert run.table("samples")["counter"].tolist().count("cpu.idle_s") == 3
        assert run.table("events")["kind"].tolist() == ["dataset"]
        assert [(finding.code, finding.subject) for finding in run.findings()] == [("missing-tool", "no-such-tool")]
        assert run.environment()["node1"]["free_bytes.data"] == "1000000000000"
        assert len(run.table("sockets")["local"]) == 0
        assert rows["source_via"].tolist() == [None] * 6
        assert rows["tool"].tolist() == [None] * 6 and np.isnan(rows["tool_retransmits"]).all()


def test_a_run_of_version_1_that_was_stopped_can_be_resumed(version_1):
    lines = (version_1 / "journal.jsonl").read_text().splitlines(keepends=True)
    (version_1 / "journal.jsonl").write_text("".join(lines[:-1]))
    with RunWriter.resume(version_1) as run:
        assert (list(run.remaining()), run.sessions_before) == (["t0000005"], 2)


def test_a_column_that_an_older_table_lacks_is_null(version_1):
    with Run.open(version_1) as run:
        run.query("SELECT count(*) FROM transfers")
    (version_1 / "journal.jsonl").unlink()  # the tables are all there is
    table = version_1 / "transfers.parquet"
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE old AS SELECT * EXCLUDE (labels, intended_s) FROM '{table}'")
        connection.execute(f"COPY old TO '{table}' (FORMAT parquet)")
    with Run.open(version_1) as run:
        rows = run.query("SELECT trial, labels, intended_s FROM transfers")
    assert rows["labels"].tolist() == [None] * 6
    assert np.isnan(rows["intended_s"]).all()


def test_the_public_names_are_these():
    assert set(venturi.run.__all__) == {
        "RUN_VERSION", "Finding", "Run", "RunState", "RunWriter", "latest_run", "resolve_run"}  # fmt: skip
    assert set(venturi.backend.__all__) == {
        "Backend", "ClockOffset", "HostsBackend", "LabBackend", "Outcome", "Progress", "SimBackend", "find_engine"}  # fmt: skip
