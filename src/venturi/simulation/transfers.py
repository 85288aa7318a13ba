"""Transfers as columns: arrays in, arrays out, through pipes to one process of the engine; nothing in Python is done for each transfer.

The arrays stand in the place of the trace of a workload ``replay``, and mean the same: each transfer is asked for at its time (open
arrivals), and goes at the costs of its mover over the links, disks and servers of the scenario's testbed. What a run has besides (a journal,
samples, a limit of time) is left out.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from venturi.backend import find_engine
from venturi.backend.sim import world_of
from venturi.cost import Cost
from venturi.errors import BackendError, ScenarioError
from venturi.plan import Header, Totals
from venturi.plan.emit import emit_header
from venturi.scenario import Scenario
from venturi.scenario.words import Problem
from venturi.simulation.simulate import Source, read_scenario, with_costs
from venturi.testbed.plan import resolve_testbed
from venturi.workload.header import plan_header
from venturi.workload.replay_plan import caller_of, ends_of
from venturi.workload.sites import Exchange, Machine

__all__ = ["Transfers", "simulate_transfers"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

MOST_BYTES = 2**53
"""Of one transfer: beyond, doubles do not count single ones."""

_PIPE_BYTES = 2**20
"""What a user may give a pipe without being asked (``/proc/sys/fs/pipe-max-size``)."""
_PAIRS_IN_A_TABLE = 2**24
"""Up to so many pairs of names, ways are found in a table in place of by sorting."""


@dataclasses.dataclass(frozen=True, eq=False)
class Transfers:
    """What came of transfers, in the order in which they were given.

    Attributes
    ----------
    start_s, size_bytes
        As given, shape (n,).
    end_s
        When each ended, shape (n,). Seconds; NaN of one that failed: its tool or TCP gave up behind a link that is down.
    bound
        What kept each from being faster for most of its time, as a number in ``bound_names``, shape (n,); None unless asked for.
    bound_names
        Names as those of ``bound`` in a run: ``link:a>b``, ``disk:PLACE:read``, ``window``, ``session`` …
    unknown_costs
        Pairs of a mover and what nobody has measured or said of its cost, and that counts nothing.
    peak_live
        Transfers at once at most.
    engine_s
        Time that the engine took for the simulation alone. Seconds.
    """

    start_s: FloatArray
    size_bytes: FloatArray
    end_s: FloatArray
    bound: npt.NDArray[np.uint32] | None
    bound_names: tuple[str, ...]
    unknown_costs: tuple[tuple[str, str], ...]
    peak_live: int
    engine_s: float

    def __len__(self) -> int:
        return len(self.end_s)

    @cached_property
    def duration_s(self) -> FloatArray:
        """From when it was asked for to its end, shape (n,). Seconds."""
        return self.end_s - self.start_s

    @cached_property
    def rate_bytes_per_s(self) -> FloatArray:
        """Size over duration, shape (n,); infinite of what took no time."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return self.size_bytes / self.duration_s


def simulate_transfers(
    scenario: Source,
    *,
    start_s: npt.ArrayLike,
    source: npt.ArrayLike,
    destination: npt.ArrayLike,
    size_bytes: npt.ArrayLike,
    mover: str,
    names: Sequence[str] | None = None,
    client: str = "source",
    options: Mapping[str, Any] | None = None,
    overrides: Iterable[str] = (),
    costs: Cost | Path | str | None = None,
    explain: bool = False,
) -> Transfers:
    """Simulate transfers that are given as columns, on the testbed of a scenario.

    Parameters
    ----------
    scenario
        As of :func:`venturi.simulate`. What counts is its testbed, its own movers, its seed and its scale (which multiplies rates, not the
        sizes given here); not its workload.
    start_s
        When each transfer is asked for, shape (n,), in any order. Seconds from 0 on, the time of ``testbed.change``.
    source, destination
        Where from and where to, shape (n,): names of storages, or of hosts or sites that have one storage; or whole numbers, places in
        ``names``. Numbers are the fast form: names have to be sorted first.
    size_bytes
        Whole numbers of bytes, shape (n,), at most 2⁵³.
    mover, options
        The tool that moves them, and its options as in a scenario.
    names
        What the numbers in ``source`` and ``destination`` stand for.
    client
        ``"source"`` or ``"destination"``: the end whose host calls the mover.
    overrides, costs
        As of :func:`venturi.simulate`.
    explain
        Also find what bound each. It takes a look at all ways that are in use whenever a transfer begins or ends: several times as long.

    Raises
    ------
    ScenarioError
        If the scenario is not valid, a name is of no storage, a value is none that there can be, or columns differ in length.
    BackendError
        If there is no engine, or the transfers cannot be carried out.

    Examples
    --------
    >>> import numpy as np
    >>> import venturi
    >>> moved = venturi.simulate_transfers("testbed.toml", mover="xrdcp", names=["cern", "ral"],  # doctest: +SKIP
    ...     start_s=np.arange(1e6) / 10, source=np.zeros(10**6, int), destination=np.ones(10**6, int),
    ...     size_bytes=np.full(10**6, 2e9))
    >>> np.median(moved.rate_bytes_per_s)  # doctest: +SKIP
    """
    loaded = read_scenario(scenario, overrides)
    columns = _columns(start_s, source, destination, size_bytes, names)
    header, ways = _lay_out(loaded, columns, mover, dict(options or {}), client)
    header = with_costs(header, costs)
    world = {"world": world_of(header, {"explain": explain})}
    asked = {"transfers": len(columns.start_s), "ways": ways}
    head = "\n".join([json.dumps(world), emit_header(header), json.dumps(asked), ""]).encode()
    parts: list[bytes | memoryview] = [head, columns.start_s.data, columns.way.data, columns.size_bytes.data]
    told, end_s, bound = _ask(parts, len(columns.start_s), explain)
    return Transfers(
        columns.start_s,
        columns.size_bytes,
        end_s,
        bound,
        tuple(told["names"]),
        tuple((str(call), str(what)) for call, what in told["unknown"]),
        int(told["peak_live"]),
        float(told["run_s"]),
    )


