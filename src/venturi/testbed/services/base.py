"""Interface of services: configuration, start, readiness check and stop of a server program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any, Literal, Protocol, TypeAlias

from venturi.errors import BackendError
from venturi.mover.base import Option
from venturi.plan.header import OptionValue
from venturi.testbed.host_shell import HostShell, Process

__all__ = [
    "HostShell",
    "Package",
    "Peers",
    "Process",
    "ServiceAccess",
    "ServiceContext",
    "ServiceKind",
    "ServiceSpec",
    "SshTarget",
    "Use",
    "files_only",
    "find_hosts_obstacle",
    "find_validation_error",
    "install_step",
    "missing_storage_error",
    "reject_invalid_options",
]

Use: TypeAlias = Literal["read", "write", "zero", "null"]
"""Use of a service port by a transfer: read or write a file, read ``/dev/zero``, or write ``/dev/null``."""


@dataclass(frozen=True, slots=True)
class Package:
    """Program that a service needs, and the Debian package, or Python package with an extra, that contains it."""

    program: str
    package: str


def install_step(*packages: str) -> str:
    """Return the step that installs packages.

    Examples
    --------
    >>> install_step("xrootd-server")
    'install the Debian package xrootd-server'
    >>> install_step("venturi[root]")
    'install the Python package venturi[root]'
    """
    kind = "Python" if any("[" in package for package in packages) else "Debian"
    return f"install the {kind} package {' '.join(packages)}"


@dataclass(frozen=True, slots=True)
class ServiceSpec:
    """One service of a plan's header, with its name.

    Attributes
    ----------
    options
        All options of its kind, in base units, by :attr:`venturi.mover.base.Option.key`.
    storages
        Storages that it serves.
    after
        Services that must be ready before its configuration.
    """

    name: str
    kind: str
    host: str
    interface: str
    storages: tuple[str, ...] = ()
    options: Mapping[str, OptionValue] = field(default_factory=dict)
    after: tuple[str, ...] = ()
    ports: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class SshTarget:
    """Destination of ``ssh``: account, host name and port."""

    user: str
    host: str
    port: int = 22


@dataclass(frozen=True, slots=True)
class ServiceAccess:
    """Access to a service on a real host.

    Attributes
    ----------
    bind_address
        Numeric listening address. ``None``: all addresses of the host.
    client_addresses
        Numeric addresses of all hosts of the testbed. A service without authentication accepts only these.
    data_ports
        First and last port for connections to the host; ``None``: any.
    ssh
        Target of ``ssh`` for this host, if it is reached by ``ssh``.
    """

    bind_address: str | None
    client_addresses: tuple[str, ...]
    data_ports: tuple[int, int] | None = None
    ssh: SshTarget | None = None


class ServiceContext(Protocol):
    """Resources of one service.

    Services access files only through this context, and programs and accounts only through its host, because the host can
    be another machine.

    Attributes
    ----------
    spec
        Specification of the service.
    shell
        Host of the service.
    address, host_name
        Address of the service's interface, and the name that resolves to it.
    directory
        Temporary directory for configuration, state and logs, on the host. In a lab, all users can enter it; on a real host,
        only its owner.
    pki
        Temporary certificate authority (:class:`venturi.testbed.pki.Pki`), with paths on the host.
    access
        Access to the service on a real host; ``None`` in a lab.
    client_environment
        Environment variables of clients (``X509_USER_PROXY``, ``KRB5_CONFIG``). Services add variables. ``{session}`` in a
        value is replaced by the session directory of each host.
    """

    spec: ServiceSpec
    shell: HostShell
    address: str
    host_name: str
    directory: PurePath
    pki: Any
    access: ServiceAccess | None
    client_environment: dict[str, str]

    @property
    def exposed(self) -> bool:
        """Whether the host is a real host: other users can reach it."""
        ...

    @property
    def switches_user(self) -> bool:
        """Whether root starts the server and the server changes to another account. On real hosts, servers keep their account."""
        ...

    def path(self, storage: str) -> PurePath:
        """Return the absolute path of any storage on its host."""
        ...

    def peer(self, service: str) -> ServiceContext:
        """Return the context of another service (its KDC, data node or origin)."""
        ...

    def hosts(self) -> Mapping[str, HostShell]:
        """Return all hosts by name."""
        ...

    def write(self, path: PurePath, content: str | bytes, mode: int = 0o644) -> None:
        """Write a file on the host of the service. On a real host, only its owner can read it."""
        ...

    def read(self, path: PurePath) -> str:
        """Return the text of a file on the host of the service; FileNotFoundError if the file is missing."""
        ...

    def read_bytes(self, path: PurePath) -> bytes:
        """Return the content of a file on the host of the service; FileNotFoundError if the file is missing."""
        ...

    def exists(self, path: PurePath) -> bool:
        """Return whether a file or directory exists on the host of the service."""
        ...

    def remove(self, path: PurePath) -> None:
        """Remove a file, or a directory with its content; a missing one is not an error."""
        ...

    def make_directory(self, path: PurePath, mode: int = 0o755) -> None:
        """Create a directory with its parents. On a real host, only the owner can enter a new one."""
        ...

    def fetch(self, path: PurePath) -> Path:
        """Return a controller path with a copy of a file of the host. The path does not exist if the file is missing."""
        ...

    def client_path(self, name: str) -> str:
        """Return the path of a file of clients, for the environment or another file of clients."""
        ...

    def client_file(self, name: str, content: str | bytes, mode: int = 0o644) -> str:
        """Write a file for clients on each host and return its path. ``{session}`` in a text is replaced on each host."""
        ...

    def client_section(self, name: str, section: str, text: str) -> str:
        """Add or replace a section of a client file that several services share, and return its path."""
        ...

    def clients(self) -> Sequence[HostShell]:
        """Return the hosts of its clients."""
        ...

    def client_variables(self, shell: HostShell | None = None) -> dict[str, str]:
        """Return the environment of clients on a host; by default on the host of the service."""
        ...


Peers: TypeAlias = Callable[[str], ServiceSpec]
"""Returns the specification of another service by its name."""


def reject_invalid_options(service: ServiceKind, context: ServiceContext) -> None:
    """Reject conflicting options and storages, because plans can come from other sources than checked scenarios.

    Raises
    ------
    BackendError
        With the validation error of the service.
    """
    validation_error = find_validation_error(service, context.spec, lambda name: context.peer(name).spec)
    if validation_error is not None:
        raise BackendError(f"{context.spec.name}: {validation_error}")


def find_validation_error(service: ServiceKind, spec: ServiceSpec, peers: Peers) -> str | None:
    """Return the validation error of a service, or ``None``."""
    check: Callable[[ServiceSpec, Peers], str | None] | None = getattr(service, "validation_error", None)
    return check(spec, peers) if check is not None else None


def find_hosts_obstacle(service: ServiceKind, spec: ServiceSpec) -> str | None:
    """Return the reason why a service runs only in a lab and not on real hosts, or ``None``."""
    check: Callable[[ServiceSpec], str | None] | None = getattr(service, "hosts_obstacle", None)
    return check(spec) if check is not None else None


def missing_storage_error(spec: ServiceSpec) -> str | None:
    """Return the validation error of a file server without storage, or ``None``."""
    return None if spec.storages else "expected a storage to serve, found none; name one in `storage`"


def files_only(use: Use) -> str | None:
    """Return why a file server does not support a use, or ``None``."""
    return None if use in ("read", "write") else "it serves files of its storages, not devices"


class ServiceKind(Protocol):
    """Kind of server program. Stateless: the state of a service is in the directory of its context.

    Optional members:

    - ``unsupported_use(spec, use: Use) -> str | None``: reason for messages, or ``None`` if the service supports the use. Pure,
      because plans are checked with it.
    - ``single_client_per_port = True``: each port serves one client at a time.
    - ``serves_remote_storages = True``: its storages can be on other hosts. ``provides_storages = True``: it mounts its
      storage.
    - ``validation_error(spec, peers: Peers) -> str | None``: conflict of its options and storages, as "expected …, found …",
      or ``None``. Pure, because scenarios are checked with it, and labs again (:func:`reject_invalid_options`).
    - ``hosts_obstacle(spec) -> str | None``: reason why it runs only in a lab and not on real hosts, or ``None``. Pure.
    - ``required_ports``: number of its ports, if it needs more ports than its clients use.
    - ``open_to_all = True``: it has no access control (:func:`venturi.testbed.services.exposure.is_open_to_all`).

    Attributes
    ----------
    kind
        Name of the kind in scenarios.
    summary
        Description for users, in one sentence.
    packages
        Required programs with their packages.
    options
        Options in scenarios.
    default_ports
        Ports used if the scenario sets only their number.
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
        """Return the names of services in its options (its KDC, data nodes or origin). These services start first."""
        ...

    def service_ports(self, spec: ServiceSpec, host_name: str) -> Mapping[str, str]:
        """Return protocol → URL template with ``{path}``, ``{relative}``, ``{port}`` and perhaps ``{host}``. Pure."""
        ...

    def configure(self, context: ServiceContext) -> None:
        """Write the configuration to the context's directory and add to ``context.client_environment``."""
        ...

    def start(self, context: ServiceContext) -> Sequence[Process]:
        """Start the server processes and return them; they are stopped in reverse order."""
        ...

    def ready(self, context: ServiceContext) -> str | None:
        """Make a real request. Return None after success, otherwise the reason.

        Called until it succeeds, a process exits, or a timeout expires. One call takes at most 2 s.
        """
        ...

    def stop(self, context: ServiceContext, processes: Sequence[Process]) -> None:
        """Stop the processes and remove resources outside of the service's directory (mounts, shared memory)."""
        ...

    def logs(self, context: ServiceContext) -> Sequence[PurePath]:
        """Return the log files on the host of the service."""
        ...
