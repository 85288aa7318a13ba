"""What a link does to single packets: their delay, its variation, their order, their loss. Each link has a stream of datagrams of its own."""

import itertools
import math
import statistics

import pytest
from ground import end_of, pair
from traffic import read_records

from testkit import needs_root

pytestmark = needs_root

COUNT = 20_000
INTERVAL_S = 0.000_5
BYTES = 100
DELAY_S = 0.050
JITTER_S = 0.002
LOSS = 0.01
BURSTS = {"enter": 0.01, "leave": 0.2, "probability": 1.0}
REORDER = 0.02

LINKS = {
    "plain": {},
    "jitter": {"jitter": "2 ms"},
    "lossy": {"loss": LOSS},
    "bursty": {"loss": BURSTS},
    "order": {"reorder": REORDER},
}
SIGMAS = 5.0
"""Standard deviations that a statistic may be off: by chance once in two million."""


@pytest.fixture(scope="module")
def came(bring_up):
    """All links at once: what came over each of them, and when."""
    ground = bring_up("".join(pair(name, rate="1 Gb/s", rtt="100 ms", **link) for name, link in LINKS.items()))
    files = {name: ground.lab.folder / f"came-{name}" for name in LINKS}
    taking = []
    for name in LINKS:
        taking.append(ground.server(f"b{name}", "take", files[name], name=f"take-{name}", port=9))
        words = [ground.address(f"b{name}"), 9, COUNT, INTERVAL_S, BYTES]
        ground.client(f"a{name}", "send", *words, name=f"send-{name}")
    for process in taking:
        end_of(process, "the stream", COUNT * INTERVAL_S + 30)
    return ground, {name: read_records(path) for name, path in files.items()}


def delays_s(records):
    """Return how long each packet was on its way."""
    return [(came_ns - sent_ns) / 1e9 for _, sent_ns, came_ns in records]


def overtaken(records):
    """Return how many packets came after one that was sent later."""
    highest = itertools.accumulate((number for number, _, _ in records), max)
    return sum(number < high for (number, _, _), high in zip(records, highest, strict=True))


def test_packets_take_the_delay_and_the_time_to_send_them(came):
    ground, records = came
    delays = delays_s(records["plain"])
    assert [number for number, _, _ in records["plain"]] == list(range(COUNT)), ground.instrument()
    ground.expect("median delay", statistics.median(delays), DELAY_S + 8 * BYTES / 1e9, within=0.01)
    # The clocks are the same, and a wire does not deliver before it is due.
    assert min(delays) >= DELAY_S


def test_jitter_has_the_deviation_asked_for_and_keeps_the_order(came):
    ground, records = came
    delays = delays_s(records["jitter"])
    assert len(delays) == COUNT and overtaken(records["jitter"]) == 0
    # The process forgets in ten deviations: the stream is worth as many independent values as it has twice that time.
    independent = COUNT * INTERVAL_S / (2 * 10 * JITTER_S)
    mean_error_s = SIGMAS * JITTER_S / math.sqrt(independent)
    ground.expect("mean delay", statistics.mean(delays), DELAY_S, within=mean_error_s / DELAY_S + 0.01)
    deviation_error = SIGMAS / math.sqrt(2 * independent)
    ground.expect("deviation of the delay", statistics.stdev(delays), JITTER_S, within=deviation_error + 0.02)


def test_without_jitter_the_delay_does_not_vary(came):
    ground, records = came
    low, _, high = statistics.quantiles(delays_s(records["plain"]), n=4)
    assert high - low < 0.1 * JITTER_S, f"half of all within {(high - low) * 1e6:.0f} µs; {ground.instrument()}"


def test_independent_losses_have_their_share_and_no_memory(came):
    ground, records = came
    lost = _lost(records["lossy"])
    within = SIGMAS * math.sqrt((1 - LOSS) / (LOSS * COUNT))
    ground.expect("lost packets", sum(lost), LOSS * COUNT, within=within)
    # As many follow a loss as follow a packet that came: about 4 of 400 here.
    both = sum(one and other for one, other in itertools.pairwise(lost))
    expected = LOSS * sum(lost)
    assert abs(both - expected) < SIGMAS * math.sqrt(expected)


def test_bursts_are_as_long_and_as_many_as_gilbert_and_elliott_say(came):
    ground, records = came
    lengths = [len(list(run)) for lost, run in itertools.groupby(_lost(records["bursty"])) if lost]
    enter, leave = BURSTS["enter"], BURSTS["leave"]
    # Lengths are geometric: their deviation is sqrt(1 - leave) / leave.
    bursts = COUNT / (1 / enter + 1 / leave)
    ground.expect(
        "mean burst", statistics.mean(lengths), 1 / leave, within=SIGMAS * math.sqrt((1 - leave) / len(lengths))
    )
    ground.expect("number of bursts", len(lengths), bursts, within=SIGMAS / math.sqrt(bursts))


def test_the_share_that_takes_a_longer_way_is_overtaken(came):
    ground, records = came
    assert len(records["order"]) == COUNT
    # Up to a tenth of the delay longer: those are overtaken that take longer than the time from packet to packet.
    longest_s = DELAY_S / 10
    share = REORDER * (1 - INTERVAL_S / longest_s)
    within = SIGMAS / math.sqrt(share * COUNT) + 0.05
    ground.expect("overtaken packets", overtaken(records["order"]), share * COUNT, within=within)


def test_the_wire_has_counted_what_was_lost(came):
    ground, records = came
    for name in LINKS:
        totals = ground.done()["links"][f"a{name}>b{name}"]
        assert (totals["packets"], totals["loss_drops"]) == (len(records[name]), COUNT - len(records[name]))
        assert totals["bytes"] == BYTES * len(records[name]) and totals["queue_drops"] == 0


def _lost(records):
    there = {number for number, _, _ in records}
    return [number not in there for number in range(COUNT)]
