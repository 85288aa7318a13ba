"""Jobs that read ROOT files: a process on a worker node with loaded libraries forks each job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePath

from venturi.application.client import SOCKET, SOCKET_VARIABLE
from venturi.mover.base import Option
from venturi.testbed.service_context import SESSION
from venturi.testbed.services.base import Package, Process, ServiceContext, ServiceSpec
from venturi.testbed.services.client_calls import run_checked, run_error
from venturi.testbed.services.programs import require

__all__ = ["RootJobs"]

_PACKAGE = "venturi[root]"
_TRY_BYTES = 100_000
_SOCKET_FILE = "root-jobs"


class RootJobs:
    """Service that runs ``venturi-root serve``. Its socket is abstract in a lab, in the session directory on a real host."""

    kind = "root-jobs"
    summary = "Process on a worker node with uproot and the XRootD client loaded. A job (root-read) is a fork of it and starts immediately."
    packages = (Package("venturi-root", _PACKAGE),)
    options: tuple[Option, ...] = ()
    default_ports: tuple[int, ...] = ()

    def needs(self, spec: ServiceSpec) -> tuple[str, ...]:
        """Return nothing: it needs no other service."""
        return ()

    def service_ports(self, spec: ServiceSpec, host_name: str) -> Mapping[str, str]:
        """Return nothing: jobs use it through a socket on the same host."""
        return {}

    def configure(self, context: ServiceContext) -> None:
        """Create a small file for the readiness check, which also checks that uproot is installed.

        Raises
        ------
        BackendError
            If the program or uproot is missing.
        """
        require(context, self.packages)
        if context.exposed:
            context.client_environment[SOCKET_VARIABLE] = f"{SESSION}/{_SOCKET_FILE}"
        argv = ["venturi-root", "write", str(_try_file(context)), "--total", str(_TRY_BYTES)]
        run_checked(context.shell, argv, where=context.spec.name, package=_PACKAGE, timeout_s=60.0)

    def start(self, context: ServiceContext) -> Sequence[Process]:
        """Start the server."""
        socket = str(context.shell.session / _SOCKET_FILE) if context.exposed else SOCKET
        return [context.shell.start(["venturi-root", "serve", socket], log=_output(context))]

    def ready(self, context: ServiceContext) -> str | None:
        """Read the small file in a job."""
        # The command `read` would also succeed without a server.
        argv = ["venturi-root", "ask", str(_try_file(context))]
        return run_error(context.shell, argv, environment=context.client_variables())

    def stop(self, context: ServiceContext, processes: Sequence[Process]) -> None:
        """Stop the server and its jobs, which are in its process group."""
        for process in reversed(processes):
            process.stop()

    def logs(self, context: ServiceContext) -> Sequence[PurePath]:
        """Return the output file."""
        return [_output(context)]


def _try_file(context: ServiceContext) -> PurePath:
    return context.directory / "try"


def _output(context: ServiceContext) -> PurePath:
    return context.directory / "root-jobs.out"
