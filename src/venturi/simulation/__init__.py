"""Python interface of the simulator: single runs, columns of transfers, and ensembles of many runs.

``docs/concepts/sim.md`` describes the model and its limits. By design, this package does not print and has no callbacks
at simulated times.

Read :func:`simulate` first.
"""

from __future__ import annotations

from venturi.simulation.ensemble import Ensemble, ensemble
from venturi.simulation.member import FIGURES, Member
from venturi.simulation.simulate import simulate
from venturi.simulation.summary import SeedGroup, Summarised, summarise
from venturi.simulation.transfers import TransferResults, simulate_transfers

__all__ = [
    "FIGURES",
    "Ensemble",
    "Member",
    "SeedGroup",
    "Summarised",
    "TransferResults",
    "ensemble",
    "simulate",
    "simulate_transfers",
    "summarise",
]
