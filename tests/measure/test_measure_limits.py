"""Planted limits between two hosts: the smallest part and the limit are the planted ones.

Each limit is at least 5 times below the other parts, so that load on this machine does not change the result. The hosts
are network namespaces; their CPUs and file systems are those of this machine.
"""

import json
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

import pytest
from pathkit import BLKIO, CPU_GROUPS, TwoHosts, command, leftovers, slow_disk

from testkit import needs_programs, needs_root
from venturi.measure import MeasureOptions, measure

pytestmark = [pytest.mark.alone, needs_root, needs_programs("ip", "tc", "nsenter", "openssl")]

VENTURI = Path(sys.executable).with_name("venturi")
OPTIONS = MeasureOptions(time_s=20.0)
needs_cpu_groups = pytest.mark.skipif(
    not (CPU_GROUPS / "cpu.cfs_quota_us").parent.exists(), reason="no cgroup v1 for CPUs"
)
needs_blkio = pytest.mark.skipif(not BLKIO.exists(), reason="no cgroup v1 for disks")


@pytest.fixture
def hosts(tmp_path):
    with TwoHosts(tmp_path) as two:
        yield two
    assert leftovers(tmp_path) == []


def path_between(a, b, **changes):
    """Return the result from A to B, with all rounds done."""
    result = measure(a, b, MeasureOptions(**{"time_s": OPTIONS.time_s, **changes}))
    assert result.complete
    assert result.rounds == 5
    return result.paths[0]


