"""Control groups of lab hosts: they count CPU time, disk I/O and pressure, and enforce the limits of a scenario.

:func:`make_groups` chooses version 1 or 2, depending on the available controllers. All processes of a host are in its
groups. The agent is excluded from the CPU limit, because a throttled agent would measure late. Its movers and CPU phases
are included.
"""

from __future__ import annotations

import os
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from venturi.errors import BackendError
from venturi.testbed.lab.registry import LabEntry

__all__ = [
    "CPU_PERIOD_US",
    "VERSION_2",
    "HostGroups",
    "HostLimits",
    "controllers",
    "disable_controllers",
    "make_groups",
    "make_idle_group",
    "pressure_root",
    "remove_group",
    "unified_root",
]

CPU_PERIOD_US = 20_000
"""Period of a CPU limit: a fifth of the kernel's default, so that a transfer of a second sees a slow machine instead of a
machine that stops and restarts."""

MIN_QUOTA_US = 1000
"""Smallest quota that the kernel accepts (Documentation/scheduler/sched-bwc.rst)."""

VERSION_2 = ("cpu", "io", "memory")
"""Controllers that a lab uses in version 2."""

_VERSION_1 = {"cpu", "cpuacct", "memory", "blkio"}

REMOVE_TIMEOUT_S = 5.0

_CPUIDLE_DRIVER = Path("/sys/devices/system/cpu/cpuidle/current_driver")

_MOUNTS = Path("/proc/self/mounts")

_PRESSURE = Path("/proc/pressure/io")
"""Exists if the kernel measures pressure of the machine and of groups."""

_POLL_S = 0.01


@dataclass(frozen=True, slots=True)
class HostLimits:
    """Limits of a host; ``None``: no limit. ``disks``: the host has throttled disks."""

    cpu_cores: float | None = None
    memory_bytes: int | None = None
    disks: bool = False

    def settings(self, host: str) -> Mapping[str, str]:
        """Return controller of version 1 → setting of the scenario that needs it."""
        where = f"testbed.host.{host}"
        found: dict[str, str] = {}
        if self.cpu_cores is not None:
            found |= {"cpuacct": f"{where}.cpu_limit", "cpu": f"{where}.cpu_limit"}
        if self.memory_bytes is not None:
            found["memory"] = f"{where}.memory_limit"
        if self.disks:
            found["blkio"] = f"a throttled disk of host {host}"
        return found


@dataclass(frozen=True, slots=True)
class HostGroups(ABC):
    """Groups of one host.

    Attributes
    ----------
    counters
        Controller → directory with its counters, for the agent.
    processes
        Directories that servers and probes join.
    agent
        Directories that the agent joins.
    work
        Directories that the movers and CPU phases of the agent join in addition.
    """

    counters: Mapping[str, Path] = field(default_factory=dict)
    processes: tuple[Path, ...] = ()
    agent: tuple[Path, ...] = ()
    work: tuple[Path, ...] = ()

    @abstractmethod
    def limit_disk(self, device: str, rates: Mapping[str, float], entry: LabEntry) -> None:
        """Limit a device (``7:0``) to rates in bytes per second, by direction ``read`` or ``write``."""

    @abstractmethod
    def cpu_used_s(self) -> float:
        """Return the CPU time of all processes."""

    @abstractmethod
    def memory_limit_bytes(self) -> int:
        """Return the memory limit as reported by the kernel."""

    @abstractmethod
    def memory_peak_bytes(self) -> int | None:
        """Return the peak memory use; ``None`` if the kernel does not report it."""


class GroupsOfVersion1(HostGroups):
    """Groups of version 1: one directory for each controller."""

    def limit_disk(self, device: str, rates: Mapping[str, float], entry: LabEntry) -> None:
        """See :meth:`HostGroups.limit_disk`.

        The root group gets the same limit. Version 1 does not charge the kernel's writeback of dirty pages to the process that
        wrote the pages. So without the root group, only direct writes would be slow.
        """
        root = controllers()["blkio"]
        entry.register("throttle", device=device, group=str(root))  # the group of the host disappears with the lab
        for direction, rate in rates.items():
            for group in (self.counters["blkio"], root):
                (group / THROTTLES[direction]).write_text(f"{device} {round(rate)}")

    def cpu_used_s(self) -> float:
        """See :meth:`HostGroups.cpu_used_s`."""
        return int((self.counters["cpuacct"] / "cpuacct.usage").read_text()) / 1e9

    def memory_limit_bytes(self) -> int:
        """See :meth:`HostGroups.memory_limit_bytes`."""
        return int((self.counters["memory"] / "memory.limit_in_bytes").read_text())

    def memory_peak_bytes(self) -> int | None:
        """See :meth:`HostGroups.memory_peak_bytes`."""
        return int((self.counters["memory"] / "memory.max_usage_in_bytes").read_text())


