"""A shaped link carries its rate: the goodput is the rate minus headers."""

import pytest
from lab_rig import Flow, needs_iperf3, pair, payload_fraction

from testkit import needs_root

pytestmark = [needs_root, needs_iperf3]

# Data after a lost segment reach the application together with it. The goodput of an interval is therefore the goodput
# of the link, except for held-back data at its start and end. If all streams lose packets at the same time, these data
# are the capacity of the link in 100 ms (a round trip and an equally long queue). That is less than the tolerance for
# half of this time.
SECONDS = 24
# Round trips and queues are long enough that a link stays busy if the machine stalls for about 10 ms.
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
    """Goodput of all cases from half of the time on. They run at the same time, each on its own link."""
    parts = []
    for name, case in CASES.items():
        more = {key: value for key, value in case.items() if key not in ("rate", "streams")}
        parts.append(pair(name, rate=case["rate"], rtt="50 ms", queue="1 BDP", **more))
    rig = bring_up("".join(parts))
    flows = {
        name: Flow.start(rig, f"a{name}", f"b{name}", SECONDS, streams=case["streams"])
        for name, case in CASES.items()
    }
    return rig, {name: flow.wait().goodput_bit_per_s() for name, flow in flows.items()}


@pytest.mark.parametrize("name", CASES)
def test_goodput_is_the_rate_minus_the_header_overhead(goodputs, name):
    rig, found = goodputs
    link = rig.link(f"a{name}>b{name}")
    mtu = rig.lab.spec.network.interfaces[f"a{name}.eth0"].mtu
    theory = link.rate_bit_per_s * payload_fraction(mtu, link.overhead_bytes)
    rig.expect(f"goodput of {CASES[name]}", found[name], theory, within=WITHIN)


def test_a_queue_fills_up_to_its_limit_and_no_further(goodputs):
    rig, _ = goodputs
    totals = rig.done()["links"]
    for name in ("one", "eight"):
        link = rig.link(f"a{name}>b{name}")
        high = totals[f"a{name}>b{name}"]["queue_high_bytes"]
        # The queue accepts a packet if the backlog is at most the limit.
        assert 0.9 * link.queue_bytes < high <= link.queue_bytes + 1500, rig.instrument()
