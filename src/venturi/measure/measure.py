"""A measurement from the first connection to the result: hosts, route, warm-up, rounds."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from venturi.backend.shell_client import ShellLostError
from venturi.errors import MeasureError
from venturi.measure.budget import Budget
from venturi.measure.direction import Direction
from venturi.measure.endpoint import Endpoint
from venturi.measure.evaluate import PathDescription, evaluate_path
from venturi.measure.hosts import PREFIX, MeasureHost, new_session, open_client, open_hosts, read_counters
from venturi.measure.leftovers import Leftovers
from venturi.measure.result import PARTS, Measurement, Part, PartSample, PathResult, SmallFiles
from venturi.measure.server_files import ServerEnd, ServerFiles
from venturi.measure.transport import open_transports
from venturi.measure.url_direction import URL_PARTS, StoppedError, UrlDirection
from venturi.stats import shortest_median_sample
from venturi.units import format_bytes, format_duration

__all__ = ["MIN_TIME_S", "MeasureOptions", "MeasureProgress", "measure"]

MIN_TIME_S = 15.0
"""Minimum time; the samples of shorter measurements consist mostly of starts and stops."""

_LIMIT_FACTOR = 5
_LIMIT_SAMPLE_S = 60.0
"""Servers exit after this multiple of the planned time, plus this time per sample, if their shell does not end them."""


@dataclass(frozen=True, slots=True)
class MeasureOptions:
    """Options of a measurement.

    Attributes
    ----------
    time_s
        Planned time, at least :data:`MIN_TIME_S`.
    both
        Whether the direction from B to A is measured too.
    connections
        Data connections of network and mover, 1 to 128.
    rounds
        Number of rounds; at least 5 for intervals.
    max_bytes
        Limit of all bytes that are sent or written.
    ports
        First and last port for servers and data connections; None: those of the endpoints, or any.
    max_rate_bytes_per_s
        Limit of the rate of network, mover and copy; None: no limit.
    small_files
        Whether one copy of a directory of small files follows the rounds; not with existing servers.
    directory
        New directory that records the files on existing servers; required with a URL.
    """

    time_s: float = 60.0
    both: bool = False
    connections: int = 4
    rounds: int = field(default_factory=shortest_median_sample)
    max_bytes: int = 40 * 10**9
    ports: tuple[int, int] | None = None
    max_rate_bytes_per_s: int | None = None
    small_files: bool = False
    directory: Path | None = None


@dataclass(frozen=True, slots=True)
class MeasureProgress:
    """State of a measurement for a display.

    Attributes
    ----------
    step
        Current activity.
    round, rounds
        Current round, 0 during the preparation, and number of rounds.
    elapsed_s, time_s
        Time since the start, and planned time.
    paths
        Results up to now, one per direction; empty during the preparation.
    """

    step: str
    round: int
    rounds: int
    elapsed_s: float
    time_s: float
    paths: tuple[PathResult, ...] = ()


def measure(
    a: Endpoint,
    b: Endpoint,
    options: MeasureOptions | None = None,
    on_progress: Callable[[MeasureProgress], None] = lambda progress: None,
) -> Measurement:
    """Measure the path from a directory to another one.

    An interrupt or a lost connection after the first sample ends the measurement early; the result has `complete` False.

    Parameters
    ----------
    a, b
        Source and destination.
    options
        Time, rounds and limits.
    on_progress
        Called before each sample.

    Raises
    ------
    MeasureError
        If an endpoint is not usable, no host can connect to the other, a server rejects the first transfers, or the
        rounds need more time or bytes.
    BackendError
        If a host cannot be reached.
    """
    options = options or MeasureOptions()
    created_unix_s = time.time()
    with_servers = a.url is not None or b.url is not None
    budget = _budget(options, URL_PARTS if with_servers else PARTS)

    def step(text: str) -> None:
        on_progress(MeasureProgress(text, 0, options.rounds, budget.elapsed_s, options.time_s))

    if with_servers:
        return _measure_servers(a, b, options, budget, created_unix_s, on_progress, step)
    with open_hosts(a, b, step) as (host_a, host_b):
        if host_a.shell is not host_b.shell:
            step("looking for open ports between the hosts")
        endpoints = [(host_a, host_b), (host_b, host_a)] if options.both else [(host_a, host_b)]
        limit_s = _LIMIT_FACTOR * options.time_s + _LIMIT_SAMPLE_S * budget.samples
        with open_transports(
            endpoints,
            connections=options.connections,
            ports=options.ports,
            limit_s=limit_s,
            max_rate_bytes_per_s=options.max_rate_bytes_per_s,
        ) as transports:
            directions = [Direction(transport, options.connections, budget) for transport in transports]
            environment = _environment(host_a, host_b, directions)
            descriptions = [_describe(direction, options.connections) for direction in directions]
            for direction in directions:
                direction.prepare(step)
            rounds = _Rounds(directions, descriptions, options, budget, on_progress)
            rounds.run()
            return rounds.result(environment, created_unix_s)


def _measure_servers(
    a: Endpoint,
    b: Endpoint,
    options: MeasureOptions,
    budget: Budget,
    created_unix_s: float,
    on_progress: Callable[[MeasureProgress], None],
    step: Callable[[str], None],
) -> Measurement:
    """Measure a path with existing servers, and remove all files there at the end, also after an error."""
    if options.directory is None:
        raise MeasureError(
            "expected a directory that records the files on servers, found none. Set the option directory."
        )
    session = new_session()
    endpoint = next((one for one in (a, b) if one.url is None), Endpoint(""))
    with Leftovers(options.directory, endpoint) as leftovers, open_client(a, b, session, step) as (client, hosts):
        files = ServerFiles(client.shell, leftovers.journal, options.max_rate_bytes_per_s)
        ends: list[MeasureHost | ServerEnd] = []
        for one, host, letter in ((a, hosts[0], "a"), (b, hosts[1], "b")):
            if host is None:
                step(f"checking {one.url}")
                is_source = letter == "a" and not options.both
                ends.append(files.open(str(one.url), f"{PREFIX}{session}-{letter}", source=is_source))
            else:
                ends.append(host)
        pairs = [(ends[0], ends[1]), (ends[1], ends[0])] if options.both else [(ends[0], ends[1])]
        directions = [
            UrlDirection(
                client,
                files,
                source,
                destination,
                connections=options.connections,
                budget=budget,
                max_rate_bytes_per_s=options.max_rate_bytes_per_s,
            )
            for source, destination in pairs
        ]
        for direction in directions:
            direction.prepare(step)
        environment = _server_environment(client, a, b, ends, directions)
        rounds = _Rounds(directions, [one.describe() for one in directions], options, budget, on_progress)
        rounds.run()
        result = rounds.result(environment, created_unix_s)
        step("removing the files")
        remains = leftovers.remove(client.shell)
    return replace(result, remains=remains)


def _server_environment(
    client: MeasureHost,
    a: Endpoint,
    b: Endpoint,
    ends: Sequence[MeasureHost | ServerEnd],
    directions: Sequence[UrlDirection],
) -> dict[str, Any]:
    """Return the environment with the client instead of each server, because the hardware of servers is unknown."""
    (found,) = read_counters({"client": client}).values()
    hosts = {
        name: {
            "name": end.name,
            "directory": str(end.directory.parent) if isinstance(end, MeasureHost) else endpoint.url,
            "node_name": client.shell.node_name,
            "cores": found["cores"],
            "quota": found.get("quota"),
            "properties": client.shell.hello.get("properties") or {},
        }
        for name, endpoint, end in zip("ab", (a, b), ends, strict=True)
    }
    return {"hosts": hosts, "paths": [dict(direction.properties) for direction in directions]}


def _budget(options: MeasureOptions, parts: Sequence[Part]) -> Budget:
    directions = 2 if options.both else 1
    # Two directories of one host have one part less, so each sample gets a little more time than planned here.
    budget = Budget(options.time_s, len(parts) * options.rounds * directions, options.max_bytes, directions)
    if options.max_bytes < budget.smallest_max_bytes:
        raise MeasureError(
            f"--max-bytes: expected at least {format_bytes(budget.smallest_max_bytes)} for {budget.samples} samples, found"
            f" {format_bytes(options.max_bytes)}. Use a larger limit or fewer rounds."
        )
    if options.time_s < budget.smallest_time_s:
        raise MeasureError(
            f"--time: expected at least {format_duration(budget.smallest_time_s)} for {budget.samples} samples, found"
            f" {format_duration(options.time_s)}. Use a longer time or fewer rounds."
        )
    return budget


class MeasuredDirection(Protocol):
    """A direction of data with a method for samples of its parts."""

    @property
    def label(self) -> str: ...
    @property
    def parts(self) -> tuple[Part, ...]: ...
    @property
    def startup_s(self) -> float | None: ...

    def measure(self, part: Part, round: int) -> PartSample:
        """Return one sample; a failed one has an error."""
        ...

    def small_files(self) -> SmallFiles | None:
        """Copy a directory of small files, once; None: not measured."""
        ...


class _Rounds:
    """The rounds of all directions."""

    def __init__(
        self,
        directions: Sequence[MeasuredDirection],
        descriptions: Sequence[PathDescription],
        options: MeasureOptions,
        budget: Budget,
        on_progress: Callable[[MeasureProgress], None],
    ) -> None:
        self._directions = directions
        self._descriptions = descriptions
        self._options = options
        self._budget = budget
        self._on_progress = on_progress
        self._samples: list[list[PartSample]] = [[] for _ in directions]
        self._completed = 0
        self._failure: str | None = None
        self._small_files: list[SmallFiles] = []

    def run(self) -> None:
        """Measure all rounds, or until an interrupt."""
        try:
            for round in range(1, self._options.rounds + 1):
                self._run_round(round)
                self._completed = round
            if self._options.small_files:
                found = [direction.small_files() for direction in self._directions]
                self._small_files = [one for one in found if one is not None]
        except KeyboardInterrupt:
            self._failure = "interrupted"
        except (ShellLostError, StoppedError) as error:
            self._failure = str(error)
        if not any(self._samples):
            raise KeyboardInterrupt if self._failure == "interrupted" else MeasureError(str(self._failure))

    def _run_round(self, round: int) -> None:
        slots = [(index, part) for index, direction in enumerate(self._directions) for part in direction.parts]
        # Each round starts with another part, so that no part always follows the same part.
        shift = (round - 1) % len(slots)
        for index, part in slots[shift:] + slots[:shift]:
            self._on_progress(
                MeasureProgress(
                    f"{part}, {self._directions[index].label}",
                    round,
                    self._options.rounds,
                    self._budget.elapsed_s,
                    self._options.time_s,
                    self._paths(),
                )
            )
            self._samples[index].append(self._directions[index].measure(part, round))

    def result(self, environment: Mapping[str, Any], created_unix_s: float) -> Measurement:
        """Return the result of the rounds."""
        return Measurement(
            self._paths(),
            self._completed,
            self._failure is None,
            self._options.connections,
            tuple(direction.startup_s for direction in self._directions),
            self._budget.elapsed_s,
            environment,
            created_unix_s,
            self._failure,
            tuple(self._small_files),
        )

    def _paths(self) -> tuple[PathResult, ...]:
        return tuple(
            evaluate_path(samples, description)
            for samples, description in zip(self._samples, self._descriptions, strict=True)
        )


def _describe(direction: Direction, connections: int) -> PathDescription:
    source, destination = direction.source, direction.destination
    found = read_counters({"source": source, "destination": destination})
    machines = {reading.get("machine_id") for reading in found.values()}
    same_machine = None not in machines and len(machines) == 1
    disks = {str(found[name]["disks"][str(host.directory)]["device"])
             for name, host in (("source", source), ("destination", destination))}  # fmt: skip
    notes = list(direction.transport.notes)
    if same_machine and source.shell is not destination.shell:
        notes.append("Both hosts run on one machine and use the same CPUs.")
    notes += [
        f"{name} has no writable directory in memory: there, the mover uses files of its session directory."
        for name, in_memory in dict.fromkeys((host.name, host.in_memory) for host in (source, destination))
        if not in_memory
    ]
    return PathDescription(
        f"{source.name}:{source.directory.parent}",
        f"{destination.name}:{destination.directory.parent}",
        source.name,
        destination.name,
        same_machine,
        disks.pop() if same_machine and len(disks) == 1 else None,
        connections,
        tuple(notes),
        direction.transport.properties.get("max_rate_bytes_per_s"),
    )


def _environment(a: MeasureHost, b: MeasureHost, directions: Sequence[Direction]) -> dict[str, Any]:
    found = read_counters({"a": a, "b": b})
    hosts = {
        name: {
            "name": host.name,
            "directory": str(host.directory.parent),
            "node_name": host.shell.node_name,
            "cores": found[name]["cores"],
            "disk": found[name]["disks"][str(host.directory)],
            "quota": found[name].get("quota"),
            "properties": host.shell.hello.get("properties") or {},
            "memory_directory": host.in_memory,
        }
        for name, host in (("a", a), ("b", b))
    }
    return {"hosts": hosts, "paths": [dict(direction.transport.properties) for direction in directions]}
