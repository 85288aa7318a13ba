"""Tools of the network part of the mover benchmark: a path between two hosts, sets of files, timed calls, tree comparison."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from emulator_lab import Sandbox, until_listening

from venturi.backend import find_engine
from venturi.testbed.lab import LabProcess
from venturi.testbed.lab.process_id import children
from venturi.testbed.services.base import Process
from venturi.units import parse_rate_bit_per_s

CLIENT, SERVER = "a", "b"
SERVE = "serve"
PORTS = {"ftp": 2811, "root": 1094, "https": 8443, SERVE: 2812}
SERVICES = {"ftp": "gridftp", "root": "dav", "https": "dav"}
"""Services of the server by scheme; `SERVE` is the FTP server of Venturi."""

LIMIT_S = 1800
"""Time limit of one call; a longer call ends the benchmark with a message."""

_IPERF3 = 5201
_FOLLOW_UP_S = 2.0
"""Time for session processes of a server to exit after their client; their CPU time then counts."""

_TIMER = """
import json, os, sys, time
begin = time.monotonic()
pid = os.fork()
if pid == 0:
    os.dup2(2, 1)
    os.execvp(sys.argv[1], sys.argv[1:])
_, status, used = os.wait4(pid, 0)
took = time.monotonic() - begin
json.dump([took, used.ru_utime + used.ru_stime, os.waitstatus_to_exitcode(status)], sys.stdout)
"""
"""Runs inside the host, so that entering the host is not timed. The output of the command goes to stderr."""


@dataclass(frozen=True)
class Link:
    """A path between the two hosts.

    Attributes
    ----------
    rate
        Rate of IP bytes, as in a scenario.
    rtt
        Round-trip time without queues.
    loss
        Fraction of lost packets in each direction.
    """

    rate: str
    rtt: str
    loss: float = 0.0

    @property
    def name(self) -> str:
        """Name for the output."""
        return f"{self.rate}, {self.rtt}" + (f", loss {self.loss:.1g}" if self.loss else "")

    @property
    def bit_per_s(self) -> float:
        """Rate including headers."""
        return parse_rate_bit_per_s(self.rate)

    def testbed(self, served: Path, *, xrootd: bool) -> str:
        """Return the testbed: two hosts with cubic, a queue of one bandwidth-delay product, and the servers on one host."""
        hosts = "".join(f'[host.{host}]\ncongestion_control = "cubic"\n' for host in (CLIENT, SERVER))
        queue = "1 BDP" if float(self.rtt.split()[0]) >= 1 else "1 MB"
        link = f'[link.path]\nbetween = ["{CLIENT}", "{SERVER}"]\nrate = "{self.rate}"\nrtt = "{self.rtt}"\nqueue = "{queue}"\n'
        link += f"loss = {self.loss}\n" if self.loss else ""
        lines = [hosts, link, f'[storage.files]\nhost = "{SERVER}"\npath = "{served}"\n']
        lines.append(_service("gridftp", "gridftp", f"{PORTS['ftp']}"))
        if xrootd:
            lines.append(_service("dav", "xrootd", f"{PORTS['root']}, {PORTS['https']}", "http = true, tls = true"))
        return "".join(lines)


def _service(name: str, kind: str, ports: str, options: str = "") -> str:
    return f'[service.{name}]\nkind = "{kind}"\nhost = "{SERVER}"\nstorage = ["files"]\nports = [{ports}]\noptions = {{ {options} }}\n'


@dataclass(frozen=True)
class Files:
    """A set of files in one directory."""

    directory: Path
    count: int
    size_bytes: int

    @classmethod
    def make(cls, directory: Path, sizes_bytes: Sequence[int]) -> Files:
        """Write files of these sizes with different contents, so that a comparison detects exchanged files."""
        if not directory.exists():
            directory.mkdir(mode=0o755)
            draw = random.Random(1)
            pool = draw.randbytes(1 << 20)
            for number, size_bytes in enumerate(sizes_bytes):
                _write(directory / f"{number:06d}", size_bytes, draw, pool)
        return cls(directory, len(sizes_bytes), sum(sizes_bytes))

    def part(self, count: int) -> Files:
        """Return ``count`` of the files, of all sizes, in a separate directory."""
        if count >= self.count:
            return self
        directory = self.directory.with_name(f"{self.directory.name}-{count}")
        paths = [self.directory / f"{number * self.count // count:06d}" for number in range(count)]
        if not directory.exists():
            directory.mkdir(mode=0o755)
            for path in paths:
                (directory / path.name).hardlink_to(path)
        return Files(directory, count, sum(path.stat().st_size for path in paths))


def _write(path: Path, size_bytes: int, draw: random.Random, pool: bytes) -> None:
    with path.open("wb") as file:
        left = size_bytes
        while left:
            start = draw.randrange(len(pool) // 2)
            chunk = (draw.randbytes(8) + pool[start:])[:left]
            file.write(chunk)
            left -= len(chunk)


@dataclass(frozen=True)
class Took:
    """Times of one call: from its first instruction to its end, and CPU time of both hosts."""

    wall_s: float
    client_cpu_s: float
    server_cpu_s: float

    def both_cpu_s(self) -> float:
        """Return the CPU time of both hosts."""
        return self.client_cpu_s + self.server_cpu_s


@dataclass(frozen=True)
class Route:
    """An open path with its servers, and a directory in memory for served and received files."""

    sandbox: Sandbox
    memory: Path
    own: list[LabProcess] = field(default_factory=list)

    @property
    def served(self) -> Path:
        """Directory of the servers."""
        return self.memory / "served"

    def serve(self, engine: Path) -> None:
        """Start the server of Venturi, which ends with the lab."""
        words = [str(engine), "serve", str(self.served), "--listen", f"0.0.0.0:{PORTS[SERVE]}", "--write", "--quiet"]
        self.own.append(self.sandbox.start(SERVER, words, SERVE))
        until_listening(self.own[0], PORTS[SERVE])

    def url(self, path: Path, scheme: str) -> str:
        """Return the URL of a path on the server."""
        if scheme == SERVE:
            return f"ftp://{SERVER}.lab.test:{PORTS[SERVE]}/{path.relative_to(self.served)}"
        return f"{scheme}://{SERVER}.lab.test:{PORTS[scheme]}{'/' if scheme == 'root' else ''}{path}"

    def call(self, command: str, *words: object, host: str, scheme: str) -> Took:
        """Run a command of ``sh`` on a host, with ``words`` as ``$1`` and so on; raise if it fails."""
        lab = self.sandbox.lab
        pids = [process.pid for process in self._servers(scheme)]
        before_s = _final_cpu_s(pids)
        argv = [sys.executable, "-E", "-S", "-c", _TIMER, "sh", "-c", command, "sh", *map(str, words)]
        done = lab.shell(host).run(argv, timeout_s=LIMIT_S, environment=lab.client_environment)
        if done.returncode or json.loads(done.stdout)[2]:
            raise SystemExit(f"expected {command} to succeed, found: {(done.stderr or done.stdout)[-600:]}")
        wall_s, client_cpu_s, _ = json.loads(done.stdout)
        return Took(wall_s, client_cpu_s, _final_cpu_s(pids) - before_s)

    def ended(self, scheme: str) -> str:
        """Return the exit reason of a server, or "" while it is running."""
        found = [process for process in self._servers(scheme) if process.poll() is not None]
        return "".join(f"exit code {process.poll()}: {process.log.read_text()[-300:]}" for process in found)

    def _servers(self, scheme: str) -> Sequence[Process]:
        return self.own if scheme == SERVE else self.sandbox.lab.service(SERVICES[scheme]).processes


@contextlib.contextmanager
def route_up(link: Link, memory: Path, *, xrootd: bool = False) -> Iterator[Route]:
    """Open a path with its servers, and remove it at the end."""
    (memory / "served").mkdir(mode=0o777, exist_ok=True)
    (memory / "served").chmod(0o777)
    with Sandbox.up(link.testbed(memory / "served", xrootd=xrootd), find_engine()) as sandbox:
        yield Route(sandbox, memory)


@contextlib.contextmanager
def memory_directory() -> Iterator[Path]:
    """Yield a directory in memory, because a disk would be the limit, and remove it at the end.

    It is visible to the hosts of a lab, which have separate /dev/shm.
    """
    with tempfile.TemporaryDirectory(prefix="venturi-bench-") as name:
        Path(name).chmod(0o755)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "venturi-bench", name], check=True)
        try:
            yield Path(name)
        finally:
            subprocess.run(["umount", name], check=True)


def iperf3_bit_per_s(sandbox: Sandbox, source: str, target: str, size_bytes: int) -> float:
    """Return the goodput of one TCP connection that transfers ``size_bytes`` from memory to memory, measured by its receiver."""
    server = sandbox.start(target, ["iperf3", "-s", "-1", "-J", "-p", str(_IPERF3)], "iperf3")
    until_listening(server, _IPERF3)
    words = ["iperf3", "-c", sandbox.address(target), "-p", str(_IPERF3), "-n", str(size_bytes), "-C", "cubic"]
    try:
        sandbox.lab.shell(source).run(words, timeout_s=LIMIT_S)
        ended_s = time.monotonic() + _FOLLOW_UP_S
        while server.poll() is None and time.monotonic() < ended_s:
            time.sleep(0.01)
        return float(json.loads(server.log.read_text())["end"]["sum_received"]["bits_per_second"])
    finally:
        server.stop()


def emptied(directory: Path) -> Path:
    """Return the directory, emptied and writable for all users."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    directory.chmod(0o777)
    return directory


def compare(source: Path, copy: Path, name: str) -> None:
    """Raise if a copy differs from its source, because an incomplete or incorrect copy is not comparable."""
    differ = subprocess.run(["diff", "-rq", source, copy], capture_output=True, text=True, check=False)
    if differ.returncode:
        raise SystemExit(
            f"expected a copy by {name} like its source, found: {differ.stdout[:600]}{differ.stderr[:600]}"
        )


def _final_cpu_s(pids: Sequence[int]) -> float:
    """Return the CPU time of processes and their children, after the end of sessions or a timeout."""
    deadline_s = time.monotonic() + _FOLLOW_UP_S
    while any(children(pid) for pid in pids) and time.monotonic() < deadline_s:
        time.sleep(0.01)
    return sum(map(_cpu_s, pids))


def _cpu_s(pid: int) -> float:
    """Return the CPU time of a process and of its exited and running children."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    own_s = sum(map(int, words[11:15])) / os.sysconf("SC_CLK_TCK")
    return own_s + sum(map(_cpu_s, children(pid)))
