import json
import os
import shutil
import stat
import subprocess
import sys

import numpy as np
import pytest

from testkit import transfer_record, trial_record
from venturi.errors import RunError
from venturi.run import Run, RunWriter, latest_run, resolve_run
from venturi.run.columns import COLUMNS


def test_a_null_is_nan_in_numeric_columns_and_none_elsewhere(new_run):
    run = new_run()
    run.trial(trial_record("t0000000", transfers=[transfer_record("t0000000", exit_code=None, error=None)]), "node1")
    run.trial(trial_record("t0000001", transfers=[transfer_record("t0000001", exit_code=3, error="no")]), "node1")
    run.finish("stopped")
    columns = Run.open(run.path).query(
        "SELECT exit_code, error, requested_bytes, intended_s, exit_code > 1 AS bad FROM transfers ORDER BY trial"
    )
    np.testing.assert_array_equal(columns["exit_code"], [np.nan, 3.0])
    assert columns["error"].tolist() == [None, "no"]
    assert columns["requested_bytes"].dtype == np.int64
    assert columns["intended_s"].dtype == np.float64
    assert np.isnan(columns["intended_s"]).all()
    assert columns["bad"].tolist() == [None, True]
    assert not any(isinstance(values, np.ma.MaskedArray) for values in columns.values())


def test_every_table_has_its_columns_even_in_an_empty_run(new_run):
    run = new_run()
    run.finish("stopped")
    with Run.open(run.path) as read:
        for table, columns in COLUMNS.items():
            assert list(read.table(table)) == list(columns), table
        assert read.table("transfers")["duration_s"].dtype == np.float64
        assert read.factors == ()
        assert read.finished_trials() == frozenset()
        assert read.environment() == {"node1": {"kernel": "6.1"}}


def test_parameters_are_bound_by_position_and_by_name(new_run):
    with new_run() as run:
        read = Run.open(run.path)
        assert read.query("SELECT ? + ? AS sum", [1, 2])["sum"].tolist() == [3]
        assert read.query("SELECT $a * $b AS product", {"a": 3, "b": 4})["product"].tolist() == [12]


def test_query_progress_is_not_printed_to_standard_output(new_run):
    # DuckDB assumes a prompt if the program is not a file.
    program = "import sys; from venturi.run import Run; print(Run.open(sys.argv[1]).query(sys.argv[2])['drawn'][0])"
    statement = "SELECT current_setting('enable_progress_bar') AS drawn"
    with new_run() as run:
        done = subprocess.run(
            [sys.executable, "-c", program, run.path, statement], capture_output=True, text=True, check=True
        )
    assert done.stdout == "False\n"


def test_an_invalid_query_and_an_unknown_table_are_clear_errors(new_run):
    with new_run() as run:
        read = Run.open(run.path)
        with pytest.raises(RunError, match=r"cannot run the query: .*duration"):
            read.query("SELECT duration FROM transfers")
        with pytest.raises(
            RunError, match=r"expected one of the tables transfers, routes, trials, .* found 'transfer'"
        ):
            read.table("transfer")


def test_factors_keep_their_types_regardless_of_the_first_value(tmp_path, tiny_plan):
    plan = tiny_plan(4)
    lines = [json.loads(line) for line in plan.read_text().splitlines()]
    values = [{"a": None, "b": 1, "c": 1, "d": True}, {"a": "x", "b": 2.5, "c": "auto", "d": False},
              {"a": None, "b": 3, "c": 2, "d": True}, {"a": "7", "b": 4, "c": 3, "d": None, "e/f~\"'": 1}]  # fmt: skip
    for line, factors in zip(lines[1:], values, strict=True):
        line["steps"][0]["factors"] = factors
    plan.write_text("\n".join(map(json.dumps, lines)) + "\n")
    with RunWriter.create(tmp_path / "runs", plan, backend="hosts") as run:
        run.start_session({})
        for number in range(4):
            run.trial(trial_record(f"t000000{number}"), "node1")
        run.finish("complete")
    rows = Run.open(run.path).table("transfers")
    assert rows["factor_a"].tolist() == [None, "x", None, "7"]
    assert rows["factor_b"].tolist() == [1.0, 2.5, 3.0, 4.0]
    assert rows["factor_c"].tolist() == ["1", "auto", "2", "3"]
    assert rows["factor_d"].tolist() == [True, False, True, None]
    np.testing.assert_array_equal(rows["factor_e/f~\"'"], [np.nan, np.nan, np.nan, 1.0])


