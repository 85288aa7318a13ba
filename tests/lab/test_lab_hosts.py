"""Hosts, links and limits of a lab match the scenario, and no part of them remains."""

import os
import subprocess
import time
from pathlib import Path

import pytest
from labkit import NOTHING, Remains, below, header_of, pair, shell, sites

from testkit import needs_root, wait_until
from venturi.errors import BackendError
from venturi.testbed.lab import Lab
from venturi.testbed.lab.paths import covering_pings
from venturi.testbed.lab.probe_runner import record_probes
from venturi.testbed.lab.probes import probe_network

pytestmark = needs_root

SEND = "import socket,sys; s=socket.create_connection((sys.argv[1], 5000), 10); s.sendall(b'x' * 1000000); s.close()"
TAKE = """
import socket, sys
listener = socket.create_server((sys.argv[1], 5000))
print("ready", flush=True)
connection, peer = listener.accept()
total = 0
while chunk := connection.recv(65536):
    total += len(chunk)
print(total, peer[0], flush=True)
"""


def carry(lab, source, destination, address):
    """Send a megabyte over TCP, and return the output of the receiver."""
    log = lab.directory / f"take-{source}-{destination}.log"
    server = lab.shell(destination).start(["python3", "-c", TAKE, address], log=log)
    wait_until(lambda: "ready" in log.read_text(), "the receiver to listen")
    done = lab.shell(source).run(["python3", "-c", SEND, address], timeout_s=20)
    assert done.returncode == 0, done.stderr
    wait_until(lambda: server.poll() is not None, "the receiver to end")
    return log.read_text().split()[1:]


def found(lab, kind):
    """Return the probes of a kind."""
    return [probe for probe in lab.probes if probe.kind == kind]


@pytest.mark.alone
def test_two_hosts_connect_over_a_router_and_the_lab_is_removed_completely(bring_up, tmp_path):
    before = below(os.getpid())  # other tests of this process can have started processes that stay
    lab = bring_up(header_of(pair()), scratch=tmp_path / "scratch")
    remains = Remains(lab.id, [pid for pid in below(os.getpid()) if pid not in before])
    assert len([name for kind, name in remains.namespaces if kind == "net"]) == 2
    assert shell(lab, "a", "hostname; umask").split() == ["a.lab.test", "0000"]
    assert carry(lab, "a", "b", "10.77.0.2") == ["1000000", "10.77.0.1"]
    (rtt,) = found(lab, "rtt")
    assert rtt.agrees and 19.9 < float(rtt.found.split()[0]) < 22
    assert [probe for probe in lab.probes if not probe.agrees] == []
    assert lab.down() == []
    assert remains.in_the_end() == NOTHING
    assert not lab.directory.exists()


def test_names_of_the_lab_resolve_only_in_the_lab(bring_up):
    lab = bring_up(header_of(pair()), probe=False)
    assert shell(lab, "a", "getent hosts b.lab.test b a").split()[::2][0] == "10.77.0.2"
    outside = subprocess.run(["getent", "hosts", "b.lab.test"], capture_output=True, check=False)
    assert outside.returncode != 0
    assert lab.shell("a").run(["getent", "hosts", "example.org"], timeout_s=5).returncode != 0


def test_a_host_uses_the_requested_congestion_control(bring_up):
    text = pair().replace("[host.a]", '[host.a]\ncongestion_control = "reno"')
    lab = bring_up(header_of(text))
    (probe,) = found(lab, "congestion-control")
    assert (probe.found, probe.agrees) == ("reno, cubic", True)


def test_the_congestion_control_applies_to_local_connections_of_a_host(bring_up):
    text = pair().replace("[host.a]", '[host.a]\ncongestion_control = "reno"')
    lab = bring_up(header_of(text), probe=False)
    program = (
        "import socket,sys\n"
        "listener = socket.create_server((sys.argv[1], 0))\n"
        "client = socket.create_connection(listener.getsockname()); server, _ = listener.accept()\n"
        "for end in (client, server): print(end.getsockopt(6, 13, 16).split(bytes(1))[0].decode())"
    )
    for address in ("127.0.0.1", lab.shell("a").address):
        done = lab.shell("a").run(["python3", "-c", program, address], timeout_s=10)
        assert done.stdout.split() == ["reno", "reno"], done.stderr


