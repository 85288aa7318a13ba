"""Samples of one direction: its files, its warm-up, and one method per part."""

from __future__ import annotations

import dataclasses
import subprocess
from collections.abc import Callable, Mapping
from pathlib import PurePosixPath

from venturi.backend.shell_client import ShellLostError
from venturi.errors import BackendError, MeasureError
from venturi.measure.budget import MIN_FILE_BYTES, WEIGHTS, Budget, next_size_bytes
from venturi.measure.disk import LIMIT_S, read_disk, with_load, write_disk
from venturi.measure.engine import call_engine
from venturi.measure.hosts import MeasureHost, read_counters
from venturi.measure.result import Part, PartSample, Side, SmallFiles
from venturi.measure.transport import Transport
from venturi.units import format_bytes

__all__ = ["Direction"]

_SOURCE = "source.data"
_ONE_BYTE = "one.data"
_SMALL = "small"
_SMALL_FILES, _SMALL_BYTES, _SMALL_TIMEOUT_S = 50, 10_000, 8.0
"""Enough files for a mean. The timeout allows 160 ms per file; a slower copy is certainly limited by latency."""

_READ = "read.data"
"""File of read samples. The file of copies can be so small that it fits in the cache of the disk."""

_STARTUPS = 5
_MIN_DISK_BYTES = 32 << 20
_MAX_DISK_S = 4.0
"""Longest extension of a sample on a slow disk to a minimum number of bytes, because a sync ends with a fixed time."""

_WARM_UP_S = 0.4
_WARM_UP_TRIPS = 20
_ROUND_TRIPS = 100
_MAX_NETWORK_S = 8.0
"""Longest extension of a network sample to a minimum number of round trips, which TCP needs to reach its rate."""

_ONE_CONNECTION_FRACTION = 0.4
"""Fraction of the time of the network part for a single connection."""

_FREE_PARTS = 8
"""A file takes at most 1/8 of the free space or memory: two directions on one disk have up to five files."""

_FREE_PARTS_OF_MEMORY_FILES = 4
"""At most 1/4 of a file system in memory, which has up to three files and often half of the memory."""


