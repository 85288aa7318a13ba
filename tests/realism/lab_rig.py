"""Tools of the realism suite: labs from short texts, flows, and the state of the emulator if a bound is missed."""

import json
import os
import shutil
import sys
import time
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import traffic

from venturi.plan import Header, Measure, Totals
from venturi.scenario.testbed import TestbedTable
from venturi.testbed.lab import Lab
from venturi.testbed.plan import resolve_testbed

HEADERS_BYTES = 52
"""Headers of IPv4 and TCP with timestamps: 20 + 20 + 12 (RFC 7323, appendix A)."""

MTU_BYTES = 1500
MSS_BYTES = MTU_BYTES - HEADERS_BYTES

MAX_LATE_RATIO = 0.01
"""Maximum lateness of the emulator at the 99th percentile, as a fraction of the round-trip time, for a valid measurement."""

PORT = 5201
TRAFFIC = Path(traffic.__file__)

needs_iperf3 = pytest.mark.skipif(shutil.which("iperf3") is None, reason="iperf3 is not installed (Debian: iperf3)")


def header_of(text, *, seed=1):
    """Return the header of a plan for a testbed in TOML, whose tables need no ``testbed.`` prefix."""
    problems = []
    parts = resolve_testbed(TestbedTable.model_validate(tomllib.loads(text)), 1.0, problems)
    assert not problems, problems
    return Header(
        "realism", seed, 1.0, {}, parts.hosts, parts.storages, {}, {}, Measure(None, ()), Totals(0, 0, 0, {}),
        services=parts.services, network=parts.network,
    )  # fmt: skip


def pair(name, *, rate, rtt, host="", **link):
    """Return a part of a testbed: hosts ``aNAME`` and ``bNAME`` with a link between them, whose keys are written as TOML."""
    keys = "\n".join(f"{key} = {json.dumps(value)}" for key, value in link.items() if not isinstance(value, dict))
    tables = "\n".join(f"{key} = {_inline(value)}" for key, value in link.items() if isinstance(value, dict))
    return f"""
    [host.a{name}]
    {host}
    [host.b{name}]
    {host}
    [link.l{name}]
    between = ["a{name}", "b{name}"]
    rate = "{rate}"
    rtt = "{rtt}"
    {keys}
    {tables}
    """


def dumbbell(name, *, rate, rtt, queue):
    """Return a part of a testbed with one bottleneck, between ``aNAME0`` and ``aNAME1`` and ``bNAME0`` and ``bNAME1``."""
    lines = [f"[router.l{name}]", f"[router.r{name}]", f"[link.m{name}]", f'between = ["l{name}", "r{name}"]']
    lines += [f'rate = "{rate}"', f'rtt = "{rtt}"', f'queue = "{queue}"']
    for number in (0, 1):
        for side, router in (("a", "l"), ("b", "r")):
            host = f"{side}{name}{number}"
            lines += [f"[host.{host}]", f"[link.{host}]", f'between = ["{host}", "{router}{name}"]']
            lines += ['rate = "1 Gb/s"', 'delay = "10 us"']
    return "\n".join(lines) + "\n"


def _inline(table):
    return "{ " + ", ".join(f"{key} = {json.dumps(value)}" for key, value in table.items()) + " }"


@dataclass
class LabRig:
    """A running lab, and the records of its network.

    Attributes
    ----------
    lab
        The lab.
    records
        Records of the network in order; samples only if requested.
    """

    lab: Lab
    records: list = field(default_factory=list)
    ended: bool = False

    @classmethod
    def up(cls, text, *, engine, parent, interval_s=None, seed=1):
        """Start a lab without probes of its links, because the tests check them."""
        rig = cls(
            Lab.up(header_of(text, seed=seed), engine=engine, parent=parent, interval_s=interval_s, probe=False)
        )
        rig.lab.listen(lambda host, record: rig.records.append(record))
        return rig

    def address(self, host):
        """Return the address of a host."""
        return self.lab.shell(host).address

    def link(self, name):
        """Return a directed link of the plan."""
        return self.lab.spec.network.links[name]

    def start(self, host, argv, name):
        """Start a program on a host; its output goes to a file of this name."""
        return self.lab.shell(host).start([str(word) for word in argv], log=self.lab.directory / f"{name}.log")

    def client(self, host, *words, name):
        """Start a program of ``traffic.py`` on a host."""
        return self.start(host, [sys.executable, TRAFFIC, *words], name)

    def server(self, host, role, *words, name, port, table="udp"):
        """Start a listening program of ``traffic.py``; return when it listens."""
        argv = [sys.executable, TRAFFIC, role, self.address(host), port, *words]
        return self.serve(host, argv, name=name, port=port, table=table)

    def serve(self, host, argv, *, name, port=PORT, table="tcp"):
        """Start a server and return when it listens."""
        process = self.start(host, argv, name)
        wait_for(lambda: listens(process.pid, port, table), f"{name} listens on {port}", process=process)
        return process

    def done(self):
        """Stop the network, if it runs, and return its last record."""
        if not self.ended:
            self.lab.end()
            self.ended = True
        last = [record for record in self.records if record["record"] in ("done", "fatal")]
        assert last and last[-1]["record"] == "done", f"expected the wire to end in order, found {last or 'silence'}"
        return last[-1]

    def late_s(self):
        """Stop the network; return the lateness of its deliveries at the 99th percentile."""
        return self.done()["lateness"]["p99_s"] or 0.0

    def smallest_rtt_s(self):
        """Return the shortest round-trip time over one link; routes here have at least one link."""
        return min(2 * link.delay_s for link in self.lab.spec.network.links.values() if link.delay_s > 1e-4)

    def instrument(self):
        """Return a text that states whether the emulator was on time, for the message of a missed bound."""
        late_s, rtt_s = self.late_s(), self.smallest_rtt_s()
        output = [record["code"] for record in self.records if record["record"] == "finding"]
        load = f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
        if late_s > MAX_LATE_RATIO * rtt_s:
            return (
                f"the machine was too busy to say: the wire was up to {late_s * 1e6:.0f} µs late in 99 % of deliveries,"
                f" more than {MAX_LATE_RATIO:.0%} of {rtt_s * 1e3:g} ms ({load}); leave it a core and run again"
            )
        return f"the wire was in time (99 %: {late_s * 1e6:.0f} µs late; {load}; findings: {output or 'none'})"

    def expect(self, what, found, expected, *, least=None, most=None, within=None):
        """Fail unless ``found / expected`` is between the bounds; the message states whether the emulator was on time."""
        least, most = (1 - within, 1 + within) if within is not None else (least, most)
        ratio = found / expected
        sys.stdout.write(f"{what}: × {ratio:.4f}\n")  # `-rP` shows the margin
        if not least <= ratio <= most:
            pytest.fail(
                f"{what}: expected {expected:.6g} × {least:.4g} … {most:.4g}, found {found:.6g} (× {ratio:.4f});"
                f" {self.instrument()}"
            )

    def down(self):
        """Stop the lab; return the parts that could not be removed."""
        return self.lab.down()


