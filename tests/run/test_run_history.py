"""State left by earlier sessions: elapsed time of the plan, and failed trials to repeat."""

import json

import pytest

from testkit import trial_record
from venturi.run import Run, RunWriter
from venturi.run.journal import last_lines

FAILED = {"outcome": "failed", "transfers": []}


def set_starts(path, *starts_s):
    """Set the starts of the sessions of a run, in seconds after its epoch."""
    epoch_ns = json.loads((path / "run.json").read_text())["created_unix_ns"]
    lines = [json.loads(line) for line in (path / "journal.jsonl").read_text().splitlines()]
    for session, start_s in zip((line["session"] for line in lines if "session" in line), starts_s, strict=True):
        session["time_unix_ns"] = epoch_ns + round(start_s * 1e9)
    (path / "journal.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def elapsed_s(path):
    with RunWriter.resume(path) as run:
        return run.elapsed_s


def test_plan_time_resumes_at_the_last_record_of_a_killed_session(new_run):
    run = new_run()
    assert run.elapsed_s == 0
    run.trial(trial_record(end_s=10.5), "node1")
    run.sample({"time_s": 12.25, "counters": {"cpu.user_s": 1}}, "node1")
    run.event({"time_s": 11, "kind": "network-change"}, "network")
    run.close()  # like a kill
    set_starts(run.path, 2)
    assert elapsed_s(run.path) == pytest.approx(10.25)


def test_plan_time_excludes_the_time_between_sessions(new_run):
    run = new_run()
    run.trial(trial_record("t0000000", end_s=10), "node1")
    run.close()
    set_starts(run.path, 4)
    again = RunWriter.resume(run.path)
    again.start_session({})
    again.trial(trial_record("t0000001", end_s=1003), "node1")
    again.close()
    assert json.loads((run.path / "journal.jsonl").read_text().splitlines()[2])["session"]["elapsed_s"] == 6
    set_starts(run.path, 4, 1000)
    assert elapsed_s(run.path) == pytest.approx(9)


def test_a_session_without_records_adds_no_plan_time(new_run):
    run = new_run()
    run.trial(trial_record(end_s=10), "node1")
    run.close()
    set_starts(run.path, 4)
    again = RunWriter.resume(run.path)
    again.start_session({})
    again.close()
    set_starts(run.path, 4, 1000)
    assert elapsed_s(run.path) == pytest.approx(6)


@pytest.mark.parametrize(
    ("most", "lines"), [(1, []), (4, [b"33"]), (7, [b"22", b"33"]), (99, [b"1111", b"22", b"33"])]
)
def test_last_lines_returns_complete_lines_only(tmp_path, most, lines):
    path = tmp_path / "file"
    path.write_bytes(b"1111\n22\n33\n44")  # the last line is incomplete
    assert last_lines(path, most) == lines
    assert last_lines(tmp_path / "absent", most) == []


def test_failed_trials_count_as_done_unless_retries_are_requested(new_run):
    run = new_run()
    run.trial(trial_record("t0000000"), "node1")
    run.trial(trial_record("t0000001", **FAILED), "node1")
    run.close()
    with RunWriter.resume(run.path) as plain:
        assert list(plain.remaining()) == ["t0000002", "t0000003"] and not plain.retried
    with RunWriter.resume(run.path, retry_failed=True) as again:
        assert list(again.remaining()) == ["t0000001", "t0000002", "t0000003"]
        assert again.retried == {"t0000001"} and again.finished == {"t0000000"}


def test_both_attempts_of_a_retried_trial_are_kept_and_the_last_one_counts(new_run):
    run = new_run(2)
    warning = {"code": "cache-unknown", "subject": "set", "evidence": "mincore failed", "advice": ""}
    run.trial(trial_record("t0000001", outcome="failed", findings=[warning]), "node1")
    run.trial(trial_record("t0000000"), "node1")
    run.finish("complete")
    with Run.open(run.path) as before:
        assert before.query("SELECT outcome FROM trials ORDER BY position")["outcome"].tolist() == ["failed", "ok"]
    again = RunWriter.resume(run.path, retry_failed=True)
    again.start_session({})
    assert again.trial(trial_record("t0000001", start_s=7.0), "node1") == "ok"
    assert again.trial(trial_record("t0000001"), "node1") is None, "once more, not twice"
    again.finish("complete")
    attempts = [
        json.loads(line)["trial"]
        for line in (run.path / "journal.jsonl").read_text().splitlines()
        if '"trial":{' in line
    ]
    assert [(one["trial"], one["outcome"], one.get("attempt")) for one in attempts] == [
        ("t0000001", "failed", None), ("t0000000", "ok", None), ("t0000001", "ok", 2),
    ]  # fmt: skip
    with Run.open(run.path) as read:
        rows = read.query("SELECT trial, position, session, attempts, outcome, start_s FROM trials ORDER BY position")
        assert [list(column) for column in zip(*rows.values(), strict=True)] == [
            ["t0000000", 1, 1, 1, "ok", 1.0],
            ["t0000001", 2, 2, 2, "ok", 7.0],
        ]
        assert read.table("transfers")["trial"].tolist() == ["t0000000", "t0000001"]
        assert [finding.code for finding in read.findings()] == ["failed-trials-retried"]
        assert "1 failed trials" in read.findings()[0].evidence


def test_a_trial_that_fails_again_counts_once_and_can_be_retried_again(new_run):
    run = new_run(1)
    run.trial(trial_record(**FAILED), "node1")
    run.finish("complete")
    again = RunWriter.resume(run.path, retry_failed=True)
    again.start_session({})
    assert again.trial(trial_record(**FAILED), "node1") == "failed"
    again.close()  # killed: only the journal records the completed trials
    with RunWriter.resume(run.path) as plain:
        assert list(plain.remaining()) == []
    third = RunWriter.resume(run.path, retry_failed=True)
    third.start_session({})
    third.trial(trial_record(), "node1")
    third.finish("complete")
    with Run.open(run.path) as read:
        rows = read.query("SELECT outcome, attempts FROM trials")
        assert (rows["outcome"].tolist(), rows["attempts"].tolist()) == (["ok"], [3])
    with RunWriter.resume(run.path, retry_failed=True) as last:
        assert list(last.remaining()) == []
