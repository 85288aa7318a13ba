"""Who carries a plan out.

A backend takes a plan and writes a run: it knows no statistics and prints nothing. `hosts` uses the machines there
are, this one and others over SSH; `lab` makes the hosts, their servers and the network between them first; `sim` computes what would
happen. What the first two leave out on purpose is everything an agent does by itself: starting
tools, measuring them, loops and barriers (``docs/reference/agent.md``).

Read :class:`Backend` first, then :class:`HostsBackend`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from venturi.backend.base import Backend, Outcome, Progress
from venturi.backend.clock import ClockOffset
from venturi.backend.engine import find_engine

if TYPE_CHECKING:
    from venturi.backend.hosts import HostsBackend
    from venturi.backend.lab import LabBackend
    from venturi.backend.sim import SimBackend
else:

    def __getattr__(name: str) -> type:
        if name not in _LATER:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(_LATER[name]), name)


__all__ = ["Backend", "ClockOffset", "HostsBackend", "LabBackend", "Outcome", "Progress", "SimBackend", "find_engine"]

# Who wants an agent or the engine only, as a worker of transfer jobs does, need not wait for tables and testbeds.
_LATER = {
    "HostsBackend": "venturi.backend.hosts",
    "LabBackend": "venturi.backend.lab",
    "SimBackend": "venturi.backend.sim",
}
