"""State of a run from recorded records: trials, rates, lost hosts, time left, texts."""

import json
from types import SimpleNamespace

import pytest

from testkit import transfer_record, trial_record
from venturi.live import LiveState, page_values, terminal_line
from venturi.live.remaining import RemainingTime

HEADER = {"hosts": {"a": {"lab": None}, "b": {"lab": None}}, "measure": {"interval_s": 0.1}}
SESSION = {"session": {"number": 1, "time_unix_ns": 1_000_000_000, "hosts": {}}}  # 1 s after the epoch


def rows(count=4, points=2):
    """Trials of a plan with ``points`` design points, all by one actor on host ``a``."""
    return {
        f"t{number:07d}": SimpleNamespace(
            point=number % points, bytes=100_000, until_s=None, actor="sweep", host="a", factors={"size_bytes": 100_000}
        )
        for number in range(count)
    }  # fmt: skip


def new_state(backend="hosts", header=HEADER, **changes):
    state = LiveState("runs/x", "x", backend, header, rows(**changes), 0, 60.0)
    state.add_journal(json.dumps(SESSION).encode(), 1.0)
    return state


def journal(state, now_s, **record):
    state.add_journal(json.dumps(record).encode(), now_s)


def trial(number, *, end_s, duration_s=1.0, host="a", **changes):
    """A line of the journal: a trial with one transfer of 100 kB by ``cp`` that lasts half as long."""
    name = f"t{number:07d}"
    moved = transfer_record(name, start_s=end_s - duration_s / 2, end_s=end_s, mover="cp")
    record = trial_record(name, transfers=[moved], start_s=end_s - duration_s, end_s=end_s, **changes)
    return record | {"host": host, "session": 1}


def event(state, kind, time_s, **detail):
    state.add_event(json.dumps({"host": "a", "time_s": time_s, "kind": kind, "detail": detail}).encode())


def sample(state, time_s, host="a", now_s=None, **counters):
    line = {
        "host": host,
        "time_s": time_s,
        "set": host,
        "counters": {k.replace("__", "."): v for k, v in counters.items()},
    }
    state.add_sample(json.dumps(line).encode(), time_s if now_s is None else now_s)


def host(snapshot, name):
    return next(one for one in snapshot.hosts if one.name == name)


def test_trials_are_done_running_or_left():
    state = new_state()
    journal(state, 2.0, trial=trial(0, end_s=2.0))
    event(state, "trial-start", 2.0, trial="t0000001")
    now = state.snapshot(2.5)
    assert (now.trials_done, now.trials_total, now.points_done, now.points) == (1, 4, 0, 2)
    assert [(one.trial, one.host, one.running_s) for one in now.running] == [("t0000001", "a", 0.5)]
    assert now.phase == "measuring"
    journal(state, 3.0, trial=trial(1, end_s=3.0))
    assert state.snapshot(3.0).running == ()


def test_a_session_ends_the_trials_of_earlier_sessions_only():
    state = new_state()
    event(state, "trial-start", 2.0, trial="t0000000")
    event(state, "trial-start", 9.1, trial="t0000001")  # read before its session
    journal(state, 9.2, session={"number": 2, "time_unix_ns": 9_000_000_000})
    assert [one.trial for one in state.snapshot(9.5).running] == ["t0000001"]
    event(state, "trial-start", 9.6, trial="t0000002")
    journal(state, 20.0, session={"number": 3, "time_unix_ns": 20_000_000_000})
    assert state.snapshot(20.0).running == ()


def test_an_event_that_is_read_after_the_end_of_its_trial_starts_nothing():
    state = new_state()
    journal(state, 2.0, trial=trial(0, end_s=2.0))
    event(state, "trial-start", 1.0, trial="t0000000")
    assert state.snapshot(2.0).running == ()


