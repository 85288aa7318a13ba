"""The steps of an actor's program, as light frozen records.

Every field is in base units and named so. A field typed ``... | Draw`` may hold the next value of a named,
seeded stream of the header instead of a value of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
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
    "Read",
    "Release",
    "Repeat",
    "Signal",
    "Step",
    "Transfer",
    "Trial",
    "Wait",
]

FactorValue: TypeAlias = str | int | float | bool | None
CacheBefore: TypeAlias = Literal["as_is", "warm"]


@dataclass(frozen=True, slots=True)
class Draw:
    """In place of a value: the next value of the stream of this name."""

    name: str


class Transfer(NamedTuple):
    """Call a mover once; ``source`` and ``destination`` are endpoints such as ``gpfs:sets/000003``.

    With more than one of ``files``, ``source`` is the first of so many consecutive files of a data set, and ``destination``
    the directory in which files of the same names come to be. ``source_via`` and ``destination_via`` (``service/door``)
    are the ways by which the two are reached; ``None``: as files of the actor's host.

    A named tuple, unlike the other steps: it is made four times as fast as a frozen dataclass, and a plan may hold a
    million of them.
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
    """A body of steps that is counted, journalled and resumed as one.

    At or after the time ``until_s`` of the run it is not begun, but passed over like one that is done. The counters of ``counts``
    grow by so much once it is recorded as good; a failed one adds nothing.
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
    """Children (lists of steps) released together and joined at the end."""

    children: tuple[tuple[Step, ...], ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """Closed loop: ``count`` times, until the time ``until_s`` of the run, or for ``for_s``; exactly one of the three."""

    steps: tuple[Step, ...]
    count: int | None = None
    until_s: float | None = None
    for_s: float | None = None


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Open loop: ``steps`` are begun again and again, whether what was begun before has ended or not; joined at the end.

    ``rate_per_s`` are times of the run and the rate then, a line in between; nothing arrives before the first or from the last on.
    ``gap`` is from an arrival to the next in arrivals that the rate adds up to: 1 is even, exponential draws of mean 1 are a Poisson
    process. ``first`` is the gap before the first one, ``None``: as ``gap``.
    """

    rate_per_s: tuple[tuple[float, float], ...]
    gap: float | Draw
    steps: tuple[Step, ...]
    first: float | Draw | None = None


@dataclass(frozen=True, slots=True)
class At:
    """Go on not before this time of the run."""

    time_s: float | Draw


@dataclass(frozen=True, slots=True)
class Compute:
    """A CPU phase of so many core-seconds."""

    core_s: float | Draw


@dataclass(frozen=True, slots=True)
class Read:
    """Stream part of a file without keeping it, through the service and door ``source_via`` if there is one."""

    call: str
    slot: int
    source: str | Draw
    offset_bytes: int | Draw
    bytes: int | Draw
    source_via: str | None = None


@dataclass(frozen=True, slots=True)
class Pause:
    """Do nothing for so long."""

    duration_s: float | Draw


@dataclass(frozen=True, slots=True)
class Signal:
    """Add to a named counter."""

    counter: str
    add: int


@dataclass(frozen=True, slots=True)
class Wait:
    """Go on when a named counter has reached a value."""

    counter: str
    until: int


@dataclass(frozen=True, slots=True)
class Acquire:
    """Take slots of a named pool, or wait for them."""

    pool: str
    count: int


@dataclass(frozen=True, slots=True)
class Release:
    """Give slots of a named pool back."""

    pool: str
    count: int


@dataclass(frozen=True, slots=True)
class Prepare:
    """The files ``first … first + files - 1`` of the data set exist; ``warm``: and have just been read."""

    dataset: str
    first: int
    files: int
    cache: CacheBefore


@dataclass(frozen=True, slots=True)
class DropCaches:
    """Flush and drop the page cache, and record whether these files really left it."""

    dataset: str
    first: int
    files: int


Step: TypeAlias = (
    Trial | Transfer | Parallel | Repeat | Arrivals | At | Compute | Read | Pause | Signal | Wait | Acquire | Release | Prepare
    | DropCaches
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ActorLine:
    """A piece of an actor's program; the program is the concatenation of the pieces, in order."""

    actor: str
    host: str
    steps: tuple[Step, ...]