def test_a_run_that_is_being_written_can_be_read(new_run):
    run = new_run()
    run.trial(trial_record("t0000000"), "node1")
    run.flush()
    with (run.path / "journal.jsonl").open("ab") as journal:
        journal.write(b'{"trial": {"trial": "t00')  # an incomplete write
    before = sorted(run.path.iterdir())
    with Run.open(run.path) as read:
        assert read.finished_trials() == {"t0000000"}
    assert sorted(run.path.iterdir()) == before  # a reader does not change the writer's directory
    run.close()


def test_a_killed_run_is_read_up_to_its_torn_lines_without_changing_its_files(new_run):
    run = new_run()
    run.trial(trial_record("t0000000"), "node1")
    run.sample({"time_s": 0.5, "counters": {"cpu.user_s": 1.5}}, "node1")
    run.close()
    torn = {"journal.jsonl": b'{"trial": {"trial": "t0000001"}}', "samples.jsonl": b'{"host": "node1", "ti'}
    for name, half in torn.items():
        with (run.path / name).open("ab") as file:
            file.write(half)
    before = {name: (run.path / name).read_bytes() for name in torn}
    with Run.open(run.path) as read:
        assert read.finished_trials() == {"t0000000"}
        assert read.table("samples")["value"].tolist() == [1.5]
    assert {name: (run.path / name).read_bytes() for name in torn} == before  # a reader must not repair these files
    made = (run.path / "transfers.parquet").stat().st_mtime_ns
    with Run.open(run.path) as read:
        assert read.finished_trials() == {"t0000000"}
    assert (run.path / "transfers.parquet").stat().st_mtime_ns == made


def test_tables_older_than_the_journal_are_rebuilt(new_run):
    run = new_run()
    run.trial(trial_record("t0000000"), "node1")
    run.finish("stopped")
    made = (run.path / "transfers.parquet").stat().st_mtime_ns
    with Run.open(run.path) as read:
        assert len(read.finished_trials()) == 1
    assert (run.path / "transfers.parquet").stat().st_mtime_ns == made
    again = RunWriter.resume(run.path)
    again.start_session({})
    again.trial(trial_record("t0000001"), "node1")
    again.close()  # killed before the tables were written
    with Run.open(run.path) as read:
        assert len(read.finished_trials()) == 2
    assert (run.path / "transfers.parquet").stat().st_mtime_ns > made


def test_a_run_with_only_its_tables_can_be_read(new_run):
    run = new_run()
    run.trial(trial_record("t0000000"), "node1")
    run.finish("stopped")
    for name in ("journal.jsonl", "samples.jsonl", "events.jsonl", "lock"):
        (run.path / name).unlink()
    assert Run.open(run.path).finished_trials() == {"t0000000"}


def test_a_read_only_run_can_be_read(new_run, monkeypatch):
    run = new_run()
    run.trial(trial_record("t0000000"), "node1")
    run.close()
    run.path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    if os.geteuid() == 0:  # root can write everywhere, so simulate missing permission
        monkeypatch.setattr(os, "access", lambda path, mode: False)
    before = sorted(run.path.iterdir())
    with Run.open(run.path) as read:
        assert read.finished_trials() == {"t0000000"}
    assert sorted(run.path.iterdir()) == before
    run.path.chmod(stat.S_IRWXU)


def test_a_path_can_contain_special_characters_of_shell_and_sql(tmp_path, tiny_plan):
    path = tmp_path / "it's [1] *run?"
    with RunWriter.create(tmp_path, tiny_plan(), backend="hosts", path=path) as run:
        run.start_session({})
        run.trial(trial_record("t0000000"), "node1")
        run.finish("stopped")
    assert Run.open(path).finished_trials() == {"t0000000"}


