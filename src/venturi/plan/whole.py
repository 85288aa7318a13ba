"""A whole plan: a header, and actor lines that can be gone through again and again."""

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
        What the steps refer to.
    lines
        Iterable any number of times, each time with the same lines. It need not hold them: the lines of a long
        plan are made as they are asked for, or read from its file, so that a million transfers need no memory.
    """

    header: Header
    lines: Iterable[ActorLine]
