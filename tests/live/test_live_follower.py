"""Reader of a growing run: new lines, torn lines, replaced files, and the end of the controller."""

import pytest

from testkit import trial_record
from venturi.live import RunFollower
from venturi.live import tail as tail_module
from venturi.live.budget import CpuBudget
from venturi.live.tail import Tail
from venturi.live.verdict import INTERVAL_S, VerdictSource
from venturi.run import RunWriter


def test_a_follower_sees_the_trials_that_the_writer_records(new_run):
    run = new_run(4)
    follower = RunFollower(run.path)
    assert follower.update().trials_done == 0
    run.trial(trial_record("t0000000"), "node1")
    run.event({"time_s": 1.5, "kind": "trial-start", "detail": {"trial": "t0000001"}}, "node1")
    run.sample({"time_s": 1.6, "counters": {"cpu.user_s": 1.0}}, "node1")
    run.flush()
    now = follower.update()
    assert (now.state, now.trials_done, now.trials_total) == ("running", 1, 4)
    assert [one.trial for one in now.running] == ["t0000001"]
    assert "PID" in now.controller
    run.finish("complete")
    assert follower.update().state == "complete"


def test_a_controller_that_ends_without_a_record_is_lost(new_run):
    run = new_run(4)
    run.trial(trial_record("t0000000"), "node1")
    follower = RunFollower(run.path)
    assert follower.update().state == "running"
    run.close()  # as the kernel does after a kill: the lock is free, and the state is still "running"
    now = follower.update()
    assert (now.state, now.trials_done) == ("lost", 1)
    assert "has ended without a record" in now.reason


def test_a_resumed_run_is_in_progress_before_its_session_starts(new_run):
    run = new_run(4)
    run.finish("stopped")
    writer = RunWriter.resume(run.path)
    follower = RunFollower(run.path)
    assert follower.update().state == "running"
    writer.close()


def test_a_simulation_that_starts_again_is_read_from_its_start(new_run):
    run = new_run(4)
    for number in range(3):
        run.trial(trial_record(f"t{number:07d}"), "node1")
    run.flush()
    follower = RunFollower(run.path)
    assert follower.update().trials_done == 3
    run.discard_sessions()
    run.start_session({"node1": {}})
    run.trial(trial_record("t0000003"), "node1")
    run.flush()
    assert follower.update().trials_done == 1
    run.close()


def test_a_view_in_the_process_of_the_controller_does_not_watch_it(new_run):
    run = new_run(4)
    follower = RunFollower(run.path, run.trials, watches=False)
    run.finish("complete")
    assert follower.update().state == "running"
    follower.state.end("complete")
    assert follower.update().state == "complete"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "lines.jsonl"


def test_a_tail_returns_each_complete_line_once(path):
    tail = Tail(path)
    assert tail.read() == []
    path.write_bytes(b"1\n2\n3")
    assert tail.read() == [b"1", b"2"]
    assert tail.read() == []
    with path.open("ab") as stream:
        stream.write(b"4\n5\n")
    assert tail.read() == [b"34", b"5"]


def test_a_tail_reads_long_files_and_long_lines_in_parts(path, monkeypatch):
    monkeypatch.setattr(tail_module, "BLOCK_BYTES", 1000)
    lines = [*map(str, range(1000)), "9" * 3500, "1"]
    path.write_text("\n".join(lines) + "\n")
    tail, found, reads = Tail(path), [], 0
    while True:
        found += tail.read()
        reads += 1
        if not tail.has_more:
            break
    assert b"\n".join(found).decode().split("\n") == lines
    assert reads > 2


def test_a_tail_starts_again_if_the_file_is_replaced_or_truncated(path):
    path.write_bytes(b"1\n2\n")
    tail = Tail(path)
    tail.read()
    path.write_bytes(b"3\n")
    assert (tail.read(), tail.restarted) == ([b"3"], True)
    other = path.with_name("other")
    other.write_bytes(b"4\n5\n")
    other.replace(path)
    assert (tail.read(), tail.restarted) == ([b"4", b"5"], True)


def test_an_expensive_update_delays_the_next_one():
    budget = CpuBudget(0.005, interval_s=1.0)
    budget.spend(0.001)
    assert budget.next_s(100.0) == 101.0
    budget.spend(0.020)
    assert budget.next_s(100.0) == pytest.approx(104.0)


def test_the_first_verdict_waits_until_the_run_is_long_enough(new_run):
    """1.5 s of CPU are 0.4 % of a core after 375 s."""
    run = new_run(4)
    source = VerdictSource(run.path)
    found = source.update(1010.0, 10.0, 1)
    assert (found.sentence, found.note) == ("", "the first verdict follows in 6 min 05 s, to keep the load low")
    assert source.update(1400.0, 400.0, 0).note == ""  # no design point is complete
    run.close()


def test_a_verdict_covers_the_finished_trials_of_a_run_in_progress(new_run):
    run = new_run(4)
    for number in range(3):
        run.trial(trial_record(f"t{number:07d}"), "node1")
    run.flush()
    source = VerdictSource(run.path)
    assert source.update(1000.0, 1000.0, 1).sentence == ""
    source._process.wait()
    found = source.update(1001.0, 1001.0, 1)
    assert found.trials == 3
    assert "200 kB/s" in found.sentence  # 100 kB in 0.5 s
    assert source.update(1000.0 + INTERVAL_S, 1030.0, 2).note.startswith("the next verdict follows in")
    assert run.info.state == "running"
    run.close()
