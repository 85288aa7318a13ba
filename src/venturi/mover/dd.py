"""``read`` and ``write``: one half of a copy each, with ``dd``, as group 1 of experiment 001 separated them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from venturi.mover.base import Option, OutputError, ToolReport, output_text
from venturi.plan import Call
from venturi.plan.header import OptionValue

__all__ = ["Read", "Write"]

_COPIED = re.compile(r"^(\d+) bytes?(?: \([^)]*\))? copied, (\d+(?:\.\d+)?(?:e[+-]?\d{1,2})?) s, ", re.MULTILINE)
_BLOCK = Option("block", "size", 1 << 20, "Bytes a system call; also the memory that dd takes.")


@dataclass(frozen=True, slots=True)
class Read:
    """Read a file and keep nothing."""

    name: str = "read"
    summary: str = "Read one file and keep nothing (dd to /dev/null)."
    requires: tuple[str, ...] = ("dd",)
    reads: bool = True
    writes: bool = False
    null_destination: bool = True
    speaks: tuple[str, ...] = ()
    lists: bool = False
    options: tuple[Option, ...] = (
        _BLOCK,
        Option("direct", "boolean", False, "Past the page cache (O_DIRECT); not every file system can."),
    )

    def call(self, options: Mapping[str, OptionValue]) -> Call:
        """Return how ``dd`` is called."""
        flags = ("iflag=direct",) if options["direct"] else ()
        argv = ("dd", "if={source}", "of={destination}", "bs={block_bytes}", *flags)
        return Call(self.name, dict(options), argv, self.requires, capture=True, expect="nothing")

    def parse(self, record: Mapping[str, Any]) -> ToolReport:
        """Return what ``dd`` says."""
        return _parse(record)


@dataclass(frozen=True, slots=True)
class Write:
    """Write zeros to a file. A storage that compresses, or keeps no blocks of zeros, flatters itself here."""

    name: str = "write"
    summary: str = "Write one file of zeros (dd from /dev/zero); a storage that compresses flatters itself here."
    requires: tuple[str, ...] = ("dd",)
    reads: bool = False
    writes: bool = True
    null_destination: bool = True
    speaks: tuple[str, ...] = ()
    lists: bool = False
    options: tuple[Option, ...] = (
        _BLOCK,
        Option("direct", "boolean", False, "Past the page cache (O_DIRECT); not every file system can."),
        Option("fsync", "boolean", False, "Then wait until the file is on stable storage, inside the timing."),
    )

    def call(self, options: Mapping[str, OptionValue]) -> Call:
        """Return how ``dd`` is called."""
        flags = ("oflag=direct",) if options["direct"] else ()
        sync = ("conv=fsync",) if options["fsync"] else ()
        argv = ("dd", "if={source}", "of={destination}", "bs={block_bytes}", "count={bytes}", "iflag=count_bytes")
        return Call(self.name, dict(options), (*argv, *flags, *sync), self.requires, capture=True)

    def parse(self, record: Mapping[str, Any]) -> ToolReport:
        """Return what ``dd`` says."""
        return _parse(record)


def _parse(record: Mapping[str, Any]) -> ToolReport:
    text = output_text(record, "stderr")
    match = _COPIED.search(text)
    if match is None:
        raise OutputError('a line such as "1000 bytes copied, 0.1 s, 10 kB/s"', text)
    size, duration_s = int(match[1]), float(match[2])
    return ToolReport(size, size / duration_s if duration_s > 0 and size else None, duration_s)
