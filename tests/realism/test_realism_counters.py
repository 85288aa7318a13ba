"""Captures, link counters, kernel counters of devices and counts of the application agree to the byte."""

import itertools
import shutil
import struct
import subprocess
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest
from lab_rig import HEADERS_BYTES, device_counters, end_of, pair, wait_for

from testkit import needs_root

pytestmark = needs_root

SIZE_BYTES = 20_000_000
PORT = 9
# With and without loss; with segmentation offload and without.
CASES = {
    "clean": {},
    "lossy": {"loss": 0.002},
    "uncut": {"offload": False},
    "ether": {"overhead": "38 B"},
}
RATE_BIT_PER_S = 200e6


@dataclass(frozen=True)
class Packet:
    """A packet of a capture: end of its transmission in ns since 1970, length, TCP payload, SYN, sequence number."""

    time_ns: int
    length: int
    payload: int
    syn: bool
    sequence: int


def packets(path):
    """Yield the packets of a capture: pcap in nanoseconds of raw IPv4 (draft-ietf-opsawg-pcap)."""
    data = memoryview(Path(path).read_bytes())
    magic, *_, link_type = struct.unpack_from("=IHHiIII", data)
    assert (magic, link_type) == (0xA1B23C4D, 101)
    offset = 24
    while offset < len(data):
        seconds, nanoseconds, kept, length = struct.unpack_from("=IIII", data, offset)
        head = data[offset + 16 : offset + 16 + kept]
        offset += 16 + kept
        ip_bytes, tcp = 4 * (head[0] & 15), 4 * (head[0] & 15)
        (total,), (sequence,) = struct.unpack_from(">H", head, 2), struct.unpack_from(">I", head, tcp + 4)
        assert total == length
        payload = length - ip_bytes - 4 * (head[tcp + 12] >> 4)
        yield Packet(seconds * 10**9 + nanoseconds, length, payload, bool(head[tcp + 13] & 2), sequence)


@pytest.fixture(scope="module")
def carried(bring_up):
    """A flow of a known size over each link, captured in both directions. All packets have passed and the network has ended."""
    rig = bring_up(
        "".join(pair(name, rate="200 Mb/s", rtt="10 ms", queue="8 MB", **case) for name, case in CASES.items())
    )
    directory = rig.lab.directory
    before = {host: device_counters(rig, host) for host in rig.lab.shells}
    for name in CASES:
        rig.lab.capture(f"a{name}>b{name}", directory / f"there-{name}.pcap", snap_bytes=96)
        rig.lab.capture(f"b{name}>a{name}", directory / f"back-{name}.pcap", snap_bytes=96)
    wait_for(lambda: len(_events(rig, "begun")) == 2 * len(CASES), "captures")
    draining = {name: _pour(rig, name, SIZE_BYTES) for name in CASES}
    drained = {name: int(end_of(process, "the stream", 60)) for name, process in draining.items()}
    after = _when_quiet(rig)
    for name in CASES:
        rig.lab.capture_stop(f"a{name}>b{name}")
        rig.lab.capture_stop(f"b{name}>a{name}")
    wait_for(lambda: len(_events(rig, "ended")) == 2 * len(CASES), "the end of the captures")
    counted = {host: {key: after[host][key] - before[host][key] for key in after[host]} for host in after}
    links = rig.done()["links"]
    seen = {}
    for name in CASES:
        seen[f"a{name}>b{name}"] = list(packets(directory / f"there-{name}.pcap"))
        seen[f"b{name}>a{name}"] = list(packets(directory / f"back-{name}.pcap"))
    return rig, drained, counted, links, seen


@pytest.mark.parametrize("name", CASES)
def test_a_capture_has_the_packets_and_bytes_counted_by_its_link(carried, name):
    rig, _, _, links, seen = carried
    for link in (f"a{name}>b{name}", f"b{name}>a{name}"):
        overhead = rig.link(link).overhead_bytes
        assert len(seen[link]) == links[link]["packets"]
        assert sum(packet.length + overhead for packet in seen[link]) == links[link]["bytes"]


