"""The header of a plan: everything that the steps refer to by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

__all__ = [
    "BUILT_IN_PLACES",
    "FORMAT",
    "VERSION",
    "Argument",
    "Call",
    "Dataset",
    "Expect",
    "Header",
    "Host",
    "Measure",
    "OptionValue",
    "Place",
    "Totals",
]

FORMAT = "venturi-plan"
VERSION = 1
BUILT_IN_PLACES = ("null", "zero")

OptionValue: TypeAlias = str | int | float | bool | None
Argument: TypeAlias = str | tuple[str, ...]
Expect: TypeAlias = Literal["destination", "nothing"]


@dataclass(frozen=True, slots=True)
class Host:
    """A machine: ``ssh`` is how it is reached, ``None`` for this one."""

    ssh: str | None = None
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """Where bytes can be: a directory of a host, below the agent's scratch directory if relative."""

    host: str
    path: str


@dataclass(frozen=True, slots=True)
class Dataset:
    """``files`` files of ``size_bytes`` each: file *i* is ``path/`` and *i* in six digits."""

    place: str
    path: str
    files: int
    size_bytes: int
    seed: int

    def endpoint(self, index: int) -> str:
        """Return the endpoint of file ``index``, counted from 0."""
        return f"{self.place}:{self.path}/{index:06d}"


@dataclass(frozen=True, slots=True)
class Call:
    """How a mover is called, with one set of options; the placeholders of ``argv`` are those of the format."""

    mover: str
    options: Mapping[str, OptionValue]
    argv: tuple[Argument, ...]
    requires: tuple[str, ...]
    timeout_s: float = 600.0
    capture: bool = False
    expect: Expect = "destination"


@dataclass(frozen=True, slots=True)
class Measure:
    """Which counters are sampled, and how often; ``interval_s`` is ``None`` for no samples."""

    interval_s: float | None
    counters: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Totals:
    """What the whole plan holds. ``disk_bytes``: for each place the peak, data sets plus the largest trial.

    ``transfers`` and ``bytes`` are ``None`` where the plan does not fix them (loops until a time, drawn sizes).
    """

    trials: int
    transfers: int | None
    bytes: int | None
    disk_bytes: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Header:
    """The first line of a plan."""

    name: str
    seed: int
    scale: float
    scenario: Mapping[str, Any]
    hosts: Mapping[str, Host]
    places: Mapping[str, Place]
    datasets: Mapping[str, Dataset]
    calls: Mapping[str, Call]
    measure: Measure
    totals: Totals
    draws: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    pools: Mapping[str, int] = field(default_factory=dict)
    version: int = VERSION
