"""Samples of one direction with an existing server at one end or both, which is used only through its protocol.

Reading at a server discards the bytes, and writing there sends bytes from memory. Both contain the network and the disk
of the server, which cannot be separated. Each connection transfers a separate file.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePosixPath

from venturi.backend.shell_client import ShellLostError
from venturi.errors import BackendError, MeasureError
from venturi.measure.budget import MIN_FILE_BYTES, WEIGHTS, Budget, next_size_bytes
from venturi.measure.disk import LIMIT_S, read_disk, with_load, write_disk
from venturi.measure.engine import call_engine
from venturi.measure.evaluate import PathDescription
from venturi.measure.hosts import MeasureHost, read_counters
from venturi.measure.result import Part, PartSample, Side, SmallFiles
from venturi.measure.server_files import ServerEnd, ServerError, ServerFiles, direct_family
from venturi.units import format_bytes, format_duration

__all__ = ["MAX_FAILURES", "URL_PARTS", "StoppedError", "UrlDirection"]

URL_PARTS: tuple[Part, ...] = ("read", "write", "copy")

MAX_FAILURES = 5
"""Number of consecutive failed samples that ends the measurement, because a failing server should get no more load."""

_READ = "read.data"
_STARTUPS = 3
_WARM_UP_S = 0.4
_SLOWEST_BYTES_PER_S = 1e4
"""Rate for the limit of transfers without a known rate."""

_FREE_PARTS = 8
"""Files of the measurement take at most 1/8 of the free space of a host."""

_DISK_FILE_PARTS = 2
"""The file of the disk part and the copied files share that space."""


class StoppedError(MeasureError):
    """Server that must not get more load."""


class UrlDirection:
    """One direction of data, with an existing server at one end or both.

    Parameters
    ----------
    client
        Host that uses the servers.
    files
        Operations on the servers from this host.
    source, destination
        Ends of the path.
    connections
        Files that are transferred at the same time.
    budget
        Time and bytes.
    max_rate_bytes_per_s
        Limit of the rate; None: no limit.

    Attributes
    ----------
    parts
        Parts of each round.
    startup_s
        Time of a copy of one byte; None before :meth:`prepare`, and if the source is a file of the user.
    """

    parts = URL_PARTS

    def __init__(
        self,
        client: MeasureHost,
        files: ServerFiles,
        source: MeasureHost | ServerEnd,
        destination: MeasureHost | ServerEnd,
        *,
        connections: int,
        budget: Budget,
        max_rate_bytes_per_s: int | None,
    ) -> None:
        self.source = source
        self.destination = destination
        self._client = client
        self._files = files
        self._connections = connections
        self._budget = budget
        self._max_rate_bytes_per_s = max_rate_bytes_per_s
        self._limit_bytes = budget.sample_bytes
        self._sources: list[str] = []
        self._size_bytes = 0
        self._write_bytes = MIN_FILE_BYTES
        self._rates: dict[Part, float] = {}
        self._startups: dict[Part, float] = {}
        self._names = 0
        self._failures = 0
        self._is_direct = False
        self._notes: list[str] = []

    @property
    def label(self) -> str:
        """Names of source and destination."""
        return f"{self.source.name} to {self.destination.name}"

    @property
    def startup_s(self) -> float | None:
        """Return the time of a copy of one byte."""
        return self._startups.get("copy")

    @property
    def properties(self) -> Mapping[str, object]:
        """Return the properties of the path for the saved result."""
        ends = [end for end in (self.source, self.destination) if isinstance(end, ServerEnd)]
        rtts = [end.rtt_s for end in ends if end.rtt_s is not None]
        return {
            "client": self._client.name,
            "servers": [end.url for end in ends],
            "connect_rtt_s": sum(rtts) if rtts else None,
            "copied": "between the servers" if self._is_direct else f"through {self._client.name}",
            **({} if self._max_rate_bytes_per_s is None else {"max_rate_bytes_per_s": self._max_rate_bytes_per_s}),
        }

    def describe(self) -> PathDescription:
        """Return the properties of the path for its evaluation."""
        ends: dict[Side, MeasureHost | ServerEnd] = {"source": self.source, "destination": self.destination}
        servers = tuple(side for side, end in ends.items() if isinstance(end, ServerEnd))
        notes = [*self._notes]
        if "source" in servers:
            notes.append(f"It is unknown whether reads at {self.source.name} come from its disk or its memory.")
        if "destination" in servers:
            notes.append(
                f"A write at {self.destination.name} ends with its reply. It is unknown whether the server syncs the data."
            )
        if len(servers) == 2:
            how = "directly between the servers" if self._is_direct else f"through {self._client.name}"
            notes.append(f"The data flows {how}.")
        if self.startup_s is None:
            notes.append("The rates include the start of each transfer, because the source is an existing file.")
        return PathDescription(
            _location(self.source),
            _location(self.destination),
            self.source.name,
            self.destination.name,
            connections=self._connections,
            notes=tuple(notes),
            max_rate_bytes_per_s=self._max_rate_bytes_per_s,
            servers=servers,
            client_host=self._client.name,
            unmeasured={"network": self._network_reason(), "mover": "included in reading and writing at the server"},
        )

    def _network_reason(self) -> str:
        found = [
            f"{end.name}: {f'RTT {format_duration(end.rtt_s)}' if end.rtt_s is not None else 'RTT unknown'}"
            for end in (self.source, self.destination)
            if isinstance(end, ServerEnd)
        ]
        return f"{'; '.join(found)}; measuring its rate requires a login there"

    def prepare(self, on_step: Callable[[str], None]) -> None:
        """Create the files, and run each part once for a short time: sizes follow from these rates.

        Raises
        ------
        MeasureError
            If a part cannot run at all.
        """
        base_s = self._budget.part_s()
        on_step(f"creating files on {self.source.name}")
        self._measure_limit()
        if isinstance(self.source, MeasureHost):
            self._make(self.source, _READ, self._limit_bytes // _DISK_FILE_PARTS, time_s=base_s / 2)
        self._measure_startups(on_step)
        if isinstance(self.source, ServerEnd) and self.source.prefix is None:
            self._use_existing(self.source)
        else:
            self._create_sources(MIN_FILE_BYTES)
        for part in self.parts:
            on_step(f"warm-up: {part}")
            sample = self._sample(part, _WARM_UP_S)
            if sample.rate_bytes_per_s is not None:
                self._rates[part] = sample.rate_bytes_per_s
            self._resize(part, base_s * WEIGHTS[part])

    def measure(self, part: Part, round: int) -> PartSample:
        """Return one sample; a failed one has an error.

        Raises
        ------
        ShellLostError
            If the connection to the host ended.
        StoppedError
            If a server has too much load, or fails repeatedly.
        """
        started_s = self._budget.elapsed_s
        part_s = self._budget.part_s() * WEIGHTS[part]
        try:
            self._resize(part, part_s)
            sample = self._sample(part, part_s)
            self._failures = 0
        except ShellLostError:
            raise
        except (MeasureError, BackendError, OSError) as error:
            self._failures += 1
            if isinstance(error, ServerError) and error.kind == "throttled":
                raise StoppedError(f"{error}. The server has too much load: try again later.") from error
            if self._failures >= MAX_FAILURES:
                raise StoppedError(f"{MAX_FAILURES} samples in a row failed, the last one with: {error}") from error
            sample = PartSample(part, round, started_s, error=str(error))
        if sample.rate_bytes_per_s is not None:
            self._rates[part] = sample.rate_bytes_per_s
        self._budget.add(sample.duration_s, self._budget.elapsed_s - started_s)
        return dataclasses.replace(sample, round=round, start_s=started_s)

    def small_files(self) -> SmallFiles | None:
        """Return None, because many small files would load a server unnecessarily."""
        return None

    def _sample(self, part: Part, time_s: float) -> PartSample:
        source, destination = self.source, self.destination
        if part == "read" and isinstance(source, MeasureHost):
            return read_disk(source, source.directory / _READ, time_s, self._budget.sample_bytes)
        if part == "write" and isinstance(destination, MeasureHost):
            return write_disk(destination, time_s, self._budget.sample_bytes)
        if part == "copy" and isinstance(source, MeasureHost):
            for name in self._sources:
                call_engine(source.shell, ["disk", "evict", name.removeprefix("file://")], timeout_s=LIMIT_S)
        size = self._file_bytes(part)
        load, duration_s = with_load(
            {self._client_side: self._client}, lambda: self._transfer(part, self._sources, size)
        )
        startup_s = self._startups.get(part, 0.0)
        # A transfer of one byte consists almost only of start-up. The lower limit applies if this transfer started faster.
        return PartSample(
            part, 0, 0.0, size * self._connections, max(duration_s - startup_s, duration_s / 5), load=load
        )

    def _transfer(self, part: Part, sources: Sequence[str], size_bytes: int) -> float:
        """Transfer one file per connection, remove the new files, and return the time."""
        new = [self._new_url(self.destination) for _ in range(self._connections)] if part != "read" else []
        timeout_s = LIMIT_S + 10 * size_bytes * self._connections / self._rates.get(part, _SLOWEST_BYTES_PER_S)
        try:
            if part == "copy" and self._is_direct:
                pairs = list(zip(sources, new, strict=True))
                return self._files.copy_directly(pairs, size_bytes, timeout_s=timeout_s)
            none = [None] * self._connections
            pairs_or_none = zip(none if part == "write" else sources, new or none, strict=True)
            return self._files.transfer(list(pairs_or_none), size_bytes, timeout_s=timeout_s)
        finally:
            self._remove(self.destination, new)

    @property
    def _client_side(self) -> Side:
        if isinstance(self.source, MeasureHost):
            return "source"
        return "destination" if isinstance(self.destination, MeasureHost) else "client"

    def _file_bytes(self, part: Part) -> int:
        total = self._write_bytes if part == "write" else self._size_bytes
        return max(total // self._connections, 1)

    def _resize(self, part: Part, part_s: float) -> None:
        """Change the size of the files, so that the part takes about ``part_s``."""
        rate = self._rates.get(part)
        if part == "write":
            self._write_bytes = next_size_bytes(self._write_bytes, rate, part_s, self._limit_bytes)
        elif part == "copy" and not (isinstance(self.source, ServerEnd) and self.source.prefix is None):
            size = next_size_bytes(self._size_bytes, rate, part_s, self._limit_bytes)
            if size != self._size_bytes:
                self._create_sources(size)

    def _measure_limit(self) -> None:
        """Set the largest size of the files: by bytes, and free space of the host."""
        for host in (self.source, self.destination):
            if not isinstance(host, MeasureHost):
                continue
            (counters,) = read_counters({"host": host}).values()
            free_bytes = int(counters["disks"][str(host.directory)]["free_bytes"])
            if free_bytes // _FREE_PARTS < MIN_FILE_BYTES:
                raise MeasureError(
                    f"{host.name}: {host.directory.parent}: expected at least {format_bytes(_FREE_PARTS * MIN_FILE_BYTES)} of free"
                    f" space, found {format_bytes(free_bytes)}. Free space there, or use another directory or host."
                )
            self._limit_bytes = min(self._limit_bytes, free_bytes // _FREE_PARTS)

    def _use_existing(self, source: ServerEnd) -> None:
        """Use the file of the user for all connections."""
        size_bytes = source.size_bytes or 0
        if size_bytes * self._connections > self._limit_bytes:
            raise MeasureError(
                f"{source.url}: expected a file of at most {format_bytes(self._limit_bytes // self._connections)} for each of"
                f" {self._connections} connections, found {format_bytes(size_bytes)}. Use fewer connections (--connections), a larger"
                " --max-bytes, more free space, or a smaller file."
            )
        self._sources = [source.url] * self._connections
        self._size_bytes = size_bytes * self._connections
        self._is_direct = self._copies_directly(self._sources, size_bytes)

    def _create_sources(self, size_bytes: int) -> None:
        """Replace the source files by files of this size together."""
        self._remove(self.source, self._sources)
        self._sources = []
        self._size_bytes = size_bytes
        self._sources = self._new_sources(self._file_bytes("copy"))

    def _new_sources(self, size_bytes: int) -> list[str]:
        urls = [self._new_url(self.source) for _ in range(self._connections)]
        if isinstance(self.source, MeasureHost):
            for url in urls:
                self._make(self.source, PurePosixPath(url).name, size_bytes)
        else:
            limit_s = LIMIT_S + size_bytes * self._connections / _SLOWEST_BYTES_PER_S
            self._files.transfer([(None, url) for url in urls], size_bytes, timeout_s=limit_s)
        return urls

    def _measure_startups(self, on_step: Callable[[str], None]) -> None:
        """Measure a transfer of one byte per connection of each part with a server."""
        if isinstance(self.source, ServerEnd) and self.source.prefix is None:
            return
        on_step("starting transfers")
        sources = self._new_sources(1)
        self._is_direct = self._copies_directly(sources, 1)
        for part in self.parts:
            end = {"read": self.source, "write": self.destination}.get(part)
            if not isinstance(end, MeasureHost):
                # Use the smallest time, because longer times contain waits that other transfers do not have.
                self._startups[part] = min(self._transfer(part, sources, 1) for _ in range(_STARTUPS))
        self._remove(self.source, sources)

    def _copies_directly(self, sources: Sequence[str], size_bytes: int) -> bool:
        """Return whether the servers copy to each other; a note has the reason if they do not."""
        if not (isinstance(self.source, ServerEnd) and isinstance(self.destination, ServerEnd)):
            return False
        if direct_family(self.source.url, self.destination.url) is None:
            self._notes.append("The servers have no common protocol for direct copies.")
            return False
        if self._max_rate_bytes_per_s is not None:
            self._notes.append("Direct copies have no limit of the rate, so --max-rate excludes them.")
            return False
        self._is_direct = True
        try:
            self._transfer("copy", sources, size_bytes)
        except ShellLostError:
            raise
        except (MeasureError, BackendError) as error:
            self._notes.append(f"The servers do not copy directly: {error}.")
            return False
        return True

    def _make(self, host: MeasureHost, name: str, size_bytes: int, *, time_s: float | None = None) -> None:
        argv: list[object] = ["disk", "make", host.directory / name, "--bytes", size_bytes]
        argv += ["--time-s", f"{time_s:.3f}"] if time_s is not None else []
        call_engine(host.shell, argv, timeout_s=20 * LIMIT_S)

    def _new_url(self, end: MeasureHost | ServerEnd) -> str:
        self._names += 1
        prefix = f"file://{end.directory}/" if isinstance(end, MeasureHost) else end.prefix
        return f"{prefix}{self._names:05d}"

    def _remove(self, end: MeasureHost | ServerEnd, urls: Sequence[str]) -> None:
        if isinstance(end, MeasureHost):
            for url in urls:
                end.shell.remove(PurePosixPath(url.removeprefix("file://")))
        elif urls:
            self._files.remove(urls)


def _location(end: MeasureHost | ServerEnd) -> str:
    return f"{end.name}:{end.directory.parent}" if isinstance(end, MeasureHost) else end.url
