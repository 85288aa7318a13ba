"""Context of a service: its host, its files there, and its access control.

The lab and the backend ``hosts`` both create contexts (:mod:`venturi.testbed.lab.service_contexts`,
:mod:`venturi.backend.host_services`). They differ in paths, certificate authority and access control, because only the
network of a real host has other users. Start with :class:`ShellServiceContext`.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

from venturi.errors import BackendError
from venturi.testbed.host_shell import HostShell
from venturi.testbed.services.base import ServiceAccess, ServiceContext, ServiceSpec

__all__ = ["SESSION", "SharedServices", "ShellServiceContext"]

SESSION = "{session}"
"""Placeholder for the session directory of a host, in the environment and in the files of clients."""

_READ_BITS = 0o700


@dataclass
class SharedServices:
    """Data that all services of a testbed share.

    Attributes
    ----------
    shells
        All hosts by name.
    storages
        Storage → absolute path on its host.
    client_directory
        Directory for files of clients: a path that all hosts see, or a path with the prefix :data:`SESSION`.
    fetched
        Directory of the controller for copies of logs; ``None``: the controller sees the files of all hosts.
    contexts
        Contexts by the names of their services. The creator of the contexts fills it.
    client_environment
        Environment variables of clients.
    clients
        Service → hosts of its clients, if known.
    sections
        Client file → its sections by name.
    """

    shells: Mapping[str, HostShell]
    storages: Mapping[str, PurePath]
    client_directory: str
    fetched: Path | None = None
    contexts: dict[str, ServiceContext] = field(default_factory=dict)
    client_environment: dict[str, str] = field(default_factory=dict)
    clients: Mapping[str, Sequence[str]] = field(default_factory=dict)
    sections: dict[str, dict[str, str]] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)


class ShellServiceContext:
    """Context of one service: see :class:`venturi.testbed.services.base.ServiceContext`.

    Parameters
    ----------
    spec, address, host_name, directory
        See :class:`venturi.testbed.services.base.ServiceContext`.
    pki
        Certificates with paths on that host.
    access
        Access to the service on a real host; ``None`` in a lab.
    """

    def __init__(
        self,
        spec: ServiceSpec,
        shared: SharedServices,
        *,
        address: str,
        host_name: str,
        directory: PurePath,
        pki: Any,  # noqa: ANN401 - a Pki or a HostPki
        access: ServiceAccess | None = None,
    ) -> None:
        self.spec = spec
        self.shell = shared.shells[spec.host]
        self.address = address
        self.host_name = host_name
        self.directory = directory
        self.pki = pki
        self.access = access
        self.client_environment = shared.client_environment
        self._shared = shared

    @property
    def exposed(self) -> bool:
        """Whether the host is a real host: other users can reach it."""
        return self.access is not None

    @property
    def switches_user(self) -> bool:
        """Whether root starts the server and the server changes to another account. On real hosts, servers keep their account."""
        return self.shell.privileged and not self.exposed

    def path(self, storage: str) -> PurePath:
        """Return the absolute path of any storage on its host."""
        found = self._shared.storages.get(storage)
        if found is None:
            known = ", ".join(self._shared.storages)
            raise BackendError(f'{self.spec.name}: expected a storage of the testbed ({known}), found "{storage}"')
        return found

    def peer(self, service: str) -> ServiceContext:
        """Return the context of another service."""
        found = self._shared.contexts.get(service)
        if found is None:
            known = ", ".join(self._shared.contexts)
            raise BackendError(f'testbed.service.{self.spec.name}: expected one of {known}, found "{service}"')
        return found

    def hosts(self) -> Mapping[str, HostShell]:
        """Return all hosts by name."""
        return self._shared.shells

    def write(self, path: PurePath, content: str | bytes, mode: int = 0o644) -> None:
        """Write a file on the host of the service. On a real host, only its owner can read it."""
        self.shell.put(path, content, mode & _READ_BITS if self.exposed else mode)

    def read(self, path: PurePath) -> str:
        """Return the text of a file on the host of the service, with replacement characters for bytes that are not UTF-8.

        Raises
        ------
        FileNotFoundError
            If it does not exist.
        """
        return self.shell.get(path).decode("utf-8", errors="replace")

    def read_bytes(self, path: PurePath) -> bytes:
        """Return the content of a file on the host of the service.

        Raises
        ------
        FileNotFoundError
            If it does not exist.
        """
        return self.shell.get(path)

    def exists(self, path: PurePath) -> bool:
        """Return whether a file or directory exists on the host of the service."""
        return self.shell.exists(path)

    def remove(self, path: PurePath) -> None:
        """Remove a file, or a directory with its content; a missing one is not an error."""
        self.shell.remove(path)

    def make_directory(self, path: PurePath, mode: int = 0o755) -> None:
        """Create a directory with its parents. On a real host, only its owner can enter a new one."""
        self.shell.make_directory(path, mode & _READ_BITS if self.exposed else mode)

    def fetch(self, path: PurePath) -> Path:
        """Return a controller path with a copy of a file of the host. The path does not exist if the file is missing."""
        if self._shared.fetched is None:
            return Path(path)
        copy = self._shared.fetched / self.spec.name / path.name
        copy.unlink(missing_ok=True)
        try:
            content = self.shell.get(path)
        except FileNotFoundError:
            return copy
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(content)
        return copy

    def client_path(self, name: str) -> str:
        """Return the path of a file of clients, for the environment or another file of clients."""
        return f"{self._shared.client_directory}/{name}"

    def client_file(self, name: str, content: str | bytes, mode: int = 0o644) -> str:
        """Write a file for clients on each host and return its path. :data:`SESSION` in a text is replaced on each host."""
        path = self.client_path(name)
        everywhere = path.startswith(SESSION)
        for shell in self._shared.shells.values() if everywhere else [self.shell]:
            session = str(shell.session)
            own = content.replace(SESSION, session) if isinstance(content, str) and everywhere else content
            shell.put(path.replace(SESSION, session), own, mode & _READ_BITS if self.exposed else mode)
        return path

    def client_section(self, name: str, section: str, text: str) -> str:
        """Add or replace a section of a client file that several services share, and return its path."""
        with self._shared.lock:
            sections = self._shared.sections.setdefault(name, {})
            sections[section] = text
            return self.client_file(name, "\n\n".join([*(sections[key].strip() for key in sorted(sections)), ""]))

    def clients(self) -> Sequence[HostShell]:
        """Return the hosts of its clients; all other hosts if the creator of the contexts did not set them."""
        names = self._shared.clients.get(self.spec.name)
        if names is None:
            names = [name for name in self._shared.shells if name != self.spec.host] or [self.spec.host]
        return [self._shared.shells[name] for name in names]

    def client_variables(self, shell: HostShell | None = None) -> dict[str, str]:
        """Return the environment of clients on a host. Default: the host of the service."""
        session = str((shell or self.shell).session)
        return {name: value.replace(SESSION, session) for name, value in self.client_environment.items()}