def test_the_rate_covers_the_transfers_that_ended_in_the_last_seconds():
    state = new_state()
    journal(state, 2.0, trial=trial(0, end_s=2.0))
    journal(state, 3.0, trial=trial(1, end_s=3.0))
    # 2 x 100 kB from 1.5 s to 3 s
    assert state.snapshot(4.0).bytes_per_s == pytest.approx(200_000 / 1.5)
    assert [(one.name, one.transfers) for one in state.snapshot(4.0).movers] == [("cp", 2)]
    # Only the second one.
    assert state.snapshot(12.5).bytes_per_s == pytest.approx(200_000)
    later = state.snapshot(30.0)
    assert later.bytes_per_s is None
    assert later.quiet_s == pytest.approx(27.0)
    assert "no transfer has ended for 27 s" in json.dumps(page_values(later)["shown"], ensure_ascii=False)


def test_routes_count_their_transfers_and_failures():
    state = new_state()
    route = {"mover": "xrdcp", "transfers": 1000, "outcomes": {"ok": 990, "failed": 10}, "received_bytes": 10**9, "start_s": 1.0, "end_s": 2.0}  # fmt: skip
    journal(state, 2.0, trial=trial(0, end_s=2.0) | {"transfers": [], "routes": [route]})
    (mover,) = state.snapshot(2.0).movers
    assert (mover.name, mover.transfers, mover.failed, mover.bytes_per_s) == ("xrdcp", 1000, 10, pytest.approx(1e9))


def test_rates_of_hosts_come_from_the_growth_of_their_counters():
    state = new_state()
    for second in (1, 2):
        sample(
            state, float(second), cpu__user_s=0.25 * second, cpu__idle_s=0.75 * second, nic__eth0__rx_bytes=5e6 * second,
            nic__lo__rx_bytes=1e6 * second, disk__sda__write_bytes=2e6 * second, disk__loop0__write_bytes=7e6 * second,
        )  # fmt: skip
    now = host(state.snapshot(2.0), "a")
    assert (now.cpu, now.received, now.loopback, now.written) == (0.25, 5e6, 1e6, 2e6)
    assert (now.sent, now.read) == (None, None)  # not measured is not zero


def test_counters_that_decrease_give_no_rate():
    state = new_state()
    for time_s, value in ((1.0, 9e6), (2.0, 1e6)):
        sample(state, time_s, nic__eth0__rx_bytes=value)
    assert host(state.snapshot(2.0), "a").received is None


def test_the_cpu_of_a_host_of_a_lab_is_the_share_of_its_cores():
    state = new_state(backend="lab", header={**HEADER, "hosts": {"a": {"lab": {"cpu_limit_cores": 0.5}}}})
    for second in (1, 2):
        sample(state, float(second), cgroup__cpu__user_s=0.25 * second, cpu__user_s=2.0 * second, cpu__idle_s=0.0)
    assert host(state.snapshot(2.0), "a").cpu == pytest.approx(0.5)


def test_links_have_a_rate_and_a_busy_share():
    state = new_state(backend="lab")
    for second in (1, 2):
        line = {"host": "network", "time_s": second, "set": "n", "counters": {"link.wan.a-b.bytes": 1e6 * second, "link.wan.a-b.busy_s": 0.4 * second}}  # fmt: skip
        state.add_sample(json.dumps(line).encode(), float(second))
    (link,) = state.snapshot(2.0).links
    assert (link.name, link.bytes_per_s, link.busy) == ("wan.a-b", 1e6, pytest.approx(0.4))


def test_lines_without_names_of_counters_use_the_names_of_their_set():
    state = new_state()
    sample(state, 1.0, nic__eth0__rx_bytes=0.0)
    state.add_sample(json.dumps({"host": "a", "time_s": 2.0, "set": "a", "values": [3e6]}).encode(), 2.0)
    assert host(state.snapshot(2.0), "a").received == 3e6


