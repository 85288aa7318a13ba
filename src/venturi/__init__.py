"""Venturi measures how fast data can move between two systems, and finds the bottleneck.

    scenario ──expand──▶ plan ──execute──▶ run ──analyse──▶ model ──predict──▶ throughput

This module exports :func:`simulate`, :func:`simulate_transfers` and :func:`ensemble`. The packages contain the other
functions.

Read :class:`venturi.plan.Plan` and :class:`venturi.run.Run` first: all packages create or use one of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from venturi.simulation.ensemble import ensemble
    from venturi.simulation.simulate import simulate
    from venturi.simulation.transfers import simulate_transfers
else:
    # Import the simulation only when it is used: it loads tables and testbeds.
    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module("venturi.simulation"), name)


__all__ = ["ensemble", "simulate", "simulate_transfers"]
