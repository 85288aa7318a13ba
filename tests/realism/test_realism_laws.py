"""TCP over the wire obeys the laws of TCP: two flows share (Chiu and Jain 1989), Reno under random loss is as fast as Mathis et al. (1997) say.

Both laws are those of additive increase, which is Reno's. CUBIC shares too, where thirty seconds hold enough of its epochs: at 10 ms Jain's index of 20
pairs on an idle machine was 0.994 to 1.000. At 25 ms chance has its part in it: 0.970 to 1.000 of 30 pairs, where Reno had 0.996 to 1.000.

Both need queue and loss for each segment inside a super-packet: where super-packets are lost as a whole, Reno is 1.4 to 73 times as fast as the law.
"""

import math

import pytest
from ground import MSS_BYTES, Flow, dumbbell, needs_iperf3, pair

from testkit import needs_root

pytestmark = [needs_root, needs_iperf3]

# Pair of flows → its congestion control and round trip.
SHARED = {"x": ("reno", "25 ms"), "y": ("reno", "25 ms"), "z": ("cubic", "10 ms"), "w": ("cubic", "10 ms")}
SHARE_SECONDS = 36
SETTLED_S = 5.0
"""Slow start and what it overshoots are over by then; laws and shares are those of what follows."""

# Loss probability → links that have it. Few losses a second at the smallest: more links, so that there are about a hundred in all.
LOSSES = {1e-4: 2, 1e-3: 1, 1e-2: 1}
LOSS_SECONDS = 45
LOSS_RTT_S = 0.010
MATHIS = math.sqrt(3 / 2)
"""The constant for periodic loss and an acknowledgement a segment, which Linux counts (bytes acknowledged, RFC 3465)."""

BINOMIAL = 5.0
"""Standard deviations that a share of losses may be off: by chance once in two million."""


@pytest.fixture(scope="module")
def ran(bring_up):
    """All flows at once, each law on links of its own: about 400 Mb/s in sum."""
    parts = [dumbbell(name, rate="20 Mb/s", rtt=rtt, queue="1 BDP") for name, (_, rtt) in SHARED.items()]
    lossy = {}
    for probability, count in LOSSES.items():
        for number in range(count):
            name = f"p{round(-math.log10(probability))}{number}"
            lossy[name] = probability
            # The law at the least loss is 14 % of this rate, and a window seldom more than twice its mean: nothing else limits.
            parts.append(pair(name, rate="1 Gb/s", rtt="10 ms", queue="1 BDP", loss=probability, host=BUFFERS))
    ground = bring_up("".join(parts) + PROFILE)
    shares = {
        (name, number): Flow.start(ground, f"a{name}{number}", f"b{name}{number}", SHARE_SECONDS, control=control)
        for name, (control, _) in SHARED.items()
        for number in (0, 1)
    }
    losses = {
        name: Flow.start(ground, f"a{name}", f"b{name}", LOSS_SECONDS, control="reno", block="64K") for name in lossy
    }
    return (
        ground,
        {key: flow.wait().goodput_bit_per_s(SETTLED_S) for key, flow in shares.items()},
        {name: (lossy[name], flow.wait()) for name, flow in losses.items()},
    )


BUFFERS = 'tcp = "large"'
PROFILE = """
    [tcp.large]
    net.ipv4.tcp_rmem = "4096 131072 33554432"
    net.ipv4.tcp_wmem = "4096 131072 33554432"
"""


@pytest.mark.parametrize("name", SHARED)
def test_two_equal_flows_share_a_bottleneck_fairly(ran, name):
    ground, goodputs, _ = ran
    two = [goodputs[name, number] for number in (0, 1)]
    jain = sum(two) ** 2 / (2 * sum(rate**2 for rate in two))
    ground.expect(
        f"Jain's index of {two[0] / 1e6:.2f} and {two[1] / 1e6:.2f} Mb/s ({SHARED[name][0]})",
        jain,
        1.0,
        least=0.95,
        most=1 + 1e-9,
    )


@pytest.mark.parametrize("probability", LOSSES)
def test_reno_under_random_loss_is_as_fast_as_mathis_says(ran, probability):
    ground, _, flows = ran
    rates = [flow.goodput_bit_per_s(SETTLED_S) for found, flow in flows.values() if found == probability]
    law = 8 * MSS_BYTES / LOSS_RTT_S * MATHIS / math.sqrt(probability)
    what = f"goodput of Reno at p = {probability:g} ({len(rates)} flows)"
    ground.expect(what, sum(rates) / len(rates), law, least=0.8, most=1.25)


@pytest.mark.parametrize("probability", LOSSES)
def test_segments_are_lost_with_the_probability_asked_for(ran, probability):
    ground, _, flows = ran
    links = [ground.done()["links"][f"a{name}>b{name}"] for name, (found, _) in flows.items() if found == probability]
    lost = sum(link["loss_drops"] for link in links)
    sent = lost + sum(link["packets"] for link in links)
    within = BINOMIAL * math.sqrt((1 - probability) / (probability * sent))
    ground.expect(f"losses of {sent} segments at p = {probability:g}", lost, sent * probability, within=within)


def test_the_sender_repeats_what_the_wire_says_it_has_dropped(ran):
    """Truth from the kernel: a segment lost is a segment sent again, give or take spurious repeats and what was lost at the end."""
    ground, _, flows = ran
    totals = ground.done()["links"]
    for name, (probability, flow) in flows.items():
        link = totals[f"a{name}>b{name}"]
        dropped = link["loss_drops"] + link["queue_drops"]
        ground.expect(f"segments repeated at p = {probability:g}", flow.retransmits(), dropped, within=0.05)
