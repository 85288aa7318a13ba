"""Tools of the emulator benchmark: labs of a few hosts, veth links, iperf3, a ping-pong, and CPU time of the emulator."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from venturi.plan import Header, Measure, Totals
from venturi.scenario.testbed import TestbedTable
from venturi.testbed.lab import Lab, LabProcess
from venturi.testbed.lab.process_id import children
from venturi.testbed.plan import resolve_testbed

HEADERS_BYTES = 52
"""IPv4 and TCP with timestamps: 20 + 20 + 12 (RFC 7323, appendix A)."""

MTU_BYTES = 1500
VETH = {"a": "10.99.0.1", "b": "10.99.0.2"}
LARGE = """
    [tcp.large]
    net.ipv4.tcp_rmem = "4096 262144 1073741824"
    net.ipv4.tcp_wmem = "4096 262144 1073741824"
"""
"""Buffers of the maximum size of the kernel, which exceed all bandwidth-delay products of the benchmark."""

_PORT = 5201
_WARM_S = 1.0
_READY_S = 10.0
_KEEP_US = 300_000
"""Interval of packets, well below the second after a packet while the emulator keeps the CPUs from halting."""


def theory_bit_per_s(rate_bit_per_s: float) -> float:
    """Return the goodput at a rate of IP bytes, without headers."""
    return rate_bit_per_s * (MTU_BYTES - HEADERS_BYTES) / MTU_BYTES


def path(*, rate: str, rtt: str, queue: str = "1 BDP") -> str:
    """Return a testbed of two hosts and a link between them."""
    hosts = '[host.a]\ntcp = "large"\n[host.b]\ntcp = "large"\n'
    return f'{hosts}[link.path]\nbetween = ["a", "b"]\nrate = "{rate}"\nrtt = "{rtt}"\nqueue = "{queue}"\n{LARGE}'


def ring(routers: int, hosts: int) -> str:
    """Return a testbed of a ring of routers at 10 Gb/s, with hosts at 1 Gb/s distributed over them."""
    lines = []
    for number in range(routers):
        other = (number + 1) % routers
        lines += [f"[router.r{number}]", f"[link.ring{number}]", f'between = ["r{number}", "r{other}"]']
        lines += ['rate = "10 Gb/s"', 'delay = "5 ms"']
    for number in range(hosts):
        lines += [f"[host.h{number}]", 'tcp = "large"', f"[link.access{number}]"]
        lines += [f'between = ["h{number}", "r{number % routers}"]', 'rate = "1 Gb/s"', 'delay = "0.1 ms"']
    return "\n".join(lines) + LARGE


@dataclass
class Sandbox:
    """A running lab with the records of its network emulator.

    Attributes
    ----------
    lab
        The lab.
    records
        Records of the emulator.
    """

    lab: Lab
    records: list[Mapping[str, Any]] = field(default_factory=list)

    @classmethod
    @contextlib.contextmanager
    def up(cls, text: str, engine: Path) -> Iterator[Sandbox]:
        """Start a lab, and remove it at the end."""
        parent = Path(tempfile.mkdtemp(prefix="venturi-bench-"))
        parent.chmod(0o755)
        problems: list[Any] = []
        parts = resolve_testbed(TestbedTable.model_validate(tomllib.loads(text)), 1.0, problems)
        assert parts is not None and not problems, problems
        header = Header("emulator", 1, 1.0, {}, parts.hosts, parts.storages, {}, {}, Measure(None, ()), Totals(0, 0, 0, {}),
                        services=parts.services, network=parts.network)  # fmt: skip
        try:
            with Lab.up(header, engine=engine, parent=parent, probe=False) as lab:
                sandbox = cls(lab)
                lab.listen(lambda host, record: sandbox.records.append(record))
                yield sandbox
        finally:
            shutil.rmtree(parent, ignore_errors=True)

    def address(self, host: str) -> str:
        """Return the address of a host in the emulated network."""
        return self.lab.shell(host).address

    def add_veth(self, *, htb_bit_per_s: float | None = None) -> None:
        """Connect hosts a and b by a veth pair as well, with shaping by HTB if a rate is set."""
        pids = self.lab.namespaces.hosts
        _run(
            [
                "ip",
                "link",
                "add",
                "v0",
                "netns",
                str(pids["a"]),
                "type",
                "veth",
                "peer",
                "name",
                "v0",
                "netns",
                str(pids["b"]),
            ]
        )
        for host, address in VETH.items():
            self.on(host, ["ip", "address", "add", f"{address}/24", "dev", "v0"])
            self.on(host, ["ip", "link", "set", "v0", "up"])
        if htb_bit_per_s is not None:
            rate = f"{htb_bit_per_s:.0f}bit"
            self.on("a", ["tc", "qdisc", "add", "dev", "v0", "root", "handle", "1:", "htb", "default", "10"])
            self.on(
                "a",
                [
                    "tc",
                    "class",
                    "add",
                    "dev",
                    "v0",
                    "parent",
                    "1:",
                    "classid",
                    "1:10",
                    "htb",
                    "rate",
                    rate,
                    "ceil",
                    rate,
                ],
            )

    def on(self, host: str, argv: Sequence[str]) -> str:
        """Run a command on a host and return its output; raise if it fails."""
        done = self.lab.shell(host).run(argv, timeout_s=20)
        if done.returncode:
            raise SystemExit(f"{host}: expected {' '.join(argv)} to succeed, found: {done.stderr.strip()}")
        return done.stdout

    def start(self, host: str, argv: Sequence[str], name: str) -> LabProcess:
        """Start a program on a host."""
        log = self.lab.directory / f"{name}-{time.monotonic_ns()}.log"
        return self.lab.shell(host).start(argv, log=log)

    def emulator_cpu_s(self) -> float:
        """Return the CPU time of all threads of the emulator, except threads that use only idle CPU time."""
        ticks = 0
        for thread in Path(f"/proc/{self._emulator_pid()}/task").iterdir():
            head, _, tail = (thread / "stat").read_text().rpartition(")")
            if not head.endswith("(awake"):
                ticks += sum(map(int, tail.split()[11:13]))
        return ticks / os.sysconf("SC_CLK_TCK")

    def end(self) -> Mapping[str, Any]:
        """End the network and return its last record."""
        self.lab.end()
        return next(record for record in reversed(self.records) if record["record"] == "done")

    def _emulator_pid(self) -> int:
        found = [os.getpid()]
        for pid in found:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if words[1:2] == [b"emulator"]:
                return pid
            found += children(pid)
        raise SystemExit("expected the wire among the processes of this bench, found it nowhere")


@dataclass
class Flow:
    """One iperf3 test: its server, its client, and its duration."""

    server: LabProcess
    client: LabProcess
    seconds: float

    @classmethod
    def start(
        cls,
        sandbox: Sandbox,
        source: str,
        target: str,
        address: str,
        seconds: float,
        *,
        streams: int = 1,
        port: int = _PORT,
        block: str = "128K",
    ) -> Flow:
        """Start the test, with cubic instead of the default of the kernel."""
        words = ["iperf3", "-s", "-1", "-J", "-i", "0.5", "-p", str(port)]
        server = sandbox.start(target, words, "server")
        until_listening(server, port)
        words = [
            "iperf3",
            "-c",
            address,
            "-p",
            str(port),
            "-t",
            str(seconds),
            "-P",
            str(streams),
            "-C",
            "cubic",
            "-l",
            block,
        ]
        return cls(server, sandbox.start(source, [*words, "-J"], "client"), seconds)

    def goodput_bit_per_s(self) -> float:
        """Wait for the end of the test and return the goodput at the receiver in the second half."""
        deadline_s = time.monotonic() + self.seconds + 30
        for process in (self.client, self.server):
            while process.poll() is None and time.monotonic() < deadline_s:
                time.sleep(0.01)
        printed = json.loads(self.client.log.read_text())
        if "error" in printed:
            raise SystemExit(f"iperf3: {printed['error']}")
        sums = [one["sum"] for one in json.loads(self.server.log.read_text())["intervals"]]
        half = [one for one in sums if one["start"] >= self.seconds / 2 - 0.01 and one["end"] <= self.seconds + 0.01]
        return float(8 * sum(one["bytes"] for one in half) / sum(one["seconds"] for one in half))


def goodput_bit_per_s(
    sandbox: Sandbox, address: str, seconds: float, *, streams: int = 1, target: str = "b", block: str = "128K"
) -> float:
    """Return the goodput of one iperf3 test from host a."""
    return Flow.start(sandbox, "a", target, address, seconds, streams=streams, block=block).goodput_bit_per_s()


def build_ping(directory: Path) -> Path | None:
    """Compile the ping-pong; return None without a C compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    program = directory / "emulator_ping"
    _run([compiler, "-O2", "-o", str(program), str(Path(__file__).with_name("emulator_ping.c"))])
    directory.chmod(0o755)
    return program


