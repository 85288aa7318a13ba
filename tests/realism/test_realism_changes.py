"""Changes of a link take effect when they are due, and an outage takes exactly what is sent during it."""

import itertools
import time

import pytest
from ground import end_of, pair
from traffic import read_records

from testkit import needs_root

pytestmark = needs_root

COUNT = 8000
INTERVAL_S = 0.001
BYTES = 500
FAST_S, SLOW_S = 0.005, 0.025
PLANNED = """
    [[change]]
    at = "1 s"
    link = "la"
    delay = "25 ms"
    [[change]]
    at = "2 s"
    link = "aa>ba"
    up = false
    [[change]]
    at = "3 s"
    link = "aa>ba"
    up = true
    [[change]]
    at = "4 s"
    link = "aa>ba"
    rate = "2 Mb/s"
    [[change]]
    at = "5 s"
    link = "aa>ba"
    rate = "100 Mb/s"
    loss = 1.0
"""
LATE_S = 0.05
"""A planned change may come so much after its time on a busy machine; how exact it is then is judged by packets."""

GRAIN_S = 0.003
"""A packet a millisecond: the moment of a change is known to that, and to the delay of a sender's sleep."""


@pytest.fixture(scope="module")
def changed(bring_up):
    """One stream through all changes: the ground, when it was told to go, the events, and what came."""
    ground = bring_up(pair("a", rate="100 Mb/s", rtt="10 ms", queue="100 kB") + PLANNED)
    path = ground.lab.folder / "came"
    take = ground.server("ba", "take", path, name="take", port=9)
    send = ground.client("aa", "send", ground.address("ba"), 9, COUNT, INTERVAL_S, BYTES, name="send")
    go_ns = time.time_ns()
    ground.lab.go()
    for process in (take, send):
        end_of(process, "the stream", COUNT * INTERVAL_S + 30)
    epoch_ns = ground.lab.journal.epoch_unix_ns
    events = [
        (record["time_s"] - (go_ns - epoch_ns) / 1e9, record["detail"])
        for record in ground.records
        if record["record"] == "event" and record["kind"] == "network-change"
    ]
    records = [((sent - go_ns) / 1e9, (came - go_ns) / 1e9) for _, sent, came in read_records(path)]
    return ground, events, records


def moment(events, **settings):
    """Return when the wire says that it made a change on the way there."""
    return next(
        time_s for time_s, detail in events
        if detail["link"] == "aa>ba" and all(detail["set"].get(key) == value for key, value in settings.items())
    )  # fmt: skip


def test_changes_come_when_they_are_due(changed):
    ground, events, _ = changed
    there = [time_s for time_s, detail in events if detail["link"] == "aa>ba"]
    assert len(there) == 5 and len(events) == 6
    for due_s, time_s in zip((1, 2, 3, 4, 5), there, strict=True):
        assert due_s <= time_s < due_s + LATE_S, f"{time_s} s; {ground.instrument()}"


def test_the_delay_changes_for_what_is_sent_after_its_moment(changed):
    ground, events, records = changed
    at_s = moment(events, delay_s=SLOW_S)
    before = [came - sent for sent, came in records if 0 < sent < at_s - GRAIN_S]
    after = [came - sent for sent, came in records if at_s + GRAIN_S < sent < moment(events, up=False)]
    for name, delays, expected_s in (("before", before, FAST_S), ("after", after, SLOW_S)):
        delays.sort()
        assert len(delays) > 500
        ground.expect(f"median delay {name}", delays[len(delays) // 2], expected_s + 8 * BYTES / 100e6, within=0.02)
        assert delays[0] >= expected_s


def test_an_outage_takes_what_is_sent_during_it_and_nothing_else(changed):
    ground, events, records = changed
    down_s, up_s = moment(events, up=False), moment(events, up=True)
    sent = [sent for sent, _ in records]
    assert [at_s for at_s in sent if down_s + GRAIN_S < at_s < up_s - GRAIN_S] == []
    gap_s, last_s = max((later - earlier, earlier) for earlier, later in itertools.pairwise(sent))
    assert abs(last_s - down_s) < GRAIN_S, ground.instrument()
    assert abs(last_s + gap_s - up_s) < GRAIN_S, ground.instrument()
    taken = ground.done()["links"]["aa>ba"]["outage_drops"]
    assert abs(taken - (up_s - down_s) / INTERVAL_S) < 3 + 2 * GRAIN_S / INTERVAL_S, ground.instrument()


def test_a_lower_rate_is_what_passes_from_its_moment_on(changed):
    """4 Mb/s are sent, 2 Mb/s pass: packets come twice as far apart as they are sent, later by what the queue holds."""
    ground, events, records = changed
    slow_s, end_s = moment(events, rate_bit_per_s=2e6), moment(events, rate_bit_per_s=100e6)
    came = [came for _, came in records if slow_s + SLOW_S + GRAIN_S < came < end_s]
    rate = 8 * BYTES * (len(came) - 1) / (came[-1] - came[0])
    ground.expect("rate of what comes", rate, 2e6, within=0.01)


def test_certain_loss_lets_nothing_through_from_its_moment_on(changed):
    ground, events, records = changed
    lost_s = moment(events, loss={"kind": "independent", "probability": 1.0})
    assert [sent for sent, _ in records if sent > lost_s + GRAIN_S] == [], ground.instrument()
    assert max(came for _, came in records) < lost_s + SLOW_S + GRAIN_S + LATE_S, ground.instrument()
