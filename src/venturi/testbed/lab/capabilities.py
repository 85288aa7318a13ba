"""Features of the lab on this machine for this user, determined by tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from venturi.errors import VenturiError
from venturi.testbed.doctor_check import Check
from venturi.testbed.lab.cleanup import sweep
from venturi.testbed.lab.groups import VERSION_2, controllers, unified_root
from venturi.testbed.lab.namespaces import LabNamespaces
from venturi.testbed.lab.programs import search_path
from venturi.testbed.services.table import SERVICES

__all__ = ["examine_lab"]

_LOST = "no cgroup limits, no throttled disks, no system-wide cold caches, and a less accurate network clock"
_PROGRAMS = (
    ("ip", "iproute2", "all labs"),
    ("nsenter", "util-linux", "all labs"),
    ("setsid", "util-linux", "all labs"),
    ("taskset", "util-linux", "cpus"),
    ("nft", "nftables", "nat"),
    ("losetup", "mount", 'kind = "disk"'),
    ("mkfs.ext4", "e2fsprogs", 'kind = "disk"'),
)


def examine_lab(engine: Callable[[], Path]) -> Iterator[Check]:
    """Yield the checks, after removing labs whose daemon was killed.

    Parameters
    ----------
    engine
        Returns the path of the engine, or raises an error that names the searched locations.
    """
    yield _remains()
    yield _namespaces(engine)
    yield _tun()
    yield _limits()
    yield _disks()
    for program, package, use in _PROGRAMS:
        path = shutil.which(program, path=search_path())
        if path is None:
            yield Check("lab", program, "missing", "not on PATH", f"needed for: {use}. {_install(package)}")
        else:
            yield Check("lab", program, "ok", path)
    for kind, service in SERVICES.items():
        missing = [one for one in service.packages if shutil.which(one.program, path=search_path()) is None]
        if missing:
            detail = f"no {', '.join(one.program for one in missing)}"
            packages = " ".join(dict.fromkeys(one.package for one in missing))
            yield Check("lab", f"service {kind}", "missing", detail, _install(packages))
        else:
            yield Check("lab", f"service {kind}", "ok", service.summary)


def _remains() -> Check:
    problems = sweep()
    if problems:
        return Check("lab", "remains", "limited", "; ".join(problems), "then run: venturi lab down")
    return Check("lab", "remains", "ok", "no remains of labs whose daemon was killed")


def _namespaces(engine: Callable[[], Path]) -> Check:
    try:
        with tempfile.TemporaryDirectory() as directory:
            namespaces = LabNamespaces.create(
                engine(), {"try": "try.lab.test"}, binds=[], tmpfs=["/run"], log=Path(directory) / "log"
            )
            user_namespace = namespaces.user_namespace
            namespaces.close()
    except (VenturiError, OSError) as error:
        advice = "become root, or enable user namespaces in the kernel (sysctl user.max_user_namespaces)"
        return Check("lab", "hosts", "missing", str(error), advice)
    if user_namespace:
        return Check("lab", "hosts", "limited", f"in a user namespace: {_LOST}", "become root for these features")
    return Check("lab", "hosts", "ok", "namespaces can be created, as root")


def _tun() -> Check:
    device = Path("/dev/net/tun")
    if os.access(device, os.R_OK | os.W_OK):
        return Check("lab", "links", "ok", f"{device} is usable")
    found = f"this user cannot open {device}" if device.exists() else f"there is no {device}"
    advice = f"as root: chmod 666 {device}" if device.exists() else "load the kernel module tun"
    return Check("lab", "links", "missing", found, f"{advice}; without it hosts have no network")


def _limits() -> Check:
    if unified_root() is not None:
        return Check("lab", "limits", "ok", f"cgroup controllers {', '.join(VERSION_2)} (version 2)")
    available = sorted(controllers())
    required = ["blkio", "cpu", "cpuacct", "memory"]
    if available == required:
        return Check("lab", "limits", "ok", f"cgroup controllers {', '.join(available)} (version 1)")
    missing = ", ".join(name for name in required if name not in available)
    advice = (
        "scenarios with cpu_limit, memory_limit or disk rates are rejected; become root on a machine that mounts cgroup version 2"
        " with the controllers cpu, io and memory, or version 1"
    )
    return Check("lab", "limits", "limited", f"unusable cgroup controllers: {missing}", advice)


def _disks() -> Check:
    if os.geteuid() == 0 and Path("/dev/loop-control").exists():
        words = ["losetup", "--find"]
        try:
            done = subprocess.run(
                words,
                capture_output=True,
                text=True,
                timeout=10,
                env=os.environ | {"PATH": search_path()},
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return Check("lab", "disks", "missing", str(error), _install("mount"))
        if done.returncode == 0:
            return Check("lab", "disks", "ok", f"loop devices, next {done.stdout.strip()}")
        return Check("lab", "disks", "missing", done.stderr.strip(), "free a loop device (losetup --list)")
    found = "no loop devices for this user"
    return Check("lab", "disks", "limited", found, 'become root for kind = "disk"; "directory" and "tmpfs" work')


def _install(packages: str) -> str:
    return f"Debian: apt-get install {packages}"
