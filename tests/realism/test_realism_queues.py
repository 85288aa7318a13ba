"""A full queue adds the transmission time of its bytes: RTT = base + queue / rate."""

import statistics

import pytest
from lab_rig import end_of, pair
from traffic import read_rtts_s

from testkit import needs_root

pytestmark = needs_root

RATE_BIT_PER_S = 20e6
RTT_S = 0.020
PRODUCTS = (0.5, 1, 2)
FLOOD_BYTES = 1000
OVERLOAD = 1.4
SECONDS = 8
REQUEST_INTERVAL_S = 0.08


@pytest.fixture(scope="module")
def filled(bring_up):
    """Three links, each with a flood of 1.4 times its rate and requests through the same queue."""
    parts = [pair(_name(k), rate="20 Mb/s", rtt="20 ms", queue=f"{k} BDP") for k in PRODUCTS]
    rig = bring_up("".join(parts))
    interval_s = 8 * FLOOD_BYTES / (OVERLOAD * RATE_BIT_PER_S)
    requesting, taking = {}, {}
    for k in PRODUCTS:
        a, b = f"a{_name(k)}", f"b{_name(k)}"
        rig.server(b, "echo", name=f"echo{k}", port=7)
        taking[k] = rig.server(b, "take", _file(rig, "taken", k), name=f"take{k}", port=9)
        address, packets = rig.address(b), round(SECONDS / interval_s)
        rig.client(a, "send", address, 9, packets, interval_s, FLOOD_BYTES, name=f"send{k}")
        requests = round((SECONDS - 1) / REQUEST_INTERVAL_S)
        rtts = _file(rig, "rtts", k)
        requesting[k] = rig.client(a, "rtt", address, 7, requests, REQUEST_INTERVAL_S, rtts, name=f"rtt{k}")
    for process in (*requesting.values(), *taking.values()):
        end_of(process, "the flood", SECONDS + 15)
    return rig, {k: read_rtts_s(_file(rig, "rtts", k)) for k in PRODUCTS}


@pytest.mark.parametrize("products", PRODUCTS)
def test_a_full_queue_of_k_bdp_adds_k_base_rtts(filled, products):
    rig, rtts_s = filled
    # The first second fills the queue. With an excess of 0.4 of the rate, it takes 2.5 times the queueing delay, which is
    # 0.1 s for 2 BDP.
    steady = rtts_s[products][len(rtts_s[products]) // 4 :]
    # A request enters the queue between the departure of a packet and the next packet of the flood, which is the case
    # for two in five.
    assert len(steady) >= 10, f"expected some 25 answers, found {len(steady)}; {rig.instrument()}"
    link = rig.link(f"a{_name(products)}>b{_name(products)}")
    assert link.queue_bytes == pytest.approx(products * RATE_BIT_PER_S * RTT_S / 8)
    # The queue accepts a request with up to one packet more than the limit ahead of it. The queue is therefore full to
    # within one packet.
    expected_s = RTT_S + 8 * link.queue_bytes / RATE_BIT_PER_S
    packet = 8 * FLOOD_BYTES / RATE_BIT_PER_S / expected_s
    rig.expect(
        f"median RTT of {len(steady)} with {products} BDP queued",
        statistics.median(steady),
        expected_s,
        within=packet + 0.01,
    )


@pytest.mark.parametrize("products", PRODUCTS)
def test_packets_beyond_the_queue_are_dropped_and_the_rest_passes_at_the_rate(filled, products):
    rig, _ = filled
    name = f"a{_name(products)}>b{_name(products)}"
    totals, link = rig.done()["links"][name], rig.link(name)
    assert link.queue_bytes - FLOOD_BYTES <= totals["queue_high_bytes"] <= link.queue_bytes + FLOOD_BYTES
    offered = totals["packets"] + totals["queue_drops"]
    # The packets in the queue at the end of the flood also pass.
    passed = SECONDS * RATE_BIT_PER_S / 8 / FLOOD_BYTES + link.queue_bytes / FLOOD_BYTES
    rig.expect(f"drops of {offered} packets offered", totals["queue_drops"], offered - passed, within=0.03)
    rig.expect(
        "time in which the transmitter was busy", totals["busy_s"], 8 * totals["bytes"] / RATE_BIT_PER_S, within=1e-3
    )


def _name(k):
    return f"k{round(10 * k)}"


def _file(rig, name, k):
    return rig.lab.directory / f"{name}-{k}"