THROTTLES = {"read": "blkio.throttle.read_bps_device", "write": "blkio.throttle.write_bps_device"}
"""Direction → file of version 1 that limits a device."""


class GroupsOfVersion2(HostGroups):
    """Groups of version 2: one directory for all controllers.

    A CPU limit needs two groups of threads below the host's group, for the agent and for the other processes. Memory and disk
    limits apply above both, so that pages and disk accesses of the agent count for its host.
    """

    def limit_disk(self, device: str, rates: Mapping[str, float], entry: LabEntry) -> None:
        """See :meth:`HostGroups.limit_disk`. Version 2 charges writes of dirty pages to the host that wrote the pages."""
        words = {"read": "rbps", "write": "wbps"}
        limits = " ".join(f"{words[direction]}={round(rate)}" for direction, rate in rates.items())
        (self.counters["io"] / "io.max").write_text(f"{device} {limits}")

    def cpu_used_s(self) -> float:
        """See :meth:`HostGroups.cpu_used_s`."""
        lines = dict(line.split() for line in (self.counters["cpu"] / "cpu.stat").read_text().splitlines())
        return int(lines["usage_usec"]) / 1e6

    def memory_limit_bytes(self) -> int:
        """See :meth:`HostGroups.memory_limit_bytes`."""
        return int((self._above / "memory.max").read_text())

    def memory_peak_bytes(self) -> int | None:
        """See :meth:`HostGroups.memory_peak_bytes`."""
        peak = self._above / "memory.peak"  # Linux 5.19
        return int(peak.read_text()) if peak.exists() else None

    @property
    def _above(self) -> Path:
        return self.counters["memory"]


def controllers() -> dict[str, Path]:
    """Return controller of version 1 → directory where this user can create groups."""
    found = {}
    for directory, kind, options in _mounted():
        if kind == "cgroup" and os.access(directory, os.W_OK):
            for controller in set(options.split(",")) & _VERSION_1:
                found[controller] = directory
    return found


def pressure_root() -> Path | None:
    """Return the directory of version 2 where this user can create groups. It measures pressure without a controller."""
    for directory, kind, _ in _mounted():
        if kind == "cgroup2" and os.access(directory, os.W_OK):
            return directory
    return None


def unified_root() -> Path | None:
    """Return the directory of version 2 that has all controllers of :data:`VERSION_2`, or ``None``."""
    root = pressure_root()
    offered = (root / "cgroup.controllers").read_text().split() if root is not None else ()
    return root if set(VERSION_2) <= set(offered) else None


def make_groups(entry: LabEntry, limits: Mapping[str, HostLimits], *, root: bool) -> dict[str, HostGroups]:
    """Create the groups of all hosts: counters wherever possible, and the limits of the scenario.

    Parameters
    ----------
    entry
        Registry entry of the lab, which records all groups.
    limits
        Host → limits.
    root
        Whether this user is root. For other users, only hosts with limits have groups.

    Raises
    ------
    BackendError
        If this machine or this user cannot set a limit.
    """
    limited = any(host != HostLimits() for host in limits.values())
    if not root and not limited:
        return {name: GroupsOfVersion1() for name in limits}
    above = unified_root()
    if above is not None:
        lab = _make_lab_group(entry, above)
        return {name: _make_version_2(entry, lab / name, host) for name, host in limits.items()}
    return {name: _make_version_1(entry, name, host, root=root) for name, host in limits.items()}


def _make_version_1(entry: LabEntry, host: str, limits: HostLimits, *, root: bool) -> GroupsOfVersion1:
    mounted = controllers()
    required = dict(limits.settings(host))
    if root and "cpuacct" in mounted:
        required.setdefault("cpuacct", "")
    groups = {}
    for controller, setting in required.items():
        if controller not in mounted:
            raise BackendError(
                f"{setting}: expected a writable cgroup controller `{controller}` (version 1) or the controllers"
                f" {', '.join(VERSION_2)} (version 2), found none; become root on a machine that mounts them, or remove this limit"
            )
        groups[controller] = _make_directories(entry, mounted[controller], host)
    pressure = pressure_root() if root and _PRESSURE.exists() else None
    if pressure is not None:
        groups["pressure"] = _make_directories(entry, pressure, host)
    if limits.cpu_cores is not None:
        (groups["cpu"] / "cpu.cfs_period_us").write_text(str(CPU_PERIOD_US))
        (groups["cpu"] / "cpu.cfs_quota_us").write_text(str(_quota_us(limits.cpu_cores)))
    if limits.memory_bytes is not None:
        (groups["memory"] / "memory.limit_in_bytes").write_text(str(limits.memory_bytes))
    # Controllers can be mounted together: each directory once.
    every = tuple(dict.fromkeys(groups.values()))
    work = (groups["cpu"],) if "cpu" in groups else ()
    return GroupsOfVersion1(groups, every, tuple(group for group in every if group not in work), work)