@dataclass
class Flow:
    """One iperf3 transfer in a lab: a server, a client, and the result of the receiver."""

    rig: LabRig
    name: str
    seconds: float
    client: object
    server: object

    @classmethod
    def start(cls, rig, source, target, seconds, *, streams=1, control="cubic", block="16K"):
        """Start the transfer; ``block`` is the size of reads and writes, which determines the time resolution."""
        name = f"{source}-{target}"
        server = rig.serve(target, ["iperf3", "-s", "-1", "-J", "-i", "0.5"], name=f"{name}-server")
        call = ["iperf3", "-c", rig.address(target), "-t", seconds, "-P", streams, "-C", control, "-l", block]
        client = rig.start(source, [*call, "-J"], f"{name}-client")
        return cls(rig, name, seconds, client, server)

    def wait(self):
        """Wait for the end of the transfer."""
        for process in (self.client, self.server):
            wait_for(lambda one=process: one.poll() is not None, f"the end of {self.name}", self.seconds + 20)
        printed = json.loads(self.client.log.read_text())
        assert "error" not in printed, f"{self.name}: {printed['error']}"
        return self

    def goodput_bit_per_s(self, from_s=None):
        """Return the receiver's goodput from ``from_s`` (default: half of the time) to the end of the sender."""
        from_s = self.seconds / 2 if from_s is None else from_s
        sums = [one["sum"] for one in json.loads(self.server.log.read_text())["intervals"]]
        kept = [one for one in sums if one["start"] >= from_s - 0.01 and one["end"] <= self.seconds - 0.1]
        assert kept, f"{self.name}: expected intervals after {from_s} s, found none"
        return 8 * sum(one["bytes"] for one in kept) / sum(one["seconds"] for one in kept)

    def retransmits(self):
        """Return the number of segments that the sender retransmitted."""
        return json.loads(self.client.log.read_text())["end"]["sum_sent"]["retransmits"]


def payload_fraction(mtu_bytes=MTU_BYTES, overhead_bytes=0):
    """Return the fraction of a link's bytes that is payload, in full segments."""
    return (mtu_bytes - HEADERS_BYTES) / (mtu_bytes + overhead_bytes)


def listens(pid, port, table):
    """Return whether a port is open in the network namespace of a process (proc(5), ``/proc/PID/net/tcp``)."""
    states = {"tcp": "0A", "udp": "07"}  # listening; unconnected
    lines = []
    for version in ("", "6"):
        path = Path(f"/proc/{pid}/net/{table}{version}")
        try:
            lines += path.read_text().splitlines()[1:]
        except OSError:
            continue
    fields = [line.split() for line in lines]
    return any(int(field[1].rpartition(":")[2], 16) == port and field[3] == states[table] for field in fields)


def device_counters(rig, host, device="eth0"):
    """Return the kernel counters of a device: bytes and packets, received and sent."""
    out = rig.lab.shell(host).run(["cat", "/proc/net/dev"], timeout_s=10).stdout
    line = next(line for line in out.splitlines() if line.strip().startswith(f"{device}:"))
    numbers = [int(word) for word in line.partition(":")[2].split()]
    return {"rx_bytes": numbers[0], "rx_packets": numbers[1], "tx_bytes": numbers[8], "tx_packets": numbers[9]}


def end_of(process, what, timeout_s):
    """Wait until a program exits with 0; return its output."""
    wait_for(lambda: process.poll() is not None, f"the end of {what}", timeout_s)
    printed = process.log.read_text()
    assert process.poll() == 0, f"{what}: {printed}"
    return printed


def wait_for(condition, what, timeout_s=10.0, *, process=None):
    """Wait until a condition holds."""
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        if process is not None and process.poll() is not None:
            pytest.fail(f"expected that {what}, found that it has ended: {process.log.read_text()[-500:]}")
        assert time.monotonic() < deadline_s, (
            f"expected {what} within {timeout_s:g} s, found that it did not come about"
        )
        time.sleep(0.01)