@pytest.mark.parametrize("code", ["agent-restarted", "shell-lost"])
def test_a_lost_host_is_named_until_one_of_its_records_is_younger(code):
    state = new_state()
    sample(state, 4.9, "b", cpu__user_s=1.0)
    evidence = "the agent exited in trial t0000000 at 5.000 s: killed by signal 9"
    journal(state, 5.5, finding={"code": code, "subject": "b", "evidence": evidence, "advice": "", "host": "b"})
    now = state.snapshot(5.5)
    assert (host(now, "b").state, host(now, "a").state) == ("lost", "running")
    assert "b: lost at 5.0 s: killed by signal 9" in terminal_line(now)
    assert any("Host b" in text for text in page_values(now)["shown"]["alerts"])
    sample(state, 4.95, "b", now_s=5.6, cpu__user_s=1.0)  # it was on its way
    assert host(state.snapshot(5.6), "b").state == "lost"
    sample(state, 6.0, "b", cpu__user_s=1.0)
    back = host(state.snapshot(6.0), "b")
    assert (back.state, back.reason) == ("running", "back after its loss at 5.0 s: killed by signal 9")
    sample(state, 66.0, "b", cpu__user_s=1.0)
    assert host(state.snapshot(66.0), "b").reason == ""


def test_a_loss_before_the_last_sample_is_history():
    state = new_state()
    sample(state, 6.0, "b", now_s=60.0, cpu__user_s=1.0)
    evidence = "the connection to the host shell ended at 5.000 s: end of output"
    journal(state, 60.0, finding={"code": "shell-lost", "subject": "b", "evidence": evidence, "advice": "", "host": "b"})  # fmt: skip
    assert host(state.snapshot(60.0), "b").state == "running"


def test_a_host_without_samples_is_silent():
    state = new_state()
    sample(state, 2.0, cpu__user_s=1.0)
    assert host(state.snapshot(6.0), "a").state == "running"
    now = host(state.snapshot(12.0), "a")
    assert (now.state, now.reason) == ("silent", "no sample for 10 s")
    assert host(state.snapshot(12.0), "b").state == "running"  # nothing is known about it yet


def test_failed_trials_have_the_reason_of_the_first_one():
    state = new_state()
    failed = transfer_record("t0000000", outcome="failed", error="exit code 1", mover="cp")
    journal(state, 2.0, trial=trial(0, end_s=2.0) | {"outcome": "failed", "transfers": [failed]})
    now = state.snapshot(2.0)
    assert now.trials_failed == 1
    assert any("exit code 1" in text for text in page_values(now)["shown"]["alerts"])


def test_failed_trials_that_run_again_are_not_done():
    state = new_state()
    journal(state, 2.0, trial=trial(0, end_s=2.0) | {"outcome": "failed"})
    journal(state, 3.0, trial=trial(1, end_s=3.0))
    journal(state, 3.1, session={"number": 2, "time_unix_ns": 3_100_000_000})
    journal(
        state, 3.2, finding={"code": "failed-trials-retried", "subject": "session 2", "evidence": "1", "session": 2}
    )
    now = state.snapshot(3.2)
    assert (now.trials_done, now.trials_failed, now.first_failure) == (1, 0, "")
    journal(state, 5.0, trial=trial(0, end_s=5.0) | {"session": 2})
    assert state.snapshot(5.0).trials_done == 2


@pytest.mark.parametrize(
    "line", [b"", b"{", b"[1]", b'{"trial": {"trial": 3}}', b'{"trial": 3}', b'{"finding": {}}', b"\xff"]
)
def test_lines_that_cannot_be_read_are_ignored(line):
    state = new_state()
    before = state.snapshot(2.0)
    state.add_journal(line, 2.0)
    state.add_sample(line, 2.0)
    state.add_event(line)
    assert state.snapshot(2.0) == before


def test_names_of_a_run_are_data_in_the_values_of_the_page():
    state = LiveState("runs/<b>", "<script>", "hosts", HEADER, rows(), 0, None)
    shown = page_values(state.snapshot(0.0))["shown"]
    assert shown["title"] == "<script>"  # the page sets it as textContent


# Time left


