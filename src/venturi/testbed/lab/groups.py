"""Control groups of a lab's hosts (version 1): their CPU time counted, and what was asked for limited.

Version 2 is left out: where only that one is mounted, limits are refused with a sentence, and the rest works.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from venturi.errors import BackendError
from venturi.testbed.lab.registry import Entry

__all__ = [
    "CPU_PERIOD_US",
    "controllers",
    "join_paths",
    "limit_cpu",
    "limit_memory",
    "make_group",
    "make_idle_group",
    "remove_group",
]

CPU_PERIOD_US = 20_000
"""Over which a CPU limit holds: a fifth of the kernel's default, so that transfers of a second see a slow machine and not a
machine that stops and goes."""

REMOVE_TIMEOUT_S = 5.0

_CPUIDLE_DRIVER = Path("/sys/devices/system/cpu/cpuidle/current_driver")

_POLL_S = 0.01


def controllers() -> dict[str, Path]:
    """Return controller → the folder where its groups are, of version 1, that this user may add to."""
    found = {}
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, folder, kind, options, *_ = line.split()
        if kind == "cgroup" and os.access(folder, os.W_OK):
            for controller in set(options.split(",")) & {"cpu", "cpuacct", "memory", "blkio"}:
                found[controller] = Path(folder)
    return found


def make_group(entry: Entry, controller: str, host: str, wanted_for: str) -> Path:
    """Make the group of a host, after writing it down.

    Raises
    ------
    BackendError
        If the machine has no such controller, or this user may not use it.
    """
    mounted = controllers().get(controller)
    if mounted is None:
        raise BackendError(
            f"{wanted_for}: expected the cgroup controller `{controller}` (version 1) that this user may write to, found none;"
            " become root on a machine that mounts it, or leave this limit out"
        )
    above = mounted / f"venturi-{entry.id}"
    group = above / host
    for folder in (above, group):
        if not folder.exists():
            entry.will_make("cgroup", path=str(folder))
            folder.mkdir()
    return group


def make_idle_group(entry: Entry) -> Path | None:
    """Make the group of those that run only where nothing else does and give way at once, after writing it down.

    The wire keeps processors from halting in it (``crates/wire/src/driver/awake.rs``). ``None`` where that is done otherwise, by an
    idle driver of the kernel that can be held back, or cannot be done.
    """
    mounted = controllers().get("cpu")
    driver = _CPUIDLE_DRIVER.read_text().strip() if _CPUIDLE_DRIVER.exists() else "none"
    if mounted is None or driver != "none":
        return None
    # Not within the group of the lab: the scheduler would weigh that one first, and it is like any other.
    group = mounted / f"venturi-{entry.id}-idle"
    entry.will_make("cgroup", path=str(group))
    group.mkdir()
    idle = group / "cpu.idle"  # Linux 5.15
    if not idle.exists():
        return None
    idle.write_text("1")
    return group


def limit_cpu(group: Path, cores: float) -> None:
    """Let the processes of a group use so many cores together."""
    (group / "cpu.cfs_period_us").write_text(str(CPU_PERIOD_US))
    (group / "cpu.cfs_quota_us").write_text(str(max(round(cores * CPU_PERIOD_US), 1000)))


def limit_memory(group: Path, size_bytes: int) -> None:
    """Let the processes of a group hold so much memory together, page cache included."""
    (group / "memory.limit_in_bytes").write_text(str(size_bytes))


def join_paths(groups: dict[str, Path]) -> tuple[Path, ...]:
    """Return the groups to join, each once: controllers may be mounted together."""
    return tuple(dict.fromkeys(groups.values()))


def remove_group(group: Path, timeout_s: float = REMOVE_TIMEOUT_S) -> bool:
    """Remove a group of ours, ending what is still in it; return whether it is gone."""
    deadline_s = time.monotonic() + timeout_s
    while group.exists():
        with suppress(OSError):
            group.rmdir()
            return True
        if time.monotonic() > deadline_s:
            return False
        for pid in _members(group):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_POLL_S)
    return True


def _members(group: Path) -> Iterator[int]:
    with suppress(OSError):
        yield from map(int, (group / "cgroup.procs").read_text().split())
