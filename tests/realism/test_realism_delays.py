"""Effects of a link on single packets: delay, jitter, order and loss. Each link has its own stream of datagrams."""

import itertools
import math
import statistics

import pytest
from lab_rig import end_of, pair
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
"""Tolerance of a statistic in standard deviations, which chance exceeds once in two million cases."""


@pytest.fixture(scope="module")
def came(bring_up):
    """Packets that arrived over each link, with their times. All links run at the same time."""
    rig = bring_up("".join(pair(name, rate="1 Gb/s", rtt="100 ms", **link) for name, link in LINKS.items()))
    files = {name: rig.lab.directory / f"came-{name}" for name in LINKS}
    taking = []
    for name in LINKS:
        taking.append(rig.server(f"b{name}", "take", files[name], name=f"take-{name}", port=9))
        words = [rig.address(f"b{name}"), 9, COUNT, INTERVAL_S, BYTES]
        rig.client(f"a{name}", "send", *words, name=f"send-{name}")
    for process in taking:
        end_of(process, "the stream", COUNT * INTERVAL_S + 30)
    return rig, {name: read_records(path) for name, path in files.items()}


def delays_s(records):
    """Return the delay of each packet."""
    return [(came_ns - sent_ns) / 1e9 for _, sent_ns, came_ns in records]


def overtaken(records):
    """Return the number of packets that arrived after a packet sent later."""
    highest = itertools.accumulate((number for number, _, _ in records), max)
    return sum(number < high for (number, _, _), high in zip(records, highest, strict=True))


def test_packets_take_the_delay_plus_the_transmission_time(came):
    rig, records = came
    delays = delays_s(records["plain"])
    assert [number for number, _, _ in records["plain"]] == list(range(COUNT)), rig.instrument()
    rig.expect("median delay", statistics.median(delays), DELAY_S + 8 * BYTES / 1e9, within=0.01)
    # All hosts have the same clock, and the emulator never delivers early.
    assert min(delays) >= DELAY_S


def test_jitter_has_the_requested_deviation_and_keeps_the_order(came):
    rig, records = came
    delays = delays_s(records["jitter"])
    assert len(delays) == COUNT and overtaken(records["jitter"]) == 0
    # The correlation time of the process is ten deviations. The stream has one independent value per twice that time.
    independent = COUNT * INTERVAL_S / (2 * 10 * JITTER_S)
    mean_error_s = SIGMAS * JITTER_S / math.sqrt(independent)
    rig.expect("mean delay", statistics.mean(delays), DELAY_S, within=mean_error_s / DELAY_S + 0.01)
    deviation_error = SIGMAS / math.sqrt(2 * independent)
    rig.expect("deviation of the delay", statistics.stdev(delays), JITTER_S, within=deviation_error + 0.02)


def test_without_jitter_the_delay_does_not_vary(came):
    rig, records = came
    low, _, high = statistics.quantiles(delays_s(records["plain"]), n=4)
    assert high - low < 0.1 * JITTER_S, f"half of all within {(high - low) * 1e6:.0f} µs; {rig.instrument()}"


def test_independent_losses_have_the_requested_fraction_and_are_uncorrelated(came):
    rig, records = came
    lost = _lost(records["lossy"])
    within = SIGMAS * math.sqrt((1 - LOSS) / (LOSS * COUNT))
    rig.expect("lost packets", sum(lost), LOSS * COUNT, within=within)
    # A loss is equally likely after a lost and after a received packet: about 4 of 400 here.
    both = sum(one and other for one, other in itertools.pairwise(lost))
    expected = LOSS * sum(lost)
    assert abs(both - expected) < SIGMAS * math.sqrt(expected)


def test_burst_lengths_and_counts_match_the_gilbert_elliott_model(came):
    rig, records = came
    lengths = [len(list(run)) for lost, run in itertools.groupby(_lost(records["bursty"])) if lost]
    enter, leave = BURSTS["enter"], BURSTS["leave"]
    # Lengths are geometric, with the deviation sqrt(1 - leave) / leave.
    bursts = COUNT / (1 / enter + 1 / leave)
    rig.expect(
        "mean burst", statistics.mean(lengths), 1 / leave, within=SIGMAS * math.sqrt((1 - leave) / len(lengths))
    )
    rig.expect("number of bursts", len(lengths), bursts, within=SIGMAS / math.sqrt(bursts))


def test_packets_on_a_longer_route_are_overtaken(came):
    rig, records = came
    assert len(records["order"]) == COUNT
    # The extra delay is at most a tenth of the delay. A packet is overtaken if its extra delay exceeds the packet
    # interval.
    longest_s = DELAY_S / 10
    fraction = REORDER * (1 - INTERVAL_S / longest_s)
    within = SIGMAS / math.sqrt(fraction * COUNT) + 0.05
    rig.expect("overtaken packets", overtaken(records["order"]), fraction * COUNT, within=within)


def test_the_emulator_counts_lost_packets(came):
    rig, records = came
    for name in LINKS:
        totals = rig.done()["links"][f"a{name}>b{name}"]
        assert (totals["packets"], totals["loss_drops"]) == (len(records[name]), COUNT - len(records[name]))
        assert totals["bytes"] == BYTES * len(records[name]) and totals["queue_drops"] == 0


def _lost(records):
    there = {number for number, _, _ in records}
    return [number not in there for number in range(COUNT)]
