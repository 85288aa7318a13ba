"""iperf3 servers, memory to memory: one per port, because each serves one client at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from venturi.testbed.services.base import Package, Process, ServiceContext, ServiceSpec
from venturi.testbed.services.client_calls import run_error
from venturi.testbed.services.exposure import local_address
from venturi.testbed.services.probe import MemoryService

__all__ = ["Iperf3Service"]


class Iperf3Service(MemoryService):
    """``iperf3`` servers."""

    kind = "iperf3"
    summary = "iperf3 servers, memory to memory: one server per port, each for one client at a time."
    packages = (Package("iperf3", "iperf3"),)
    default_ports = tuple(range(5201, 5265))
    single_client_per_port = True
    """A busy server rejects further clients, so plans are checked for concurrent clients."""

    def service_ports(self, spec: ServiceSpec, host_name: str) -> Mapping[str, str]:
        """Return ``iperf3``, an address without a path."""
        return {"iperf3": f"tcp://{host_name}:{{port}}"}

    def start(self, context: ServiceContext) -> Sequence[Process]:
        """Start one server per port."""
        return [
            context.shell.start(
                ["iperf3", "--server", *_bind(context), "--port", str(port), "--forceflush"],
                log=context.directory / f"{port}.out",
            )
            for port in context.spec.ports
        ]

    def ready(self, context: ServiceContext) -> str | None:
        """Transfer one block from each with the real client. A bare connection would leave a server waiting for its test."""
        for port in context.spec.ports:
            argv = ["iperf3", "--client", local_address(context), "--port", str(port), "--blockcount", "1"]
            argv += ["--length", "1K"]
            lack = run_error(context.shell, [*argv, "--connect-timeout", "1000"])
            if lack is not None:
                return lack
        return None


def _bind(context: ServiceContext) -> list[str]:
    address = context.address if context.access is None else context.access.bind_address
    return ["--bind", address] if address is not None else []