def test_the_time_left_is_that_of_the_trials_of_the_same_point():
    """Point 0 takes 1 s and point 1 takes 3 s. Of 20 trials, 8 of point 0 and 9 of point 1 are left: 8 + 27 s."""
    left = RemainingTime(rows(20), 60.0)
    for number, end_s in ((0, 1.0), (1, 4.0), (2, 5.0)):
        left.finish(f"t{number:07d}", 3.0 if number % 2 else 1.0, of_session=True, end_s=end_s)
    found = left.left(0.0, 5.0)
    assert (found.expected_s, found.basis) == (pytest.approx(35.0), "trials")
    assert left.fraction_done() == pytest.approx(5 / 40)
    # The running trial takes from the time left.
    assert left.left(0.0, 6.0).expected_s == pytest.approx(34.0)


def test_trials_at_the_same_time_and_pauses_are_in_the_time_left():
    """Two trials of 2 s at the same time: the other 18 take 18 s. With pauses of the same length: 36 s."""
    for pause, expected_s in ((1.0, 18.0), (2.0, 36.0)):
        left = RemainingTime(rows(20, points=1), 60.0)
        for number in range(2):
            left.finish(f"t{number:07d}", 2.0, of_session=True, end_s=2.0 * pause)
        assert left.left(0.0, 2.0 * pause).expected_s == pytest.approx(expected_s)


def test_the_interval_follows_from_the_spread_of_the_trials():
    """Trials of 1 s and 3 s: d = 2 s, s = 1.414 s; m = 8, n = 2: s sqrt(8 + 64 / 2) = 8.94 s, 1.96 of it."""
    left = RemainingTime(rows(10, points=1), 60.0)
    left.finish("t0000000", 1.0, of_session=True, end_s=1.0)
    assert left.left(0.0, 1.0).low_s is None  # one trial shows no spread
    left.finish("t0000001", 3.0, of_session=True, end_s=4.0)
    found = left.left(0.0, 4.0)
    assert found.expected_s == pytest.approx(16.0)
    assert found.high_s - found.expected_s == pytest.approx(1.96 * 8.944, rel=1e-3)
    assert found.low_s == 0.0


def test_points_without_trials_need_two_other_points_for_an_interval():
    left = RemainingTime(rows(30, points=3), 60.0)
    for number in (0, 3):
        left.finish(f"t{number:07d}", 1.0, of_session=True, end_s=1.0)
    assert left.left(0.0, 1.0).high_s is None
    left.finish("t0000001", 2.0, of_session=True, end_s=3.0)
    found = left.left(0.0, 3.0)
    assert found.low_s < found.expected_s < found.high_s


def test_before_the_first_trial_the_estimate_of_the_plan_counts():
    found = RemainingTime(rows(), 60.0).left(0.0, 10.0)
    assert (found.expected_s, found.low_s, found.basis) == (50.0, None, "plan")
    assert RemainingTime(rows(), None).left(0.0, 10.0) is None


def test_after_the_last_trial_no_time_is_left():
    left = RemainingTime(rows(1), 60.0)
    left.finish("t0000000", 1.0, of_session=True, end_s=1.0)
    assert left.left(0.0, 9.0).expected_s == 0.0
    assert left.fraction_done() == 1.0


def test_trials_with_a_deadline_end_the_time_left():
    planned = rows(10)
    for row in planned.values():
        row.until_s = 20.0
    left = RemainingTime(planned, 60.0)
    left.finish("t0000000", 10.0, of_session=True, end_s=10.0)
    # 9 trials of 10 s would take 90 s, but none starts after 20 s.
    assert left.left(0.0, 10.0).expected_s == pytest.approx(20.0)


def test_a_repeated_trial_leaves_the_means_as_without_it():
    left, expected = RemainingTime(rows(20), 60.0), RemainingTime(rows(20), 60.0)
    for number, duration_s in enumerate((1.0, 2.0, 5.0, 4.0)):
        left.finish(f"t{number:07d}", duration_s, of_session=False, end_s=0.0)
        if number != 2:
            expected.finish(f"t{number:07d}", duration_s, of_session=False, end_s=0.0)
    left.repeat(["t0000002"])
    assert left.fraction_done() == pytest.approx(expected.fraction_done())
