"""Result of one check of this machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Check"]


@dataclass(frozen=True)
class Check:
    """Result of one check.

    Attributes
    ----------
    group
        ``"needed"``: required by every function; ``"tools"``: by a mover or feature; ``"lab"``: by the lab;
        ``"truth"``: by accurate measurements.
    name
        Checked object.
    state
        ``"ok"``, ``"missing"`` or ``"limited"``.
    found
        Observation.
    advice
        Next step; empty if none is necessary.
    """

    group: Literal["needed", "tools", "lab", "truth"]
    name: str
    state: Literal["ok", "missing", "limited"]
    found: str
    advice: str = ""
