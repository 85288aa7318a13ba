"""Simulation of offered loads by the engine: times of transfers from their intended starts.

Open loads use the columns of the engine, or a plan if a transfer has several files or uses a proxy. Closed loops use a
plan. Read :func:`simulate_open` first.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from venturi.backend import find_engine
from venturi.backend.sim import engine_assumptions, simulated_records
from venturi.errors import BackendError
from venturi.plan import ActorLine, At, Draw, Pause, Repeat, TransferStep
from venturi.plan.emit import emit_header, emit_line
from venturi.plan.header import BUILT_IN_STORAGES
from venturi.prediction.offered import OfferedLoad, TransferKind
from venturi.simulation.transfers import simulate_routes

__all__ = ["SimulatedTransfers", "simulate_alone", "simulate_closed", "simulate_open", "spread"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

APART_S = 1e6
"""Distance of transfers that are simulated without other load."""

THINK = "predict-think"
"""Random stream of the pauses of closed-loop clients."""

ROUNDS = 64
"""Different transfers of a closed-loop client. Then it starts again with the first one."""


@dataclass(frozen=True, eq=False)
class SimulatedTransfers:
    """Transfers of one simulation, each an array of shape (n,).

    Attributes
    ----------
    start_s, end_s
        Intended start, and end. Seconds. NaN if the transfer failed.
    size_bytes
        Bytes.
    bottlenecks
        Name of the main bottleneck → number of transfers.
    unknown_costs
        Costs that count as zero, as text.
    routes
        Index of the route of each transfer (endpoints and client), shape (n,); None if unknown.
    """

    start_s: FloatArray
    end_s: FloatArray
    size_bytes: FloatArray
    bottlenecks: dict[str, int]
    unknown_costs: tuple[str, ...] = ()
    routes: IntArray | None = None


def simulate_open(
    load: OfferedLoad, start_s: FloatArray, kinds: IntArray, *, explain: bool = False
) -> SimulatedTransfers:
    """Simulate transfers with intended starts.

    Parameters
    ----------
    load
        Testbed and kinds of transfers.
    start_s, kinds
        Intended start in seconds, and index of the kind; shape (n,).
    explain
        Whether to find the bottlenecks.

    Raises
    ------
    BackendError
        If the engine is missing or rejects the load.
    """
    if load.needs_plan:
        lines = (
            ActorLine(f"t{number}", load.kinds[kind].host, (At(float(time)), _step(load.kinds[kind], number)))
            for number, (time, kind) in enumerate(zip(start_s, kinds, strict=True))
        )
        return _run_plan(load, lines, explain=explain)
    sizes = np.array([kind.size_bytes for kind in load.kinds], dtype=float)[kinds]
    found = simulate_routes(
        load.header, [_route(kind) for kind in load.kinds], np.ascontiguousarray(start_s, dtype="<f8"),
        np.ascontiguousarray(kinds, dtype="<u4"), np.ascontiguousarray(sizes, dtype="<f8"), explain=explain,
    )  # fmt: skip
    counts: dict[str, int] = {}
    if found.bottleneck is not None:
        codes, numbers = np.unique(found.bottleneck, return_counts=True)
        counts = {
            found.bottleneck_names[code]: int(number)
            for code, number in zip(codes, numbers, strict=True)
            if code < len(found.bottleneck_names)
        }
    unknown = tuple(f"{what} of {call}" for call, what in found.unknown_costs)
    return SimulatedTransfers(
        np.asarray(start_s, dtype=float), found.end_s, sizes, counts, unknown, _routes(load)[kinds]
    )


def _routes(load: OfferedLoad) -> IntArray:
    """Return the index of the route of each kind: the same endpoints and client."""
    known: dict[tuple[str | None, ...], int] = {}
    return np.array([known.setdefault(_ends(kind), len(known)) for kind in load.kinds])


def _ends(kind: TransferKind) -> tuple[str | None, ...]:
    return kind.host, kind.source_storage, kind.source_via, kind.destination_storage, kind.destination_via


def simulate_alone(load: OfferedLoad) -> tuple[dict[TransferKind, float], tuple[str, ...]]:
    """Return the time of each kind of transfer without other load, in seconds, and the unknown costs.

    Raises
    ------
    BackendError
        If a transfer fails, for example because it takes longer than its timeout, or if the engine rejects it.
    """
    count = len(load.kinds)
    found = simulate_open(load, np.arange(count, dtype=float) * APART_S, np.arange(count))
    for kind, end_s in zip(load.kinds, found.end_s, strict=True):
        if not math.isfinite(end_s):
            timeout_s = load.header.calls[kind.call].timeout_s
            raise BackendError(
                f"workload.timeout: expected a transfer from {kind.source_storage} to {kind.destination_storage} that succeeds without other load,"
                f" found a failed one (timeout {timeout_s:g} s); use a longer timeout, or a smaller size"
            )
    times_s = found.end_s - found.start_s
    return dict(zip(load.kinds, map(float, times_s), strict=True)), found.unknown_costs


def simulate_closed(
    load: OfferedLoad,
    clients: int,
    think_s: float,
    cycle_s: float,
    duration_s: float,
    seed: int,
    *,
    explain: bool = False,
) -> SimulatedTransfers:
    """Simulate clients that start a transfer when their previous one has ended, until ``duration_s``.

    Each client repeats its own random sequence of transfers with the mix of the load. The clients start at random times
    within ``cycle_s``, so that they do not stay synchronous. Their pauses have an exponential distribution with the mean
    ``think_s``.

    Raises
    ------
    BackendError
        If the engine is missing or rejects the load.
    """
    rng = np.random.default_rng([seed, clients])
    by_host: dict[str, list[TransferKind]] = {}
    for kind in load.kinds:
        by_host.setdefault(kind.host, []).append(kind)
    hosts = list(by_host)
    weights = [math.fsum(kind.fraction for kind in by_host[host]) for host in hosts]
    pause = (Pause(Draw(THINK)),) if think_s > 0 else ()
    lines = []
    for number, host in enumerate(hosts[index] for index in spread(weights, clients, rng)):
        own = by_host[host]
        chosen = spread([kind.fraction for kind in own], ROUNDS if len(own) > 1 else 1, rng)
        rounds = [step for index in chosen for step in (_step(own[index], number), *pause)]
        start = Pause(float(rng.uniform(0.0, cycle_s)))
        lines.append(ActorLine(f"client{number}", host, (start, Repeat(tuple(rounds), until_s=duration_s))))
    draws = (
        {**load.header.draws, THINK: {"kind": "exponential", "mean": think_s}} if think_s > 0 else load.header.draws
    )
    header = dataclasses.replace(load.header, seed=seed, draws=draws)
    return _run_plan(dataclasses.replace(load, header=header), lines, explain=explain)


def spread(weights: Sequence[float], count: int, rng: np.random.Generator) -> IntArray:
    """Return ``count`` indices in random order, each as often as its weight requires, to within one."""
    fractions = np.asarray(weights, dtype=float) / math.fsum(weights) * count
    number = np.floor(fractions).astype(np.int64)
    missing = count - int(number.sum())
    if missing:
        rest = fractions - number
        # Equal remainders are broken at random; otherwise the last kinds would never occur in short loads.
        order = np.lexsort((rng.random(len(rest)), -rest))
        number[order[:missing]] += 1
    return rng.permutation(np.repeat(np.arange(len(number)), number))


def _route(kind: TransferKind) -> dict[str, str | None]:
    return {
        "host": kind.host,
        "call": kind.call,
        "source": kind.source,
        "source_via": kind.source_via,
        "destination": kind.destination,
        "destination_via": kind.destination_via,
    }


def _step(kind: TransferKind, number: int) -> TransferStep:
    built_in = kind.destination_storage in BUILT_IN_STORAGES
    destination = kind.destination if built_in else f"{kind.destination_storage}:out/{number}"
    return TransferStep(
        kind.call, 0, kind.source, destination, kind.files, kind.size_bytes, False, {}, kind.source_via,
        kind.destination_via,
    )  # fmt: skip


def _run_plan(load: OfferedLoad, lines: Iterable[ActorLine], *, explain: bool) -> SimulatedTransfers:
    world = json.dumps({"world": engine_assumptions(load.header, {"explain": explain})})
    text = "\n".join([world, emit_header(load.header), *map(emit_line, lines), ""])
    return _collect(simulated_records(text.encode(), find_engine()))


def _collect(records: Iterable[dict[str, Any]]) -> SimulatedTransfers:
    rows: list[tuple[float, float, float]] = []
    counts: dict[str, int] = {}
    unknown: list[str] = []
    for record in records:
        match record["record"]:
            case "transfer":
                failed = record["outcome"] != "ok"
                start = record["start_s"] if record["intended_s"] is None else record["intended_s"]
                rows.append((start, math.nan if failed else record["end_s"], record["requested_bytes"]))
                fractions = record.get("bottleneck") or {}
                if fractions:
                    name = max(fractions, key=lambda one: float(fractions[one]))
                    counts[name] = counts.get(name, 0) + 1
            case "finding" if record["code"] == "cost-unknown":
                unknown.append(f"{record['subject']}: {record['evidence'].partition(';')[0]}")
    start_s, end_s, sizes = np.array(rows, dtype=float).reshape(-1, 3).T
    order = np.argsort(start_s, kind="stable")
    return SimulatedTransfers(start_s[order], end_s[order], sizes[order], counts, tuple(unknown))
