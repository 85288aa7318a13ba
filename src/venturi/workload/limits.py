"""Limits of a run: the bytes and the simultaneous transfers of a plan."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from venturi.messages import Problem
from venturi.plan import Plan
from venturi.plan.header import Call
from venturi.plan.steps import Arrivals, Draw, Parallel, ReadStep, Repeat, Step, TransferStep, Trial
from venturi.units import format_bytes

if TYPE_CHECKING:
    from venturi.scenario.model import LimitsTable, Scenario

__all__ = ["limit_problems", "max_concurrent", "required_limits"]


def required_limits(scenario: Scenario) -> list[Problem]:
    """Return the limits that a scenario with storages on existing servers lacks."""
    storage = next((name for name, written in scenario.testbed.storage.items() if written.url), None)
    if storage is None:
        return []
    return [
        (
            f"limits.{key}",
            f"expected a limit such as {example} (because {storage} is on existing servers), found nothing;"
            " add it to [limits]",
        )
        for key, example in (("bytes", '"10 GB"'), ("time", '"10 min"'))
        if scenario.limits is None or getattr(scenario.limits, key) is None
    ]


def limit_problems(limits: LimitsTable, plan: Plan, workload: str) -> list[Problem]:
    """Return the limits that a plan exceeds; ``workload`` is the kind of the workload."""
    found: list[Problem] = []
    total = plan.header.totals.bytes
    if limits.bytes is not None and total is None:
        found.append(
            (
                "limits.bytes",
                "expected a plan with a fixed number of bytes, found transfers that repeat until a time;"
                " set their number in the workload, or replace limits.bytes by limits.time",
            )
        )
    elif limits.bytes is not None and total is not None and total > limits.bytes:
        found.append(
            (
                "limits.bytes",
                f"expected at most {format_bytes(limits.bytes)}, found a plan of {format_bytes(total)};"
                " reduce scale, sizes or repeat, or increase the limit",
            )
        )
    if limits.concurrent is not None:
        number = max_concurrent(plan, together=workload != "sweep")
        if number > limits.concurrent:
            count = "any number" if math.isinf(number) else f"up to {number:g}"
            found.append(
                (
                    "limits.concurrent",
                    f"expected at most {limits.concurrent} transfers at a time, found {count};"
                    " reduce the concurrent files, jobs or clients, or increase the limit",
                )
            )
    return found


def max_concurrent(plan: Plan, *, together: bool) -> float:
    """Return an upper limit of the transfers at a time; infinite for arrivals at a rate.

    Parameters
    ----------
    plan
        The plan.
    together
        Whether its actors run at the same time; in a sweep they take turns.
    """
    widths: dict[str, float] = {}
    for line in plan.lines:
        widths[line.actor] = max(widths.get(line.actor, 0), _width(line.steps, plan.header.calls))
    return (sum if together else max)(widths.values() or [0])


def _width(steps: Iterable[Step], calls: Mapping[str, Call]) -> float:
    """Return the largest number of transfers at a time in a sequence of steps."""
    found: float = 0
    for step in steps:
        match step:
            case TransferStep() | ReadStep():
                width = (
                    max(map(_clients, calls.values())) if isinstance(step.call, Draw) else _clients(calls[step.call])
                )
            case Trial() | Repeat():
                width = _width(step.steps, calls)
            case Arrivals():
                width = math.inf if _width(step.steps, calls) else 0
            case Parallel():
                width = sum(_width(child, calls) for child in step.children)
            case _:
                width = 0
        found = max(found, width)
    return found


def _clients(call: Call) -> float:
    """Return the clients of a call: load generators have many."""
    clients = call.options.get("clients")
    return clients if isinstance(clients, int) and not isinstance(clients, bool) else 1
