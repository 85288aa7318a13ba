"""Header of a plan: all objects that steps refer to by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from venturi.cost.parameters import CostParameters
from venturi.plan.network import Network

__all__ = [
    "BUILT_IN_STORAGES",
    "FORMAT",
    "URL_SERVICE",
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
    "PlanService",
    "SizeGroup",
    "Storage",
    "StorageKind",
    "StorageSpec",
    "Totals",
]

FORMAT = "venturi-plan"
VERSION = 2
BUILT_IN_STORAGES = ("null", "zero")
URL_SERVICE = "url"
"""Kind of the services of a storage with a URL."""

OptionValue: TypeAlias = str | int | float | bool | None
Argument: TypeAlias = str | tuple[str, ...]
Expect: TypeAlias = Literal["destination", "nothing"]
Recorded: TypeAlias = Literal["each", "routes"]
"""Form of transfer records."""
StorageKind: TypeAlias = Literal["directory", "tmpfs", "disk"]


@dataclass(frozen=True, slots=True)
class LabHost:
    """Specification of a host in a lab.

    Attributes
    ----------
    site
        Site, for reports and diagrams.
    cpus
        CPU cores of its processes; ``None``: all.
    cpu_limit_cores, memory_limit_bytes
        Limits of all its processes together; ``None``: unlimited.
    congestion_control, sysctls
        TCP settings; explicit, because kernel defaults differ.
    nat
        Devices with network address translation for private addresses.
    routes
        Device by address, for routes that do not use ``default_device``.
    default_device
        Device of the default route; ``None``: no default route.
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
    """A host.

    Attributes
    ----------
    ssh
        Its ssh destination; ``None`` without ``connect``: this host.
    memory_bytes
        Its memory, if the scenario sets it.
    lab
        Its specification in a lab; ``None``: an existing host.
    connect
        Connection prefix, which replaces ssh: words before a command on the host, such as ``("srun", "-w", "node7")``.
    address
        Name or address at which other hosts reach its servers; ``None``: the host name of ``ssh``.
    open_ports
        First and last port that other hosts can reach; ``None``: all.
    cache
        Directory of the host for the engine; ``None``: the first usable one of the usual directories.
    environment
        Additional environment variables of its movers and servers.
    """

    ssh: str | None = None
    memory_bytes: int | None = None
    lab: LabHost | None = None
    connect: tuple[str, ...] | None = None
    address: str | None = None
    open_ports: tuple[int, int] | None = None
    cache: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StorageSpec:
    """Specification of a storage in a lab: a ``directory``, a ``tmpfs`` or a ``disk`` (ext4 on a loop device).

    ``size_bytes`` is its capacity; the rates are its maximum read and write rates. ``None``: unlimited.
    """

    kind: StorageKind
    size_bytes: int | None = None
    read_bytes_per_s: float | None = None
    write_bytes_per_s: float | None = None


@dataclass(frozen=True, slots=True)
class Storage:
    """A directory of a host, or of existing servers.

    Attributes
    ----------
    host
        Its host; ``None`` if only services reach it. With ``url``, the host that handles its files.
    path
        Directory; a relative path is below the scratch directory of the agent. Empty with ``url``.
    spec
        Its specification in a lab.
    url
        URL of the directory for operations on files; ``None``: a directory of ``host``. Files of a run are in a directory of
        the run below it.
    checksum
        Algorithm of the checksums that verify transfers to ``url``; ``None``: only sizes.
    existing
        Whether it has files of the user, which are never changed or removed. It is never a destination.
    """

    host: str | None
    path: str
    spec: StorageSpec | None = None
    url: str | None = None
    checksum: str | None = None
    existing: bool = False


