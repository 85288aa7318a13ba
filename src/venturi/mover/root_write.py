"""``root-write``: creates ROOT files of an exact size with uproot, as input of jobs."""

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
    """``venturi-root write``. A call for many files creates the missing files; further names are copies."""

    name: str = "root-write"
    summary: str = "Create ROOT files with random contents (uproot)."
    requires: tuple[str, ...] = ("venturi-root",)
    reads: bool = False
    writes: bool = True
    null_destination: bool = False
    protocols: tuple[str, ...] = ()
    lists: bool = True
    null_lists: bool = False
    options: tuple[Option, ...] = (
        Option(
            "unique",
            "integer",
            None,
            "Number of different files of a call; further files are copies.",
        ),
        Option("containers", "integer", 2, "Trees in a file."),
        Option("branches", "integer", 4, "Branches in a tree."),
        Option("baskets", "integer", 4, "Baskets in a branch; each one needs one read request."),
        Option("seed", "integer", 1, "Seed of the contents.", minimum=0),
    )

    def call(self, options: Mapping[str, OptionValue]) -> Call:
        """Return the call of ``venturi-root write``."""
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
        """Return ``None``: the agent checks the destination."""
        return None
