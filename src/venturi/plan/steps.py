"""Steps of the program of an actor, as frozen records.

Fields are in base units. A field of type ``... | Draw`` can be the next value of a named random stream of the header.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, NamedTuple, TypeAlias

__all__ = [
    "Acquire",
    "ActorLine",
    "Arrivals",
    "At",
    "CacheBefore",
    "Compute",
    "Draw",
    "DropCaches",
    "FactorValue",
    "Parallel",
    "Pause",
    "Prepare",
    "ReadStep",
    "Release",
    "Repeat",
    "Signal",
    "Step",
    "TransferStep",
    "Trial",
    "Wait",
    "data_steps",
]

FactorValue: TypeAlias = str | int | float | bool | None
CacheBefore: TypeAlias = Literal["as_is", "warm"]


@dataclass(frozen=True, slots=True)
class Draw:
    """The next value of the random stream with this name."""

    name: str


class TransferStep(NamedTuple):
    """Call a mover once; ``source`` and ``destination`` are endpoints such as ``gpfs:sets/000003``.

    With several ``files``, ``source`` is the first of consecutive files of a dataset, and ``destination`` is the directory of
    the copies. ``source_via`` and ``destination_via`` (``service/port``) are the service ports; ``None``: local files of the
    host of the actor.

    It is a named tuple, because a frozen dataclass takes four times as long to create, and a plan can have a million
    transfers.
    """

    call: str
    slot: int
    source: str | Draw
    destination: str | Draw
    files: int
    bytes: int | Draw
    keep: bool = False
    labels: Mapping[str, FactorValue] = MappingProxyType({})
    source_via: str | None = None
    destination_via: str | None = None


@dataclass(frozen=True, slots=True)
class Trial:
    """Steps that are counted, journalled and resumed together.

    At or after the time ``until_s`` of the run, the agent skips it. A successful trial increases the counters of ``counts``; a
    failed trial does not.
    """

    id: str
    point: int
    repetition: int
    block: int
    factors: Mapping[str, FactorValue]
    steps: tuple[Step, ...]
    until_s: float | None = None
    counts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Parallel:
    """Lists of steps that start together and are joined at the end."""

    children: tuple[tuple[Step, ...], ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """Closed loop: ``count`` times, until the time ``until_s`` of the run, or for ``for_s``; exactly one is set."""

    steps: tuple[Step, ...]
    count: int | None = None
    until_s: float | None = None
    for_s: float | None = None


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Open loop: ``steps`` start at a rate, independent of earlier steps; joined at the end.

    ``rate_per_s`` are times of the run with their rates, with linear interpolation; there are no arrivals before the first or
    after the last time. ``gap`` is the integral of the rate between two arrivals: 1 is even, exponential values of mean 1 are
    a Poisson process. ``first`` is the gap before the first arrival, ``None``: ``gap``.
    """

    rate_per_s: tuple[tuple[float, float], ...]
    gap: float | Draw
    steps: tuple[Step, ...]
    first: float | Draw | None = None


@dataclass(frozen=True, slots=True)
class At:
    """Wait until this time of the run."""

    time_s: float | Draw


@dataclass(frozen=True, slots=True)
class Compute:
    """CPU work of ``core_s`` core-seconds."""

    core_s: float | Draw


@dataclass(frozen=True, slots=True)
class ReadStep:
    """Read part of a file and discard the data, through the service port ``source_via`` if set."""

    call: str
    slot: int
    source: str | Draw
    offset_bytes: int | Draw
    bytes: int | Draw
    source_via: str | None = None


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait for a duration."""

    duration_s: float | Draw


@dataclass(frozen=True, slots=True)
class Signal:
    """Add to a named counter."""

    counter: str
    add: int


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait until a named counter reaches a value."""

    counter: str
    until: int


@dataclass(frozen=True, slots=True)
class Acquire:
    """Acquire slots of a named pool; wait if necessary."""

    pool: str
    count: int


@dataclass(frozen=True, slots=True)
class Release:
    """Release slots of a named pool."""

    pool: str
    count: int


@dataclass(frozen=True, slots=True)
class Prepare:
    """Create the files ``first … first + files - 1`` of the dataset if necessary; ``warm``: also read them."""

    dataset: str
    first: int
    files: int
    cache: CacheBefore


@dataclass(frozen=True, slots=True)
class DropCaches:
    """Flush and drop the page cache, and record whether it still contains these files."""

    dataset: str
    first: int
    files: int


Step: TypeAlias = (
    Trial | TransferStep | Parallel | Repeat | Arrivals | At | Compute | ReadStep | Pause | Signal | Wait | Acquire | Release | Prepare
    | DropCaches
)  # fmt: skip


def data_steps(steps: Iterable[Step]) -> Iterator[TransferStep | ReadStep]:
    """Yield the steps that move data, including those inside of trials, loops, arrivals and parallel steps."""
    for step in steps:
        match step:
            case TransferStep() | ReadStep():
                yield step
            case Trial() | Repeat() | Arrivals():
                yield from data_steps(step.steps)
            case Parallel():
                for child in step.children:
                    yield from data_steps(child)
            case _:
                pass


@dataclass(frozen=True, slots=True)
class ActorLine:
    """Part of the program of an actor; the program is the sequence of its lines."""

    actor: str
    host: str
    steps: tuple[Step, ...]
