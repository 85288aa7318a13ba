"""Simulation of transfers in columns: arrays go through pipes to one engine process and back, without Python work per transfer.

The arrays have the meaning of the trace of a workload ``replay``. Each transfer is requested at its time (open arrivals)
and uses the links, disks and servers of the testbed, with the costs of its mover. There is no journal, no sample and no
time limit.
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
from venturi.backend.sim import engine_assumptions
from venturi.cost import CostParameters
from venturi.errors import BackendError, ScenarioError
from venturi.messages import Problem
from venturi.plan import Header, Totals
from venturi.plan.emit import emit_header
from venturi.scenario import Scenario
from venturi.simulation.simulate import Source, read_scenario, with_costs
from venturi.testbed.plan import resolve_testbed
from venturi.workload.header import plan_header
from venturi.workload.replay_plan import resolve_trace_endpoints, select_client
from venturi.workload.sites import Exchange, SiteHost

__all__ = ["TransferResults", "simulate_routes", "simulate_transfers"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

MOST_BYTES = 2**53
"""Largest transfer; above it, doubles do not represent every integer."""

_PIPE_BYTES = 2**20
"""Default limit of pipe sizes for unprivileged users (``/proc/sys/fs/pipe-max-size``)."""
_PAIRS_IN_A_TABLE = 2**24
"""Largest number of name pairs that use a table to find routes; more pairs are sorted."""


@dataclasses.dataclass(frozen=True, eq=False)
class TransferResults:
    """Results of transfers, in the order of the input.

    Attributes
    ----------
    start_s, size_bytes
        Inputs, shape (n,).
    end_s
        End of each transfer, shape (n,). Seconds. NaN if it failed because its tool or TCP timed out on a link that was down.
    bottleneck
        Bottleneck of each transfer for most of its time, as an index into ``bottleneck_names``, shape (n,); None unless
        requested.
    bottleneck_names
        Names as in ``bottleneck`` of a run: ``link:a>b``, ``disk:STORAGE:read``, ``window``, ``session`` …
    unknown_costs
        Pairs of a mover and a cost that is neither measured nor declared and counts as zero.
    peak_live
        Largest number of concurrent transfers.
    engine_s
        Time of the simulation itself in the engine. Seconds.
    """

    start_s: FloatArray
    size_bytes: FloatArray
    end_s: FloatArray
    bottleneck: npt.NDArray[np.uint32] | None
    bottleneck_names: tuple[str, ...]
    unknown_costs: tuple[tuple[str, str], ...]
    peak_live: int
    engine_s: float

    def __len__(self) -> int:
        return len(self.end_s)

    @cached_property
    def duration_s(self) -> FloatArray:
        """Time from the request to the end of each transfer, shape (n,). Seconds."""
        return self.end_s - self.start_s

    @cached_property
    def rate_bytes_per_s(self) -> FloatArray:
        """Size divided by duration, shape (n,); infinite if the duration is 0."""
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
    costs: CostParameters | Path | str | None = None,
    explain: bool = False,
) -> TransferResults:
    """Simulate transfers in columns on the testbed of a scenario.

    Parameters
    ----------
    scenario
        As in :func:`venturi.simulate`. The simulation uses its testbed, its own movers, its seed and its scale, but not
        its workload. The scale multiplies rates, but not ``size_bytes``.
    start_s
        Time of each request, shape (n,), in any order. Seconds from 0 on, on the same clock as ``testbed.change``.
    source, destination
        Endpoints, shape (n,): names of storages, or of hosts or sites with one storage, or integer indices into ``names``.
        Indices are faster, because names must be sorted first.
    size_bytes
        Sizes as whole numbers of bytes, shape (n,), at most 2⁵³.
    mover, options
        The mover, and its options as in a scenario.
    names
        Names for the indices in ``source`` and ``destination``.
    client
        Endpoint whose host runs the mover: ``"source"`` or ``"destination"``.
    overrides, costs
        As in :func:`venturi.simulate`.
    explain
        Whether to find the bottlenecks. This takes several times as long, because the engine inspects all active routes
        at each start and end of a transfer.

    Raises
    ------
    ScenarioError
        If the scenario or a value is not valid, a name has no storage, or columns differ in length.
    BackendError
        If the engine is missing or cannot simulate the transfers.

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
    header, routes = _lay_out(loaded, columns, mover, dict(options or {}), client)
    return simulate_routes(
        with_costs(header, costs), routes, columns.start_s, columns.route, columns.size_bytes, explain=explain
    )