@pytest.mark.alone
def test_a_lab_of_26_hosts_on_10_sites_starts_in_seconds_and_all_pairs_connect(bring_up):
    started_s = time.monotonic()
    lab = bring_up(header_of(sites(10, 26)))
    assert time.monotonic() - started_s < 10
    accept = (
        "import socket,time; s=socket.create_server((__import__('sys').argv[1], 5000), backlog=128); time.sleep(60)"
    )
    servers = {
        name: shell.start(["python3", "-c", accept, shell.address], log=lab.directory / f"{name}.log")
        for name, shell in lab.shells.items()
    }
    connect = (
        "import socket,sys,time\n"
        "left = set(sys.argv[1:]); end = time.monotonic() + 20\n"
        "while left and time.monotonic() < end:\n"
        "    for address in sorted(left):\n"
        "        try: socket.create_connection((address, 5000), 2).close()\n"
        "        except OSError: time.sleep(0.05); continue\n"
        "        left.discard(address)\n"
        "print(*left)"
    )
    addresses = {name: shell.address for name, shell in lab.shells.items()}
    clients = {
        name: shell.start(
            ["python3", "-c", connect, *(other for at, other in addresses.items() if at != name)],
            log=lab.directory / f"{name}-client.log",
        )
        for name, shell in lab.shells.items()
    }
    wait_until(lambda: all(client.poll() is not None for client in clients.values()), "all clients to end")
    missed = {name: client.log.read_text().split() for name, client in clients.items()}
    assert missed == {name: [] for name in lab.shells}
    assert all(server.poll() is None for server in servers.values())


def test_a_gateway_hides_private_hosts(bring_up):
    if not any(Path(directory, "nft").exists() for directory in ("/usr/sbin", "/sbin", "/usr/bin")):
        pytest.skip("nft is not installed (Debian: nftables)")
    text = """
    [host.inner]
    [host.gateway]
    nat = ["core"]
    [host.outside]
    [router.core]
    [router.lan]
    [link.inner-lan]
    between = ["inner", "lan"]
    rate = "1 Gb/s"
    delay = "1 ms"
    private = ["inner"]
    [link.gateway-lan]
    between = ["gateway", "lan"]
    rate = "1 Gb/s"
    delay = "1 ms"
    private = ["gateway"]
    [link.gateway-core]
    between = ["gateway", "core"]
    rate = "1 Gb/s"
    delay = "2 ms"
    [link.outside-core]
    between = ["outside", "core"]
    rate = "1 Gb/s"
    delay = "3 ms"
    """
    lab = bring_up(header_of(text))
    inner, gateway = lab.shell("inner"), lab.shell("gateway")
    assert inner.address.startswith("192.168.")
    public = next(nic.address for nic in gateway.spec.nics if nic.address.startswith("10."))
    assert carry(lab, "inner", "outside", lab.shell("outside").address) == ["1000000", public]
    assert {probe.subject: probe.agrees for probe in found(lab, "rtt")}.get("inner.eth0 to outside.eth0", True)
    unreachable = lab.shell("outside").run(["ping", "-c", "1", "-W", "1", inner.address], timeout_s=5)
    assert unreachable.returncode in (1, 2), unreachable


@pytest.mark.alone
def test_packets_bound_to_an_interface_leave_through_that_interface(bring_up):
    text = """
    [host.a]
    [host.b]
    [router.fast]
    [router.slow]
    [link.a-fast]
    between = ["a", "fast"]
    rate = "1 Gb/s"
    delay = "1 ms"
    [link.a-slow]
    between = ["a", "slow"]
    rate = "1 Gb/s"
    delay = "20 ms"
    [link.b-fast]
    between = ["b", "fast"]
    rate = "1 Gb/s"
    delay = "1 ms"
    [link.b-slow]
    between = ["b", "slow"]
    rate = "1 Gb/s"
    delay = "20 ms"
    """
    lab = bring_up(header_of(text))
    nics = {host: [nic.address for nic in machine.spec.nics] for host, machine in lab.shells.items()}
    for number, (least_ms, most_ms) in enumerate(((3.9, 10), (79.9, 90))):
        out = shell(lab, "a", f"ping -c 1 -W 2 -I {nics['a'][number]} {nics['b'][number]}")
        rtt_ms = float(out.partition("time=")[2].split()[0])
        assert least_ms < rtt_ms < most_ms
    assert [probe for probe in lab.probes if not probe.agrees] == []


@pytest.mark.alone
def test_limits_of_a_host_are_enforced(bring_up):
    text = pair().replace("[host.a]", '[host.a]\ncpus = [0]\ncpu_limit = 0.5\nmemory_limit = "256 MiB"')
    lab = bring_up(header_of(text))
    for kind, least, most in (("cpu-limit", 0.0, 0.58), ("memory-limit", 268.0, 269.0)):
        (probe,) = found(lab, kind)
        assert probe.agrees and least <= float(probe.found.split()[0]) <= most
    (cores,) = found(lab, "cores")
    assert cores.found == "0"
    hog = lab.shell("a").run(["python3", "-c", "x = bytearray(400_000_000)"], timeout_s=20)
    assert hog.returncode == -9
    assert lab.shell("b").run(["python3", "-c", "x = bytearray(400_000_000)"], timeout_s=20).returncode == 0


