"""Movers: tools that move bytes, called as their users call them.

One file a tool, and a table of them (:mod:`venturi.mover.table`). A mover says how it is called, what can be set, and
how its output is read; what it says of itself is evidence, never the measure.

Left out on purpose: starting anything. A mover only writes a :class:`venturi.plan.Call`; the agent starts it.

Read :class:`Mover` first.
"""

from __future__ import annotations

from venturi.mover.base import Mover, Option, OptionError, OutputError, ToolReport, resolve_options
from venturi.mover.command import Command
from venturi.mover.reference import movers_reference
from venturi.mover.table import BUILT_IN, ENTRY_POINTS, MoverError, movers

__all__ = [
    "BUILT_IN",
    "ENTRY_POINTS",
    "Command",
    "Mover",
    "MoverError",
    "Option",
    "OptionError",
    "OutputError",
    "ToolReport",
    "movers",
    "movers_reference",
    "resolve_options",
]