def test_a_journal_line_of_twenty_megabytes_is_read(new_run):
    transfers = [transfer_record(slot=slot, stderr="x" * 1000) for slot in range(16_000)]
    run = new_run()
    run.trial(trial_record(transfers=transfers), "node1")
    run.finish("stopped")
    assert (run.path / "journal.jsonl").stat().st_size > 20e6
    rows = Run.open(run.path).table("transfers")
    assert rows["slot"].tolist() == list(range(16_000))


def test_times_and_sizes_are_read_back_exactly(new_run):
    values = {"start_s": 1234567.123456789, "duration_s": 1e-7 / 3, "requested_bytes": 2**62 + 1}
    run = new_run()
    run.trial(trial_record(transfers=[transfer_record(**values)]), "node1")
    run.finish("stopped")
    row = Run.open(run.path).query("SELECT start_s, duration_s, requested_bytes FROM transfers")
    assert {name: column[0].item() for name, column in row.items()} == values


def test_newer_and_damaged_runs_are_rejected_with_an_explanation(new_run):
    with new_run() as run:
        info = json.loads((run.path / "run.json").read_text())
        for change, message in (
            ({"version": 3}, "version 2 or older, found version 3"),
            ({"format": "zip"}, "expected the format 'venturi-run', found 'zip'"),
            ({"state": "lost"}, "expected the keys that docs/reference/run.md describes, found .*lost"),
        ):
            (run.path / "run.json").write_text(json.dumps(info | change))
            with pytest.raises(RunError, match=message):
                Run.open(run.path)
        (run.path / "run.json").write_text("{")
        with pytest.raises(RunError, match=r"expected the keys that docs/reference/run\.md describes"):
            Run.open(run.path)


def test_a_run_is_found_by_path_name_or_prefix_of_the_name(tmp_path, tiny_plan):
    paths = {}
    for name in ("cp-here", "cp-there"):
        for number in (1, 2):
            path = tmp_path / f"{name}-2026010{number}T000000Z"
            RunWriter.create(tmp_path, tiny_plan(name=name), backend="hosts", path=path).close()
            paths[name, number] = path
    assert latest_run(tmp_path) == paths["cp-there", 2]
    assert resolve_run(paths["cp-here", 1], tmp_path) == paths["cp-here", 1]
    assert resolve_run(paths["cp-here", 1].name, tmp_path) == paths["cp-here", 1]
    assert resolve_run("cp-here-20260101", tmp_path) == paths["cp-here", 1]
    assert resolve_run("cp-h", tmp_path) == paths["cp-here", 2]
    with pytest.raises(RunError, match=r"expected a prefix of one run name .* found cp-here-.* give a longer prefix"):
        resolve_run("cp", tmp_path)
    with pytest.raises(RunError, match="found no such run"):
        resolve_run("xrdcp", tmp_path)
    shutil.rmtree(paths["cp-there", 2])
    (paths["cp-there", 1] / "run.json").write_text("damaged")
    assert latest_run(tmp_path) == paths["cp-here", 2]
    with pytest.raises(RunError, match="expected at least one run, found none"):
        latest_run(tmp_path / "empty")


def test_the_name_of_a_scenario_has_priority_over_longer_names_with_that_prefix(tmp_path, tiny_plan):
    for name in ("first", "first-cold", "a day/night test"):
        RunWriter.create(tmp_path, tiny_plan(name=name), backend="hosts").close()
    assert Run.open(resolve_run("first", tmp_path)).name == "first"
    assert Run.open(resolve_run("first-c", tmp_path)).name == "first-cold"
    assert Run.open(resolve_run("a day/night test", tmp_path)).name == "a day/night test"
    with pytest.raises(RunError, match="give a longer prefix"):
        resolve_run("fir", tmp_path)
    with pytest.raises(RunError, match="found no such run"):
        resolve_run("", tmp_path)
