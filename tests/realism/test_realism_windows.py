"""The window limits: n streams with window W have the smaller of n · W / RTT and the capacity of the link."""

import re
import statistics
import time

import pytest
from lab_rig import MSS_BYTES, MTU_BYTES, PORT, Flow, needs_iperf3, pair, payload_fraction, wait_for

from testkit import needs_root

pytestmark = [needs_root, needs_iperf3]

SECONDS = 10
SAMPLES = 20
RTT_S = 0.050

# Streams and link rate by name. The window is a thousandth of the BDP, or twice the BDP. The fast link sends a window
# in 0.1 % of the RTT.
CASES = {"one": (1, "10 Gb/s"), "four": (4, "10 Gb/s"), "slow": (1, "5 Mb/s")}
NARROW = ("one", "four")

# Without scaling, the maximum window is 16 bits (RFC 9293, section 3.1), regardless of buffers. So W is known, and `ss`
# confirms it.
WINDOW_BYTES = 65535
PROFILE = """
    [tcp.unscaled]
    net.ipv4.tcp_window_scaling = 0
    net.ipv4.tcp_rmem = "4096 1048576 4194304"
    net.ipv4.tcp_wmem = "4096 1048576 4194304"
"""


@pytest.fixture(scope="module")
def limited(bring_up):
    """Goodput of all cases, which run at the same time, and samples of the sender's sockets."""
    parts = [pair(name, rate=rate, rtt="50 ms", host='tcp = "unscaled"') for name, (_, rate) in CASES.items()]
    rig = bring_up("".join(parts) + PROFILE)
    flows = {
        name: Flow.start(rig, f"a{name}", f"b{name}", SECONDS, streams=streams, block="8K")
        for name, (streams, _) in CASES.items()
    }
    start_s = time.monotonic()
    printed = {name: [] for name in CASES}
    for number in range(SAMPLES):
        due_s = start_s + (number + 1) * SECONDS / (SAMPLES + 2)
        wait_for(lambda due_s=due_s: time.monotonic() > due_s, "the next moment")
        for name in CASES:
            printed[name].append(_sockets(rig, name))
    return rig, {name: flow.wait().goodput_bit_per_s() for name, flow in flows.items()}, printed


@pytest.mark.parametrize("name", NARROW)
def test_the_goodput_is_the_sum_of_the_windows_per_round_trip(limited, name):
    rig, goodputs, printed = limited
    streams, _ = CASES[name]
    steady = printed[name][SAMPLES // 2 :]
    assert all(len(sockets) == streams for sockets in steady), f"expected {streams} sockets each time, found {steady}"
    offered = statistics.median(one["snd_wnd"] for sockets in steady for one in sockets)
    assert offered == WINDOW_BYTES
    # A sender sends only whole segments of the window.
    theory = 8 * streams * (WINDOW_BYTES // MSS_BYTES * MSS_BYTES) / RTT_S
    rig.expect(f"goodput of {streams} streams with windows of {WINDOW_BYTES} B", goodputs[name], theory, within=0.05)


@pytest.mark.parametrize("name", NARROW)
def test_the_sender_reports_that_the_window_limits_it(limited, name):
    rig, _, printed = limited
    fractions = [one["rwnd_limited_percent"] for one in printed[name][-1]]
    assert min(fractions, default=0) > 80, f"{fractions} % of the time; {rig.instrument()}"


def test_a_window_of_more_than_the_bdp_fills_the_link_and_queues_the_rest(limited):
    rig, goodputs, printed = limited
    link = rig.link("aslow>bslow")
    rig.expect("goodput", goodputs["slow"], link.rate_bit_per_s * payload_fraction(), within=0.01)
    assert 2 * link.rate_bit_per_s * RTT_S / 8 < WINDOW_BYTES
    # The whole window is in flight: on the link for the RTT, and the rest in the queue.
    rtts_s = [one["rtt_s"] for sockets in printed["slow"][SAMPLES // 2 :] for one in sockets]
    segments = WINDOW_BYTES // MSS_BYTES
    expected_s = 8 * segments * MTU_BYTES / link.rate_bit_per_s
    rig.expect(f"RTT with {segments} segments in flight", statistics.median(rtts_s), expected_s, within=0.05)


def _sockets(rig, name):
    """Return the `ss` output for the data sockets of a flow at its sender, which are those with the most acknowledged bytes."""
    out = rig.lab.shell(f"a{name}").run(
        ["ss", "-tinOH", "state", "established", "dport", "=", f":{PORT}"], timeout_s=5
    )
    found = []
    for line in out.stdout.splitlines():
        words = {key: re.search(rf"\b{key}:([\d.]+)", line) for key in ("snd_wnd", "bytes_acked", "rtt")}
        limited = re.search(r"\brwnd_limited:\d+ms\(([\d.]+)%\)", line)
        if all(words.values()):
            found.append(
                {
                    "snd_wnd": int(words["snd_wnd"][1]),
                    "bytes_acked": int(words["bytes_acked"][1]),
                    "rtt_s": float(words["rtt"][1]) / 1e3,
                    "rwnd_limited_percent": float(limited[1]) if limited else 0.0,
                }
            )
    # The control connection of iperf3 has sent only some hundred bytes.
    found.sort(key=lambda one: one["bytes_acked"], reverse=True)
    return found[: CASES[name][0]]
