"""Movers: tools that move bytes, with the command lines of their users.

Each tool has one file and one entry in :mod:`venturi.mover.table`. A mover defines its command line, its options and the
parser of its output. Its reported rate is compared with the measured rate, and never replaces it.

A mover only creates a :class:`venturi.plan.Call`; the agent starts the program.

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
