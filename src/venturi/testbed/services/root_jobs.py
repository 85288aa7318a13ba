"""Jobs that read files of ROOT: on a worker node, a process with the libraries loaded, which each job is a fork of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from venturi.application.client import SOCKET
from venturi.mover.base import Option
from venturi.testbed.services.base import Package, Process, Room, ServiceSpec
from venturi.testbed.services.calls import complaint, must
from venturi.testbed.services.programs import require

__all__ = ["RootJobs"]

_PACKAGE = "venturi[root]"
_TRY_BYTES = 100_000


class RootJobs:
    """``venturi-root serve``; jobs of its host find it by a name in its network."""

    kind = "root-jobs"
    summary = "On a worker: has uproot and the XRootD client loaded, so that a job (root-read) is a fork and begins at once."
    packages = (Package("venturi-root", _PACKAGE),)
    options: tuple[Option, ...] = ()
    default_ports: tuple[int, ...] = ()

    def needs(self, spec: ServiceSpec) -> tuple[str, ...]:
        """Return nothing: it stands alone."""
        return ()

    def doors(self, spec: ServiceSpec, host_name: str) -> Mapping[str, str]:
        """Return nothing: jobs of its own host use it, through a socket there."""
        return {}

    def configure(self, room: Room) -> None:
        """Make a small file to try it with, which also tells whether uproot is installed.

        Raises
        ------
        BackendError
            If the program or uproot is missing.
        """
        require(room, self.packages)
        argv = ["venturi-root", "write", str(_try_file(room)), "--total", str(_TRY_BYTES)]
        must(room.machine, argv, where=room.spec.name, package=_PACKAGE, timeout_s=60.0)

    def start(self, room: Room) -> Sequence[Process]:
        """Start the server."""
        return [room.machine.start(["venturi-root", "serve", SOCKET], log=_output(room))]

    def ready(self, room: Room) -> str | None:
        """Have a job read the small file."""
        # `read` would do it by itself where there is no server, and say that all is well.
        return complaint(room.machine, ["venturi-root", "ask", str(_try_file(room))])

    def stop(self, room: Room, processes: Sequence[Process]) -> None:
        """Stop the server, and with its process group the jobs."""
        for process in reversed(processes):
            process.stop()

    def logs(self, room: Room) -> Sequence[Path]:
        """Return its output."""
        return [_output(room)]


def _try_file(room: Room) -> Path:
    return room.folder / "try"


def _output(room: Room) -> Path:
    return room.folder / "root-jobs.out"