def _make_directories(entry: LabEntry, mounted: Path, host: str) -> Path:
    above = mounted / f"venturi-{entry.id}"
    for directory in (above, above / host):
        _make(entry, directory)
    return above / host


def _make_lab_group(entry: LabEntry, root: Path) -> Path:
    lab = root / f"venturi-{entry.id}"
    enabled = (root / "cgroup.subtree_control").read_text().split()
    missing = [controller for controller in VERSION_2 if controller not in enabled]
    try:
        if missing:
            entry.register("controllers", path=str(root), controllers=" ".join(missing))
            _enable(root, missing)
        _make(entry, lab)
        _enable(lab, VERSION_2)
    except OSError as error:
        raise BackendError(
            f"{root}: cannot enable the cgroup controllers {', '.join(VERSION_2)}: {error.strerror}; become root outside of containers, or"
            " delegate a control group without processes"
        ) from error
    return lab


def _make_version_2(entry: LabEntry, group: Path, limits: HostLimits) -> GroupsOfVersion2:
    _make(entry, group)
    counters = dict.fromkeys(("cpu", "io", *(("pressure",) if _PRESSURE.exists() else ())), group)
    if limits.memory_bytes is not None:
        counters["memory"] = group
        (group / "memory.max").write_text(str(limits.memory_bytes))
    if limits.cpu_cores is None:
        return GroupsOfVersion2(counters, (group,), (group,))
    agent, work = group / "agent", group / "work"
    for directory in (agent, work):
        _make(entry, directory)
        (directory / "cgroup.type").write_text("threaded")
    _enable(group, ["cpu"])
    (work / "cpu.max").write_text(f"{_quota_us(limits.cpu_cores)} {CPU_PERIOD_US}")
    return GroupsOfVersion2({**counters, "cpu": work}, (work,), (agent,), (work,))


def _make(entry: LabEntry, directory: Path) -> None:
    if not directory.exists():
        entry.register("cgroup", path=str(directory))
        directory.mkdir()


def _enable(group: Path, required: Sequence[str]) -> None:
    (group / "cgroup.subtree_control").write_text(" ".join(f"+{controller}" for controller in required))


def disable_controllers(root: Path, unwanted: Sequence[str]) -> None:
    """Disable controllers that a lab has enabled, unless another group uses them."""
    with suppress(OSError):
        (root / "cgroup.subtree_control").write_text(" ".join(f"-{controller}" for controller in unwanted))


def _quota_us(cores: float) -> int:
    return max(round(cores * CPU_PERIOD_US), MIN_QUOTA_US)


def _mounted() -> Iterator[tuple[Path, str, str]]:
    for line in _MOUNTS.read_text().splitlines():
        _, directory, kind, options, *_ = line.split()
        yield Path(directory), kind, options


def make_idle_group(entry: LabEntry) -> Path | None:
    """Create the group of threads that run only on otherwise idle cores and yield immediately.

    In this group, the network emulator keeps cores from halting (``crates/emulator/src/driver/idle_pollers.rs``). Returns
    ``None`` if the kernel has an idle driver, which the emulator can hold back instead, or if the group is impossible
    (version 2, older kernels).
    """
    mounted = controllers().get("cpu")
    driver = _CPUIDLE_DRIVER.read_text().strip() if _CPUIDLE_DRIVER.exists() else "none"
    if mounted is None or driver != "none":
        return None
    # Not in the group of the lab: the scheduler would weigh that group first, like any other group.
    group = mounted / f"venturi-{entry.id}-idle"
    entry.register("cgroup", path=str(group))
    group.mkdir()
    idle = group / "cpu.idle"  # Linux 5.15
    if not idle.exists():
        return None
    idle.write_text("1")
    return group


def remove_group(group: Path, timeout_s: float = REMOVE_TIMEOUT_S) -> bool:
    """Remove a control group and kill its remaining processes; return whether it is gone."""
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
    # A group of threads (version 2) reports no processes; a signal to a thread terminates its process.
    for file in ("cgroup.procs", "cgroup.threads"):
        with suppress(OSError):
            yield from map(int, (group / file).read_text().split())
            return
