"""Base of the servers of network tests: no files, no configuration, one process per port."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

from venturi.mover.base import Option
from venturi.testbed.services.base import Package, Process, ServiceContext, ServiceSpec
from venturi.testbed.services.programs import require

__all__ = ["MemoryService"]


class MemoryService:
    """Memory-to-memory server. Subclasses define its command, its address and its readiness check."""

    packages: tuple[Package, ...] = ()
    options: tuple[Option, ...] = ()
    open_to_all = True
    """These programs have no access control, but they serve no files."""

    def needs(self, spec: ServiceSpec) -> tuple[str, ...]:
        """Return nothing: it needs no other service."""
        return ()

    def configure(self, context: ServiceContext) -> None:
        """Check that the program is installed. There is no configuration.

        Raises
        ------
        BackendError
            If the program is missing.
        """
        require(context, self.packages)

    def stop(self, context: ServiceContext, processes: Sequence[Process]) -> None:
        """Stop the servers and the processes of their clients."""
        for process in reversed(processes):
            process.stop()

    def logs(self, context: ServiceContext) -> Sequence[PurePath]:
        """Return the output files."""
        return [context.directory / f"{port}.out" for port in context.spec.ports]
