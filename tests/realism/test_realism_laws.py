"""TCP over the emulator obeys known laws of fairness and of throughput under loss.

The sources are Chiu and Jain (1989), and Mathis et al. (1997) for Reno. Both laws assume additive increase, as in Reno.
CUBIC is also fair if thirty seconds contain enough of its epochs. At 10 ms, Jain's index of 20 pairs on an idle machine
was 0.994 to 1.000. At 25 ms, chance has an effect: 30 pairs had 0.970 to 1.000, and Reno had 0.996 to 1.000.

Both laws need queueing and loss for each segment of a super-packet. If super-packets are lost as a whole, Reno is 1.4
to 73 times as fast as the law.
"""

import math

import pytest
from lab_rig import MSS_BYTES, Flow, dumbbell, needs_iperf3, pair

from testkit import needs_root

pytestmark = [needs_root, needs_iperf3]

# Congestion control and round-trip time of each pair of flows.
SHARED = {"x": ("reno", "25 ms"), "y": ("reno", "25 ms"), "z": ("cubic", "10 ms"), "w": ("cubic", "10 ms")}
FAIRNESS_SECONDS = 36
WARMUP_S = 5.0
"""Time after which slow start and its overshoot are over; the tests evaluate the rest."""

# Number of links with each loss probability. The smallest one causes few losses per second, so it has more links, for
# about a hundred losses in total.
LOSSES = {1e-4: 2, 1e-3: 1, 1e-2: 1}
LOSS_SECONDS = 45
LOSS_RTT_S = 0.010
MATHIS = math.sqrt(3 / 2)
"""Constant for periodic loss and one acknowledgement per segment. Linux counts acknowledged bytes (RFC 3465)."""

BINOMIAL = 5.0
"""Tolerance of a fraction of losses in standard deviations, which chance exceeds once in two million cases."""


@pytest.fixture(scope="module")
def ran(bring_up):
    """All flows at the same time, with separate links for each law: about 400 Mb/s in total."""
    parts = [dumbbell(name, rate="20 Mb/s", rtt=rtt, queue="1 BDP") for name, (_, rtt) in SHARED.items()]
    lossy = {}
    for probability, count in LOSSES.items():
        for number in range(count):
            name = f"p{round(-math.log10(probability))}{number}"
            lossy[name] = probability
            # At the smallest loss, the law gives 14 % of this rate, and a window is rarely more than twice its mean. No
            # other resource limits the flow.
            parts.append(pair(name, rate="1 Gb/s", rtt="10 ms", queue="1 BDP", loss=probability, host=BUFFERS))
    rig = bring_up("".join(parts) + PROFILE)
    flows = {
        (name, number): Flow.start(rig, f"a{name}{number}", f"b{name}{number}", FAIRNESS_SECONDS, control=control)
        for name, (control, _) in SHARED.items()
        for number in (0, 1)
    }
    losses = {
        name: Flow.start(rig, f"a{name}", f"b{name}", LOSS_SECONDS, control="reno", block="64K") for name in lossy
    }
    return (
        rig,
        {key: flow.wait().goodput_bit_per_s(WARMUP_S) for key, flow in flows.items()},
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
    rig, goodputs, _ = ran
    two = [goodputs[name, number] for number in (0, 1)]
    jain = sum(two) ** 2 / (2 * sum(rate**2 for rate in two))
    rig.expect(
        f"Jain's index of {two[0] / 1e6:.2f} and {two[1] / 1e6:.2f} Mb/s ({SHARED[name][0]})",
        jain,
        1.0,
        least=0.95,
        most=1 + 1e-9,
    )


@pytest.mark.parametrize("probability", LOSSES)
def test_reno_under_random_loss_matches_the_mathis_formula(ran, probability):
    rig, _, flows = ran
    rates = [flow.goodput_bit_per_s(WARMUP_S) for found, flow in flows.values() if found == probability]
    law = 8 * MSS_BYTES / LOSS_RTT_S * MATHIS / math.sqrt(probability)
    what = f"goodput of Reno at p = {probability:g} ({len(rates)} flows)"
    rig.expect(what, sum(rates) / len(rates), law, least=0.8, most=1.25)


@pytest.mark.parametrize("probability", LOSSES)
def test_segments_are_lost_with_the_requested_probability(ran, probability):
    rig, _, flows = ran
    links = [rig.done()["links"][f"a{name}>b{name}"] for name, (found, _) in flows.items() if found == probability]
    lost = sum(link["loss_drops"] for link in links)
    sent = lost + sum(link["packets"] for link in links)
    within = BINOMIAL * math.sqrt((1 - probability) / (probability * sent))
    rig.expect(f"losses of {sent} segments at p = {probability:g}", lost, sent * probability, within=within)


def test_the_sender_retransmits_the_segments_dropped_by_the_emulator(ran):
    """The kernel retransmits each lost segment, apart from spurious retransmissions and losses at the end."""
    rig, _, flows = ran
    totals = rig.done()["links"]
    for name, (probability, flow) in flows.items():
        link = totals[f"a{name}>b{name}"]
        dropped = link["loss_drops"] + link["queue_drops"]
        rig.expect(f"segments repeated at p = {probability:g}", flow.retransmits(), dropped, within=0.05)
