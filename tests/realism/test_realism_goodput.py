"""A shaped link carries its rate: what arrives is what the headers leave of it."""

import pytest
from ground import Flow, needs_iperf3, pair, payload_share

from testkit import needs_root

pytestmark = [needs_root, needs_iperf3]

# What comes after a lost segment reaches the application only with it: goodput over a time is the wire's but for what
# is held back as the time begins and as it ends. Where all streams lose at once, that is what a link carries in 100 ms
# (a round trip and a queue as long): less of half of this time than what is allowed.
SECONDS = 24
# Round trips and queues are long enough that a machine that stalls for some 10 ms does not let a link run dry.
WITHIN = 0.01

CASES = {
    "one": {"rate": "100 Mb/s", "streams": 1},
    "eight": {"rate": "100 Mb/s", "streams": 8},
    "ether": {"rate": "50 Mb/s", "streams": 1, "overhead": "38 B"},
    "jumbo": {"rate": "50 Mb/s", "streams": 1, "mtu": 9000},
    "uncut": {"rate": "20 Mb/s", "streams": 4, "offload": False},
}


@pytest.fixture(scope="module")
def goodputs(bring_up):
    """All cases at once, each on a link of its own: goodput from the half of the time on."""
    parts = []
    for name, case in CASES.items():
        more = {key: value for key, value in case.items() if key not in ("rate", "streams")}
        parts.append(pair(name, rate=case["rate"], rtt="50 ms", queue="1 BDP", **more))
    ground = bring_up("".join(parts))
    flows = {
        name: Flow.start(ground, f"a{name}", f"b{name}", SECONDS, streams=case["streams"])
        for name, case in CASES.items()
    }
    return ground, {name: flow.wait().goodput_bit_per_s() for name, flow in flows.items()}


@pytest.mark.parametrize("name", CASES)
def test_goodput_is_the_rate_less_the_headers(goodputs, name):
    ground, found = goodputs
    link = ground.link(f"a{name}>b{name}")
    mtu = ground.lab.asked.network.interfaces[f"a{name}.eth0"].mtu
    theory = link.rate_bit_per_s * payload_share(mtu, link.overhead_bytes)
    ground.expect(f"goodput of {CASES[name]}", found[name], theory, within=WITHIN)


def test_a_queue_of_one_bdp_holds_what_it_should_and_no_more(goodputs):
    ground, _ = goodputs
    totals = ground.done()["links"]
    for name in ("one", "eight"):
        link = ground.link(f"a{name}>b{name}")
        high = totals[f"a{name}>b{name}"]["queue_high_bytes"]
        # A packet is let in while the backlog is at most the limit.
        assert 0.9 * link.queue_bytes < high <= link.queue_bytes + 1500, ground.instrument()
