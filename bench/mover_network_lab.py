"""What the network part of the mover's bench measures with: a path between two hosts, sets of files, one timed call, two trees held against each other."""

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

from wire_lab import Ground, until_listening

from venturi.backend import find_engine
from venturi.testbed.lab import LabProcess
from venturi.testbed.lab.living import children
from venturi.testbed.services.base import Process
from venturi.units import parse_rate_bit_per_s

CLIENT, SERVER = "a", "b"
SERVE = "serve"
PORTS = {"ftp": 2811, "root": 1094, "https": 8443, SERVE: 2812}
SERVICES = {"ftp": "gridftp", "root": "dav", "https": "dav"}
"""By scheme, on the server; `SERVE` is our own server, which speaks FTP."""

LIMIT_S = 1800
"""Of one call: what takes longer than any here should ends the bench with a sentence."""

_IPERF3 = 5201
_FOLLOW_UP_S = 2.0
"""For a server's session processes to end after their client: their processor time counts when they have."""

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
"""Runs inside of the host, so that the way into it is not timed; what the command says goes to stderr."""


@dataclass(frozen=True)
class Link:
    """A path between the two hosts.

    Attributes
    ----------
    rate
        As a scenario has it, of IP bytes.
    rtt
        Without queues.
    loss
        Part of the packets of either direction.
    """

    rate: str
    rtt: str
    loss: float = 0.0

    @property
    def name(self) -> str:
        """What is printed of it."""
        return f"{self.rate}, {self.rtt}" + (f", loss {self.loss:.1g}" if self.loss else "")

    @property
    def bit_per_s(self) -> float:
        """What it carries, headers included."""
        return parse_rate_bit_per_s(self.rate)

    def testbed(self, served: Path, *, xrootd: bool) -> str:
        """Return the testbed: cubic on both hosts whatever the kernel's default is, a queue of one bandwidth-delay product, the servers on one of them."""
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
    """A set of files in one folder."""

    folder: Path
    count: int
    size_bytes: int

    @classmethod
    def make(cls, folder: Path, sizes_bytes: Sequence[int]) -> Files:
        """Write files of these sizes, no two with the same content: bytes that come into another file's place are seen."""
        if not folder.exists():
            folder.mkdir(mode=0o755)
            draw = random.Random(1)
            pool = draw.randbytes(1 << 20)
            for number, size_bytes in enumerate(sizes_bytes):
                _write(folder / f"{number:06d}", size_bytes, draw, pool)
        return cls(folder, len(sizes_bytes), sum(sizes_bytes))

    def part(self, count: int) -> Files:
        """Return so many of them, of all sizes, as a folder of their own."""
        if count >= self.count:
            return self
        folder = self.folder.with_name(f"{self.folder.name}-{count}")
        paths = [self.folder / f"{number * self.count // count:06d}" for number in range(count)]
        if not folder.exists():
            folder.mkdir(mode=0o755)
            for path in paths:
                (folder / path.name).hardlink_to(path)
        return Files(folder, count, sum(path.stat().st_size for path in paths))