class Direction:
    """One direction of data: from a source to a destination.

    Parameters
    ----------
    transport
        Transport from the source to the destination.
    connections
        Data connections of network and mover.
    budget
        Time and bytes.

    Attributes
    ----------
    source, destination
        The hosts.
    parts
        Parts of each round.
    startup_s
        Time of a copy of one byte; None before :meth:`prepare`.
    """

    def __init__(self, transport: Transport, connections: int, budget: Budget) -> None:
        self.transport = transport
        self.source = transport.source
        self.destination = transport.destination
        self.startup_s: float | None = None
        self.parts: tuple[Part, ...] = (
            *(("network",) if transport.has_network and connections else ()),
            "read",
            "write",
            "mover",
            "copy",
        )
        self._connections = connections
        self._budget = budget
        self._sizes: dict[bool, int] = {}
        self._limits: dict[bool, int] = {}
        self._rates: dict[Part, float] = {}
        self._copies = 0
        self._hosts: Mapping[Side, MeasureHost] = {"source": self.source, "destination": self.destination}
        self._rtt_s = float(transport.properties.get("connect_rtt_s") or 0.0)

    @property
    def label(self) -> str:
        """Names of source and destination."""
        return f"{self.source.name} to {self.destination.name}"

    def prepare(self, on_step: Callable[[str], None]) -> None:
        """Create the files, and run each part once for a short time: sizes follow from these rates.

        Raises
        ------
        MeasureError
            If a part cannot run at all.
        """
        base_s = self._budget.part_s()
        on_step(f"creating files on {self.source.name}")
        self._measure_limits()
        self._make(self.source.directory / _READ, self._limits[False], time_s=base_s / 2)
        for in_memory in (False, True):
            self._sizes[in_memory] = MIN_FILE_BYTES
            self._make(self._source(in_memory), MIN_FILE_BYTES)
        self._measure_startup(on_step)
        for part in self.parts:
            on_step(f"warm-up: {part}")
            if part == "copy":
                # The rate of the slowest part is an upper limit, so a file for it takes about the planned time or longer.
                self._rates[part] = min(self._rates.values(), default=0.0)
                self._resize(part, _WARM_UP_S)
            sample = self._sample(part, max(_WARM_UP_S, _WARM_UP_TRIPS * self._rtt_s))
            if sample.rate_bytes_per_s is not None:
                self._rates[part] = sample.rate_bytes_per_s
            if part in ("mover", "copy"):
                self._resize(part, self._time_s(part, base_s))

    def measure(self, part: Part, round: int) -> PartSample:
        """Return one sample; a failed one has an error.

        Raises
        ------
        ShellLostError
            If the connection to a host ended.
        """
        started_s = self._budget.elapsed_s
        part_s = self._time_s(part, self._budget.part_s())
        try:
            if part in ("mover", "copy"):
                self._resize(part, part_s)
            sample = self._sample(part, part_s)
        except ShellLostError:
            raise
        except (MeasureError, BackendError, OSError) as error:
            sample = PartSample(part, round, started_s, error=str(error))
        if sample.rate_bytes_per_s is not None:
            self._rates[part] = sample.rate_bytes_per_s
        elif part in ("mover", "copy"):
            self._rates.pop(part, None)
        self._budget.add(sample.duration_s, self._budget.elapsed_s - started_s)
        return dataclasses.replace(sample, round=round, start_s=started_s)

    def small_files(self) -> SmallFiles:
        """Copy a directory of small files from disk to disk, once.

        Raises
        ------
        ShellLostError
            If the connection to a host ended.
        """
        directory = self.source.directory / _SMALL
        script = f'mkdir -p "$1"; i=0; while [ $i -lt {_SMALL_FILES} ]; do head -c {_SMALL_BYTES} /dev/urandom > "$1/$i" || exit 1; i=$((i+1)); done'
        name = self._new_name()
        try:
            done = self.source.shell.run(["sh", "-c", script, "sh", str(directory)], timeout_s=LIMIT_S)
            if done.returncode != 0:
                raise MeasureError(
                    f"{self.source.name}: {directory}: cannot create small files: {done.stderr.strip()[-200:]}"
                )
            times = self.transport.copy(_SMALL, name, in_memory=False, timeout_s=_SMALL_TIMEOUT_S)
        except ShellLostError:
            raise
        except (MeasureError, BackendError, OSError, subprocess.TimeoutExpired) as error:
            return SmallFiles(_SMALL_FILES, _SMALL_BYTES, None, str(error))
        finally:
            self._remove(name, False)
        duration_s = max(times.duration_s - (self.startup_s or 0.0), times.duration_s / 5)
        return SmallFiles(_SMALL_FILES, _SMALL_BYTES, duration_s)

    def _time_s(self, part: Part, base_s: float) -> float:
        """Return the time of a part: by its weight, or the time that TCP or a slow disk needs."""
        if part in ("read", "write"):
            rate = self._rates.get(part)
            needed_s = min(_MIN_DISK_BYTES / rate, _MAX_DISK_S) if rate else 0.0
        else:
            needed_s = min(_ROUND_TRIPS * self._rtt_s, _MAX_NETWORK_S)
        return max(base_s * WEIGHTS[part], needed_s)

    def _sample(self, part: Part, time_s: float) -> PartSample:
        match part:
            case "network":
                return self._network(time_s)
            case "read":
                return read_disk(self.source, self.source.directory / _READ, time_s, self._budget.sample_bytes)
            case "write":
                return write_disk(self.destination, time_s, self._budget.sample_bytes)
            case "mover":
                return self._copy("mover", in_memory=True)
            case "copy":
                return self._copy("copy", in_memory=False)

    def _network(self, time_s: float) -> PartSample:
        limit = self._budget.sample_bytes
        one_s = time_s * _ONE_CONNECTION_FRACTION
        one = self.transport.network(1, one_s, limit // 4)
        many_s = time_s - one_s
        load, result = with_load(
            self._hosts, lambda: self.transport.network(self._connections, many_s, limit - limit // 4)
        )
        return PartSample(
            "network",
            0,
            0.0,
            int(result["bytes"]),
            float(result["duration_s"]),
            one_connection_bytes_per_s=float(one["rate_bytes_per_s"]),
            load=load,
            detail=result,
        )

    def _copy(self, part: Part, *, in_memory: bool) -> PartSample:
        if not in_memory:
            call_engine(self.source.shell, ["disk", "evict", self._source(False)], timeout_s=LIMIT_S)
        name = self._new_name()
        expected_s = self._sizes[in_memory] / self._rates[part] if part in self._rates else 0.0
        try:
            load, times = with_load(
                self._hosts,
                lambda: self.transport.copy(_SOURCE, name, in_memory=in_memory, timeout_s=10 * expected_s + LIMIT_S),
            )
        finally:
            self._remove(name, in_memory)
        # A copy of one byte consists almost only of start-up. The lower limit applies if this copy started faster.
        duration_s = max(times.duration_s - (self.startup_s or 0.0), times.duration_s / 5)
        return PartSample(part, 0, 0.0, times.bytes, duration_s, load=load, detail=times.detail)

    def _measure_limits(self) -> None:
        """Set the largest sizes of the files: by bytes, free space and free memory."""
        self._limits = {False: self._budget.sample_bytes, True: self._budget.sample_bytes}
        for side, counters in read_counters(self._hosts).items():
            host = self._hosts[side]
            disk_bytes = int(counters["disks"][str(host.directory)]["free_bytes"])
            self._limit_size(False, disk_bytes, _FREE_PARTS, f"{host.name}: {host.directory.parent}")
            memory_bytes = counters.get("memory_available_bytes")
            if memory_bytes is not None:
                self._limit_size(True, int(memory_bytes), _FREE_PARTS, f"{host.name}: memory")
            free_bytes = host.shell.stat(host.memory).free_bytes
            if free_bytes is not None:
                self._limit_size(True, free_bytes, _FREE_PARTS_OF_MEMORY_FILES, f"{host.name}: {host.memory.parent}")

    def _limit_size(self, in_memory: bool, free_bytes: int, parts: int, where: str) -> None:
        if free_bytes // parts < MIN_FILE_BYTES:
            raise MeasureError(
                f"{where}: expected at least {format_bytes(parts * MIN_FILE_BYTES)} of free space, found {format_bytes(free_bytes)}."
                " Free space there, or use another directory or host."
            )
        self._limits[in_memory] = min(self._limits[in_memory], free_bytes // parts)

    def _source(self, in_memory: bool) -> PurePosixPath:
        """Return the file that copies read."""
        return (self.source.memory if in_memory else self.source.directory) / _SOURCE

    def _make(
        self, file: PurePosixPath, size_bytes: int, *, time_s: float | None = None, resize: bool = False
    ) -> None:
        argv: list[object] = ["disk", "make", file, "--bytes", size_bytes]
        argv += ["--resize"] if resize else []
        argv += ["--time-s", f"{time_s:.3f}"] if time_s is not None else []
        call_engine(self.source.shell, argv, timeout_s=20 * LIMIT_S)

    def _resize(self, part: Part, part_s: float) -> None:
        """Change the size of the file, so that its copy takes about ``part_s``."""
        in_memory = part == "mover"
        before = self._sizes[in_memory]
        size = next_size_bytes(before, self._rates.get(part), part_s, self._limits[in_memory])
        if size != before:
            self._make(self._source(in_memory), size, resize=True)
            self._sizes[in_memory] = size

    def _measure_startup(self, on_step: Callable[[str], None]) -> None:
        on_step("starting the mover")
        self.source.shell.put(self.source.memory / _ONE_BYTE, b"1")
        times = []
        for _ in range(_STARTUPS):
            name = self._new_name()
            try:
                done = self.transport.copy(_ONE_BYTE, name, in_memory=True, timeout_s=LIMIT_S)
            finally:
                self._remove(name, True)
            times.append(done.duration_s)
        # Use the smallest time, because longer times contain waits that other copies do not have.
        self.startup_s = min(times)

    def _new_name(self) -> str:
        self._copies += 1
        return f"copy-{self._copies}"

    def _remove(self, name: str, in_memory: bool) -> None:
        directory = self.destination.memory if in_memory else self.destination.directory
        self.destination.shell.remove(directory / name)
