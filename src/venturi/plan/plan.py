"""Plan with a header and repeatable actor lines."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from venturi.plan.header import Header
from venturi.plan.steps import ActorLine

__all__ = ["Plan"]


@dataclass(frozen=True)
class Plan:
    """A header and its actor lines.

    Parameters
    ----------
    header
        Objects that the steps refer to.
    lines
        Actor lines; each iteration yields the same lines. It can generate the lines, or read them from a file, so a plan of
        a million transfers needs little memory.
    notes
        Facts about the inputs of the plan, for the user. The file of a plan does not contain them.
    """

    header: Header
    lines: Iterable[ActorLine]
    notes: tuple[str, ...] = ()
