"""iperf3 servers, memory to memory: one a port, since one serves one client at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from venturi.testbed.services.base import Package, Process, Room, ServiceSpec
from venturi.testbed.services.calls import complaint
from venturi.testbed.services.probe import Probe

__all__ = ["Iperf3"]


class Iperf3(Probe):
    """Servers of ``iperf3``."""

    kind = "iperf3"
    summary = "iperf3 servers, memory to memory: one a port, for one client at a time each."
    packages = (Package("iperf3", "iperf3"),)
    default_ports = tuple(range(5201, 5265))
    one_client_a_port = True
    """More at the same time are told that the server is busy; plans are checked for it."""

    def doors(self, spec: ServiceSpec, host_name: str) -> Mapping[str, str]:
        """Return ``iperf3``, an address without a path."""
        return {"iperf3": f"tcp://{host_name}:{{port}}"}

    def start(self, room: Room) -> Sequence[Process]:
        """Start one server a port."""
        return [
            room.machine.start(
                ["iperf3", "--server", "--bind", room.address, "--port", str(port), "--forceflush"],
                log=room.folder / f"{port}.out",
            )
            for port in room.spec.ports
        ]

    def ready(self, room: Room) -> str | None:
        """Have the real client move one block to each: a mere connection would leave a server waiting for its test."""
        for port in room.spec.ports:
            argv = ["iperf3", "--client", room.address, "--port", str(port), "--blockcount", "1", "--length", "1K"]
            lack = complaint(room.machine, [*argv, "--connect-timeout", "1000"])
            if lack is not None:
                return lack
        return None
