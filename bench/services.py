"""Does every service of the lab come up, serve a real client, and go without a trace, again and again?

    python bench/services.py [--times 20] [--at-once 5] [--only KIND …]

For each kind of service, in a lab of its own (``bench/services_labs.py``): brought up, used by a real client, taken down

- so many *times in a row*;
- so many labs *at once*;
- with the controller killed by SIGKILL while the client works, and then ``venturi lab down --all``.

Each lab has a process, and all labs of a kind have a folder, of their own. After each time it is looked for what is left: processes whose command
line, control group, working folder or mounts are of the labs, namespaces, mounts, loop devices, control groups, files in
the labs' folder, and new names in ``/dev/shm``, ``/tmp`` and ``/var/tmp``. The last may be other people's; they are named, so that one can tell.

Prints a line a kind: median and longest time to come up and to go down, what the next command took after the kill, and what was left.
Needs root and what ``venturi doctor`` asks for the lab.
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

from figures import carry_out
from services_labs import HOSTS, LABS, ServiceLab

SIZE_BYTES = 2_000_000
TIMEOUT_S = 180.0
CLIENT_S = 30.0
GONE_S = 10.0
SHOWN = 4
"""Things left behind that are named, of each kind of service."""

SHARED_FOLDERS = ("/dev/shm", "/tmp", "/var/tmp")
NAMESPACES = ("net", "mnt", "uts", "pid")


def one(name: str, *, stay: bool) -> None:
    """Bring a lab up, use it and take it down; print what that took as JSON, a line when it is up and one when it is down.

    With ``stay`` the client works until this process is killed.
    """
    from venturi.backend import find_engine
    from venturi.testbed.lab import Lab

    began_s = time.monotonic()
    with Lab.up(header_of(LABS[name]), engine=find_engine(), probe=False) as lab:
        up_s = time.monotonic() - began_s
        told = {
            "up_s": up_s,
            "id": lab.id,
            "namespaces": namespaces_of(lab),
            "at_s": time.clock_gettime(time.CLOCK_BOOTTIME),
        }
        print(json.dumps(told), flush=True)
        use(lab, LABS[name])
        while stay:
            use(lab, LABS[name])
        began_s = time.monotonic()
        problems = lab.down()
    print(json.dumps({"down_s": time.monotonic() - began_s, "problems": problems}), flush=True)


def header_of(wanted: ServiceLab) -> Any:
    """Return the header of a plan for a lab."""
    from venturi.plan import Header, Measure, Totals
    from venturi.scenario.testbed import Testbed
    from venturi.testbed.plan import resolve_testbed

    problems: list[Any] = []
    testbed = Testbed.model_validate(tomllib.loads(HOSTS + wanted.services))
    parts = resolve_testbed(testbed, 1.0, problems)
    if parts is None:
        sys.exit(f"expected a testbed without mistakes, found {problems}")
    return Header(
        "services", 1, 1.0, {}, parts.hosts, parts.places, {}, {}, Measure(None, ()), Totals(0, 0, 0, {}),
        services=parts.services, network=parts.network,
    )  # fmt: skip


def use(lab: Any, wanted: ServiceLab) -> None:
    """Have the client do its work on host c."""
    file, copy = (lab.host_scratch(host) / "data" / "file" for host in "ac")
    must(lab.machine("a").words(["sh", "-c", f"test -e {file} || head -c {SIZE_BYTES} /dev/urandom > {file}"]))
    must(lab.machine("c").words(["mkdir", "-p", copy.parent]))
    known = {"file": file, "copy": copy, "mounted": lab.host_scratch("c") / "mounted", "url": ""}
    if wanted.door is not None:
        services = lab.asked.services
        service = services.get("server") or services["origin"]
        known["url"] = service.doors[wanted.door].format(path=file, relative="file", port=service.ports[0])
    must(lab.words("c", ["sh", "-c", wanted.client.format_map(known)]))
    if wanted.copies:
        # Host a's file is a disk of its own, which host c's processes see at the same path.
        must(lab.machine("c").words(["cmp", file, copy]))


def must(argv: Iterable[object]) -> None:
    """Run a command that has to succeed."""
    words = [str(word) for word in argv]
    done = subprocess.run(
        words, capture_output=True, text=True, timeout=CLIENT_S, stdin=subprocess.DEVNULL, check=False
    )
    if done.returncode:
        sys.exit(f"{words[-1]}: exit code {done.returncode}: {(done.stderr + done.stdout).strip()[-500:]}")


def namespaces_of(lab: Any) -> list[str]:
    """Return the namespaces that the hosts of a lab have and this process has not."""
    own = set(namespaces("self"))
    pids = [lab.ground.init.pid, *lab.ground.hosts.values()]
    return sorted({space for pid in pids for space in namespaces(pid)} - own)


def namespaces(pid: int | str) -> Iterator[str]:
    """Yield the namespaces of a process, those that can be read."""
    for kind in NAMESPACES:
        with suppress(OSError):
            yield str(Path(f"/proc/{pid}/ns/{kind}").readlink())


@dataclass
class Found:
    """What was measured of one kind of service, and what was left behind."""

    up_s: list[float] = field(default_factory=list)
    down_s: list[float] = field(default_factory=list)
    after_kill_s: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    strangers: set[str] = field(default_factory=set)
    times: int = 0


class Trying:
    """All that is tried with one kind of service."""

    def __init__(self, name: str, parent: Path) -> None:
        self.name, self.parent, self.found = name, parent, Found()
        self._ids: set[str] = set()
        self._namespaces: dict[str, float] = {}
        """Of labs that were up, and when they were, in seconds since the boot."""
        # Whatever wants a folder for temporary files outside of a lab gets one that is looked into.
        self._environment = {**os.environ, "VENTURI_LAB": str(parent), "TMPDIR": str(parent / "tmp")}

    def at_once(self, count: int) -> None:
        """Do it in so many processes at the same time, and look for what they have left."""
        before = shared_names()
        processes = [self._start() for _ in range(count)]
        for process in processes:
            self._read(process)
        self._look(before)

    def killed(self) -> None:
        """Kill the controller while its client works, and have the next command clean up."""
        before = shared_names()
        process = self._start("--stay")
        line = process.stdout.readline()  # type: ignore[union-attr]
        if not line:
            self._fail(process, process.communicate()[1])
            return
        self._note(json.loads(line))
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.2)  # some of the client's work
        process.send_signal(signal.SIGKILL)
        process.communicate()
        began_s = time.monotonic()
        done = subprocess.run(
            [Path(sys.executable).with_name("venturi"), "lab", "down", "--all"], env=self._environment, capture_output=True, text=True,
            timeout=TIMEOUT_S, check=False,
        )  # fmt: skip
        self.found.after_kill_s.append(time.monotonic() - began_s)
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
        said = [json.loads(line) for line in out.splitlines()]
        for line in said:
            self._note(line)
        if process.returncode or len(said) != 2:
            self._fail(process, err)

    def _note(self, said: dict[str, Any]) -> None:
        if "up_s" in said:
            self.found.up_s.append(said["up_s"])
            self._ids.add(said["id"])
            self._namespaces.update(dict.fromkeys(said["namespaces"], said["at_s"]))
        if "down_s" in said:
            self.found.down_s.append(said["down_s"])
            self.found.failures += said["problems"]

    def _fail(self, process: subprocess.Popen[str], said: str) -> None:
        self.found.failures.append(f"exit code {process.returncode}: {said.strip()[-1500:]}")

    def _look(self, before: set[str]) -> None:
        """Look for what is left. A dead process may be seen for a moment until somebody takes note of its end."""
        deadline_s = time.monotonic() + GONE_S
        while (left := list(self._left())) and time.monotonic() < deadline_s:
            time.sleep(0.05)
        self.found.left += left
        self.found.strangers |= shared_names() - before - {str(self.parent)}
        self._ids.clear()
        self._namespaces.clear()

    def _left(self) -> Iterator[str]:
        marks = [str(self.parent), *(f"venturi-{id_}" for id_ in self._ids)]
        for folder in Path("/proc").glob("[0-9]*"):
            if int(folder.name) != os.getpid() and any(mark in text for text in told_of(folder) for mark in marks):
                yield f"process {folder.name}"
            # Numbers of namespaces come back, in the labs of others too: with processes that are younger than ours was.
            if any(began_s(folder) < self._namespaces.get(space, 0.0) for space in namespaces(folder.name)):
                yield f"a namespace, in process {folder.name}"
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


def told_of(folder: Path) -> Iterator[str]:
    """Yield what the kernel tells of a process that may name a lab."""
    for name in ("cmdline", "cgroup", "mountinfo"):
        with suppress(OSError):
            yield (folder / name).read_bytes().decode(errors="replace")
    with suppress(OSError):
        yield str((folder / "cwd").readlink())


def began_s(folder: Path) -> float:
    """Return when a process began, in seconds since the boot; one that has gone began never."""
    with suppress(OSError):
        # Field 22 of proc(5); the name, in parentheses, may hold anything.
        return int((folder / "stat").read_text().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
    return float("inf")


def shared_names() -> set[str]:
    """Return what is in the folders that all programs share."""
    return {str(path) for folder in SHARED_FOLDERS for path in Path(folder).iterdir()}


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
    """Try all kinds and print the table."""
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
    """Return what came of all tries with a kind of service."""
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
        # What is left is not to be hidden: the registry in this folder is what the next `venturi lab down` goes by.
        if not trying.found.left:
            shutil.rmtree(parent)
    return trying.found


if __name__ == "__main__":
    carry_out(main)