def rtts_s(sandbox: Sandbox, ping: Path, address: str, count: int, spacing_s: float) -> list[float]:
    """Return round-trip times of a ping-pong from a to b."""
    echo = sandbox.start("b", [str(ping), "echo", address, "7"], "echo")
    try:
        until_listening(echo, 7, "udp")
        # The machine was busy with the creation of the lab; the emulator checks every 100 ms whether CPUs are idle now.
        words = [str(ping), "ask", address, "7", str(count), str(round(spacing_s * 1e6)), str(round(_WARM_S * 1e3))]
        done = sandbox.lab.shell("a").run(words, timeout_s=120)
        if done.returncode:
            raise SystemExit(f"ping-pong: {done.stderr.strip()}")
    finally:
        echo.stop()
    return [int(line) / 1e9 for line in done.stdout.split()]


@contextlib.contextmanager
def kept_awake(sandbox: Sandbox, ping: Path) -> Iterator[None]:
    """Send a few packets through the emulator, which keeps the CPUs from halting while packets arrive."""
    echo = sandbox.start("b", [str(ping), "echo", sandbox.address("b"), "7"], "keep-echo")
    words = [str(ping), "ask", sandbox.address("b"), "7", "100000", str(_KEEP_US), "0"]
    ping_client = None
    try:
        until_listening(echo, 7, "udp")
        ping_client = sandbox.start("a", words, "keep-ask")
        yield
    finally:
        for process in (ping_client, echo):
            if process is not None:
                process.stop()


def until_listening(process: LabProcess, port: int, table: str = "tcp") -> None:
    """Wait until a program on a host listens on its port."""
    state = {"tcp": "0A", "udp": "07"}[table]
    deadline_s = time.monotonic() + _READY_S
    while time.monotonic() < deadline_s:
        for suffix in ("", "6"):
            with contextlib.suppress(OSError):
                lines = Path(f"/proc/{process.pid}/net/{table}{suffix}").read_text().splitlines()[1:]
                if any(line.split()[1].endswith(f":{port:04X}") and line.split()[3] == state for line in lines):
                    return
        time.sleep(0.005)
    raise SystemExit(f"expected a server on port {port}, found: {process.log.read_text()[-300:]}")


def _run(argv: Sequence[str]) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"expected {' '.join(argv)} to succeed, found: {done.stderr.strip()}")
