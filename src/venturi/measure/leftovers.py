"""Files of a measurement on existing servers: their journal, and their removal, even after an error."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from venturi.backend.connection import Connection, open_shell
from venturi.backend.remote_shell import RemoteHostShell
from venturi.backend.targets import TARGETS, read_targets
from venturi.backend.url_files import FileClient, remove_created
from venturi.errors import BackendError, RunError, VenturiError
from venturi.measure.endpoint import Endpoint
from venturi.report.toml import as_toml
from venturi.run.created import CREATED, CreatedJournal
from venturi.run.directory import INFO, LOCK
from venturi.run.lock import RunLock

__all__ = ["CLIENT", "Leftovers", "clean_measurement", "has_leftovers"]

CLIENT = "client"
"""Name of the host that uses the servers, in the journal and in the file of targets."""


class Leftovers:
    """Journal of the files on servers; a context manager that removes them after an error.

    Parameters
    ----------
    path
        New directory of the measurement.
    endpoint
        Host that uses the servers; its path does not matter.

    Raises
    ------
    RunError
        If the directory cannot be written.
    """

    def __init__(self, path: Path, endpoint: Endpoint) -> None:
        self._path = path
        target = {
            "ssh": endpoint.ssh,
            "connect": None if endpoint.connect is None else list(endpoint.connect),
            "cache": endpoint.cache,
            "environment": dict(endpoint.environment) if endpoint.environment else None,
        }
        try:
            path.mkdir(parents=True)
            (path / TARGETS).write_text(as_toml({CLIENT: target}) + "\n", encoding="utf-8")
        except OSError as error:
            raise RunError(
                f"{path}: cannot write: {error.strerror}. Choose another directory with --runs."
            ) from error
        self._lock = RunLock(path)
        self.journal = CreatedJournal(path)

    def remove(self, shell: RemoteHostShell | None = None) -> str | None:
        """Remove all remaining files; return the reason if a file cannot be removed.

        Parameters
        ----------
        shell
            Shell of the host; None, or a lost one: a new connection.
        """
        if shell is not None and not shell.is_lost:
            with suppress(BackendError):
                remove_created(self.journal, lambda host: FileClient(shell))
        if not self.journal.remaining:
            return None
        try:
            problems = _remove(self._path, self.journal, lambda url: None)
        except BackendError as error:
            problems = [str(error)]
        if not problems:
            return None
        count = len(self.journal.remaining)
        return f"{count} files or directories remain: {problems[0]}. Correct the cause, then run: venturi clean {self._path}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is not None and (remains := self.remove()) is not None and isinstance(error, VenturiError):
                error.args = (f"{error}\n{remains}",)
        finally:
            with suppress(RunError):
                self.journal.close()
            self._lock.release()
            if kind is not None and not self.journal.remaining:
                self._remove_directory()

    def _remove_directory(self) -> None:
        """Remove the directory of a measurement without a result."""
        with suppress(OSError):
            for name in (TARGETS, CREATED, LOCK):
                (self._path / name).unlink(missing_ok=True)
            self._path.rmdir()


def has_leftovers(path: Path) -> bool:
    """Return whether a directory belongs to a measurement with existing servers."""
    return (path / CREATED).is_file() and not (path / INFO).exists()


def clean_measurement(path: Path, on_removed: Callable[[str], None]) -> list[str]:
    """Remove the files of a measurement from servers; return the reason for each file that cannot be removed.

    Raises
    ------
    RunError
        If the measurement is active, or its files cannot be read.
    """
    lock = RunLock(path)
    try:
        journal = CreatedJournal(path)
        try:
            return _remove(path, journal, on_removed) if journal.remaining else []
        except BackendError as error:
            return [str(error)]
        finally:
            journal.close()
    finally:
        lock.release()


def _remove(path: Path, journal: CreatedJournal, on_removed: Callable[[str], None]) -> list[str]:
    target = read_targets(path / TARGETS)[CLIENT]
    name = target.ssh or ("this machine" if target.connect is None else "host")
    connection = Connection.to(name, ssh=target.ssh, connect=target.connect)
    with open_shell(connection, cache=target.cache, environment=target.environment) as shell:
        return remove_created(journal, lambda host: FileClient(shell), on_removed=on_removed)
