"""Checks of this machine for measurements: available features, missing programs, and how to install them.

Every check tests the feature itself (starts the engine, writes to the scratch directory, queries the kernel) and never
infers it from a version number. The checks change nothing, except that they remove labs whose daemon was killed.
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
from venturi.testbed.doctor_check import Check
from venturi.testbed.gfal2 import PACKAGES, PLUGIN_QUERY, packages_missing
from venturi.testbed.lab_directory import nearest_directory, obstacle
from venturi.testbed.tools import TOOLS, Tool, install_hint
from venturi.units import format_bytes

__all__ = ["Check", "examine"]

_PROBE_TIMEOUT_S = 10.0
_MIN_SCRATCH_BYTES = 10 * 10**9


def examine(scratch: Path, engine: Callable[[], Path]) -> Iterator[Check]:
    """Yield each check when it is done, so that a slow check does not delay earlier results.

    Parameters
    ----------
    scratch
        Directory for datasets and destinations; it need not exist.
    engine
        Returns the path of the engine, or raises an error that names the searched locations.
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
        result = subprocess.run(
            [path, "version"], capture_output=True, text=True, timeout=_PROBE_TIMEOUT_S, check=True
        )
    except (OSError, subprocess.SubprocessError, VenturiError) as error:
        return Check(
            "needed", "engine", "missing", str(error), "run `make setup` in the checkout, or reinstall the wheel"
        )
    return Check("needed", "engine", "ok", f"{_version(result.stdout)} at {path}")


def _version(text: str) -> str:
    """Return ``0.1.0 (release, x86_64-unknown-linux-gnu, commit 4b877d7)``, or the text itself if it is not such JSON."""
    try:
        engine = json.loads(text)
        properties = [
            engine.get("profile"),
            engine.get("target"),
            f"commit {engine['commit'][:7]}" if engine.get("commit") else None,
        ]
        return f"{engine['version']} ({', '.join(filter(None, properties))})"
    except (ValueError, TypeError, KeyError, AttributeError):
        return " ".join(text.split())


def _scratch(scratch: Path) -> Check:
    problem = obstacle(scratch)
    if problem:
        advice = "choose another directory with --scratch or VENTURI_SCRATCH"
        return Check("needed", "scratch", "missing", problem, advice)
    existing = nearest_directory(scratch)
    free_bytes = shutil.disk_usage(existing).free
    found = f"{scratch}: {format_bytes(free_bytes)} free, {_file_system(existing)}"
    if free_bytes < _MIN_SCRATCH_BYTES:
        return Check(
            "needed",
            "scratch",
            "limited",
            found,
            f"the quick studies need {format_bytes(_MIN_SCRATCH_BYTES)}: free disk space, or choose another --scratch",
        )
    return Check("needed", "scratch", "ok", found)


def _file_system(path: Path) -> str:
    """Return the type of the file system of ``path``, from the kernel's mount table."""
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
            "tools", tool.program, "missing", "not on PATH", f"needed for: {tool.use}. {install_hint(tool.program)}"
        )
    return Check("tools", tool.program, "ok", path)


def _gfal2() -> Iterator[Check]:
    """Check the plug-ins of gfal2. Without gfal2, yield nothing, because the check of gfal-copy reports it."""
    try:
        result = subprocess.run(PLUGIN_QUERY, capture_output=True, text=True, timeout=_PROBE_TIMEOUT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return
    missing = packages_missing(result.stdout, PACKAGES)
    if missing:
        use = ", ".join(protocol for protocol, package in PACKAGES.items() if package in missing)
        advice = f"needed for: {use} by gfal-copy. Debian: apt-get install {' '.join(missing)}"
        yield Check("tools", "gfal2 plugins", "missing", f"has {result.stdout.strip() or 'none'}", advice)
    else:
        yield Check("tools", "gfal2 plugins", "ok", result.stdout.strip())


def _lab(engine: Callable[[], Path]) -> Iterator[Check]:
    # Imported late, because the lab loads much of the package and would delay the first checks.
    from venturi.testbed.lab.capabilities import examine_lab

    yield from examine_lab(engine)


def _drop_caches() -> Check:
    if os.access("/proc/sys/vm/drop_caches", os.W_OK):
        return Check("truth", "cold caches", "ok", "/proc/sys/vm/drop_caches can be written")
    return Check(
        "truth",
        "cold caches",
        "limited",
        "not root: Venturi evicts files one by one with posix_fadvise",
        "every trial records the measured cache state; run as root to drop all caches",
    )


def _exec_stop() -> Check:
    """Check whether a child process can stop at its exec, as the agent needs to release processes together."""
    libc = ctypes.CDLL(None, use_errno=True)
    pid = os.fork()
    if pid == 0:
        # PTRACE_TRACEME is request 0 (ptrace(2)); the exit code reports whether it was permitted.
        os._exit(0 if libc.ptrace(0, 0, 0, 0) == 0 else 1)
    _, status = os.waitpid(pid, 0)
    if os.waitstatus_to_exitcode(status) == 0:
        return Check("truth", "exact release", "ok", "processes can be stopped at exec and released together")
    return Check(
        "truth",
        "exact release",
        "limited",
        "ptrace is not permitted: start times differ by the cost of exec",
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
            "other programs are running: results will be slower and have wider intervals; every run records the load",
        )
    return Check("truth", "quiet machine", "ok", f"load {load:.1f} on {cores} cores")


def _ssh_agent() -> Check:
    if shutil.which("ssh") is None:
        return Check("truth", "ssh keys", "missing", "no ssh", "see the tools above")
    keys = list((Path.home() / ".ssh").glob("id_*.pub"))
    if keys or os.environ.get("SSH_AUTH_SOCK"):
        return Check("truth", "ssh keys", "ok", "an agent or a key exists")
    return Check(
        "truth",
        "ssh keys",
        "limited",
        "no agent and no key in ~/.ssh",
        "needed for runs on other hosts: set up login without a password (ssh-keygen, ssh-copy-id)",
    )
