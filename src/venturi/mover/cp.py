"""``cp``: the plain copy of one file, as experiment 000-S1 and group 1 of 001 used it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from venturi.cost import FILE, LAB, Measured, MoverCost
from venturi.mover.base import Option, ToolReport
from venturi.plan import Call
from venturi.plan.header import OptionValue

__all__ = ["Cp"]

_COSTS = (
    Measured((FILE,), (FILE,), MoverCost.of((0.0, 0.0006, 0.0)), f"{LAB}; 15 calls within one host, one file a call"),
)


@dataclass(frozen=True, slots=True)
class Cp:
    """GNU ``cp``.

    ``reflink = "auto"`` is what ``cp`` does by itself since version 9: on a file system that can, it clones extents or
    lets the kernel copy (``copy_file_range``), and then no byte may move at all. The default here is ``never``, so
    that a copy is a copy; ``fsync`` adds the time until the data are on stable storage, which ``cp`` alone leaves to
    the page cache.
    """

    name: str = "cp"
    summary: str = "The plain copy of one file within a host."
    requires: tuple[str, ...] = ("cp",)
    reads: bool = True
    writes: bool = True
    null_destination: bool = True
    speaks: tuple[str, ...] = ()
    lists: bool = False
    options: tuple[Option, ...] = (
        Option(
            "fsync", "boolean", False, "Then wait until the copy is on stable storage (`sync FILE`, in the timing)."
        ),
        Option(
            "reflink",
            "choice",
            "never",
            "`auto` lets cp clone extents or hand the copy to the kernel, so that no byte may move at all; `never` "
            "reads and writes every byte.",
            choices=("auto", "never"),
        ),
    )
    costs: tuple[Measured, ...] = _COSTS

    def call(self, options: Mapping[str, OptionValue]) -> Call:
        """Return how ``cp`` is called."""
        copy = ("cp", f"--reflink={options['reflink']}")
        if not options["fsync"]:
            return Call(self.name, dict(options), (*copy, "{source}", "{destination}"), self.requires)
        script = f'{" ".join(copy)} "$1" "$2" && exec sync "$2"'
        argv = ("sh", "-c", script, "sh", "{source}", "{destination}")
        return Call(self.name, dict(options), argv, ("sh", "cp", "sync"))

    def parse(self, record: Mapping[str, Any]) -> ToolReport | None:
        """Return nothing: ``cp`` says nothing."""
        return None
