"""Workloads: from a scenario to a plan. One file a kind, and a table of them (:mod:`venturi.workload.table`).

Expanding is pure and deterministic: the same scenario and seed give the same plan, byte for byte. Left out on
purpose: looking at any disk, clock or network; carrying the plan out.

Read :func:`expand` first.
"""

from __future__ import annotations

# A scenario holds the table of one kind of workload, and a kind is written with the fields of scenarios: whichever of
# the two packages is asked for first, `scenario` has to begin, so that its field types exist when a kind needs them.
import venturi.scenario  # noqa: F401
from venturi.workload.base import Workload
from venturi.workload.expand import expand
from venturi.workload.sweep import Sweep
from venturi.workload.table import KINDS

__all__ = ["KINDS", "Sweep", "Workload", "expand"]
