"""nuttcp servers, memory to memory, started for each client as by inetd.

Alone, ``nuttcp -S`` refuses clients while it serves one (``--nofork``), goes into the background by itself (without), or
ends after one (``-1``). The ports of the service are those of the control connections (``-P``). Those of the data are the
client's to choose (``-p``), and the server opens them: clients at the same time must not choose the same ones.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from venturi.testbed.services import listener
from venturi.testbed.services.base import Package, Process, Room, ServiceSpec
from venturi.testbed.services.calls import complaint
from venturi.testbed.services.probe import Probe

__all__ = ["Nuttcp"]

_DATA_PORT = 9990  # of the question whether it is ready: nuttcp takes none below 5000


class Nuttcp(Probe):
    """Servers of ``nuttcp``."""

    kind = "nuttcp"
    summary = "nuttcp servers, memory to memory: any number of clients, each with data ports of its own (-p)."
    packages = (Package("nuttcp", "nuttcp"),)
    default_ports = tuple(range(5000, 5064))

    def doors(self, spec: ServiceSpec, host_name: str) -> Mapping[str, str]:
        """Return ``nuttcp``, an address without a path."""
        return {"nuttcp": f"tcp://{host_name}:{{port}}"}

    def start(self, room: Room) -> Sequence[Process]:
        """Start what listens on each port."""
        command = [sys.executable, "-I", "-S", str(Path(listener.__file__)), room.address]
        return [
            room.machine.start([*command, str(port), "nuttcp", "-S"], log=room.folder / f"{port}.out")
            for port in room.spec.ports
        ]

    def ready(self, room: Room) -> str | None:
        """Have the real client move one buffer through each."""
        for port in room.spec.ports:
            lack = complaint(room.machine, ["nuttcp", f"-P{port}", f"-p{_DATA_PORT}", "-n1", "-l1024", room.address])
            if lack is not None:
                return lack
        return None