@pytest.mark.alone
def test_a_slow_disk_is_slow_for_direct_and_for_buffered_writes(bring_up, tmp_path):
    storage = """
    [storage.slow]
    host = "a"
    path = "slow"
    kind = "disk"
    size = "300 MB"
    read_rate = "40 MB/s"
    write_rate = "20 MB/s"
    """
    lab = bring_up(header_of(pair(more=storage)), scratch=tmp_path / "scratch")
    assert [(p.kind, p.agrees) for p in lab.probes if p.kind.startswith("disk")] == [
        ("disk-read", True),
        ("disk-write", True),
    ]
    directory = lab.host_scratch("a") / "slow"
    took = lab.shell("a").run(
        ["dd", "if=/dev/zero", f"of={directory}/x", "bs=1M", "count=30", "conv=fsync"], timeout_s=30
    )
    seconds = float(took.stderr.rpartition("copied, ")[2].split()[0])
    assert 31.5 / 20 * 0.7 < seconds < 31.5 / 20 * 2
    assert lab.down() == []
    assert not list((tmp_path / "scratch").glob(".venturi-*"))
    throttles = Path("/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device")  # version 1
    assert not throttles.exists() or " 20000000" not in throttles.read_text()


def test_storage_in_memory_has_its_configured_size(bring_up):
    storage = '[storage.fast]\nhost = "a"\npath = "fast"\nkind = "tmpfs"\nsize = "64 MB"'
    lab = bring_up(header_of(pair(more=storage)), probe=False)
    directory = lab.host_scratch("a") / "fast"
    assert (
        lab.shell("b").run(["dd", "if=/dev/zero", f"of={directory}/x", "bs=1M", "count=40"], timeout_s=20).returncode
        == 0
    )
    full = lab.shell("a").run(["dd", "if=/dev/zero", f"of={directory}/y", "bs=1M", "count=40"], timeout_s=20)
    assert "No space left" in full.stderr


def test_a_network_that_differs_from_the_request_is_a_finding(bring_up):
    lab = bring_up(header_of(pair()), probe=False)
    output = []
    lab.listen(lambda host, record: output.append((host, record)))
    lab.change("a-core", {"delay_s": 0.02})
    wait_until(lambda: len(lab.changed_links) == 2, "both changes")
    probes = probe_network(lab.namespaces, covering_pings(lab.spec), lab.spec.hosts)
    record_probes(probes, lab.records)
    assert [probe.agrees for probe in probes if probe.kind == "rtt"] == [False]
    (finding,) = [record for _, record in output if record["record"] == "finding"]
    assert finding["code"] == "limit-mismatch" and "expected 20.00" in finding["evidence"]


@pytest.mark.alone
def test_the_expected_rtt_of_a_slow_link_includes_the_transmission_time_of_the_probe(bring_up):
    lab = bring_up(header_of(pair(rate="1 Mb/s", delay="1 ms")))
    (rtt,) = found(lab, "rtt")
    # Sending a datagram of 36 bytes over two links in each direction takes 1.152 ms.
    assert rtt.expected == "5.152 ms"
    assert rtt.agrees and 5.1 < float(rtt.found.split()[0]) < 5.7


def test_a_failed_lab_start_reports_the_reason_and_leaves_nothing(parent, engine):
    text = pair().replace("[host.a]", '[host.a]\ncongestion_control = "vegas-of-nowhere"')
    with pytest.raises(BackendError, match=r"testbed.host.a: cannot set its addresses and routes"):
        Lab.up(header_of(text), engine=engine, parent=parent)


@pytest.mark.alone
def test_five_labs_run_at_the_same_time(bring_up):
    labs = [
        bring_up(header_of(pair(delay=f"{delay} ms"), name=f"lab{delay}"), probe=True) for delay in (1, 2, 3, 4, 5)
    ]
    assert len({lab.id for lab in labs}) == 5
    for delay, lab in zip((1, 2, 3, 4, 5), labs, strict=True):
        assert carry(lab, "a", "b", "10.77.0.2") == ["1000000", "10.77.0.1"]
        (rtt,) = found(lab, "rtt")
        assert 4 * delay - 0.1 < float(rtt.found.split()[0]) < 4 * delay + 2
    labs[2].down()
    assert carry(labs[3], "b", "a", "10.77.0.1") == ["1000000", "10.77.0.2"]
