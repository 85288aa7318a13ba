"""Weights from 0 to 1 of the CPU and the disk of a host as the limit in a trial."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from venturi.advice.observe import Observation
from venturi.advice.verdict import Cause
from venturi.units import format_rate

BoolArray = npt.NDArray[np.bool_]

__all__ = ["CpuPressure", "DiskPressure", "cpu_pressure", "disk_pressure", "percent", "step", "waits_for_writes"]

QUOTA_USE = 0.85
"""Used fraction of a CPU quota that is the limit with a probability of 50 %."""

THREAD_USE = 0.85
"""Like :data:`QUOTA_USE`, for one thread on one core."""

HOST_USE = 0.95
"""Like :data:`QUOTA_USE`, for all cores of a host."""

OWN_CPU = 0.3
"""Fraction of the busy time of all cores below which other programs use them."""

OTHER_WEIGHT = 0.4
"""Weight of cores that other programs fill, because the waiting time of the transfers is unknown."""

WAIT_FOR_CPU = 0.1
"""Fraction of the time that processes wait for a core, below which the machine has free CPU."""

READ_FRACTION = 0.3
"""Fraction of the bytes from disk below which the disk did not limit the reader. The rest came from memory."""

DISK_USE = 0.85
"""Used fraction of the declared rate of a storage that is the limit with a probability of 50 %."""

ACTIVE_RATE = 0.02
"""Fraction of the mean rate above which a sampling interval counts as reading or writing."""


@dataclass(frozen=True, slots=True)
class CpuPressure:
    """Pressure of the CPU of one host.

    Attributes
    ----------
    score
        Weight of this CPU as the limit, 0 to 1.
    resource
        Name of the resource.
    text
        Evidence as text. It can be empty.
    machine
        Weight of a machine without free CPU.
    server
        True if the limit is one thread of a server.
    missing
        Counters that the run does not have.
    waiting
        Evidence of a machine without free CPU.
    """

    score: float
    resource: str
    text: str
    machine: float = 0.0
    server: bool = False
    missing: tuple[str, ...] = ()
    waiting: str = ""

    def cause(self, side: Cause) -> Cause:
        """Return one process of a server as the cause, or the cause of the side."""
        return "server-cpu" if self.server else side


@dataclass(frozen=True, slots=True)
class DiskPressure:
    """Pressure of the disk behind one storage, in one direction."""

    score: float
    resource: str
    text: str
    missing: tuple[str, ...] = ()


def step(value: float, threshold: float, width: float) -> float:
    """Return a smooth step from 0 to 1 at a threshold.

    Examples
    --------
    >>> step(0.5, 0.5, 0.1)
    0.5
    """
    return 1 / (1 + math.exp(max(-50.0, min(50.0, (threshold - value) / width))))


def percent(ratio: float) -> str:
    """Return a ratio from 0 to 1 as text: ``94 %``."""
    return f"{100 * min(max(ratio, 0.0), 1.0):.0f} %"


def cpu_pressure(one: Observation, host: str | None) -> CpuPressure:
    """Return the CPU pressure of a host in a trial."""
    if host is None:
        return CpuPressure(0.0, "", "")
    missing: list[str] = []
    quota = _quota(one, host)
    if quota is not None:
        return quota
    candidates: list[tuple[float, float, str, bool]] = []
    threads = [("process.mover", " and ".join(one.movers) or "the mover", False)] if host == one.client else []
    threads += [
        (f"process.server.{name}", f"the service {name}", True) for name, at in one.services.items() if at == host
    ]
    waits = 0.0
    for prefix, name, server in threads:
        busiest = one.ratio(host, f"{prefix}.busiest_thread_s")
        if busiest is None:
            continue
        waits = max(waits, (one.ratio(host, f"{prefix}.run_wait_s") or 0.0) / max(1, one.concurrency))
        candidates.append((step(busiest, THREAD_USE, 0.04), busiest, name, server))
    if threads and not candidates:
        missing.append(f"CPU time of the processes of {host}")
    machine = _machine(one, host)
    waiting = min(1.0, waits) if waits >= WAIT_FOR_CPU else 0.0
    if candidates:
        score, busiest, name, server = max(candidates)
        text = f"busiest thread of {name} on {host}: {percent(busiest)} of a core"
        if machine is not None and not one.lab(host) and machine >= HOST_USE - 0.05:
            return _full_host(one, host, machine, tuple(missing))
        in_lab = bool(one.lab(host))
        note = f"processes of {host} waited for a core for {percent(waits)} of the time"
        return CpuPressure(
            score,
            f"one thread of {name} on {host}",
            text,
            waiting if in_lab else 0.0,
            server,
            waiting=note if in_lab and waiting > 0 else "",
        )
    if machine is not None and not one.lab(host):
        return _full_host(one, host, machine, tuple(missing))
    return CpuPressure(0.0, f"the CPU of {host}", "", missing=tuple(missing))


def _full_host(one: Observation, host: str, machine: float, missing: tuple[str, ...]) -> CpuPressure:
    """Return the pressure of all cores of an existing host."""
    text = f"cores of {host}: {percent(machine)} busy"
    score = step(machine, HOST_USE, 0.02)
    seconds = [
        one.growth(host, f"process.server.{name}.{kind}_s")
        for name, at in one.services.items()
        if at == host
        for kind in ("user", "system")
    ]
    own_s = sum(value or 0.0 for value in seconds) + ((one.cpu_s or 0.0) if host == one.client else 0.0)
    busy_s = sum(one.growth(host, f"cpu.{name}_s") or 0.0 for name in ("user", "system"))
    if busy_s <= 0 or own_s >= OWN_CPU * busy_s or (one.cpu_s is None and not one.services):
        return CpuPressure(score, f"all cores of {host}", text, missing=missing)
    # Busy cores only slow down a program that needs them.
    text += f", {percent(own_s / busy_s)} of it by the transfers"
    return CpuPressure(OTHER_WEIGHT * score, f"other programs on {host}", text, missing=missing)


def _quota(one: Observation, host: str) -> CpuPressure | None:
    """Return the pressure of a CPU quota, or None for a host without a quota."""
    cores = one.lab(host).get("cpu_limit_cores")
    periods, throttled = (
        one.growth(host, f"cgroup.cpu_throttle.{name}") for name in ("periods", "throttled_periods")
    )
    if not cores and not throttled:
        return None
    used = [one.ratio(host, f"cgroup.cpu.{name}_s") for name in ("user", "system")]
    texts, score = [], 0.0
    if cores and all(value is not None for value in used):
        use = sum(value or 0.0 for value in used) / float(cores)
        score = step(use, QUOTA_USE, 0.05)
        texts.append(f"CPU quota of {host}: {percent(use)} of {float(cores):g} cores used")
    if periods is not None and throttled is not None and periods > 0:
        ratio = throttled / periods
        # A quota also stops a process that sends in bursts if another resource limits the mean rate.
        score = max(step(ratio, 0.5, 0.08), score if ratio > 0.1 else 0.0)
        texts.append(f"the quota stopped {host} in {percent(ratio)} of the periods")
    elif not texts:
        return CpuPressure(0.0, f"the CPU of {host}", "", missing=(f"use of the CPU quota of {host}",))
    return CpuPressure(score, f"the CPU quota of {host}", "; ".join(texts))


def _machine(one: Observation, host: str) -> float | None:
    """Return the busy fraction of all cores of the machine of a host."""
    busy = [one.growth(host, f"cpu.{name}_s") for name in ("user", "system", "steal")]
    free = [one.growth(host, f"cpu.{name}_s") for name in ("idle", "iowait")]
    if any(value is None for value in (*busy, *free)):
        return None
    total = sum(value or 0.0 for value in (*busy, *free))
    return sum(value or 0.0 for value in busy) / total if total > 0 else None


def disk_pressure(
    one: Observation, host: str | None, storage: str | None, direction: Literal["read", "write"]
) -> DiskPressure:
    """Return the pressure of the disk behind a storage in one direction.

    The score is the larger of two numbers. The first is the fraction of the time that processes of the host waited for
    a disk (PSI). The second is a step of the used fraction of the declared rate. If one host reads and writes, each
    interval counts for the active disk.
    """
    name = f"the disk of storage {storage} on {host}" if storage else f"the disk of {host}"
    if host is None or storage is None:
        return DiskPressure(0.0, name, "")
    moved, active = _activity(one, host, storage, direction)
    if direction == "read" and moved is not None and moved < READ_FRACTION * one.bytes:
        return DiskPressure(
            0.0, name, f"{name} read {percent(moved / one.bytes)} of the bytes; the rest was in memory"
        )
    waited, source = _waited(one, host)
    texts = []
    score = 0.0
    if waited is not None:
        score = min(1.0, waited) * active
        texts.append(f"processes of {host} waited for a disk for {percent(waited)} of the time ({source})")
    elif direction == "read" and moved is not None:
        score = 0.6
    if moved is not None:
        word = "read" if direction == "read" else "wrote"
        text = f"{name} {word} {format_rate(moved / one.duration_s)}"
        declared = one.spec(storage).get(f"{direction}_bytes_per_s")
        # The kernel writes in the background, so the write rate only limits a program that waits for its writes.
        if declared and (direction == "read" or waits_for_writes(one)):
            use = moved / one.data_s / float(declared)
            score = max(score, step(use, DISK_USE, 0.04))
            text += f", {percent(use)} of its rate"
        texts.append(text)
    missing = (f"disk wait of {host} (pressure)",) if waited is None else ()
    return DiskPressure(score, name, "; ".join(texts), missing)


def waits_for_writes(one: Observation) -> bool:
    """Return whether the mover waits until its data are on the disk."""
    return bool(one.options.get("fsync") or one.options.get("direct"))


def _waited(one: Observation, host: str) -> tuple[float | None, str]:
    """Return the fraction of the time that processes of a host waited for a disk, and its source."""
    lab = bool(one.lab(host))
    counter = "cgroup.pressure.io.some_s" if lab else "pressure.io.some_s"
    if (value := one.ratio(host, counter)) is not None:
        return value, "PSI"
    names = ["process.mover", *(f"process.server.{name}" for name, at in one.services.items() if at == host)]
    found = [value for name in names if (value := one.ratio(host, f"{name}.blocked_s")) is not None]
    return (min(1.0, max(found)), "process state") if found else (None, "")


def _activity(
    one: Observation, host: str, storage: str, direction: Literal["read", "write"]
) -> tuple[float | None, float]:
    """Return the bytes of the disk in the trial, and the fraction of the waiting time for this direction."""
    moved = _disk_bytes(one, host, storage, direction)
    if one.source != one.destination or one.source_storage is None or one.destination_storage is None:
        return moved, 1.0
    # One host reads and writes: intervals with reads of the source disk belong to that disk.
    intervals = [
        _active_intervals(one, host, name, kind)
        for name, kind in ((one.source_storage, "read"), (one.destination_storage, "write"))
    ]
    if intervals[0] is None or intervals[1] is None:
        return moved, 0.5
    length = min(len(intervals[0]), len(intervals[1]))
    reads, writes = intervals[0][:length], intervals[1][:length]
    reading, writing = float((reads & ~writes).sum()), float((writes & ~reads).sum())
    both = float((reads & writes).sum())
    total = reading + writing + both
    if total == 0:
        return moved, 0.5
    return moved, ((reading if direction == "read" else writing) + both / 2) / total


def _disk_bytes(one: Observation, host: str, storage: str, direction: str) -> float | None:
    mount = one.growth(host, f"mount.{storage}.{direction}_bytes")
    if mount is not None:
        return mount
    device = one.device(host, storage)
    return None if device is None else one.growth(host, f"disk.{device}.{direction}_bytes")


def _active_intervals(one: Observation, host: str, storage: str, direction: str) -> BoolArray | None:
    device = one.device(host, storage)
    series = one.counters.get((host, f"disk.{device}.{direction}_bytes"))
    if series is None:
        return None
    _, grown = series.steps(one.start_s, one.end_s)
    if len(grown) == 0:
        return None
    return grown > ACTIVE_RATE * max(float(grown.mean()), 1.0)
