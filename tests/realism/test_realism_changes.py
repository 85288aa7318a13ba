"""Changes of a link take effect on time, and an outage drops exactly the packets sent during it."""

import time

import pytest
from lab_rig import end_of, pair
from traffic import read_records, read_sent_ns

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
"""Maximum delay of a planned change on a busy machine. The packets show its exact time."""

GRAIN_S = 0.003
"""Time resolution of a change: the sender sends one packet per millisecond, and its sleep can end late."""


@pytest.fixture(scope="module")
def changed(bring_up):
    """One stream through all changes: rig, events, received packets, and the send time of each lost packet."""
    rig = bring_up(pair("a", rate="100 Mb/s", rtt="10 ms", queue="100 kB") + PLANNED)
    path, log = rig.lab.directory / "came", rig.lab.directory / "sent"
    take = rig.server("ba", "take", path, name="take", port=9)
    send = rig.client("aa", "send", rig.address("ba"), 9, COUNT, INTERVAL_S, BYTES, log, name="send")
    go_ns = time.time_ns()
    rig.lab.start_clock()
    for process in (take, send):
        end_of(process, "the stream", COUNT * INTERVAL_S + 30)
    epoch_ns = rig.lab.records.epoch_unix_ns
    events = [
        (record["time_s"] - (go_ns - epoch_ns) / 1e9, record["detail"])
        for record in rig.records
        if record["record"] == "event" and record["kind"] == "network-change"
    ]
    arrived = read_records(path)
    records = [((sent - go_ns) / 1e9, (came - go_ns) / 1e9) for _, sent, came in arrived]
    sent_s = [(sent_ns - go_ns) / 1e9 for sent_ns in read_sent_ns(log)]
    lost_s = [sent_s[number] for number in sorted(set(range(COUNT)) - {number for number, _, _ in arrived})]
    return rig, events, records, lost_s


def moment(events, **settings):
    """Return the time at which the emulator reports a change in the direction of the stream."""
    return next(
        time_s for time_s, detail in events
        if detail["link"] == "aa>ba" and all(detail["set"].get(key) == value for key, value in settings.items())
    )  # fmt: skip


def test_changes_happen_on_time(changed):
    rig, events, _, _ = changed
    there = [time_s for time_s, detail in events if detail["link"] == "aa>ba"]
    assert len(there) == 5 and len(events) == 6
    for due_s, time_s in zip((1, 2, 3, 4, 5), there, strict=True):
        assert due_s <= time_s < due_s + LATE_S, f"{time_s} s; {rig.instrument()}"


def test_a_delay_change_applies_to_packets_sent_after_it(changed):
    rig, events, records, _ = changed
    at_s = moment(events, delay_s=SLOW_S)
    before = [came - sent for sent, came in records if 0 < sent < at_s - GRAIN_S]
    after = [came - sent for sent, came in records if at_s + GRAIN_S < sent < moment(events, up=False)]
    for name, delays, expected_s in (("before", before, FAST_S), ("after", after, SLOW_S)):
        delays.sort()
        assert len(delays) > 500
        rig.expect(f"median delay {name}", delays[len(delays) // 2], expected_s + 8 * BYTES / 100e6, within=0.02)
        assert delays[0] >= expected_s


def test_an_outage_drops_only_packets_sent_during_it(changed):
    """The sender itself can stall on a busy machine, so the send times of all packets count."""
    rig, events, records, lost_s = changed
    down_s, up_s = moment(events, up=False), moment(events, up=True)
    assert [sent for sent, _ in records if down_s + GRAIN_S < sent < up_s - GRAIN_S] == []
    slow_s = moment(events, rate_bit_per_s=2e6)
    early = [sent for sent in lost_s if sent < slow_s]
    assert [sent for sent in early if not down_s - GRAIN_S < sent < up_s + GRAIN_S] == [], rig.instrument()
    taken = rig.done()["links"]["aa>ba"]["outage_drops"]
    assert taken == len(early) > (up_s - down_s) / INTERVAL_S / 2


def test_a_lower_rate_limits_packets_after_the_change(changed):
    """4 Mb/s are sent and 2 Mb/s pass, so packets arrive at twice the interval, with additional delay in the queue."""
    rig, events, records, _ = changed
    slow_s, end_s = moment(events, rate_bit_per_s=2e6), moment(events, rate_bit_per_s=100e6)
    came = [came for _, came in records if slow_s + SLOW_S + GRAIN_S < came < end_s]
    rate = 8 * BYTES * (len(came) - 1) / (came[-1] - came[0])
    rig.expect("rate of what comes", rate, 2e6, within=0.01)


def test_a_loss_probability_of_one_drops_all_packets_after_the_change(changed):
    rig, events, records, _ = changed
    lost_s = moment(events, loss={"kind": "independent", "probability": 1.0})
    assert [sent for sent, _ in records if sent > lost_s + GRAIN_S] == [], rig.instrument()
    assert max(came for _, came in records) < lost_s + SLOW_S + GRAIN_S + LATE_S, rig.instrument()
