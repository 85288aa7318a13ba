"""The plan: the only input of a backend.

A plan has a header and a program of steps for each actor, as JSON Lines (reference page *The plan*). This package
defines its types, writes and reads it, and estimates bytes, time and disk space.

:mod:`venturi.workload` creates plans, :mod:`venturi.backend` runs them. ``crates/plan`` defines the same types in Rust.

Read :class:`Plan` first.
"""

from __future__ import annotations

from venturi.plan.emit import emit_header, emit_line, plan_lines, write_plan
from venturi.plan.estimate import PlanEstimate, check_fits, estimate
from venturi.plan.header import (
    FORMAT,
    VERSION,
    Call,
    Dataset,
    Header,
    Host,
    LabHost,
    Measure,
    PlanService,
    SizeGroup,
    Storage,
    StorageSpec,
    Totals,
)
from venturi.plan.network import BurstyLoss, IndependentLoss, Interface, LinkChange, Loss, Network, PlanLink
from venturi.plan.plan import Plan
from venturi.plan.read import TrialRow, actor_lines, read_header, read_plan, trials
from venturi.plan.steps import (
    Acquire,
    ActorLine,
    Arrivals,
    At,
    Compute,
    Draw,
    DropCaches,
    Parallel,
    Pause,
    Prepare,
    ReadStep,
    Release,
    Repeat,
    Signal,
    Step,
    TransferStep,
    Trial,
    Wait,
)

__all__ = [
    "FORMAT",
    "VERSION",
    "Acquire",
    "ActorLine",
    "Arrivals",
    "At",
    "BurstyLoss",
    "Call",
    "Compute",
    "Dataset",
    "Draw",
    "DropCaches",
    "Header",
    "Host",
    "IndependentLoss",
    "Interface",
    "LabHost",
    "LinkChange",
    "Loss",
    "Measure",
    "Network",
    "Parallel",
    "Pause",
    "Plan",
    "PlanEstimate",
    "PlanLink",
    "PlanService",
    "Prepare",
    "ReadStep",
    "Release",
    "Repeat",
    "Signal",
    "SizeGroup",
    "Step",
    "Storage",
    "StorageSpec",
    "Totals",
    "TransferStep",
    "Trial",
    "TrialRow",
    "Wait",
    "actor_lines",
    "check_fits",
    "emit_header",
    "emit_line",
    "estimate",
    "plan_lines",
    "read_header",
    "read_plan",
    "trials",
    "write_plan",
]
