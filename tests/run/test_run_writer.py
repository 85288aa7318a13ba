import json

import numpy as np
import pytest

from testkit import call_of, tiny_trials, transfer_record, trial_record, write_plan
from venturi.errors import PlanError, RunError
from venturi.mover.base import ToolReport
from venturi.run import Finding, Run, RunWriter


def test_only_trials_in_the_journal_are_done(new_run):
    run = new_run()
    assert run.trial(trial_record("t0000001"), "node1")
    run.flush()
    assert list(run.remaining()) == ["t0000000", "t0000002", "t0000003"]
    run.close()  # like a kill: no tables, still "running"
    again = RunWriter.resume(run.path)
    assert again.info.state == "running"
    assert again.finished == {"t0000001"}
    assert list(again.remaining()) == ["t0000000", "t0000002", "t0000003"]
    again.close()


def test_a_trial_recorded_twice_counts_once(new_run):
    run = new_run()
    assert run.trial(trial_record(), "node1") == "ok"
    assert run.trial(trial_record(), "node1") is None
    run.finish("stopped")
    again = RunWriter.resume(run.path)
    again.start_session({})
    assert again.trial(trial_record(), "node1") is None
    again.finish("stopped")
    assert Run.open(run.path).query("SELECT count(*) AS n FROM transfers")["n"].tolist() == [1]


def test_positions_and_sessions_continue_after_a_resume(new_run):
    run = new_run()
    run.trial(trial_record("t0000002"), "node1")
    run.trial(trial_record("t0000000"), "node1")
    run.finish("stopped")
    assert Run.open(run.path).state == "stopped"
    again = RunWriter.resume(run.path)
    again.start_session({"node1": {"kernel": "6.2"}})
    assert json.loads((run.path / "run.json").read_text())["state"] == "running"
    again.trial(trial_record("t0000003"), "node1")
    again.trial(trial_record("t0000001"), "node1")
    again.finish("complete")
    with Run.open(run.path) as read:
        assert read.state == "complete"
        rows = read.table("transfers")
        assert rows["trial"].tolist() == ["t0000002", "t0000000", "t0000003", "t0000001"]
        assert rows["position"].tolist() == [0, 1, 2, 3]
        assert rows["session"].tolist() == [1, 1, 2, 2]
        assert read.environment(1)["node1"]["kernel"] == "6.1"
        assert read.environment()["node1"]["kernel"] == "6.2"


def test_the_tables_have_the_properties_of_a_trial_from_the_plan(new_run):
    run = new_run()
    run.trial(trial_record("t0000003"), "node1")
    run.finish("stopped")
    with Run.open(run.path) as read:
        row = read.table("transfers")
        names = ("point", "repetition", "block", "host", "mover", "backend", "factor_half", "factor_size_bytes")
        assert [row[name][0] for name in names] == [1, 1, 1, "node1", "cp", "hosts", 1, 100_000]
        assert read.factors == ("files", "size_bytes", "half")


def test_a_trial_of_another_plan_is_rejected(new_run):
    with (
        new_run() as run,
        pytest.raises(RunError, match=r"expected a trial of the plan from node1, found 't0000009'"),
    ):
        run.trial(trial_record("t0000009"), "node1")


def test_a_run_with_a_changed_plan_cannot_be_resumed(new_run):
    run = new_run()
    run.close()
    with (run.path / "plan.jsonl").open("a") as plan:
        plan.write(json.dumps(next(tiny_trials(1, first=9))) + "\n")
    with pytest.raises(RunError, match=r"expected the plan of this run .* restore the plan, or start a new run"):
        RunWriter.resume(run.path)
    with pytest.raises(RunError, match="expected the plan of this run"):
        RunWriter.resume(run.path)  # the lock is free; otherwise, the error would name a PID


def test_a_plan_with_a_duplicate_trial_is_rejected(tmp_path):
    lines = [*tiny_trials(1), *tiny_trials(1)]
    plan = write_plan(tmp_path / "plan.jsonl", lines)
    with pytest.raises(PlanError, match="t0000000 twice"):
        RunWriter.create(tmp_path / "runs", plan, backend="hosts")


def test_values_reported_by_a_tool_are_kept_next_to_measured_values(new_run):
    run = new_run(parse=lambda call, record: ToolReport(int(record["stdout"].split()[0])))
    run.trial(trial_record(transfers=[transfer_record(stdout="99999 bytes copied")]), "node1")
    run.finish("stopped")
    with Run.open(run.path) as read:
        row = read.table("transfers")
    assert (row["tool_bytes"][0], row["received_bytes"][0], row["outcome"][0]) == (99_999, 100_000, "ok")


