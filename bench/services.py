"""Does every service of the lab repeatedly start, serve a real client, and stop without remains?

    python bench/services.py [--times 20] [--at-once 5] [--only KIND …]

A lab with each kind of service (``bench/services_labs.py``) is started, used by a real client, and stopped:

- several *times in a row*;
- in several labs *at the same time*;
- with the controller killed by SIGKILL while the client runs, followed by ``venturi lab down --all``.

Each lab has a separate process, and all labs of a kind have a separate directory. After each test, the benchmark searches
for remains: processes with a command line, control group, working directory or mounts of the labs, namespaces, mounts,
loop devices, control groups, files in the directory of the labs, and new names in ``/dev/shm``, ``/tmp`` and
``/var/tmp``. The latter can belong to other programs, so they are listed.

The output has one line per kind: median and maximum of the start and stop times, time of the command after the kill, and remains.
Requires root and the requirements of the lab in ``venturi doctor``.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from figures import execute
from services_labs import HOSTS, LABS, ServiceLab

SIZE_BYTES = 2_000_000
TIMEOUT_S = 180.0
CLIENT_S = 30.0
GONE_S = 10.0
SHOWN = 4
"""Maximum number of listed remains per kind of service."""

SHARED_DIRECTORIES = ("/dev/shm", "/tmp", "/var/tmp")
NAMESPACES = ("net", "mnt", "uts", "pid")


def one(name: str, *, stay: bool) -> None:
    """Start, use and stop a lab; print the times as JSON, with one line after the start and one line after the stop.

    With ``stay``, the client runs until this process is killed.
    """
    from venturi.backend import find_engine
    from venturi.testbed.lab import Lab

    started_s = time.monotonic()
    with Lab.up(header_of(LABS[name]), engine=find_engine(), probe=False) as lab:
        up_s = time.monotonic() - started_s
        output = {
            "up_s": up_s,
            "id": lab.id,
            "namespaces": namespaces_of(lab),
            "at_s": time.clock_gettime(time.CLOCK_BOOTTIME),
        }
        print(json.dumps(output), flush=True)
        use(lab, LABS[name])
        while stay:
            use(lab, LABS[name])
        started_s = time.monotonic()
        problems = lab.down()
    print(json.dumps({"down_s": time.monotonic() - started_s, "problems": problems}), flush=True)


def header_of(requested: ServiceLab) -> Any:
    """Return the header of a plan for a lab."""
    from venturi.plan import Header, Measure, Totals
    from venturi.scenario.testbed import TestbedTable
    from venturi.testbed.plan import resolve_testbed

    problems: list[Any] = []
    testbed = TestbedTable.model_validate(tomllib.loads(HOSTS + requested.services))
    parts = resolve_testbed(testbed, 1.0, problems)
    if parts is None:
        sys.exit(f"expected a testbed without mistakes, found {problems}")
    return Header(
        "services", 1, 1.0, {}, parts.hosts, parts.storages, {}, {}, Measure(None, ()), Totals(0, 0, 0, {}),
        services=parts.services, network=parts.network,
    )  # fmt: skip


def use(lab: Any, requested: ServiceLab) -> None:
    """Run the client on host c."""
    file, copy = (lab.host_scratch(host) / "data" / "file" for host in "ac")
    must(lab.shell("a").command_line(["sh", "-c", f"test -e {file} || head -c {SIZE_BYTES} /dev/urandom > {file}"]))
    must(lab.shell("c").command_line(["mkdir", "-p", copy.parent]))
    known = {"file": file, "copy": copy, "mounted": lab.host_scratch("c") / "mounted", "url": ""}
    if requested.service_port is not None:
        services = lab.spec.services
        service = services.get("server") or services["origin"]
        known["url"] = service.service_ports[requested.service_port].format(
            path=file, relative="file", port=service.ports[0]
        )
    must(lab.client_command("c", ["sh", "-c", requested.client.format_map(known)]))
    if requested.copies:
        # The file of host a is on a separate disk, which processes of host c see at the same path.
        must(lab.shell("c").command_line(["cmp", file, copy]))


def must(argv: Iterable[object]) -> None:
    """Run a command and raise if it fails."""
    words = [str(word) for word in argv]
    done = subprocess.run(
        words, capture_output=True, text=True, timeout=CLIENT_S, stdin=subprocess.DEVNULL, check=False
    )
    if done.returncode:
        sys.exit(f"{words[-1]}: exit code {done.returncode}: {(done.stderr + done.stdout).strip()[-500:]}")


def namespaces_of(lab: Any) -> list[str]:
    """Return the namespaces of the hosts of a lab that differ from the namespaces of this process."""
    own = set(namespaces("self"))
    pids = [lab.namespaces.init.pid, *lab.namespaces.hosts.values()]
    return sorted({space for pid in pids for space in namespaces(pid)} - own)


def namespaces(pid: int | str) -> Iterator[str]:
    """Yield the readable namespaces of a process."""
    for kind in NAMESPACES:
        with suppress(OSError):
            yield str(Path(f"/proc/{pid}/ns/{kind}").readlink())


@dataclass
class Found:
    """Times and remains of one kind of service."""

    up_s: list[float] = field(default_factory=list)
    down_s: list[float] = field(default_factory=list)
    after_kill_s: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    strangers: set[str] = field(default_factory=set)
    times: int = 0


class Trying:
    """All tests of one kind of service."""

    def __init__(self, name: str, parent: Path) -> None:
        self.name, self.parent, self.found = name, parent, Found()
        self._ids: set[str] = set()
        self._namespaces: dict[str, float] = {}
        """Namespaces of the labs with the time of their use, in seconds since the boot."""
        # Programs outside of a lab get a directory for temporary files that is searched for remains.
        self._environment = {**os.environ, "VENTURI_LAB": str(parent), "TMPDIR": str(parent / "tmp")}

    def at_once(self, count: int) -> None:
        """Test ``count`` labs at the same time in separate processes, and search for remains."""
        before = shared_names()
        processes = [self._start() for _ in range(count)]
        for process in processes:
            self._read(process)
        self._look(before)

    def killed(self) -> None:
        """Kill the controller while its client runs, and let the next command clean up."""
        before = shared_names()
        process = self._start("--stay")
        line = process.stdout.readline()  # type: ignore[union-attr]
        if not line:
            self._fail(process, process.communicate()[1])
            return
        self._note(json.loads(line))
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.2)  # let the client run for a while
        process.send_signal(signal.SIGKILL)
        process.communicate()
        started_s = time.monotonic()
        done = subprocess.run(
            [Path(sys.executable).with_name("venturi"), "lab", "down", "--all"], env=self._environment, capture_output=True, text=True,
            timeout=TIMEOUT_S, check=False,
        )  # fmt: skip
        self.found.after_kill_s.append(time.monotonic() - started_s)
        if done.returncode:
            self.found.failures.append(f"lab down: exit code {done.returncode}: {done.stderr.strip()}")
        self._look(before)

    def _start(self, *more: str) -> subprocess.Popen[str]:
        (self.parent / "tmp").mkdir(exist_ok=True)
        argv = [sys.executable, __file__, "--one", self.name, *more]
        pipe = subprocess.PIPE
        return subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True, env=self._environment
        )

    def _read(self, process: subprocess.Popen[str]) -> None:
        self.found.times += 1
        try:
            out, err = process.communicate(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            self._fail(process, process.communicate()[1])
            return
        printed = [json.loads(line) for line in out.splitlines()]
        for line in printed:
            self._note(line)
        if process.returncode or len(printed) != 2:
            self._fail(process, err)

    def _note(self, printed: dict[str, Any]) -> None:
        if "up_s" in printed:
            self.found.up_s.append(printed["up_s"])
            self._ids.add(printed["id"])
            self._namespaces.update(dict.fromkeys(printed["namespaces"], printed["at_s"]))
        if "down_s" in printed:
            self.found.down_s.append(printed["down_s"])
            self.found.failures += printed["problems"]

    def _fail(self, process: subprocess.Popen[str], printed: str) -> None:
        self.found.failures.append(f"exit code {process.returncode}: {printed.strip()[-1500:]}")

    def _look(self, before: set[str]) -> None:
        """Search for remains; a dead process can be visible for a short time until its parent reaps it."""
        deadline_s = time.monotonic() + GONE_S
        while (left := list(self._left())) and time.monotonic() < deadline_s:
            time.sleep(0.05)
        self.found.left += left
        self.found.strangers |= shared_names() - before - {str(self.parent)}
        self._ids.clear()
        self._namespaces.clear()

    def _left(self) -> Iterator[str]:
        marks = [str(self.parent), *(f"venturi-{id_}" for id_ in self._ids)]
        for directory in Path("/proc").glob("[0-9]*"):
            if int(directory.name) != os.getpid() and any(
                mark in text for text in reported_of(directory) for mark in marks
            ):
                yield f"process {directory.name}"
            # The kernel reuses numbers of namespaces, also for labs of other users, but then with younger processes.
            if any(started_s(directory) < self._namespaces.get(space, 0.0) for space in namespaces(directory.name)):
                yield f"a namespace, in process {directory.name}"
        for line in Path("/proc/self/mountinfo").read_text().splitlines():
            if any(mark in line for mark in marks):
                yield f"mount {line.split()[4]}"
        for device in Path("/sys/block").glob("loop*/loop/backing_file"):
            with suppress(OSError):
                if any(mark in device.read_text() for mark in marks):
                    yield f"device {device.parts[3]}"
        for id_ in self._ids:
            yield from (f"group {group}" for group in Path("/sys/fs/cgroup").glob(f"*/venturi-{id_}"))
        yield from (f"file {path}" for path in sorted(self.parent.rglob("*")) if path != self.parent / "tmp")


def reported_of(directory: Path) -> Iterator[str]:
    """Yield kernel information about a process that can contain the name of a lab."""
    for name in ("cmdline", "cgroup", "mountinfo"):
        with suppress(OSError):
            yield (directory / name).read_bytes().decode(errors="replace")
    with suppress(OSError):
        yield str((directory / "cwd").readlink())


def started_s(directory: Path) -> float:
    """Return the start time of a process in seconds since the boot, or infinity for an exited process."""
    with suppress(OSError):
        # Field 22 of proc(5); the name in parentheses can contain any characters.
        return int((directory / "stat").read_text().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
    return float("inf")


def shared_names() -> set[str]:
    """Return the names in the directories that all programs share."""
    return {str(path) for directory in SHARED_DIRECTORIES for path in Path(directory).iterdir()}


def line_of(name: str, found: Found) -> str:
    """Return the line of the table."""
    after = f"{max(found.after_kill_s):5.2f}" if found.after_kill_s else "    -"
    left = ", ".join(found.left[:SHOWN]) or "nothing"
    left += f" and {len(found.left) - SHOWN} more" if len(found.left) > SHOWN else ""
    return f"{name:24} {found.times:5}  {spread(found.up_s)}  {spread(found.down_s)}  {after}  {len(found.failures):6}  {left}"


def spread(values: list[float]) -> str:
    """Return median and maximum."""
    return f"{statistics.median(values):5.2f} {max(values):5.2f}" if values else "    -     -"


def main() -> None:
    """Test all kinds and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=20, help="in a row (default 20)")
    parser.add_argument("--at-once", type=int, default=5, help="labs at the same time (default 5)")
    parser.add_argument("--kills", type=int, default=1, help="times that the controller is killed (default 1)")
    parser.add_argument("--only", nargs="*", choices=LABS, metavar="KIND", default=list(LABS), help=", ".join(LABS))
    parser.add_argument("--one", choices=LABS, help=argparse.SUPPRESS)
    parser.add_argument("--stay", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        return one(given.one, stay=given.stay)
    if os.geteuid() != 0:
        sys.exit(f"expected to be root, found UID {os.geteuid()}: control groups and loop devices are root's")
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; times in seconds: median, longest")
    print(f"{'service':24} times  {'up':>11}  {'down':>11}  killed  failed  left behind")
    bad, strangers = False, set[str]()
    for name in given.only:
        found = tried(name, given)
        bad |= bool(found.failures or found.left)
        print(line_of(name, found), flush=True)
        for failure in dict.fromkeys(found.failures):
            print(f"    {failure}", flush=True)
        strangers |= found.strangers
    strangers &= shared_names()
    if strangers:
        print(f"new in shared folders and still there, whoever made it: {', '.join(sorted(strangers))}")
    sys.exit(bad)


def tried(name: str, given: argparse.Namespace) -> Found:
    """Return the results of all tests of a kind of service."""
    parent = Path(tempfile.mkdtemp(prefix="venturi-bench-"))
    parent.chmod(0o755)
    trying = Trying(name, parent)
    try:
        for _ in range(given.times):
            trying.at_once(1)
        if given.at_once:
            trying.at_once(given.at_once)
        for _ in range(given.kills):
            trying.killed()
    finally:
        # Keep remains: the next `venturi lab down` uses the registry in this directory.
        if not trying.found.left:
            shutil.rmtree(parent)
    return trying.found


if __name__ == "__main__":
    execute(main)
