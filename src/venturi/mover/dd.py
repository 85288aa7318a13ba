"""``read`` and ``write``: the two halves of a copy with ``dd``, as in group 1 of experiment 001."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from venturi.mover.base import Option, OutputError, ToolReport, output_text
from venturi.plan import Call
from venturi.plan.header import OptionValue

__all__ = ["ReadMover", "WriteMover"]

_COPIED = re.compile(r"^(\d+) bytes?(?: \([^)]*\))? copied, (\d+(?:\.\d+)?(?:e[+-]?\d{1,2})?) s, ", re.MULTILINE)
_BLOCK = Option("block", "size", 1 << 20, "Size of a system call, and memory of dd.")


@dataclass(frozen=True, slots=True)
class ReadMover:
    """Read a file and discard the data."""

    name: str = "read"
    summary: str = "Read one file and discard the data (dd to /dev/null)."
    requires: tuple[str, ...] = ("dd",)
    reads: bool = True
    writes: bool = False
    null_destination: bool = True
    protocols: tuple[str, ...] = ()
    lists: bool = False
    options: tuple[Option, ...] = (
        _BLOCK,
        Option("direct", "boolean", False, "Bypass the page cache (O_DIRECT); not on every file system."),
    )

    def call(self, options: Mapping[str, OptionValue]) -> Call:
        """Return the call of ``dd``."""
        flags = ("iflag=direct",) if options["direct"] else ()
        argv = ("dd", "if={source}", "of={destination}", "bs={block_bytes}", *flags)
        return Call(self.name, dict(options), argv, self.requires, capture=True, expect="nothing")

    def parse(self, record: Mapping[str, Any]) -> ToolReport:
        """Return the report of ``dd``."""
        return _parse(record)


@dataclass(frozen=True, slots=True)
class WriteMover:
    """Write zeros to a file. Storages with compression or sparse blocks seem faster here."""

    name: str = "write"
    summary: str = "Write one file of zeros (dd from /dev/zero); storages with compression seem faster."
    requires: tuple[str, ...] = ("dd",)
    reads: bool = False
    writes: bool = True
    null_destination: bool = True
    protocols: tuple[str, ...] = ()
    lists: bool = False
    options: tuple[Option, ...] = (
        _BLOCK,
        Option("direct", "boolean", False, "Bypass the page cache (O_DIRECT); not on every file system."),
        Option("fsync", "boolean", False, "Wait until the file is on stable storage (part of the duration)."),
    )

    def call(self, options: Mapping[str, OptionValue]) -> Call:
        """Return the call of ``dd``."""
        flags = ("oflag=direct",) if options["direct"] else ()
        sync = ("conv=fsync",) if options["fsync"] else ()
        argv = ("dd", "if={source}", "of={destination}", "bs={block_bytes}", "count={bytes}", "iflag=count_bytes")
        return Call(self.name, dict(options), (*argv, *flags, *sync), self.requires, capture=True)

    def parse(self, record: Mapping[str, Any]) -> ToolReport:
        """Return the report of ``dd``."""
        return _parse(record)


def _parse(record: Mapping[str, Any]) -> ToolReport:
    text = output_text(record, "stderr")
    match = _COPIED.search(text)
    if match is None:
        raise OutputError('a line such as "1000 bytes copied, 0.1 s, 10 kB/s"', text)
    size, duration_s = int(match[1]), float(match[2])
    return ToolReport(size, size / duration_s if duration_s > 0 and size else None, duration_s)
