"""One thing that was looked at on this machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Check"]


@dataclass(frozen=True)
class Check:
    """One thing looked at.

    Attributes
    ----------
    group
        ``"needed"``: nothing works without it; ``"tools"``: a mover or feature needs it; ``"lab"``: a testbed made here needs it;
        ``"truth"``: measurements are worse without it.
    name, state, found
        What was looked at, whether it is ``"ok"``, ``"missing"`` or ``"limited"``, and what was seen.
    advice
        What to do about it; empty when nothing is to be done.
    """

    group: Literal["needed", "tools", "lab", "truth"]
    name: str
    state: Literal["ok", "missing", "limited"]
    found: str
    advice: str = ""