@dataclasses.dataclass(frozen=True, eq=False)
class _Columns:
    """The columns as the engine takes them, and the names of both ends of each way."""

    start_s: FloatArray
    way: npt.NDArray[np.uint32]
    size_bytes: FloatArray
    names: tuple[str, ...]
    pairs: IntArray
    """Places in ``names``, shape (ways, 2)."""


def _wrong(where: str, what: str) -> ScenarioError:
    return ScenarioError([(where, what)], "simulate_transfers")


def _columns(
    start_s: npt.ArrayLike, source: npt.ArrayLike, destination: npt.ArrayLike, size_bytes: npt.ArrayLike,
    names: Sequence[str] | None,
) -> _Columns:  # fmt: skip
    start = _floats("start_s", start_s, "seconds from 0 on", np.inf)
    size = _floats("size_bytes", size_bytes, "whole numbers of bytes, 2^53 at most", MOST_BYTES)
    known, numbers = _numbers(source, destination, names)
    for name, column in (("size_bytes", size), ("source", numbers[0]), ("destination", numbers[1])):
        if len(column) != len(start):
            raise _wrong(name, f"expected {len(start)} values, as many as of start_s, found {len(column)}")
    pairs, way = _ways(*numbers, len(known))
    return _Columns(start, way, size, known, pairs)


def _floats(name: str, given: npt.ArrayLike, expected: str, most: float) -> FloatArray:
    try:
        values = np.ascontiguousarray(given, dtype="<f8")
    except (TypeError, ValueError) as error:
        raise _wrong(name, f"expected {expected}, found {error}") from error
    if values.ndim != 1:
        raise _wrong(name, f"expected a column, found an array of the shape {values.shape}")
    # Two passes without an array in between; a NaN makes both of them NaN, which is in no range.
    if len(values) and not (values.min() >= 0 and values.max() <= most and np.isfinite(values.max())):
        row = int(np.argmin((values >= 0) & (values <= most) & np.isfinite(values)))
        raise _wrong(f"{name}[{row}]", f"expected {expected}, found {values[row]}")
    return values


def _numbers(
    source: npt.ArrayLike, destination: npt.ArrayLike, names: Sequence[str] | None
) -> tuple[tuple[str, ...], tuple[IntArray, IntArray]]:
    """Return the names, and both ends as places in them."""
    both = {"source": np.asarray(source), "destination": np.asarray(destination)}
    for name, column in both.items():
        if column.ndim != 1:
            raise _wrong(name, f"expected a column, found an array of the shape {column.shape}")
    if names is None:
        known, places = np.unique(
            np.concatenate([column.astype(str) for column in both.values()]), return_inverse=True
        )
        half = len(both["source"])
        return tuple(str(name) for name in known), (places[:half], places[half:])
    for name, column in both.items():
        if column.dtype.kind not in "iu":
            raise _wrong(name, f"expected whole numbers, places in names, found values of the type {column.dtype}")
        if len(column) and not (column.min() >= 0 and column.max() < len(names)):
            row = int(np.argmin((column >= 0) & (column < len(names))))
            raise _wrong(f"{name}[{row}]", f"expected a place in the {len(names)} names, found {column[row]}")
    return tuple(names), (both["source"], both["destination"])


