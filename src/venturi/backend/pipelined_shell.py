"""Host shell with pipelined writes, because each wait for a result takes a round trip.

The start of services writes many files. Read :class:`PipelinedShell` first.
"""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath
from typing import Any

from venturi.backend.remote_shell import (
    MAX_ATOMIC_BYTES,
    PathProperties,
    RemoteHostShell,
    RemoteListener,
    RemoteProcess,
)

__all__ = ["PipelinedShell"]


class PipelinedShell:
    """A host shell that does not wait for the results of writes: see :class:`venturi.testbed.host_shell.HostShell`.

    Commands that can depend on a file, and :meth:`flush`, first wait for all writes. If a write failed, each of them
    raises its error again.

    Parameters
    ----------
    shell
        The shell that executes the commands.
    """

    def __init__(self, shell: RemoteHostShell) -> None:
        self._shell = shell
        self._lock = threading.Lock()
        self._pending: dict[str, Callable[[], object]] = {}
        self.name = shell.name
        self.host_name = shell.host_name
        self.address = shell.address
        self.node_name = shell.node_name
        self.privileged = shell.privileged
        self.engine = shell.engine
        self.session = shell.session

    def flush(self) -> None:
        """Wait for all writes.

        Raises
        ------
        OSError
            If one failed.
        """
        with self._lock:
            pending = dict(self._pending)
        for wait in pending.values():
            wait()
        with self._lock:
            for key, wait in pending.items():
                if self._pending.get(key) is wait:
                    del self._pending[key]

    def put(self, path: PurePath | str, content: bytes | str, mode: int = 0o600) -> None:
        """Write a file. A large file is complete when this returns."""
        data = content.encode() if isinstance(content, str) else content
        if len(data) > MAX_ATOMIC_BYTES:
            self.flush()
            self._shell.put(path, data, mode)
        else:
            self._submit(str(path), lambda: self._shell.submit_put(path, data, mode))

    def make_directory(self, path: PurePath | str, mode: int = 0o700) -> None:
        """Create a directory and its parents."""
        self._submit(str(path), lambda: self._shell.submit_file("make_directory", path, mode=mode))

    def remove(self, path: PurePath | str) -> None:
        """Remove a file, or a directory with its contents."""
        self.flush()
        self._shell.remove(path)

    def get(self, path: PurePath | str) -> bytes:
        """Return the content of a file."""
        self.flush()
        return self._shell.get(path)

    def exists(self, path: PurePath | str) -> bool:
        """Return whether a file or directory exists at this path."""
        self.flush()
        return self._shell.exists(path)

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        environment: Mapping[str, str] | None = None,
        directory: PurePath | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command and return its exit code and output."""
        self.flush()
        return self._shell.run(argv, timeout_s=timeout_s, environment=environment, directory=directory)

    def start(
        self,
        argv: Sequence[str],
        *,
        log: PurePath,
        environment: Mapping[str, str] | None = None,
        directory: PurePath | None = None,
    ) -> RemoteProcess:
        """Start a server."""
        self.flush()
        return self._shell.start(argv, log=log, environment=environment, directory=directory)

    def which(self, program: str) -> str | None:
        """Return the path of a program, or None."""
        return self._shell.which(program)

    def converse(self, address: str, port: int, lines: Sequence[str | None], timeout_s: float) -> list[str]:
        """Connect from the host to a server, send lines of text and return the last line of each reply."""
        return self._shell.converse(address, port, lines, timeout_s)

    def free_ports(self, count: int, low: int | None = None, high: int | None = None) -> list[int]:
        """Return free TCP ports."""
        return self._shell.free_ports(count, low, high)

    def connect(self, host: str, port: int, **options: Any) -> PathProperties:  # noqa: ANN401 - those of the shell
        """Connect from the host to an address by TCP: see :meth:`RemoteHostShell.connect`."""
        return self._shell.connect(host, port, **options)

    def listen(self, **options: Any) -> RemoteListener:  # noqa: ANN401 - those of the shell
        """Open a port: see :meth:`RemoteHostShell.listen`. Closing it does not wait."""
        listener = self._shell.listen(**options)

        def submit_close() -> Callable[[], object]:
            self._submit(f"listener on port {listener.port}", listener.submit_close)
            return lambda: None

        return RemoteListener(listener.port, submit_close)

    def _submit(self, key: str, submit: Callable[[], Callable[[], object]]) -> None:
        with self._lock:
            # Two writes of one path in flight could be reordered.
            if (earlier := self._pending.get(key)) is not None:
                earlier()
            self._pending[key] = submit()
