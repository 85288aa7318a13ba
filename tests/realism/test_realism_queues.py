"""A full queue takes the time that its bytes take: RTT = base + queue / rate."""

import statistics

import pytest
from ground import end_of, pair
from traffic import read_rtts_s

from testkit import needs_root

pytestmark = needs_root

RATE_BIT_PER_S = 20e6
RTT_S = 0.020
PRODUCTS = (0.5, 1, 2)
FLOOD_BYTES = 1000
OVERLOAD = 1.4
SECONDS = 8
ASK_EVERY_S = 0.08


@pytest.fixture(scope="module")
def filled(bring_up):
    """Three links, each with a flood of 1.4 times its rate and questions through the same queue."""
    parts = [pair(_name(k), rate="20 Mb/s", rtt="20 ms", queue=f"{k} BDP") for k in PRODUCTS]
    ground = bring_up("".join(parts))
    interval_s = 8 * FLOOD_BYTES / (OVERLOAD * RATE_BIT_PER_S)
    asking, taking = {}, {}
    for k in PRODUCTS:
        a, b = f"a{_name(k)}", f"b{_name(k)}"
        ground.server(b, "echo", name=f"echo{k}", port=7)
        taking[k] = ground.server(b, "take", _file(ground, "taken", k), name=f"take{k}", port=9)
        address, packets = ground.address(b), round(SECONDS / interval_s)
        ground.client(a, "send", address, 9, packets, interval_s, FLOOD_BYTES, name=f"send{k}")
        questions = round((SECONDS - 1) / ASK_EVERY_S)
        rtts = _file(ground, "rtts", k)
        asking[k] = ground.client(a, "ask", address, 7, questions, ASK_EVERY_S, rtts, name=f"ask{k}")
    for process in (*asking.values(), *taking.values()):
        end_of(process, "the flood", SECONDS + 15)
    return ground, {k: read_rtts_s(_file(ground, "rtts", k)) for k in PRODUCTS}


@pytest.mark.parametrize("products", PRODUCTS)
def test_a_full_queue_of_k_bdp_adds_k_base_rtts(filled, products):
    ground, rtts_s = filled
    # The first second fills it: a surplus of 0.4 of the rate takes 2.5 times what the queue holds, 0.1 s for 2 BDP.
    settled = rtts_s[products][len(rtts_s[products]) // 4 :]
    # A question finds room in the time between a packet that left and the next of the flood: two in five of them.
    assert len(settled) >= 10, f"expected some 25 answers, found {len(settled)}; {ground.instrument()}"
    link = ground.link(f"a{_name(products)}>b{_name(products)}")
    assert link.queue_bytes == pytest.approx(products * RATE_BIT_PER_S * RTT_S / 8)
    # A question is let in with up to a packet more than the limit before it: the queue is between full and one packet short or long of it.
    expected_s = RTT_S + 8 * link.queue_bytes / RATE_BIT_PER_S
    packet = 8 * FLOOD_BYTES / RATE_BIT_PER_S / expected_s
    ground.expect(
        f"median RTT of {len(settled)} with {products} BDP queued",
        statistics.median(settled),
        expected_s,
        within=packet + 0.01,
    )


@pytest.mark.parametrize("products", PRODUCTS)
def test_what_does_not_fit_is_dropped_and_the_rest_passes_at_the_rate(filled, products):
    ground, _ = filled
    name = f"a{_name(products)}>b{_name(products)}"
    totals, link = ground.done()["links"][name], ground.link(name)
    assert link.queue_bytes - FLOOD_BYTES <= totals["queue_high_bytes"] <= link.queue_bytes + FLOOD_BYTES
    offered = totals["packets"] + totals["queue_drops"]
    # What the queue still holds at the end of the flood passes too.
    passed = SECONDS * RATE_BIT_PER_S / 8 / FLOOD_BYTES + link.queue_bytes / FLOOD_BYTES
    ground.expect(f"drops of {offered} packets offered", totals["queue_drops"], offered - passed, within=0.03)
    ground.expect(
        "time in which the transmitter was busy", totals["busy_s"], 8 * totals["bytes"] / RATE_BIT_PER_S, within=1e-3
    )


def _name(k):
    return f"k{round(10 * k)}"


def _file(ground, name, k):
    return ground.lab.folder / f"{name}-{k}"