def iperf3_rate(hosts, *, seconds=5, connections=4):
    """Return the rate of iperf3 at the receiver, in bytes per second."""
    server = subprocess.Popen(
        ["nsenter", f"--net=/run/netns/{hosts.names['b']}", "iperf3", "-s", "-1", "--forceflush"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        for line in server.stdout:
            if "listening" in line.lower():
                break
        output = hosts.run("a", "iperf3", "-c", hosts.addresses["b"], "-t", seconds, "-P", connections, "-O", 1, "-J")
    finally:
        server.kill()
        server.communicate()
    return json.loads(output)["end"]["sum_received"]["bits_per_second"] / 8


def test_a_slow_link_is_the_limit_and_agrees_with_iperf3(hosts):
    hosts.connect().limit_link("100mbit")
    # The queue of the link adds 55 ms of delay. Shorter samples would show the adaptation of the connections instead of
    # the link.
    result = path_between(hosts.endpoint("a"), hosts.endpoint("b"), time_s=45.0)
    assert (result.smallest, result.limit) == ("network", "link")
    if shutil.which("iperf3"):
        assert result.parts["network"].rate_bytes_per_s == pytest.approx(iperf3_rate(hosts), rel=0.05)
    assert result.parts["copy"].rate_bytes_per_s == pytest.approx(12e6, rel=0.3)


def test_packet_loss_with_delay_is_the_limit(hosts):
    hosts.emulate(rate_bit_per_s=1e9, delay_s=0.01, loss=0.01)
    hosts.set("a", "net.ipv4.tcp_congestion_control", "reno")
    result = path_between(hosts.endpoint("a"), hosts.endpoint("b"))
    assert (result.smallest, result.limit) == ("network", "loss")
    # Mathis et al., Comput. Commun. Rev. 27 (1997) 67, eq. (3): MSS / RTT · sqrt(3 / 2p), for each of 4 connections.
    expected = 4 * 1448 / 0.02 * (1.5 / 0.01) ** 0.5
    assert 0.5 < result.parts["network"].rate_bytes_per_s / expected < 2


def test_a_small_receive_window_is_the_limit(hosts):
    hosts.emulate(rate_bit_per_s=1e9, delay_s=0.01)
    hosts.set("b", "net.ipv4.tcp_rmem", "4096 65536 65536")
    result = path_between(hosts.endpoint("a"), hosts.endpoint("b"))
    assert (result.smallest, result.limit) == ("network", "receive-window")


@needs_blkio
def test_a_slow_disk_of_the_source_is_the_limit_and_agrees_with_fio(hosts, tmp_path):
    hosts.connect()
    with slow_disk(tmp_path / "disk", read_bytes_per_s=10_000_000) as disk:
        result = path_between(hosts.endpoint("a", disk), hosts.endpoint("b"))
        rate = result.parts["read"].rate_bytes_per_s
        assert (result.smallest, result.limit) == ("read", "source-disk")
        assert rate == pytest.approx(10e6, rel=0.2)
        if shutil.which("fio"):
            assert rate == pytest.approx(fio_rate(disk, "read"), rel=0.1)


@needs_blkio
def test_a_slow_disk_of_the_destination_is_the_limit_and_agrees_with_fio(hosts, tmp_path):
    hosts.connect()
    with slow_disk(tmp_path / "disk", write_bytes_per_s=10_000_000) as disk:
        result = path_between(hosts.endpoint("a"), hosts.endpoint("b", disk))
        rate = result.parts["write"].rate_bytes_per_s
        assert (result.smallest, result.limit) == ("write", "destination-disk")
        assert rate == pytest.approx(10e6, rel=0.2)
        if shutil.which("fio"):
            assert rate == pytest.approx(fio_rate(disk, "write"), rel=0.1)


@needs_cpu_groups
def test_a_small_cpu_quota_of_the_source_is_the_limit(hosts):
    hosts.connect()
    hosts.limit_cpu("a", 0.1)
    result = path_between(hosts.endpoint("a"), hosts.endpoint("b"))
    assert result.limit == "source-cpu"
    assert result.smallest in ("mover", "network")
    assert "quota of 0.1 cores" in result.summary


def fio_rate(directory, direction):
    """Return the rate of fio on a disk in bytes per second; writes include the sync."""
    arguments = ["--rw=read", "--direct=1", "--iodepth=4", "--ioengine=libaio"]
    if direction == "write":
        arguments = ["--rw=write", "--end_fsync=1", "--fsync=8"]
    output = command(
        "fio", "--name=test", f"--directory={directory}", "--bs=1M", "--size=60M", "--output-format=json", *arguments
    )
    job = json.loads(output)["jobs"][0][direction]
    return job["bw_bytes"]


def test_a_hosts_file_can_set_other_connection_commands_and_open_ports(hosts, tmp_path):
    hosts.connect()
    ports = iter(((51000, 51020), (52000, 52020)))
    lines = []
    for host, name in hosts.names.items():
        low, high = next(ports)
        words = json.dumps(["nsenter", f"--net=/run/netns/{name}"])
        lines.append(f'{host} = {{ connect = {words}, path = "{tmp_path}", open_ports = "{low}-{high}" }}')
    (tmp_path / "hosts.toml").write_text("\n".join(lines))
    arguments = ["--hosts", "hosts.toml", "--time", "15 s", "--rounds", "1", "--json", "a:a", "b:b"]
    done = subprocess.run([VENTURI, "measure", *arguments], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["paths"][0]["source"], result["paths"][0]["destination"]) == (f"a:{tmp_path}/a", f"b:{tmp_path}/b")
    # The servers are on b, so the ports of b apply.
    assert "52000" <= str(result["environment"]["paths"][0]["stream_port"]) <= "52020"


def test_both_directions_are_measured(hosts):
    hosts.connect().limit_link("400mbit")
    result = measure(hosts.endpoint("a"), hosts.endpoint("b"), MeasureOptions(time_s=30.0, both=True))
    assert [path.limit for path in result.paths] == ["link", "link"]
    assert [properties["protocol"] for properties in result.environment["paths"]] == ["gsiftp", "gsiftp"]
    rates = [path.parts["network"].rate_bytes_per_s for path in result.paths]
    assert statistics.mean(rates) == pytest.approx(48e6, rel=0.1)
