"""Who carries a plan out.

A backend takes a plan and writes a run: it knows no statistics and prints nothing. `hosts` uses the machines there
are, this one and others over SSH; `lab` makes the hosts, their servers and the network between them first. What both leave out on purpose is everything an agent does by itself: starting
tools, measuring them, loops and barriers (``docs/reference/agent.md``).

Read :class:`Backend` first, then :class:`HostsBackend`.
"""

from __future__ import annotations

from venturi.backend.base import Backend, Outcome, Progress
from venturi.backend.clock import ClockOffset
from venturi.backend.engine import find_engine
from venturi.backend.hosts import HostsBackend
from venturi.backend.lab import LabBackend

__all__ = ["Backend", "ClockOffset", "HostsBackend", "LabBackend", "Outcome", "Progress", "find_engine"]
