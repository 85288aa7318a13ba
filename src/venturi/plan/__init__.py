"""The plan: the only thing that crosses from intent to execution.

A plan is a header and, for each actor, a program of steps, as JSON Lines (the format is
documented in the reference, *The plan*). This package holds its types, writes and reads it, and
says before anything runs how much it will move and whether that fits on the disks.

Left out on purpose: making a plan (:mod:`venturi.workload`) and carrying one out
(:mod:`venturi.backend`). The same types live in Rust in ``crates/plan``.

Read :class:`Plan` first.
"""

from __future__ import annotations

from venturi.plan.emit import emit_header, emit_line, plan_lines, write_plan
from venturi.plan.estimate import Estimate, check_fits, estimate
from venturi.plan.header import (
    FORMAT,
    VERSION,
    Call,
    Dataset,
    Header,
    Host,
    LabHost,
    Measure,
    Place,
    Portion,
    Service,
    Storage,
    Totals,
)
from venturi.plan.network import BurstyLoss, Change, IndependentLoss, Interface, Link, Loss, Network
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
    Read,
    Release,
    Repeat,
    Signal,
    Step,
    Transfer,
    Trial,
    Wait,
)
from venturi.plan.whole import Plan

__all__ = [
    "FORMAT",
    "VERSION",
    "Acquire",
    "ActorLine",
    "Arrivals",
    "At",
    "BurstyLoss",
    "Call",
    "Change",
    "Compute",
    "Dataset",
    "Draw",
    "DropCaches",
    "Estimate",
    "Header",
    "Host",
    "IndependentLoss",
    "Interface",
    "LabHost",
    "Link",
    "Loss",
    "Measure",
    "Network",
    "Parallel",
    "Pause",
    "Place",
    "Plan",
    "Portion",
    "Prepare",
    "Read",
    "Release",
    "Repeat",
    "Service",
    "Signal",
    "Step",
    "Storage",
    "Totals",
    "Transfer",
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
