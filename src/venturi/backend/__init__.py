"""Backends, which execute plans.

A backend takes a plan and writes a run. It has no statistics and prints nothing. `hosts` uses existing machines: this
one, and others over SSH. `lab` first creates the hosts, their servers and the network between them. `sim` computes the
results of a simulation. In the first two, agents start and measure the tools, and execute loops and barriers
(``docs/reference/agent.md``).

Read :class:`Backend` first, then :class:`HostsBackend`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from venturi.backend.base import Backend, RunProgress, SessionOutcome
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


__all__ = [
    "Backend",
    "ClockOffset",
    "HostsBackend",
    "LabBackend",
    "RunProgress",
    "SessionOutcome",
    "SimBackend",
    "find_engine",
]

# Imported on first use: a user of only the agent or the engine, such as a worker of transfer jobs, does not load tables
# and testbeds.
_LATER = {
    "HostsBackend": "venturi.backend.hosts",
    "LabBackend": "venturi.backend.lab",
    "SimBackend": "venturi.backend.sim",
}