def simulate_routes(
    header: Header,
    routes: Sequence[Mapping[str, Any]],
    start_s: FloatArray,
    route: npt.NDArray[np.uint32],
    size_bytes: FloatArray,
    *,
    explain: bool = False,
) -> TransferResults:
    """Simulate transfers in columns on the testbed of a plan's header, without checks.

    Parameters
    ----------
    header
        Header with the calls of the routes. Its scenario and samples are not used.
    routes
        Routes in the format of the engine (``venturi-engine sim transfers``).
    start_s, route, size_bytes
        Time of each request in seconds, index of its route, and whole number of bytes; contiguous arrays of shape (n,).
    explain
        As for :func:`simulate_transfers`.

    Raises
    ------
    BackendError
        If the engine is missing or cannot simulate the transfers.
    """
    world = {"world": engine_assumptions(header, {"explain": explain})}
    request = {"transfers": len(start_s), "routes": routes}
    head = "\n".join([json.dumps(world), emit_header(header), json.dumps(request), ""]).encode()
    parts: list[bytes | memoryview] = [head, start_s.data, route.data, size_bytes.data]
    result, end_s, bottleneck = _run_engine(parts, len(start_s), explain)
    return TransferResults(
        start_s,
        size_bytes,
        end_s,
        bottleneck,
        tuple(result["names"]),
        tuple((str(call), str(what)) for call, what in result["unknown"]),
        int(result["peak_live"]),
        float(result["run_s"]),
    )


@dataclasses.dataclass(frozen=True, eq=False)
class _Columns:
    """Columns in the format of the engine, and the names of both endpoints of each route."""

    start_s: FloatArray
    route: npt.NDArray[np.uint32]
    size_bytes: FloatArray
    names: tuple[str, ...]
    pairs: IntArray
    """Indices into ``names``, shape (routes, 2)."""


def _wrong(where: str, what: str) -> ScenarioError:
    return ScenarioError([(where, what)], "simulate_transfers")


def _columns(
    start_s: npt.ArrayLike, source: npt.ArrayLike, destination: npt.ArrayLike, size_bytes: npt.ArrayLike,
    names: Sequence[str] | None,
) -> _Columns:  # fmt: skip
    start = _floats("start_s", start_s, "seconds, 0 or more", np.inf)
    size = _floats("size_bytes", size_bytes, "whole numbers of bytes, at most 2^53", MOST_BYTES)
    known, numbers = _numbers(source, destination, names)
    for name, column in (("size_bytes", size), ("source", numbers[0]), ("destination", numbers[1])):
        if len(column) != len(start):
            raise _wrong(name, f"expected {len(start)} values, as many as of start_s, found {len(column)}")
    pairs, route = _routes(*numbers, len(known))
    return _Columns(start, route, size, known, pairs)


def _floats(name: str, given: npt.ArrayLike, expected: str, most: float) -> FloatArray:
    try:
        values = np.ascontiguousarray(given, dtype="<f8")
    except (TypeError, ValueError) as error:
        raise _wrong(name, f"expected {expected}, found {error}") from error
    if values.ndim != 1:
        raise _wrong(name, f"expected a column, found an array of shape {values.shape}")
    # Two passes without a temporary array. With a NaN, both extremes are NaN, so the comparisons fail.
    if len(values) and not (values.min() >= 0 and values.max() <= most and np.isfinite(values.max())):
        row = int(np.argmin((values >= 0) & (values <= most) & np.isfinite(values)))
        raise _wrong(f"{name}[{row}]", f"expected {expected}, found {values[row]}")
    return values


def _numbers(
    source: npt.ArrayLike, destination: npt.ArrayLike, names: Sequence[str] | None
) -> tuple[tuple[str, ...], tuple[IntArray, IntArray]]:
    """Return the names, and both endpoints as indices into them."""
    both = {"source": np.asarray(source), "destination": np.asarray(destination)}
    for name, column in both.items():
        if column.ndim != 1:
            raise _wrong(name, f"expected a column, found an array of shape {column.shape}")
    if names is None:
        known, indices = np.unique(
            np.concatenate([column.astype(str) for column in both.values()]), return_inverse=True
        )
        half = len(both["source"])
        return tuple(str(name) for name in known), (indices[:half], indices[half:])
    for name, column in both.items():
        if column.dtype.kind not in "iu":
            raise _wrong(name, f"expected whole numbers (indices of names), found values of type {column.dtype}")
        if len(column) and not (column.min() >= 0 and column.max() < len(names)):
            row = int(np.argmin((column >= 0) & (column < len(names))))
            raise _wrong(f"{name}[{row}]", f"expected an index of the {len(names)} names, found {column[row]}")
    return tuple(names), (both["source"], both["destination"])


def _routes(source: IntArray, destination: IntArray, names: int) -> tuple[IntArray, npt.NDArray[np.uint32]]:
    """Return the distinct pairs of endpoints, and the index of the pair of each transfer."""
    code = source.astype(np.int64) * names + destination
    if names * names <= _PAIRS_IN_A_TABLE:
        table = np.zeros(max(1, names * names), dtype=np.uint32)
        table[code] = 1
        present = np.flatnonzero(table)
        table[present] = np.arange(len(present), dtype=np.uint32)
        route = table[code]
    else:
        present, found = np.unique(code, return_inverse=True)
        route = found.astype("<u4")
    return np.stack(np.divmod(present, max(1, names)), axis=1), route