@dataclass(frozen=True, slots=True)
class PlanService:
    """A server program.

    Attributes
    ----------
    kind
        Kind of the program.
    host, interface
        Host, and network interface that it listens on. ``host`` is ``None`` for a server that exists already.
    storages
        Exported storages.
    options
        Options in base units.
    after
        Services that must be ready before it starts.
    ports
        Ports that it listens on; ``{port}`` of a service port is one of them, selected by slot.
    service_ports
        URL template by protocol, with ``{path}`` (absolute), ``{relative}`` (below the storage), ``{host}``, ``{port}``.
    """

    kind: str
    host: str | None
    interface: str | None = None
    storages: tuple[str, ...] = ()
    options: Mapping[str, OptionValue] = field(default_factory=dict)
    after: tuple[str, ...] = ()
    ports: tuple[int, ...] = ()
    service_ports: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SizeGroup:
    """``files`` consecutive files of ``size_bytes`` each."""

    files: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Dataset:
    """Generated files: file *i* is ``path/`` and *i* in six digits. Or existing files: ``names`` below the storage.

    With ``listed``, the names of existing files are unknown before the run, which lists the directory of the storage. Until
    then, the files have numbers.

    ``size_bytes`` is the size of each file, or of the largest one. ``mix`` contains different sizes: groups of files that
    repeat in a cycle. The sizes of existing files are known when they are prepared.
    """

    storage: str
    path: str
    files: int
    size_bytes: int
    seed: int
    mix: tuple[SizeGroup, ...] = ()
    names: tuple[str, ...] = ()
    listed: bool = False

    @property
    def is_existing(self) -> bool:
        """Whether the files belong to the user."""
        return self.listed or bool(self.names)

    @property
    def bytes(self) -> int:
        """Bytes of all files."""
        return self.range_bytes(0, self.files)

    def range_bytes(self, first: int, files: int) -> int:
        """Return the bytes of ``files`` files, starting at file ``first``.

        Examples
        --------
        >>> Dataset("disk", "mixed", 7, 50, 1, (SizeGroup(3, 10), SizeGroup(2, 50))).range_bytes(2, 5)
        130
        """
        return self._prefix_bytes(first + files) - self._prefix_bytes(first)

    def _prefix_bytes(self, index: int) -> int:
        mix = self.mix or (SizeGroup(1, self.size_bytes),)
        rounds, remaining = divmod(index, sum(group.files for group in mix))
        found = 0
        for group in mix:
            found += (rounds * group.files + min(remaining, group.files)) * group.size_bytes
            remaining = max(0, remaining - group.files)
        return found

    def endpoint(self, index: int) -> str:
        """Return the endpoint of file ``index``, counted from 0."""
        if self.names:
            return f"{self.storage}:{self.names[index]}"
        return f"{self.storage}:{self.path}/{index:06d}"


@dataclass(frozen=True, slots=True)
class Call:
    """Command of a mover with one set of options; ``argv`` has the placeholders of the format.

    ``local`` is the form of a local path, for example ``file://{path}``. ``urls`` are options with the URL of a service port,
    such as ``{"proxy": "squid-a/http-proxy"}``: their values are known when the service has started.
    """

    mover: str
    options: Mapping[str, OptionValue]
    argv: tuple[Argument, ...]
    requires: tuple[str, ...]
    timeout_s: float = 600.0
    capture: bool = False
    expect: Expect = "destination"
    local: str = "{path}"
    urls: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Measure:
    """Sampled counters and their interval; ``interval_s`` is ``None`` without samples.

    ``transfers``: records of each transfer, or sums for each pair of storages of a trial.
    """

    interval_s: float | None
    counters: tuple[str, ...]
    transfers: Recorded = "each"


@dataclass(frozen=True, slots=True)
class Totals:
    """Totals of a plan. ``disk_bytes``: peak of each storage (datasets and the largest trial).

    ``transfers`` and ``bytes`` are ``None`` if the plan does not define them (loops until a time, random sizes).
    """

    trials: int
    transfers: int | None
    bytes: int | None
    disk_bytes: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Header:
    """First line of a plan. ``cost`` contains the costs of the scenario for a simulation."""

    name: str
    seed: int
    scale: float
    scenario: Mapping[str, Any]
    hosts: Mapping[str, Host]
    storages: Mapping[str, Storage]
    datasets: Mapping[str, Dataset]
    calls: Mapping[str, Call]
    measure: Measure
    totals: Totals
    draws: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    pools: Mapping[str, int] = field(default_factory=dict)
    version: int = VERSION
    services: Mapping[str, PlanService] = field(default_factory=dict)
    network: Network | None = None
    cost: CostParameters | None = None
