"""The simulator from Python: a scenario in, a run out; columns of transfers in, columns of their ends out; ensembles of many runs.

What is computed, and what is left out: ``docs/concepts/sim.md``. Left out on purpose: printing, and callbacks while time passes.

Read :func:`simulate` first.
"""

from __future__ import annotations

from venturi.simulation.ensemble import Ensemble, ensemble
from venturi.simulation.member import FIGURES, Member
from venturi.simulation.simulate import simulate
from venturi.simulation.summary import Group, Summarised, summarise
from venturi.simulation.transfers import Transfers, simulate_transfers

__all__ = [
    "FIGURES",
    "Ensemble",
    "Group",
    "Member",
    "Summarised",
    "Transfers",
    "ensemble",
    "simulate",
    "simulate_transfers",
    "summarise",
]
