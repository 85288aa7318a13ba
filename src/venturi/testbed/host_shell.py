"""Interface to one host of a testbed: commands, servers, files and ports there.

Services, probes and log readers use only this interface. A host of a lab implements it with namespaces of this machine
(:mod:`venturi.testbed.lab.host_shell`), an existing host with a process there (:mod:`venturi.backend.remote_shell`).
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Protocol

__all__ = ["HostShell", "Process"]


class Process(Protocol):
    """Server process on a host.

    Attributes
    ----------
    pid
        PID of the server: on this machine for a host of a lab, otherwise on its host.
    log
        File on its host with standard output and error.
    """

    @property
    def pid(self) -> int: ...  # noqa: D102 - described above
    @property
    def log(self) -> PurePath: ...  # noqa: D102

    def poll(self) -> int | None:
        """Return the exit code (negative: a signal), or None while the process runs."""
        ...

    def stop(self, *, signal: int = 15, grace_s: float = 5.0) -> None:
        """Send ``signal`` to the process group, after ``grace_s`` SIGKILL, and return after the exit."""
        ...


class HostShell(Protocol):
    """Interface of services and probes to one host. All paths are paths on that host.

    Attributes
    ----------
    name, host_name, address
        Name in the plan (``a``), host name (``a.lab.test``, ``dtn1.example.org``), and address for data: an IP address or a
        host name.
    privileged
        Whether the user is root, with root permissions on that machine. Servers can then switch to another user, and some must.
    engine
        Path of ``venturi-engine``.
    session
        Directory of this session: mode 0700, removed at the end.
    """

    @property
    def name(self) -> str: ...  # noqa: D102 - described above
    @property
    def host_name(self) -> str: ...  # noqa: D102
    @property
    def address(self) -> str: ...  # noqa: D102
    @property
    def privileged(self) -> bool: ...  # noqa: D102
    @property
    def engine(self) -> str: ...  # noqa: D102
    @property
    def session(self) -> PurePath: ...  # noqa: D102

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        environment: Mapping[str, str] | None = None,
        directory: PurePath | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command and return its exit code and output. A nonzero exit code is not an error.

        Raises
        ------
        subprocess.TimeoutExpired
            If the command takes longer. It is killed.
        """
        ...

    def start(
        self,
        argv: Sequence[str],
        *,
        log: PurePath,
        environment: Mapping[str, str] | None = None,
        directory: PurePath | None = None,
    ) -> Process:
        """Start a server in its own process group, with its output in ``log``.

        Raises
        ------
        BackendError
            If the server does not start.
        """
        ...

    def put(self, path: PurePath | str, content: bytes | str, mode: int = 0o600) -> None:
        """Write a file; missing parent directories are created with mode 0700.

        Raises
        ------
        OSError
            If the file cannot be written.
        """
        ...

    def get(self, path: PurePath | str) -> bytes:
        """Return the content of a file.

        Raises
        ------
        FileNotFoundError
            If the file does not exist.
        OSError
            If the file cannot be read.
        """
        ...

    def exists(self, path: PurePath | str) -> bool:
        """Return whether a file or directory with this path exists."""
        ...

    def remove(self, path: PurePath | str) -> None:
        """Remove a file, or a directory with its contents. A missing path is not an error.

        Raises
        ------
        OSError
            If the path cannot be removed.
        """
        ...

    def make_directory(self, path: PurePath | str, mode: int = 0o700) -> object:
        """Create a directory and its parents. An existing directory is not an error and keeps its mode.

        Raises
        ------
        OSError
            If the directory cannot be created.
        """
        ...

    def converse(self, address: str, port: int, lines: Sequence[str | None], timeout_s: float) -> list[str]:
        """Connect from this host to a server, send lines of text and return the last line of each reply.

        Parameters
        ----------
        lines
            Lines to send; None: only read a reply (the greeting). Empty: only connect.
        timeout_s
            Maximum time to connect, and for each reply, in seconds.

        Raises
        ------
        OSError
            If the connection fails or ends; earlier replies are lost.
        """
        ...

    def which(self, program: str) -> str | None:
        """Return the path of a program, from ``PATH`` or the system directories ``sbin``, or None."""
        ...

    def free_ports(self, count: int, low: int | None = None, high: int | None = None) -> list[int]:
        """Return free TCP ports, between ``low`` and ``high`` if both are set.

        Raises
        ------
        OSError
            If there are too few free ports.
        """
        ...