def test_every_value_reported_by_a_tool_has_a_column(new_run):
    printed = ToolReport(
        99_999, 2e6, 0.25, received_bytes=99_000, retransmits=3, first_byte_s=0.01, detail={"rtt_s": 0.002}
    )
    run = new_run(parse=lambda call, record: printed)
    run.trial(trial_record("t0000000", transfers=[transfer_record("t0000000", stdout="x")]), "node1")
    run.trial(trial_record("t0000001", transfers=[transfer_record("t0000001")]), "node1")
    run.finish("stopped")
    names = ("tool_bytes", "tool_received_bytes", "tool_retransmits", "tool_duration_s", "tool_rate_bytes_per_s",
             "tool_first_byte_s")  # fmt: skip
    with Run.open(run.path) as read:
        row = read.table("transfers")
    assert [row[name][0] for name in names] == [99_999, 99_000, 3, 0.25, 2e6, 0.01]
    assert json.loads(row["tool"][0]) == {"rtt_s": 0.002}
    assert all(np.isnan(row[name][1]) for name in names) and row["tool"][1] is None


@pytest.mark.parametrize(
    "printed", [ToolReport(2**63), ToolReport(1, float("nan")), ToolReport(1, detail={"rtt_s": float("inf")})]
)
def test_a_number_that_does_not_fit_into_the_table_fails_the_transfer(new_run, printed):
    run = new_run(parse=lambda call, record: printed)
    run.trial(trial_record(transfers=[transfer_record(stdout="x")]), "node1")
    run.finish("stopped")
    with Run.open(run.path) as read:
        row = read.query("SELECT outcome, error, tool_bytes FROM transfers")
    assert row["outcome"].tolist() == ["failed"] and "cannot parse the output" in row["error"][0]


def test_output_that_cannot_be_parsed_fails_the_transfer_and_is_kept(new_run):
    run = new_run(parse=lambda call, record: ToolReport(int(record["stdout"].split()[0])))
    run.trial(trial_record(transfers=[transfer_record(stdout="some bytes copied")]), "node1")
    run.finish("stopped")
    with Run.open(run.path) as read:
        row = read.query("SELECT outcome, error, tool_bytes FROM transfers")
        assert read.query("SELECT outcome FROM trials")["outcome"].tolist() == ["failed"]
    assert row["outcome"].tolist() == ["failed"]
    assert "cannot parse the output of cp: invalid literal" in row["error"][0]
    journal = [json.loads(line) for line in (run.path / "journal.jsonl").read_text().splitlines()]
    assert journal[1]["trial"]["transfers"][0]["stdout"] == "some bytes copied"


def test_a_built_in_mover_parses_its_own_output(new_run):
    """Without another parser, the run uses the parser of the real mover. `cp` has no output."""
    run = new_run(calls={"cp": call_of(["cp", "{source}", "{destination}"], capture=True)})
    run.trial(trial_record(transfers=[transfer_record(stdout="")]), "node1")
    run.finish("stopped")
    with Run.open(run.path) as read:
        assert read.query("SELECT outcome, tool_bytes FROM transfers")["outcome"].tolist() == ["ok"]


def test_findings_are_read_back_once_with_their_host_and_trial(new_run):
    seen = Finding("agent-restarted", "node1", "killed by signal 9", "look into the log", host="node1")
    of_a_trial = {"code": "not-cold", "subject": "set", "evidence": "0.3 resident", "advice": "use root"}
    run = new_run()
    run.finding(seen)
    run.finding(seen)
    run.trial(trial_record("t0000001", findings=[of_a_trial]), "node1")
    run.finish("stopped")
    with Run.open(run.path) as read:
        assert read.findings() == [seen, Finding(**of_a_trial, trial="t0000001", host="node1")]


def test_samples_events_and_transfers_outside_trials_are_kept(new_run):
    run = new_run()
    run.sample({"record": "sample", "time_s": 0.5, "counters": {"cpu.user_s": 1.5, "nic.lo.rx_bytes": 10}}, "node1")
    run.event({"record": "event", "time_s": 0.25, "kind": "dataset_made", "detail": {"files": 3}}, "node1")
    run.transfer({"record": "transfer", **transfer_record(None, intended_s=0.75)}, "node1")
    run.finish("complete")
    with Run.open(run.path) as read:
        assert read.table("samples")["counter"].tolist() == ["cpu.user_s", "nic.lo.rx_bytes"]
        assert read.table("samples")["value"].tolist() == [1.5, 10.0]
        assert read.query("SELECT detail ->> '$.files' AS files FROM events")["files"].tolist() == ["3"]
        row = read.query("SELECT trial, position, session, host, mover, intended_s FROM transfers")
        assert [values.tolist()[0] for values in row.values()] == [None, pytest.approx(float("nan"), nan_ok=True), 1,
                                                                   "node1", "cp", 0.75]  # fmt: skip


