"""Workloads: expand a scenario to a plan. Each kind has one file and one entry in :mod:`venturi.workload.table`.

The expansion is pure and deterministic: the same scenario and seed give the same plan, byte for byte. It uses no disk,
clock or network, and does not run the plan.

Read :func:`expand` first.
"""

from __future__ import annotations

# The packages `scenario` and `workload` depend on each other. Import `scenario` first: the kinds of workload need its
# field types.
import venturi.scenario  # noqa: F401
from venturi.workload.base import Workload
from venturi.workload.expand import expand
from venturi.workload.sweep import Sweep
from venturi.workload.table import KINDS

__all__ = ["KINDS", "Sweep", "Workload", "expand"]