def _ways(source: IntArray, destination: IntArray, names: int) -> tuple[IntArray, npt.NDArray[np.uint32]]:
    """Return the pairs that there are, and which of them each transfer has."""
    code = source.astype(np.int64) * names + destination
    if names * names <= _PAIRS_IN_A_TABLE:
        table = np.zeros(max(1, names * names), dtype=np.uint32)
        table[code] = 1
        present = np.flatnonzero(table)
        table[present] = np.arange(len(present), dtype=np.uint32)
        way = table[code]
    else:
        present, found = np.unique(code, return_inverse=True)
        way = found.astype("<u4")
    return np.stack(np.divmod(present, max(1, names)), axis=1), way


def _lay_out(
    scenario: Scenario, columns: _Columns, mover: str, options: Mapping[str, Any], client: str
) -> tuple[Header, list[dict[str, Any]]]:
    """Return the header of a plan of these transfers, and its ways as the engine takes them."""
    if client not in ("source", "destination"):
        raise _wrong("client", f"expected source or destination, found {client}")
    problems: list[Problem] = []
    parts = resolve_testbed(scenario.testbed, scenario.scale, problems)
    if parts is None:
        raise ScenarioError(problems, "simulate_transfers")
    exchange = Exchange(scenario, mover, options, _NO_LIMIT_S, parts, problems)
    pairs = [(columns.names[one], columns.names[other]) for one, other in columns.pairs.tolist()]
    ends = ends_of(scenario, {}, dict.fromkeys(name for pair in pairs for name in pair), problems)
    ways = [] if ends is None else [_way(exchange, client, ends[one], ends[other]) for one, other in pairs]
    if problems:
        raise ScenarioError(
            [(where.replace("workload.map", "names").removeprefix("workload."), what) for where, what in problems],
            "simulate_transfers",
        )
    count, whole = len(columns.start_s), int(columns.size_bytes.sum())
    header = plan_header(scenario, parts, datasets={}, calls=exchange.calls, totals=Totals(count, count, whole, {}))
    # The engine has no use for what was written, nor for samples.
    measure = dataclasses.replace(header.measure, interval_s=None)
    return dataclasses.replace(header, scenario={}, measure=measure), ways


_NO_LIMIT_S = 1e9
"""Of a transfer: longer than any takes."""


def _way(exchange: Exchange, client: str, source: Machine, destination: Machine) -> dict[str, Any]:
    caller = caller_of(client, source, destination)
    step = exchange.transfer(
        caller,
        f"{source.place}:in" if source.host else f"{source.place}:",
        f"{destination.place}:out" if destination.host else f"{destination.place}:",
        0,
        {},
    )
    return {
        "host": caller.host,
        "call": step.call,
        "source": step.source,
        "source_via": step.source_via,
        "destination": step.destination,
        "destination_via": step.destination_via,
    }


def _ask(
    parts: Sequence[bytes | memoryview], count: int, explain: bool
) -> tuple[dict[str, Any], FloatArray, npt.NDArray[np.uint32] | None]:
    """Return what the engine says, and its columns."""
    engine = find_engine()
    try:
        process = subprocess.Popen(
            [str(engine), "sim", "transfers"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0, pipesize=_PIPE_BYTES,
        )  # fmt: skip
    except OSError as error:
        raise BackendError(f"cannot start {engine}: {error.strerror}") from error
    talk: list[bytes] = []
    with process:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        listener = threading.Thread(target=lambda said: talk.append(said.read()), args=(process.stderr,), daemon=True)
        listener.start()
        try:
            _write(process.stdin, parts)
            answer = _read(process.stdout, count, explain)
        except BaseException:
            process.kill()
            raise
        listener.join()
    if answer is None or process.returncode:
        said = b"".join(talk).decode(errors="replace").strip() or f"it ended with code {process.returncode}"
        raise BackendError(f"expected these transfers to be carried out, found: {said}")
    return answer


def _write(stdin: IO[bytes], parts: Sequence[bytes | memoryview]) -> None:
    # An engine that has ended takes no more, and says why.
    with suppress(BrokenPipeError), stdin:
        for part in parts:
            left = memoryview(part).cast("B")
            while left:
                left = left[stdin.write(left) :]


def _read(
    stdout: IO[bytes], count: int, explain: bool
) -> tuple[dict[str, Any], FloatArray, npt.NDArray[np.uint32] | None] | None:
    """Return the line and the columns behind it, or nothing if they are not whole."""
    first, newline, rest = b"", b"", b""
    while not newline:
        more = stdout.read(_PIPE_BYTES)
        if not more:
            return None
        first, newline, rest = (first + more).partition(b"\n")
    told = json.loads(first)
    columns = bytearray(8 * count + (4 * count if explain else 0))
    columns[: len(rest)] = rest
    left = memoryview(columns)[len(rest) :]
    while left:
        taken = stdout.readinto(left)  # type: ignore[attr-defined]
        if not taken:
            return None
        left = left[taken:]
    end_s = np.frombuffer(columns, dtype="<f8", count=count)
    return told, end_s, np.frombuffer(columns, dtype="<u4", offset=8 * count) if explain else None
