"""``root-write``: makes files of ROOT with uproot, of an exact size, for jobs to read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from venturi.mover.base import Option, ToolReport
from venturi.plan import Call
from venturi.plan.header import Argument, OptionValue

__all__ = ["RootWrite"]


@dataclass(frozen=True, slots=True)
class RootWrite:
    """``venturi-root write``. A call for many files makes those that are not there; files under more names than there are contents are copies."""

    name: str = "root-write"
    summary: str = "Makes files of ROOT with random contents (uproot)."
    requires: tuple[str, ...] = ("venturi-root",)
    reads: bool = False
    writes: bool = True
    null_destination: bool = False
    speaks: tuple[str, ...] = ()
    lists: bool = True
    null_lists: bool = False
    options: tuple[Option, ...] = (
        Option(
            "unique",
            "integer",
            None,
            "How many of the files of a call have contents of their own; others are copies.",
        ),
        Option("containers", "integer", 2, "Trees of a file."),
        Option("branches", "integer", 4, "Branches of a tree."),
        Option("baskets", "integer", 4, "Baskets of a branch: each is fetched with a request of its own."),
        Option("seed", "integer", 1, "Of the contents.", minimum=0),
    )

    def call(self, options: Mapping[str, OptionValue]) -> Call:
        """Return how ``venturi-root write`` is called."""
        shape = tuple(
            part for key in ("containers", "branches", "baskets", "seed") for part in (f"--{key}", f"{{{key}}}")
        )
        argv: tuple[Argument, ...] = (
            *("venturi-root", "write", "{destination}", "--total", "{bytes}", "--names", "{files}"),
            ("--unique", "{unique}"),
            *shape,
        )
        return Call(self.name, dict(options), argv, self.requires)

    def parse(self, record: Mapping[str, Any]) -> ToolReport | None:
        """Return nothing: what the receiver holds is looked at."""
        return None
