"""nuttcp servers, memory to memory, started for each client by ``venturi-engine inetd``.

A single ``nuttcp -S`` rejects clients while it serves one (``--nofork``), goes into the background (without it), or exits
after one client (``-1``). The service ports are for control connections (``-P``). The client chooses the data ports (``-p``)
and the server opens them, so concurrent clients must choose different ports. A server whose client was killed would wait at
its data port forever, and the next client with this port would fail. So the listener kills the server first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from venturi.mover.nuttcp import DATA_PORTS_VARIABLE
from venturi.testbed.services.base import Package, Process, ServiceContext, ServiceSpec
from venturi.testbed.services.client_calls import run_error
from venturi.testbed.services.exposure import listen_address, local_address, socket_address
from venturi.testbed.services.probe import MemoryService

__all__ = ["NuttcpService"]

_DATA_PORT = 9990  # for the readiness check; nuttcp rejects ports below 5000


class NuttcpService(MemoryService):
    """``nuttcp`` servers."""

    kind = "nuttcp"
    summary = "nuttcp servers, memory to memory: any number of clients, each with its own data ports (-p)."
    packages = (Package("nuttcp", "nuttcp"),)
    default_ports = tuple(range(5000, 5064))

    def service_ports(self, spec: ServiceSpec, host_name: str) -> Mapping[str, str]:
        """Return ``nuttcp``, an address without a path."""
        return {"nuttcp": f"tcp://{host_name}:{{port}}"}

    def configure(self, context: ServiceContext) -> None:
        """Check the program. On a real host with ``open_ports``, clients use the upper half of the ports for data.

        Raises
        ------
        BackendError
            If the program is missing.
        """
        super().configure(context)
        if context.access is not None and context.access.data_ports is not None:
            low, high = context.access.data_ports
            middle = low + (high - low + 1) // 2
            context.client_environment[DATA_PORTS_VARIABLE] = f"{middle} {high - middle + 1}"

    def start(self, context: ServiceContext) -> Sequence[Process]:
        """Start one listener per port. It starts ``nuttcp`` for each client."""
        address = listen_address(context)
        return [
            context.shell.start(
                [
                    context.shell.engine,
                    "inetd",
                    "--end-with-client",
                    "--listen",
                    socket_address(address, port),
                    "nuttcp",
                    "-S",
                ],
                log=context.directory / f"{port}.out",
            )
            for port in context.spec.ports
        ]

    def ready(self, context: ServiceContext) -> str | None:
        """Transfer one buffer with the real client on each port."""
        low, high = (context.access and context.access.data_ports) or (None, None)
        for port in context.spec.ports:
            data_port = context.shell.free_ports(1, low, high)[0] if context.exposed else _DATA_PORT
            lack = run_error(
                context.shell, ["nuttcp", f"-P{port}", f"-p{data_port}", "-n1", "-l1024", local_address(context)]
            )
            if lack is not None:
                return lack
        return None
