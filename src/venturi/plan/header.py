"""The header of a plan: everything that the steps refer to by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from venturi.cost.parameters import Cost
from venturi.plan.network import Network

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
    "LabHost",
    "Measure",
    "OptionValue",
    "Place",
    "Portion",
    "Service",
    "Storage",
    "StorageKind",
    "Totals",
]

FORMAT = "venturi-plan"
VERSION = 1
BUILT_IN_PLACES = ("null", "zero")

OptionValue: TypeAlias = str | int | float | bool | None
Argument: TypeAlias = str | tuple[str, ...]
Expect: TypeAlias = Literal["destination", "nothing"]
Recorded: TypeAlias = Literal["each", "routes"]
"""How transfers are recorded."""
StorageKind: TypeAlias = Literal["directory", "tmpfs", "disk"]


@dataclass(frozen=True, slots=True)
class LabHost:
    """How a lab makes a host.

    Attributes
    ----------
    site
        For people and pictures.
    cpus
        The cores its processes are pinned to; ``None``: any.
    cpu_limit_cores, memory_limit_bytes
        What its processes may use together; ``None``: all.
    congestion_control, sysctls
        TCP of the host, set explicitly: kernels differ in their defaults.
    nat
        Devices out of which private addresses are hidden behind the host's own.
    routes
        Address → device, where that is not ``default_device``.
    default_device
        The device by which all other addresses are reached; ``None``: none are.
    """

    site: str | None = None
    cpus: tuple[int, ...] | None = None
    cpu_limit_cores: float | None = None
    memory_limit_bytes: int | None = None
    congestion_control: str = "cubic"
    sysctls: Mapping[str, str] = field(default_factory=dict)
    nat: tuple[str, ...] = ()
    routes: Mapping[str, str] = field(default_factory=dict)
    default_device: str | None = None


@dataclass(frozen=True, slots=True)
class Host:
    """A machine: ``ssh`` is how it is reached, ``None`` for this one; ``lab`` how a lab makes it."""

    ssh: str | None = None
    memory_bytes: int | None = None
    lab: LabHost | None = None


@dataclass(frozen=True, slots=True)
class Storage:
    """How a lab makes a place: a ``directory``, a ``tmpfs``, or a ``disk`` of its own (ext4 on a loop device).

    ``size_bytes`` is what it holds, the rates the fastest it may be read and written; ``None``: no limit.
    """

    kind: StorageKind
    size_bytes: int | None = None
    read_bytes_per_s: float | None = None
    write_bytes_per_s: float | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """Where bytes can be: a directory of a host, below the agent's scratch directory if relative."""

    host: str
    path: str
    storage: Storage | None = None


@dataclass(frozen=True, slots=True)
class Service:
    """A server program on a host.

    Attributes
    ----------
    kind
        Which program.
    host, interface
        Where it runs, and the interface of the network on whose address it serves.
    places
        What it serves.
    options
        In base units.
    after
        Services that must be ready before it starts.
    ports
        The ports it listens on; ``{port}`` of a door is one of them, by slot.
    doors
        Protocol → URL template with ``{path}`` (absolute), ``{relative}`` (below the place), ``{port}``.
    """

    kind: str
    host: str
    interface: str | None = None
    places: tuple[str, ...] = ()
    options: Mapping[str, OptionValue] = field(default_factory=dict)
    after: tuple[str, ...] = ()
    ports: tuple[int, ...] = ()
    doors: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Portion:
    """``files`` files in sequence of ``size_bytes`` each."""

    files: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Dataset:
    """``files`` files: file *i* is ``path/`` and *i* in six digits.

    ``size_bytes`` is the size of each; where they differ, that of the largest, and ``mix`` holds the sizes: portions one after
    the other, and again from the first.
    """

    place: str
    path: str
    files: int
    size_bytes: int
    seed: int
    mix: tuple[Portion, ...] = ()

    @property
    def bytes(self) -> int:
        """Bytes of all files."""
        return self.bytes_of(0, self.files)

    def bytes_of(self, first: int, files: int) -> int:
        """Return the bytes of so many files from ``first`` on.

        Examples
        --------
        >>> Dataset("disk", "mixed", 7, 50, 1, (Portion(3, 10), Portion(2, 50))).bytes_of(2, 5)
        130
        """
        return self._below(first + files) - self._below(first)

    def _below(self, index: int) -> int:
        mix = self.mix or (Portion(1, self.size_bytes),)
        rounds, left = divmod(index, sum(portion.files for portion in mix))
        found = 0
        for portion in mix:
            found += (rounds * portion.files + min(left, portion.files)) * portion.size_bytes
            left = max(0, left - portion.files)
        return found

    def endpoint(self, index: int) -> str:
        """Return the endpoint of file ``index``, counted from 0."""
        return f"{self.place}:{self.path}/{index:06d}"


@dataclass(frozen=True, slots=True)
class Call:
    """How a mover is called, with one set of options; the placeholders of ``argv`` are those of the format.

    ``local`` is how it writes the path of a file on its own host, for example ``file://{path}``.
    """

    mover: str
    options: Mapping[str, OptionValue]
    argv: tuple[Argument, ...]
    requires: tuple[str, ...]
    timeout_s: float = 600.0
    capture: bool = False
    expect: Expect = "destination"
    local: str = "{path}"


@dataclass(frozen=True, slots=True)
class Measure:
    """Which counters are sampled, and how often; ``interval_s`` is ``None`` for no samples.

    ``transfers``: whether each transfer is recorded, or what those of a route of a trial come to.
    """

    interval_s: float | None
    counters: tuple[str, ...]
    transfers: Recorded = "each"


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
    """The first line of a plan. ``cost`` is what the scenario says of costs, for a simulated world."""

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
    services: Mapping[str, Service] = field(default_factory=dict)
    network: Network | None = None
    cost: Cost | None = None