def _lay_out(
    scenario: Scenario, columns: _Columns, mover: str, options: Mapping[str, Any], client: str
) -> tuple[Header, list[dict[str, Any]]]:
    """Return the header of a plan for these transfers, and its routes in the format of the engine."""
    if client not in ("source", "destination"):
        raise _wrong("client", f"expected source or destination, found {client}")
    problems: list[Problem] = []
    parts = resolve_testbed(scenario.testbed, scenario.scale, problems)
    if parts is None:
        raise ScenarioError(problems, "simulate_transfers")
    exchange = Exchange(scenario, mover, options, _NO_LIMIT_S, parts, problems)
    pairs = [(columns.names[one], columns.names[other]) for one, other in columns.pairs.tolist()]
    ends = resolve_trace_endpoints(scenario, {}, dict.fromkeys(name for pair in pairs for name in pair), problems)
    routes = [] if ends is None else [_route(exchange, client, ends[one], ends[other]) for one, other in pairs]
    if problems:
        raise ScenarioError(
            [(where.replace("workload.map", "names").removeprefix("workload."), what) for where, what in problems],
            "simulate_transfers",
        )
    count, whole = len(columns.start_s), int(columns.size_bytes.sum())
    header = plan_header(scenario, parts, datasets={}, calls=exchange.calls, totals=Totals(count, count, whole, {}))
    # The engine needs neither the scenario nor samples.
    measure = dataclasses.replace(header.measure, interval_s=None)
    return dataclasses.replace(header, scenario={}, measure=measure), routes


_NO_LIMIT_S = 1e9
"""Time limit of a transfer, longer than any transfer takes."""


def _route(exchange: Exchange, client: str, source: SiteHost, destination: SiteHost) -> dict[str, Any]:
    client_host = select_client(client, source, destination)
    step = exchange.transfer(
        client_host,
        f"{source.storage}:in" if source.host else f"{source.storage}:",
        f"{destination.storage}:out" if destination.host else f"{destination.storage}:",
        0,
        {},
    )
    return {
        "host": client_host.host,
        "call": step.call,
        "source": step.source,
        "source_via": step.source_via,
        "destination": step.destination,
        "destination_via": step.destination_via,
    }


def _run_engine(
    parts: Sequence[bytes | memoryview], count: int, explain: bool
) -> tuple[dict[str, Any], FloatArray, npt.NDArray[np.uint32] | None]:
    """Return the reply of the engine and its columns."""
    engine = find_engine()
    try:
        process = subprocess.Popen(
            [str(engine), "sim", "transfers"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0, pipesize=_PIPE_BYTES,
        )  # fmt: skip
    except OSError as error:
        raise BackendError(f"cannot start {engine}: {error.strerror}") from error
    messages: list[bytes] = []
    with process:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        listener = threading.Thread(
            target=lambda stream: messages.append(stream.read()), args=(process.stderr,), daemon=True
        )
        listener.start()
        try:
            _write(process.stdin, parts)
            output = _read(process.stdout, count, explain)
        except BaseException:
            process.kill()
            raise
        listener.join()
    if output is None or process.returncode:
        reason = (
            b"".join(messages).decode(errors="replace").strip() or f"the engine exited with code {process.returncode}"
        )
        raise BackendError(f"cannot simulate these transfers: {reason}")
    return output


def _write(stdin: IO[bytes], parts: Sequence[bytes | memoryview]) -> None:
    # An engine that has exited closes the pipe and reports the reason on stderr.
    with suppress(BrokenPipeError), stdin:
        for part in parts:
            left = memoryview(part).cast("B")
            while left:
                left = left[stdin.write(left) :]


def _read(
    stdout: IO[bytes], count: int, explain: bool
) -> tuple[dict[str, Any], FloatArray, npt.NDArray[np.uint32] | None] | None:
    """Return the first line as JSON and the columns after it, or None if the output is incomplete."""
    first, newline, rest = b"", b"", b""
    while not newline:
        more = stdout.read(_PIPE_BYTES)
        if not more:
            return None
        first, newline, rest = (first + more).partition(b"\n")
    result = json.loads(first)
    columns = bytearray(8 * count + (4 * count if explain else 0))
    columns[: len(rest)] = rest
    left = memoryview(columns)[len(rest) :]
    while left:
        taken = stdout.readinto(left)  # type: ignore[attr-defined]
        if not taken:
            return None
        left = left[taken:]
    end_s = np.frombuffer(columns, dtype="<f8", count=count)
    return result, end_s, np.frombuffer(columns, dtype="<u4", offset=8 * count) if explain else None
