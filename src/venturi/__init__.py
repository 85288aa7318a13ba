"""Venturi finds out how fast data can move between two places, and why it does not move faster.

A scenario is expanded into a plan, a plan is carried out and leaves a run, and a run is analysed:

    scenario ──expand──▶ plan ──carry out──▶ run ──analyse──▶ model ──ask──▶ answer

Read :class:`venturi.plan.Plan` and :class:`venturi.run.Run` first: everything else leads to one of them or
starts from one.
"""

__version__ = "0.1.0"
