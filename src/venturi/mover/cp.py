"""``cp``: copy of one file, as in experiment 000-S1 and group 1 of 001."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from venturi.cost import FILE, LAB, MeasuredCost, MoverCost
from venturi.mover.base import Option, ToolReport
from venturi.plan import Call
from venturi.plan.header import OptionValue

__all__ = ["Cp"]

_COSTS = (
    MeasuredCost(
        (FILE,), (FILE,), MoverCost.of((0.0, 0.0006, 0.0)), f"{LAB}; 15 calls within one host, one file per call"
    ),
)


@dataclass(frozen=True, slots=True)
class Cp:
    """GNU ``cp``.

    ``reflink = "auto"`` is the default of ``cp`` since version 9: it clones extents or uses ``copy_file_range``, so possibly
    no bytes move. The default here is ``never``. ``fsync`` includes the time until the data are on stable storage; ``cp``
    alone leaves them in the page cache.
    """

    name: str = "cp"
    summary: str = "Copy one file within a host."
    requires: tuple[str, ...] = ("cp",)
    reads: bool = True
    writes: bool = True
    null_destination: bool = True
    protocols: tuple[str, ...] = ()
    lists: bool = False
    options: tuple[Option, ...] = (
        Option(
            "fsync", "boolean", False, "Wait until the copy is on stable storage (`sync FILE`, part of the duration)."
        ),
        Option(
            "reflink",
            "choice",
            "never",
            "`auto` clones extents or uses the kernel copy, so possibly no bytes move; `never` reads and writes every byte.",
            choices=("auto", "never"),
        ),
    )
    costs: tuple[MeasuredCost, ...] = _COSTS

    def call(self, options: Mapping[str, OptionValue]) -> Call:
        """Return the call of ``cp``."""
        copy = ("cp", f"--reflink={options['reflink']}")
        if not options["fsync"]:
            return Call(self.name, dict(options), (*copy, "{source}", "{destination}"), self.requires)
        script = f'{" ".join(copy)} "$1" "$2" && exec sync "$2"'
        argv = ("sh", "-c", script, "sh", "{source}", "{destination}")
        return Call(self.name, dict(options), argv, ("sh", "cp", "sync"))

    def parse(self, record: Mapping[str, Any]) -> ToolReport | None:
        """Return ``None``: ``cp`` prints no report."""
        return None
