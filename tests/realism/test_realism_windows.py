"""What is in flight limits: n streams with a window W carry the lesser of n · W / RTT and what the link carries."""

import re
import statistics
import time

import pytest
from ground import MSS_BYTES, MTU_BYTES, PORT, Flow, needs_iperf3, pair, payload_share, wait_for

from testkit import needs_root

pytestmark = [needs_root, needs_iperf3]

SECONDS = 10
SAMPLES = 20
RTT_S = 0.050

# name → streams, rate of the link: the window is a thousandth of the BDP, or twice the BDP. The fast link sends a window in 0.1 % of the RTT.
CASES = {"one": (1, "10 Gb/s"), "four": (4, "10 Gb/s"), "slow": (1, "5 Mb/s")}
NARROW = ("one", "four")

# Without scaling no window is larger than its 16 bits (RFC 9293, section 3.1), whatever the buffers: W is known, and `ss` says whether it is so.
WINDOW_BYTES = 65535
PROFILE = """
    [tcp.unscaled]
    net.ipv4.tcp_window_scaling = 0
    net.ipv4.tcp_rmem = "4096 1048576 4194304"
    net.ipv4.tcp_wmem = "4096 1048576 4194304"
"""


@pytest.fixture(scope="module")
def limited(bring_up):
    """All cases at once: goodput, and what the sender's sockets said on the way."""
    parts = [pair(name, rate=rate, rtt="50 ms", host='tcp = "unscaled"') for name, (_, rate) in CASES.items()]
    ground = bring_up("".join(parts) + PROFILE)
    flows = {
        name: Flow.start(ground, f"a{name}", f"b{name}", SECONDS, streams=streams, block="8K")
        for name, (streams, _) in CASES.items()
    }
    start_s = time.monotonic()
    said = {name: [] for name in CASES}
    for number in range(SAMPLES):
        due_s = start_s + (number + 1) * SECONDS / (SAMPLES + 2)
        wait_for(lambda due_s=due_s: time.monotonic() > due_s, "the next moment")
        for name in CASES:
            said[name].append(_sockets(ground, name))
    return ground, {name: flow.wait().goodput_bit_per_s() for name, flow in flows.items()}, said


@pytest.mark.parametrize("name", NARROW)
def test_n_windows_a_round_trip_are_the_goodput(limited, name):
    ground, goodputs, said = limited
    streams, _ = CASES[name]
    settled = said[name][SAMPLES // 2 :]
    assert all(len(sockets) == streams for sockets in settled), (
        f"expected {streams} sockets each time, found {settled}"
    )
    offered = statistics.median(one["snd_wnd"] for sockets in settled for one in sockets)
    assert offered == WINDOW_BYTES
    # A sender sends whole segments: of the window, what they fill.
    theory = 8 * streams * (WINDOW_BYTES // MSS_BYTES * MSS_BYTES) / RTT_S
    ground.expect(
        f"goodput of {streams} streams with windows of {WINDOW_BYTES} B", goodputs[name], theory, within=0.05
    )


@pytest.mark.parametrize("name", NARROW)
def test_the_sender_says_that_the_window_limits_it(limited, name):
    ground, _, said = limited
    shares = [one["rwnd_limited_percent"] for one in said[name][-1]]
    assert min(shares, default=0) > 80, f"{shares} % of the time; {ground.instrument()}"


def test_a_window_of_more_than_the_bdp_fills_the_link_and_queues_the_rest(limited):
    ground, goodputs, said = limited
    link = ground.link("aslow>bslow")
    ground.expect("goodput", goodputs["slow"], link.rate_bit_per_s * payload_share(), within=0.01)
    assert 2 * link.rate_bit_per_s * RTT_S / 8 < WINDOW_BYTES
    # All of the window is on its way: on the link for the RTT, and in the queue for what is left of it.
    rtts_s = [one["rtt_s"] for sockets in said["slow"][SAMPLES // 2 :] for one in sockets]
    segments = WINDOW_BYTES // MSS_BYTES
    expected_s = 8 * segments * MTU_BYTES / link.rate_bit_per_s
    ground.expect(f"RTT with {segments} segments in flight", statistics.median(rtts_s), expected_s, within=0.05)


def _sockets(ground, name):
    """Return what `ss` says of the data sockets of a flow at its sender: those that have sent the most."""
    out = ground.lab.machine(f"a{name}").run(
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
    # The control connection of iperf3 has sent some hundred bytes.
    found.sort(key=lambda one: one["bytes_acked"], reverse=True)
    return found[: CASES[name][0]]
