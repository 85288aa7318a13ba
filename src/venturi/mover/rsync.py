"""``rsync``: the whole file, without delta or compression, so that its time is that of moving the bytes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from venturi.cost import FILE, LAB, Measured, MoverCost
from venturi.mover.base import Option, OutputError, ToolReport, output_text
from venturi.plan import Call
from venturi.plan.header import OptionValue

__all__ = ["Rsync"]

_SIZE = re.compile(r"^Total transferred file size: ([0-9]+) bytes$", re.MULTILINE)
_RATE = re.compile(r"^sent [0-9]+ bytes  received [0-9]+ bytes  ([0-9]+(?:[.][0-9]+)?) bytes/sec$", re.MULTILINE)

_COSTS = (
    Measured(
        (FILE,), (FILE,), MoverCost.of((0.0197, 0.0054, 0.0)), f"{LAB}; 15 calls within one host, one file a call"
    ),
)


@dataclass(frozen=True, slots=True)
class Rsync:
    """``rsync`` of one file.

    ``-W`` (whole file) and ``--no-compress`` are stated, not left to the defaults, which differ between local and
    remote use; ``--ignore-times`` has it copy even if a file of the same size and time is there. Numbers are asked for
    without digit grouping, whatever the locale.
    """

    name: str = "rsync"
    summary: str = "rsync of one whole file: no delta, no compression."
    requires: tuple[str, ...] = ("rsync",)
    reads: bool = True
    writes: bool = True
    null_destination: bool = False
    speaks: tuple[str, ...] = ()
    lists: bool = False
    options: tuple[Option, ...] = (
        Option("fsync", "boolean", False, "Have each written file flushed to stable storage (--fsync, rsync 3.2.4)."),
        Option("inplace", "boolean", False, "Write to the final name, without a temporary file and a rename."),
    )
    costs: tuple[Measured, ...] = _COSTS

    def call(self, options: Mapping[str, OptionValue]) -> Call:
        """Return how ``rsync`` is called."""
        flags = [f"--{name}" for name in ("fsync", "inplace") if options[name]]
        fixed = ("rsync", "-W", "--ignore-times", "--no-compress", "--no-human-readable", "--stats")
        argv = (*fixed, *flags, "{source}", "{destination}")
        return Call(self.name, dict(options), argv, self.requires, capture=True)

    def parse(self, record: Mapping[str, Any]) -> ToolReport:
        """Return what ``rsync --stats`` says: its rate counts protocol bytes and rounds the time to half seconds."""
        text = output_text(record, "stdout")
        size, rate = _SIZE.search(text), _RATE.search(text)
        if size is None or rate is None:
            raise OutputError('"Total transferred file size: N bytes" and "sent N bytes … bytes/sec"', text)
        return ToolReport(int(size[1]), float(rate[1]))
