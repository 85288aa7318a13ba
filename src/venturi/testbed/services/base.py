"""What a service is: how a server program is configured, started, asked whether it is ready, and stopped."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

from venturi.errors import BackendError
from venturi.mover.base import Option
from venturi.plan.header import OptionValue

__all__ = [
    "Machine",
    "Package",
    "Peers",
    "Process",
    "Room",
    "Service",
    "ServiceSpec",
    "Use",
    "files_only",
    "mistake_of",
    "refuse_mistake",
    "serves_something",
]

Use: TypeAlias = Literal["read", "write", "zero", "null"]
"""What an end of a transfer is at a door: a file that is read or written, ``/dev/zero`` that is read, ``/dev/null`` that is written."""


@dataclass(frozen=True, slots=True)
class Package:
    """A program that a service needs, and the Debian package that brings it."""

    program: str
    package: str


@dataclass(frozen=True, slots=True)
class ServiceSpec:
    """One service of a plan's header, by its name.

    Attributes
    ----------
    options
        All options of its kind, in base units, by :attr:`venturi.mover.base.Option.key`.
    places
        The storages that it serves.
    after
        Services that must be ready before it is configured.
    """

    name: str
    kind: str
    host: str
    interface: str
    places: tuple[str, ...] = ()
    options: Mapping[str, OptionValue] = field(default_factory=dict)
    after: tuple[str, ...] = ()
    ports: tuple[int, ...] = ()


class Process(Protocol):
    """A server process that was started on a machine.

    Attributes
    ----------
    pid
        Of the server itself, as this machine's first PID namespace numbers it.
    log
        Its standard output and error.
    """

    @property
    def pid(self) -> int: ...  # noqa: D102 - described above
    @property
    def log(self) -> Path: ...  # noqa: D102

    def poll(self) -> int | None:
        """Return its exit code (negative: a signal), None while it runs."""
        ...

    def stop(self, *, signal: int = 15, grace_s: float = 5.0) -> None:
        """Send ``signal`` to it and its process group, after ``grace_s`` SIGKILL; return when it is gone."""
        ...


class Machine(Protocol):
    """A host of the lab, as services and probes use it.

    Attributes
    ----------
    name, host_name, address
        In the plan (``a``), as it resolves in the lab (``a.lab.test``), and the address of its first interface.
    privileged
        Whether root there is root here: servers can change to another user, and must where they refuse to be root.
    """

    @property
    def name(self) -> str: ...  # noqa: D102 - described above
    @property
    def host_name(self) -> str: ...  # noqa: D102
    @property
    def address(self) -> str: ...  # noqa: D102
    @property
    def privileged(self) -> bool: ...  # noqa: D102

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command there to its end, with its output captured; the caller looks at the exit code.

        Raises
        ------
        subprocess.TimeoutExpired
            If it takes longer; it is ended then.
        """
        ...

    def start(
        self,
        argv: Sequence[str],
        *,
        log: Path,
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
    ) -> Process:
        """Start a server there, in a process group of its own; its output goes to ``log``."""
        ...


class Room(Protocol):
    """What a service has in the lab.

    Attributes
    ----------
    spec
        What is asked for.
    machine
        The host that it runs on.
    address, host_name
        Of the interface that it serves on, and the name that resolves to it.
    folder
        For its configuration, state and logs; world-traversable; the same path inside and outside; gone at the end.
    pki
        The lab's throw-away certificate authority (:class:`venturi.testbed.pki.Pki`).
    client_environment
        Variables that clients of the lab are to have (``X509_USER_PROXY``, ``KRB5_CONFIG``): services add to them.
    """

    spec: ServiceSpec
    machine: Machine
    address: str
    host_name: str
    folder: Path
    pki: Any
    client_environment: dict[str, str]

    def path(self, place: str) -> Path:
        """Return the absolute path, within the lab, of a place; any place of the lab."""
        ...

    def peer(self, service: str) -> Room:
        """Return the room of another service of the lab (its KDC, its data nodes, its origin)."""
        ...

    def hosts(self) -> Mapping[str, Machine]:
        """Return all machines of the lab."""
        ...