@pytest.mark.parametrize("name", CASES)
def test_links_and_the_kernel_agree_to_the_byte(carried, name):
    """A device counts a super-packet once, with one set of headers. On the link, each of its segments has headers.

    Super-packets are full of data. Data segments have 52 bytes of headers each, without selective acknowledgements,
    because data flow in one direction. Therefore: bytes on the link = bytes of the device + 52 × (segments - packets of
    the device).
    """
    rig, _, counted, links, _ = carried
    for source, target in ((f"a{name}", f"b{name}"), (f"b{name}", f"a{name}")):
        link = f"{source}>{target}"
        totals, sent, got = links[link], counted[source], counted[target]
        overhead = rig.link(link).overhead_bytes
        ip_bytes = totals["bytes"] - overhead * totals["packets"]
        joined = totals["packets"] - got["rx_packets"]
        assert ip_bytes == got["rx_bytes"] + HEADERS_BYTES * joined, link
        lost = totals["loss_drops"] + totals["queue_drops"] + totals["outage_drops"]
        assert lost == 0 or name == "lossy", "a queue of 8 MB holds more than the stream's buffers"
        if lost == 0:
            assert ip_bytes == sent["tx_bytes"] + HEADERS_BYTES * (totals["packets"] - sent["tx_packets"]), link
    if name == "uncut":
        assert links["auncut>buncut"]["packets"] == counted["auncut"]["tx_packets"]
    else:
        assert counted[f"a{name}"]["tx_packets"] < links[f"a{name}>b{name}"]["packets"] / 2, "no super-packets at all"


@pytest.mark.parametrize("name", CASES)
def test_the_payload_equals_the_sent_data_and_lost_segments_are_retransmitted(carried, name):
    _, drained, _, links, seen = carried
    link = f"a{name}>b{name}"
    first = next(packet.sequence for packet in seen[link] if packet.syn) + 1
    data = [packet for packet in seen[link] if packet.payload]
    counts = Counter((packet.sequence - first) % 2**32 for packet in data)
    lengths = {(packet.sequence - first) % 2**32: packet.payload for packet in data}
    # Bytes covered by the segments, regardless of retransmissions and segment sizes.
    covered = 0
    for start in sorted(lengths):
        assert start <= covered, f"no segment has the bytes from {covered} to {start}"
        covered = max(covered, start + lengths[start])
    assert covered == drained[name] == SIZE_BYTES
    if links[link]["loss_drops"] + links[link]["queue_drops"] == 0:
        assert max(counts.values()) == 1
    assert (links[link]["loss_drops"] > 10) == (name == "lossy")


@pytest.mark.parametrize("name", CASES)
def test_a_link_never_sends_faster_than_its_rate(carried, name):
    """The time between the ends of two packets is at least the transmission time of the second, to the nanosecond."""
    rig, _, _, _, seen = carried
    link = f"a{name}>b{name}"
    overhead = rig.link(link).overhead_bytes
    ps_per_byte = 8e12 / RATE_BIT_PER_S
    early = [
        (later.time_ns - one.time_ns, later.length)
        for one, later in itertools.pairwise(seen[link])
        if (later.time_ns - one.time_ns + 2) * 1e3 < (later.length + overhead) * ps_per_byte
    ]
    assert early == []


@pytest.mark.skipif(shutil.which("tcpdump") is None, reason="tcpdump is not installed (Debian: tcpdump)")
def test_tcpdump_finds_every_checksum_correct(bring_up):
    rig = bring_up(pair("sum", rate="1 Gb/s", rtt="10 ms", loss=0.001))
    path = rig.lab.directory / "whole.pcap"
    rig.lab.capture("asum>bsum", path)
    wait_for(lambda: _events(rig, "begun"), "the capture")
    end_of(_pour(rig, "sum", 3_000_000), "the stream", 30)
    rig.lab.capture_stop("asum>bsum")
    wait_for(lambda: _events(rig, "ended"), "the end of the capture")
    done = subprocess.run(["tcpdump", "-nvvr", path], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.count("(correct)") == len(list(packets(path))) > 2000
    assert "incorrect" not in done.stdout


def _pour(rig, name, size_bytes):
    """Start a stream of ``size_bytes``, and return the receiving process."""
    process = rig.server(f"b{name}", "drain", name=f"drain-{name}", port=PORT, table="tcp")
    rig.client(f"a{name}", "pour", rig.address(f"b{name}"), PORT, size_bytes, name=f"pour-{name}")
    return process


def _events(rig, state):
    return [
        record
        for record in rig.records
        if record["record"] == "event" and record["kind"] == "capture" and record["detail"]["state"] == state
    ]


def _when_quiet(rig):
    """Return the kernel counters after no packet was in flight for two round trips."""
    last = None

    def quiet():
        nonlocal last
        before, last = last, {host: device_counters(rig, host) for host in rig.lab.shells}
        return before == last

    wait_for(quiet, "the end of all traffic")
    return last
