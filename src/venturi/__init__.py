"""Venturi finds out how fast data can move between two places, and why it does not move faster.

A scenario is expanded into a plan, a plan is carried out and leaves a run, and a run is analysed:

    scenario ──expand──▶ plan ──carry out──▶ run ──analyse──▶ model ──ask──▶ answer

From here: :func:`simulate`, :func:`simulate_transfers` and :func:`ensemble`, which simulate; all else is in the packages.

Read :class:`venturi.plan.Plan` and :class:`venturi.run.Run` first: everything else leads to one of them or
starts from one.
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
    # Who wants something else need not wait for tables and testbeds.
    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module("venturi.simulation"), name)


__all__ = ["ensemble", "simulate", "simulate_transfers"]