Peers: TypeAlias = Callable[[str], ServiceSpec]
"""Returns what is asked of another service, by its name."""


def refuse_mistake(service: Service, room: Room) -> None:
    """Refuse options and storages that do not fit together: those of plans that no scenario was checked for.

    Raises
    ------
    BackendError
        With what its method ``mistake`` says.
    """
    mistake = mistake_of(service, room.spec, lambda name: room.peer(name).spec)
    if mistake is not None:
        raise BackendError(f"{room.spec.name}: {mistake}")


def mistake_of(service: Service, spec: ServiceSpec, peers: Peers) -> str | None:
    """Return what its kind says against a service, ``None`` if nothing."""
    check: Callable[[ServiceSpec, Peers], str | None] | None = getattr(service, "mistake", None)
    return check(spec, peers) if check is not None else None


def serves_something(spec: ServiceSpec) -> str | None:
    """Return the mistake of a server of files that has no storage."""
    return None if spec.places else "expected a storage to serve, found none; name one in `storage`"


def files_only(use: Use) -> str | None:
    """Return the refusal of a server that gives and takes files of its storages, and no devices."""
    return None if use in ("read", "write") else "it serves the files of its storages and no devices"


class Service(Protocol):
    """A kind of server program. Stateless: what it keeps, it keeps in the folder of its room.

    A kind whose doors cannot do all that a mover may ask has a method ``refusal(spec, use: Use) -> str | None`` besides: why not, for
    messages, or ``None`` if it can. Pure, as :meth:`doors`: plans are checked with it. One that serves a single client on each of its ports
    has ``one_client_a_port = True``. One whose options or storages may not fit together, each by itself as it must be, has a method
    ``mistake(spec, peers: Peers) -> str | None``: what was expected and found, or ``None``. Pure: scenarios are checked with it, and labs
    once more (:func:`refuse_mistake`).

    Attributes
    ----------
    kind
        As it stands in a scenario.
    summary
        One sentence for people.
    packages
        Programs that must be there, with the packages that bring them.
    options
        What can be set in a scenario.
    default_ports
        Its ports where the scenario gives only their number.
    """

    @property
    def kind(self) -> str: ...  # noqa: D102 - described above
    @property
    def summary(self) -> str: ...  # noqa: D102
    @property
    def packages(self) -> tuple[Package, ...]: ...  # noqa: D102
    @property
    def options(self) -> tuple[Option, ...]: ...  # noqa: D102
    @property
    def default_ports(self) -> tuple[int, ...]: ...  # noqa: D102

    def needs(self, spec: ServiceSpec) -> tuple[str, ...]:
        """Return names of services that its options refer to (its KDC, data nodes, origin): they start first."""
        ...

    def doors(self, spec: ServiceSpec, host_name: str) -> Mapping[str, str]:
        """Return protocol → URL template (``{path}``, ``{relative}``, ``{port}``). Pure: plans are made of it."""
        ...

    def configure(self, room: Room) -> None:
        """Write all that it needs below the room's folder, and add to ``room.client_environment``."""
        ...

    def start(self, room: Room) -> Sequence[Process]:
        """Start its processes, in the order in which they are to be stopped last to first."""
        ...

    def ready(self, room: Room) -> str | None:
        """Make a real request; return None if it was answered, else what is not yet as it should be.

        Called again and again until it is ready, one of its processes has ended, or the time is up; takes 2 s at most.
        """
        ...

    def stop(self, room: Room, processes: Sequence[Process]) -> None:
        """Stop its processes and undo what lives outside of its folder (mounts, shared memory)."""
        ...

    def logs(self, room: Room) -> Sequence[Path]:
        """Return the files that tell why it failed."""
        ...