def test_counter_names_are_written_when_they_change_and_values_are_read_back_exactly(new_run):
    values = [0.1, 5e-324, 1.7976931348623157e308, 2**53 - 1, -0.0, 1e-7 / 3]
    names = [f'nic.eth{number}, "odd" é' for number in range(len(values))]
    taken = [  # a device comes and goes, hosts differ, and two counters differ only by a capital letter
        ("node1", 0.5, dict(zip(names, values, strict=True))),
        ("node1", 1.5, dict(zip(names, reversed(values), strict=True))),
        ("node2", 1.5, {"disk.a": 1, "disk.A": 2}),
        ("node1", 2.5, {names[0]: 7}),
        ("node2", 2.5, {"disk.a": 3, "disk.A": 4}),
        ("node1", 3.5, {}),
        ("node1", 4.5, {}),
    ]
    run = new_run()
    for host, time_s, counters in taken[:3]:
        run.sample({"time_s": time_s, "counters": counters}, host)
    run.close()
    with RunWriter.resume(run.path) as again:  # a new session, which does not know the counter sets of the first
        for host, time_s, counters in taken[3:]:
            again.sample({"time_s": time_s, "counters": counters}, host)
    lines = [json.loads(line) for line in (run.path / "samples.jsonl").read_text().splitlines()]
    assert ["counters" in line for line in lines] == [True, False, True, True, True, True, False]
    assert lines[2]["set"] == lines[4]["set"] != lines[0]["set"]
    with Run.open(run.path) as read:
        rows = read.query("SELECT host, time_s, counter, value FROM samples")
    found = set(zip(*(column.tolist() for column in rows.values()), strict=True))
    assert found == {
        (host, time_s, name, float(value)) for host, time_s, counters in taken for name, value in counters.items()
    }
    assert len(rows["value"]) == len(found)


@pytest.mark.parametrize("values", [[1.0], [1.0, 2.0, 3.0]])
def test_samples_that_do_not_match_their_set_of_counters_are_an_error(new_run, values):
    run = new_run()
    run.sample({"time_s": 0.5, "counters": {"cpu.user_s": 1.5, "cpu.idle_s": 10}}, "node1")
    run.close()
    line = json.loads((run.path / "samples.jsonl").read_text())
    for other in ({"values": values, "set": line["set"]}, {"values": [1.0, 2.0], "set": "unheard-of"}):
        damaged = {"host": "node1", "time_s": 1.5, **other}
        (run.path / "samples.jsonl").write_text(f"{json.dumps(line)}\n{json.dumps(damaged)}\n")
        with pytest.raises(RunError, match=r"samples at 1\.5 s of node1 do not fit their set of counters"):
            Run.open(run.path).table("samples")


def test_transfers_inside_and_outside_trials_are_in_one_table_in_order(new_run):
    run = new_run()
    run.transfer({"record": "transfer", **transfer_record(None, slot=7, labels={"kind": "read"})}, "node2")
    run.trial(
        trial_record("t0000003", transfers=[transfer_record("t0000003", slot=slot) for slot in (0, 1)]), "node1"
    )
    run.trial(trial_record("t0000001", transfers=[]), "node1")
    run.transfer({"record": "transfer", **transfer_record(None, slot=8)}, "node2")
    run.finish("stopped")
    with Run.open(run.path) as read:
        rows = read.query("SELECT slot, trial, host, session, position, labels ->> 'kind' AS kind FROM transfers")
        assert read.query("SELECT count(*) AS n FROM trials")["n"].tolist() == [2]
    assert rows["slot"].tolist() == [7, 0, 1, 8]
    assert rows["trial"].tolist() == [None, "t0000003", "t0000003", None]
    assert rows["host"].tolist() == ["node2", "node1", "node1", "node2"]
    assert rows["session"].tolist() == [1, 1, 1, 1]
    assert rows["kind"].tolist() == ["read", None, None, None]


def test_an_existing_run_directory_is_not_overwritten(tmp_path, tiny_plan):
    RunWriter.create(tmp_path, tiny_plan(), backend="hosts", path=tmp_path / "mine").close()
    with pytest.raises(RunError, match="expected a new directory"):
        RunWriter.create(tmp_path, tiny_plan(), backend="hosts", path=tmp_path / "mine")


def test_runs_created_in_the_same_second_have_different_directories(tmp_path, tiny_plan):
    paths = set()
    for _ in range(3):
        with RunWriter.create(tmp_path, tiny_plan(), backend="hosts") as run:
            paths.add(run.path)
    assert len(paths) == 3
