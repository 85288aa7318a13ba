"""Write a plan as canonical JSON Lines: fixed key order, no spaces, UTF-8, equal bytes for equal plans."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from venturi.plan.codec import ACTOR_LINE, HEADER
from venturi.plan.header import FORMAT, Header
from venturi.plan.plan import Plan
from venturi.plan.steps import ActorLine

__all__ = ["emit_header", "emit_line", "plan_lines", "write_plan"]

_ENCODE = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), check_circular=False).encode


def plan_lines(plan: Plan) -> Iterator[str]:
    """Yield the lines of a plan, header first, without line ends.

    Examples
    --------
    >>> from venturi.scenario import scenario_from
    >>> from venturi.workload import expand
    >>> document = {"venturi": 1, "name": "tiny", "testbed": {"host": {"here": {}},
    ...     "storage": {"disk": {"host": "here", "path": "data"}}},
    ...     "workload": {"kind": "sweep", "mover": "cp", "source": "disk", "destination": "disk",
    ...     "factors": {"size": ["1 kB"]}}}
    >>> lines = list(plan_lines(expand(scenario_from(document))))
    >>> lines[0][:64]
    '{"format":"venturi-plan","version":2,"name":"tiny","seed":1,"sca'
    >>> len(lines)
    2
    """
    yield emit_header(plan.header)
    for line in plan.lines:
        yield emit_line(line)


def write_plan(plan: Plan, path: str | Path) -> None:
    """Write a plan to a file, line by line, with little memory."""
    with Path(path).open("w", encoding="utf-8", newline="\n", buffering=1 << 20) as file:
        for line in plan_lines(plan):
            file.write(line)
            file.write("\n")


def emit_header(header: Header) -> str:
    """Return the first line of a plan."""
    return _ENCODE({"format": FORMAT, **HEADER.emit(header)})


def emit_line(line: ActorLine) -> str:
    """Return one actor line."""
    return _ENCODE(ACTOR_LINE.emit(line))
