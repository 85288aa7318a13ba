"""Operations on files of other hosts and of existing servers, which agents request from the controller."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from venturi.backend.remote_shell import RemoteHostShell
from venturi.backend.url_files import FileClient, UrlFiles, is_url, remove_created, run_directory
from venturi.plan import read_header
from venturi.run import Finding, RunWriter
from venturi.run.created import CreatedJournal
from venturi.run.directory import PLAN

__all__ = ["FileOperations"]

MAX_OPERATION_S = 604_800.0
"""Limit of an operation on files of another host, a week.

Preparing a dataset takes hours, and fails if it stalls.
"""


class FileOperations:
    """Files of the hosts and existing servers of a run.

    Parameters
    ----------
    run
        The run.
    shell_of
        Returns the shell of a host. It raises :class:`venturi.errors.BackendError` for a host without one.

    Attributes
    ----------
    run_directory
        Directory of the run on existing servers; ``None`` without them.
    """

    def __init__(self, run: RunWriter, shell_of: Callable[[str], RemoteHostShell]) -> None:
        self._run = run
        self._shell_of = shell_of
        self._servers: UrlFiles | None = None
        self._created: CreatedJournal | None = None
        self.run_directory: str | None = None

    def open(self) -> None:
        """Open the journal of created files, if the plan has storages on existing servers."""
        storages = read_header(self._run.path / PLAN).storages
        if any(storage.url is not None for storage in storages.values()):
            self._created = CreatedJournal(self._run.path)
            self.run_directory = run_directory(self._run.path.name, self._run.epoch_unix_ns)
            self._servers = UrlFiles(storages, self.run_directory, self._created, self.client)

    def client(self, host: str) -> FileClient:
        """Return the client for existing servers on a host."""
        return FileClient(self._shell_of(host))

    def check_access(self) -> None:
        """Check the access to the storages on existing servers: see :meth:`venturi.backend.url_files.UrlFiles.check_access`."""
        if self._servers is not None:
            self._servers.check_access()

    async def execute(self, host: str, operation: Mapping[str, Any]) -> Any:  # noqa: ANN401 - a value of JSON
        """Return the outcome of an operation on files of another host, or on existing servers.

        Raises
        ------
        BackendError
            If it fails.
        RunError
            If the journal of created files cannot be written.
        """
        destinations = operation.get("destinations")
        if destinations is None:
            path = operation.get("path") or operation.get("directory") or operation["files"]["directory"]
            return await self._execute_part(host, operation, on_servers=is_url(path))
        # A host can have both directories and files on servers.
        outcomes: list[Any] = [None] * len(destinations)
        outcome: Any = None
        for on_servers in (False, True):
            positions = [n for n, one in enumerate(destinations) if is_url(one["path"]) == on_servers]
            if not positions:
                continue
            part = {**operation, "destinations": [destinations[n] for n in positions]}
            outcome = await self._execute_part(host, part, on_servers=on_servers)
            key = "errors" if operation["operation"] == "remove" else "destinations"
            for position, one in zip(positions, outcome[key], strict=True):
                outcomes[position] = one
            outcome = {**outcome, key: outcomes}
        return outcome

    async def _execute_part(self, host: str, operation: Mapping[str, Any], *, on_servers: bool) -> Any:  # noqa: ANN401
        if on_servers and self._servers is not None:
            return await asyncio.to_thread(self._servers.execute, host, operation)
        shell = self._shell_of(host)
        result = await asyncio.wrap_future(shell.submit("operate", operation=operation, timeout_s=MAX_OPERATION_S))
        return result.get("outcome")

    @property
    def has_journal(self) -> bool:
        """Whether the journal of created files is open."""
        return self._created is not None

    async def remove_created(self) -> list[Finding]:
        """Remove all files of the run on existing servers, and return a finding for each file that remains."""
        journal, self._created = self._created, None
        if journal is None:
            return []
        try:
            problems = await asyncio.to_thread(remove_created, journal, self.client)
        finally:
            journal.close()
        step = f"run `venturi clean {self._run.path.name}` to remove the remaining files"
        return [Finding("server-files-remain", problem.partition(": ")[0], problem, step) for problem in problems]
