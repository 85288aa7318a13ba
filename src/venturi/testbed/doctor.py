"""What this machine can do for a measurement, what is missing, and how to get it.

Every check tries the real thing (starts the engine, writes to the scratch directory, asks the kernel) and never guesses from
a version number. Nothing is changed on the machine; what labs have left whose keeper was killed is removed.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from venturi.errors import VenturiError
from venturi.testbed.check import Check
from venturi.testbed.folder import nearest_folder, obstacle
from venturi.testbed.gfal2 import ASK, PACKAGES, packages_missing
from venturi.testbed.tools import TOOLS, Tool, how_to_get
from venturi.units import format_bytes

__all__ = ["Check", "examine"]

_PROBE_TIMEOUT_S = 10.0
_SCRATCH_WANTED_BYTES = 10 * 10**9


def examine(scratch: Path, engine: Callable[[], Path]) -> Iterator[Check]:
    """Yield the checks, one after the other, so that a slow one does not hold back the others.

    Parameters
    ----------
    scratch
        The directory in which data sets and destinations are to be made; it need not exist yet.
    engine
        Finds the engine, or raises an error that says where it was looked for.
    """
    yield _python()
    yield _engine(engine)
    yield _scratch(scratch)
    yield from map(_tool, TOOLS)
    yield from _gfal2()
    yield from _lab(engine)
    yield _drop_caches()
    yield _exec_stop()
    yield _cores()
    yield _ssh_agent()


def _python() -> Check:
    version = ".".join(map(str, sys.version_info[:3]))
    return Check("needed", "python", "ok", f"{version} at {sys.executable}")


def _engine(find: Callable[[], Path]) -> Check:
    try:
        path = find()
        answer = subprocess.run(
            [path, "version"], capture_output=True, text=True, timeout=_PROBE_TIMEOUT_S, check=True
        )
    except (OSError, subprocess.SubprocessError, VenturiError) as error:
        return Check(
            "needed", "engine", "missing", str(error), "run `make setup` in the checkout, or reinstall the wheel"
        )
    return Check("needed", "engine", "ok", f"{_version(answer.stdout)} at {path}")


def _version(text: str) -> str:
    """Return ``0.1.0 (release, x86_64-unknown-linux-gnu, commit 4b877d7)``, or the text itself where it is no such JSON."""
    try:
        said = json.loads(text)
        facts = [
            said.get("profile"),
            said.get("target"),
            f"commit {said['commit'][:7]}" if said.get("commit") else None,
        ]
        return f"{said['version']} ({', '.join(filter(None, facts))})"
    except (ValueError, TypeError, KeyError, AttributeError):
        return " ".join(text.split())


def _scratch(scratch: Path) -> Check:
    problem = obstacle(scratch)
    if problem:
        advice = "choose another directory with --scratch or VENTURI_SCRATCH"
        return Check("needed", "scratch", "missing", problem, advice)
    existing = nearest_folder(scratch)
    free_bytes = shutil.disk_usage(existing).free
    found = f"{scratch}: {format_bytes(free_bytes)} free, {_file_system(existing)}"
    if free_bytes < _SCRATCH_WANTED_BYTES:
        return Check(
            "needed",
            "scratch",
            "limited",
            found,
            f"the quick studies want {format_bytes(_SCRATCH_WANTED_BYTES)}: free some, or choose another --scratch",
        )
    return Check("needed", "scratch", "ok", found)


def _file_system(path: Path) -> str:
    """Return the type of the file system that holds ``path``, from the kernel's mount table."""
    resolved, best = str(path.resolve()), ("", "unknown file system")
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, mount, kind, *_ = line.split()
        inside = resolved == mount or resolved.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(best[0]):
            best = (mount, kind)
    return best[1]


def _tool(tool: Tool) -> Check:
    path = shutil.which(tool.program)
    if path is None:
        return Check(
            "tools", tool.program, "missing", "not on PATH", f"needed for: {tool.use}. {how_to_get(tool.program)}"
        )
    return Check("tools", tool.program, "ok", path)


def _gfal2() -> Iterator[Check]:
    """Ask gfal2 for its plug-ins; where it is not there, the check of gfal-copy has said so."""
    try:
        asked = subprocess.run(ASK, capture_output=True, text=True, timeout=_PROBE_TIMEOUT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return
    missing = packages_missing(asked.stdout, PACKAGES)
    if missing:
        use = ", ".join(protocol for protocol, package in PACKAGES.items() if package in missing)
        advice = f"needed for: {use} by gfal-copy. Debian: apt-get install {' '.join(missing)}"
        yield Check("tools", "gfal2 plugins", "missing", f"has {asked.stdout.strip() or 'none'}", advice)
    else:
        yield Check("tools", "gfal2 plugins", "ok", asked.stdout.strip())


def _lab(engine: Callable[[], Path]) -> Iterator[Check]:
    # The lab knows more of the package than a doctor needs before its first word.
    from venturi.testbed.lab.ability import examine_lab

    yield from examine_lab(engine)


def _drop_caches() -> Check:
    if os.access("/proc/sys/vm/drop_caches", os.W_OK):
        return Check("truth", "cold caches", "ok", "/proc/sys/vm/drop_caches can be written")
    return Check(
        "truth",
        "cold caches",
        "limited",
        "not root: files are evicted one by one with posix_fadvise",
        "what was achieved is measured and recorded with every trial; run as root to drop all caches",
    )


def _exec_stop() -> Check:
    """Try what the agent does to release processes together: a child that stops at its exec."""
    libc = ctypes.CDLL(None, use_errno=True)
    pid = os.fork()
    if pid == 0:
        # PTRACE_TRACEME is request 0 (ptrace(2)); the exit code tells the parent whether it was allowed.
        os._exit(0 if libc.ptrace(0, 0, 0, 0) == 0 else 1)
    _, status = os.waitpid(pid, 0)
    if os.waitstatus_to_exitcode(status) == 0:
        return Check("truth", "exact release", "ok", "processes can be stopped at exec and released together")
    return Check(
        "truth",
        "exact release",
        "limited",
        "ptrace is not permitted here: starts are spread by the cost of exec",
        "in a container: allow the ptrace system call (seccomp profile)",
    )


def _cores() -> Check:
    cores = len(os.sched_getaffinity(0))
    load = os.getloadavg()[0]
    if load > cores / 2:
        return Check(
            "truth",
            "quiet machine",
            "limited",
            f"load {load:.1f} on {cores} cores",
            "something else is running: results will be slower and wider; every run records the load",
        )
    return Check("truth", "quiet machine", "ok", f"load {load:.1f} on {cores} cores")


def _ssh_agent() -> Check:
    if shutil.which("ssh") is None:
        return Check("truth", "ssh keys", "missing", "no ssh", "see the tools above")
    keys = list((Path.home() / ".ssh").glob("id_*.pub"))
    if keys or os.environ.get("SSH_AUTH_SOCK"):
        return Check("truth", "ssh keys", "ok", "an agent or a key is there")
    return Check(
        "truth",
        "ssh keys",
        "limited",
        "no agent and no key in ~/.ssh",
        "only for runs on other hosts: they must let you in without a question (ssh-keygen, ssh-copy-id)",
    )
