"""Rate limit of a run (``limits.rate``): each call of a mover gets an equal part, by the mover's option ``rate``."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from venturi.messages import Problem
from venturi.mover import Mover, Option
from venturi.plan import Plan
from venturi.plan.header import Call, OptionValue
from venturi.plan.steps import TransferStep, data_steps
from venturi.units import BITS_PER_BYTE, format_bytes
from venturi.workload.limits import max_concurrent

if TYPE_CHECKING:
    from venturi.scenario.model import Scenario

__all__ = ["limit_rate"]

_WHERE = "limits.rate"
_OPTION = "rate"


def limit_rate(plan: Plan, scenario: Scenario, movers: Mapping[str, Mover]) -> tuple[Plan, list[Problem]]:
    """Return a plan whose transfers together stay below ``limits.rate``, and why that is not possible.

    Parameters
    ----------
    plan
        The plan without this limit.
    scenario
        Scenario with the limit.
    movers
        All movers of the scenario, by name.
    """
    rate = scenario.limits.rate if scenario.limits is not None else None
    if rate is None:
        return plan, []
    number = max_concurrent(plan, together=scenario.workload.kind != "sweep")
    if math.isinf(number):
        return plan, [
            (_WHERE, "expected a fixed number of transfers at a time, found arrivals at a rate; remove limits.rate")
        ]
    if any(
        isinstance(step, TransferStep) and step.source_via is not None and step.destination_via is not None
        for line in plan.lines
        for step in data_steps(line.steps)
    ):
        return plan, [
            (
                _WHERE,
                "expected transfers from or to a file of a host (because only its mover limits the rate), found transfers"
                " between two servers; remove limits.rate",
            )
        ]
    limit_bytes_per_s = math.floor(rate / BITS_PER_BYTE / max(1, number))
    problems: list[Problem] = []
    calls = {
        name: _limited(call, movers, limit_bytes_per_s, int(number), problems)
        for name, call in plan.header.calls.items()
    }
    header = dataclasses.replace(plan.header, calls=calls)
    return Plan(header, plan.lines), list(dict.fromkeys(problems))


def _limited(
    call: Call, movers: Mapping[str, Mover], limit_bytes_per_s: int, number: int, problems: list[Problem]
) -> Call:
    """Return a call with a rate of at most ``limit_bytes_per_s`` bytes/s."""
    mover = movers[call.mover]
    option = _rate_option(mover)
    if option is None:
        known = ", ".join(name for name, other in movers.items() if other.protocols and _rate_option(other))
        problems.append(
            (
                _WHERE,
                f"expected a mover with a rate limit ({known}), found {call.mover}, which has none;"
                " use another mover, or remove limits.rate",
            )
        )
        return call
    each = call.options.get(option.each) if option.each else None
    part = limit_bytes_per_s // each if isinstance(each, int) else limit_bytes_per_s
    if part < option.minimum:
        problems.append(
            (
                _WHERE,
                f"expected at least {_text(option.minimum)} for each transfer of {call.mover}, found {_text(part)}"
                f" ({number} transfers at a time); increase limits.rate, or reduce the concurrent files, jobs or clients",
            )
        )
        return call
    part = min(part, option.maximum or part)
    written = call.options.get(option.key)
    options: dict[str, OptionValue] = {
        **call.options,
        option.key: min(part, written) if isinstance(written, int) else part,
    }
    limited = mover.call(options)
    return dataclasses.replace(call, options=limited.options, argv=limited.argv)


def _rate_option(mover: Mover) -> Option | None:
    return next((option for option in mover.options if (option.name, option.kind) == (_OPTION, "rate")), None)


def _text(bytes_per_s: int) -> str:
    return f"{format_bytes(bytes_per_s)}/s"
