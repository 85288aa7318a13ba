"""Offered load of a prediction: the kinds of transfers of a plan, with their frequencies.

The plan of a workload gives source, destination, mover, options, files and bytes of each transfer. A prediction replaces
the start times by an open arrival process or by closed-loop clients, and keeps the mix of transfers.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from venturi.errors import PlanError
from venturi.plan import ActorLine, Arrivals, Draw, Header, Parallel, Plan, Repeat, Step, TransferStep, Trial
from venturi.plan.header import BUILT_IN_STORAGES

__all__ = ["OfferedLoad", "TransferKind", "offered_load"]

MAX_LINES = 100_000
"""Actor lines of a plan that are read; the mix of longer plans is the mix of their first lines."""

QUANTILES = 20
"""Number of values that represent a continuous random size."""

LOAD_MOVER = "http-load"
"""Mover whose one process represents many clients."""


@dataclass(frozen=True, slots=True)
class TransferKind:
    """Transfers with equal properties.

    Attributes
    ----------
    host, call, source, source_via, destination, destination_via
        As in :class:`venturi.plan.TransferStep`, and the host of its actor.
    files, size_bytes
        Files of one transfer, and their bytes together.
    fraction
        Fraction of all transfers.
    """

    host: str
    call: str
    source: str
    source_via: str | None
    destination: str
    destination_via: str | None
    files: int
    size_bytes: int
    fraction: float = 0.0

    @property
    def source_storage(self) -> str:
        """Name of the storage of the source."""
        return self.source.partition(":")[0]

    @property
    def destination_storage(self) -> str:
        """Name of the storage of the destination."""
        return self.destination.partition(":")[0]


@dataclass(frozen=True)
class OfferedLoad:
    """Testbed and mix of transfers.

    Attributes
    ----------
    header
        Header of the plan: testbed, calls, costs.
    kinds
        Kinds of transfers; their fractions add up to 1.
    """

    header: Header
    kinds: tuple[TransferKind, ...]

    @property
    def mean_bytes(self) -> float:
        """Mean size of a transfer."""
        return math.fsum(kind.fraction * kind.size_bytes for kind in self.kinds)

    @property
    def size_variation(self) -> float:
        """Coefficient of variation of the sizes."""
        mean = self.mean_bytes
        square = math.fsum(kind.fraction * (kind.size_bytes / mean - 1) ** 2 for kind in self.kinds)
        return math.sqrt(square)

    @property
    def needs_plan(self) -> bool:
        """True if the transfers need a plan with one step each: they have several files, or an object behind a proxy."""
        return any(kind.files != 1 or _has_proxy(self.header, kind) for kind in self.kinds)


def _has_proxy(header: Header, kind: TransferKind) -> bool:
    call = header.calls[kind.call]
    return "proxy" in call.urls or call.options.get("proxy") is not None


def offered_load(plan: Plan, sizes: Sequence[int] = ()) -> OfferedLoad:
    """Return the mix of transfers of a plan.

    Parameters
    ----------
    plan
        Expanded workload.
    sizes
        Sizes in bytes that replace the sizes of the plan, with equal frequency.

    Raises
    ------
    PlanError
        If the plan has no transfers, or transfers that a simulation of single transfers cannot represent.
    """
    counts: dict[TransferKind, float] = {}
    for number, line in enumerate(plan.lines):
        if number == MAX_LINES:
            break
        _add_line(plan.header, line, counts)
    if not counts:
        raise PlanError(
            "workload: expected transfers from one storage to another, found none;"
            " use a workload such as sweep or inject with a source and a destination"
        )
    if sizes:
        counts = _with_sizes(counts, sizes)
    _check_kinds(plan.header, counts)
    total = math.fsum(counts.values())
    kinds = tuple(dataclasses.replace(kind, fraction=count / total) for kind, count in counts.items())
    return OfferedLoad(_without_memory(plan.header), kinds)


def _add_line(header: Header, line: ActorLine, counts: dict[TransferKind, float]) -> None:
    for step, times in _transfers(line.steps, 1.0):
        for kind, fraction in _kinds_of(header, line.host, step):
            counts[kind] = counts.get(kind, 0.0) + times * fraction


def _transfers(steps: Iterable[Step], times: float) -> Iterator[tuple[TransferStep, float]]:
    """Yield the transfers of steps with their number, or their relative rate in loops without an end."""
    for step in steps:
        match step:
            case TransferStep():
                yield step, times
            case Trial():
                yield from _transfers(step.steps, times)
            case Repeat():
                yield from _transfers(step.steps, times * (step.count or 1))
            case Arrivals():
                yield from _transfers(step.steps, times * _arrivals(step))
            case Parallel():
                for child in step.children:
                    yield from _transfers(child, times)
            case _:
                pass


def _arrivals(step: Arrivals) -> float:
    """Return the expected number of arrivals: the integral of the rate."""
    points = step.rate_per_s
    return math.fsum((end - start) * (low + high) / 2 for (start, low), (end, high) in itertools.pairwise(points))


def _kinds_of(header: Header, host: str, step: TransferStep) -> Iterator[tuple[TransferKind, float]]:
    if isinstance(step.source, Draw) or isinstance(step.destination, Draw):
        raise PlanError(
            "workload: expected transfers with fixed endpoints, found random ones;"
            " describe them as flows of a workload inject"
        )
    # One storage has one route, so the path in it is irrelevant; several files and proxies need the real path.
    single = step.files == 1 and "proxy" not in header.calls[step.call].urls
    source = _endpoint(step.source, "in") if single else step.source
    destination = _endpoint(step.destination, "out") if single else step.destination
    for size, fraction in _values(header.draws, step.bytes):
        yield (
            TransferKind(
                host, step.call, source, step.source_via, destination, step.destination_via, step.files, size
            ),
            fraction,
        )


def _endpoint(endpoint: str, path: str) -> str:
    """Return an endpoint with this path in the same storage; the built-in storages have no paths."""
    storage = endpoint.partition(":")[0]
    return f"{storage}:" if storage in BUILT_IN_STORAGES else f"{storage}:{path}"


def _values(draws: Mapping[str, Mapping[str, Any]], value: int | Draw) -> list[tuple[int, float]]:
    """Return the sizes of a step with their fractions: of a continuous distribution, equally likely quantiles."""
    if not isinstance(value, Draw):
        return [(value, 1.0)]
    stream = draws[value.name]
    quantiles = [(number + 0.5) / QUANTILES for number in range(QUANTILES)]
    match stream["kind"]:
        case "choice":
            values = stream["values"]
            return [(round(one), 1 / len(values)) for one in values]
        case "weighted":
            total = math.fsum(stream["weights"])
            return [(round(one), w / total) for one, w in zip(stream["values"], stream["weights"], strict=True)]
        case "uniform":
            low, high = float(stream["low"]), float(stream["high"])
            return [(round(low + (high - low) * u), 1 / QUANTILES) for u in quantiles]
        case _:
            return [(round(-float(stream["mean"]) * math.log1p(-u)), 1 / QUANTILES) for u in quantiles]


def _with_sizes(counts: Mapping[TransferKind, float], sizes: Sequence[int]) -> dict[TransferKind, float]:
    """Return the same routes with other sizes; a transfer has one file."""
    found: dict[TransferKind, float] = {}
    for kind, count in counts.items():
        for size in sizes:
            changed = dataclasses.replace(kind, files=1, size_bytes=size)
            found[changed] = found.get(changed, 0.0) + count / len(sizes)
    return found


def _check_kinds(header: Header, counts: Mapping[TransferKind, float]) -> None:
    for kind in counts:
        call = header.calls[kind.call]
        if call.mover == LOAD_MOVER:
            raise PlanError(
                f"workload.mover: expected a mover with one transfer per call, found {LOAD_MOVER}, which represents many clients;"
                " use curl with --clients"
            )
        if call.options.get("time_s") is not None:
            raise PlanError(
                f"workload: expected transfers that end with their bytes, found {call.mover} with a set time;"
                " set another mover, or a size instead of the time"
            )
        if kind.size_bytes <= 0:
            raise PlanError(
                f"workload: expected transfers with a size, found {call.mover} with an unknown number of bytes;"
                ' set the size with --size "1 GB"'
            )


def _without_memory(header: Header) -> Header:
    """Return the header for transfers of separate files: no page cache keeps a file, and nothing is sampled."""
    hosts = {name: dataclasses.replace(host, memory_bytes=None) for name, host in header.hosts.items()}
    measure = dataclasses.replace(header.measure, interval_s=None, transfers="each")
    return dataclasses.replace(header, scenario={}, hosts=hosts, measure=measure)
