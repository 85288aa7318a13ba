"""What the servers of network tests have in common: no files, no configuration, one process a port."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from venturi.mover.base import Option
from venturi.testbed.services.base import Package, Process, Room, ServiceSpec
from venturi.testbed.services.programs import require

__all__ = ["Probe"]


class Probe:
    """A kind of server from memory to memory. What it is, where it listens and whether it answers says the subclass."""

    packages: tuple[Package, ...] = ()
    options: tuple[Option, ...] = ()

    def needs(self, spec: ServiceSpec) -> tuple[str, ...]:
        """Return nothing: it stands alone."""
        return ()

    def configure(self, room: Room) -> None:
        """Look for the program; there is nothing to write.

        Raises
        ------
        BackendError
            If it is missing.
        """
        require(room, self.packages)

    def stop(self, room: Room, processes: Sequence[Process]) -> None:
        """Stop the servers, and what they have started for their clients."""
        for process in reversed(processes):
            process.stop()

    def logs(self, room: Room) -> Sequence[Path]:
        """Return what they printed."""
        return [room.folder / f"{port}.out" for port in room.spec.ports]