def _write(path: Path, size_bytes: int, draw: random.Random, pool: bytes) -> None:
    with path.open("wb") as file:
        left = size_bytes
        while left:
            start = draw.randrange(len(pool) // 2)
            piece = (draw.randbytes(8) + pool[start:])[:left]
            file.write(piece)
            left -= len(piece)


@dataclass(frozen=True)
class Took:
    """What one call took: from its first instruction to its end, and processor time of both ends."""

    wall_s: float
    client_cpu_s: float
    server_cpu_s: float

    def both_cpu_s(self) -> float:
        """Return that of both ends."""
        return self.client_cpu_s + self.server_cpu_s


@dataclass(frozen=True)
class Route:
    """A path that is up, with its servers and a folder in memory for what they serve and what arrives."""

    ground: Ground
    memory: Path
    own: list[LabProcess] = field(default_factory=list)

    @property
    def served(self) -> Path:
        """What the servers give and take."""
        return self.memory / "served"

    def serve(self, engine: Path) -> None:
        """Start our own server, which ends with the lab."""
        words = [str(engine), "serve", str(self.served), "--listen", f"0.0.0.0:{PORTS[SERVE]}", "--write", "--quiet"]
        self.own.append(self.ground.start(SERVER, words, SERVE))
        until_listening(self.own[0], PORTS[SERVE])

    def url(self, path: Path, scheme: str) -> str:
        """Return where a path is on the server."""
        if scheme == SERVE:
            return f"ftp://{SERVER}.lab.test:{PORTS[SERVE]}/{path.relative_to(self.served)}"
        return f"{scheme}://{SERVER}.lab.test:{PORTS[scheme]}{'/' if scheme == 'root' else ''}{path}"

    def call(self, command: str, *words: object, host: str, scheme: str) -> Took:
        """Run a command of ``sh`` on a host, to which the words are ``$1`` and so on; it must succeed."""
        lab = self.ground.lab
        pids = [process.pid for process in self._servers(scheme)]
        before_s = _settled_cpu_s(pids)
        argv = [sys.executable, "-E", "-S", "-c", _TIMER, "sh", "-c", command, "sh", *map(str, words)]
        done = lab.machine(host).run(argv, timeout_s=LIMIT_S, environment=lab.client_environment)
        if done.returncode or json.loads(done.stdout)[2]:
            raise SystemExit(f"expected {command} to succeed, found: {(done.stderr or done.stdout)[-600:]}")
        wall_s, client_cpu_s, _ = json.loads(done.stdout)
        return Took(wall_s, client_cpu_s, _settled_cpu_s(pids) - before_s)

    def ended(self, scheme: str) -> str:
        """Return how a server has ended, "" of one that lives."""
        found = [process for process in self._servers(scheme) if process.poll() is not None]
        return "".join(f"exit code {process.poll()}: {process.log.read_text()[-300:]}" for process in found)

    def _servers(self, scheme: str) -> Sequence[Process]:
        return self.own if scheme == SERVE else self.ground.lab.service(SERVICES[scheme]).processes


@contextlib.contextmanager
def route_up(link: Link, memory: Path, *, xrootd: bool = False) -> Iterator[Route]:
    """Bring a path up with its servers, and down at the end."""
    (memory / "served").mkdir(mode=0o777, exist_ok=True)
    (memory / "served").chmod(0o777)
    with Ground.up(link.testbed(memory / "served", xrootd=xrootd), find_engine()) as ground:
        yield Route(ground, memory)


@contextlib.contextmanager
def memory_folder() -> Iterator[Path]:
    """A folder in memory, since a disk would be what limits, and one that hosts of a lab see, which have a /dev/shm of their own; gone at the end."""
    with tempfile.TemporaryDirectory(prefix="venturi-bench-") as name:
        Path(name).chmod(0o755)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "venturi-bench", name], check=True)
        try:
            yield Path(name)
        finally:
            subprocess.run(["umount", name], check=True)


def iperf3_bit_per_s(ground: Ground, source: str, target: str, size_bytes: int) -> float:
    """Return the goodput of one TCP connection that moves so many bytes from memory to memory, as its receiver counts it."""
    server = ground.start(target, ["iperf3", "-s", "-1", "-J", "-p", str(_IPERF3)], "iperf3")
    until_listening(server, _IPERF3)
    words = ["iperf3", "-c", ground.address(target), "-p", str(_IPERF3), "-n", str(size_bytes), "-C", "cubic"]
    try:
        ground.lab.machine(source).run(words, timeout_s=LIMIT_S)
        ended_s = time.monotonic() + _FOLLOW_UP_S
        while server.poll() is None and time.monotonic() < ended_s:
            time.sleep(0.01)
        return float(json.loads(server.log.read_text())["end"]["sum_received"]["bits_per_second"])
    finally:
        server.stop()


def emptied(folder: Path) -> Path:
    """Return a folder that anybody may write to, with nothing in it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    folder.chmod(0o777)
    return folder


def compare(source: Path, copy: Path, name: str) -> None:
    """A tool that is fast because it leaves something out, or mixes something up, is not in the comparison."""
    differ = subprocess.run(["diff", "-rq", source, copy], capture_output=True, text=True, check=False)
    if differ.returncode:
        raise SystemExit(
            f"expected a copy by {name} like its source, found: {differ.stdout[:600]}{differ.stderr[:600]}"
        )


def _settled_cpu_s(pids: Sequence[int]) -> float:
    """Return the processor time of processes and their children, once sessions have ended or a while has passed."""
    deadline_s = time.monotonic() + _FOLLOW_UP_S
    while any(children(pid) for pid in pids) and time.monotonic() < deadline_s:
        time.sleep(0.01)
    return sum(map(_cpu_s, pids))


def _cpu_s(pid: int) -> float:
    """Return the processor time of a process, of its children that have ended, and of those that live."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    own_s = sum(map(int, words[11:15])) / os.sysconf("SC_CLK_TCK")
    return own_s + sum(map(_cpu_s, children(pid)))
