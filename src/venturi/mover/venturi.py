"""``venturi copy``: our own mover, called as the engine, measured like all others. Between places of one host, and from and to servers of FTP."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from venturi.mover.base import Option, OptionError, OutputError, ToolReport, output_text
from venturi.mover.shell import filled, shell
from venturi.plan import Call
from venturi.plan.header import Argument, OptionValue

__all__ = ["Venturi"]

_OPTIONS = (
    Option("concurrency", "integer", None, "Chunks of a large file at the same time, or sessions with a server; by default as it decides itself."),
    Option("streams", "integer", None, "Data connections of each session with a server; by default as it decides itself."),
    Option("pipelining", "integer", None, "Files that each session asks a server for ahead of their end; by default as it decides itself."),
    Option("window", "size", None, "Socket buffers of data connections, at both ends; by default the kernels find them.", minimum=4096),
    Option("congestion", "text", None, "Congestion control of our end of data connections, such as bbr; by default that of the system."),
    Option("block", "size", None, "Bytes of one read and write, or of a block sent to a server; by default as it decides itself.", minimum=4096),
    Option("fixed", "boolean", False, "Decide nothing: one worker, session, connection and file at a time, and 256 KiB, where the others do not say."),
    Option(
        "method",
        "choice",
        "copy",
        "`auto` may clone extents, so that no byte moves; `copy` moves them as fast as it can; `kernel` has the kernel copy; `buffers` reads and writes.",
        choices=("auto", "copy", "kernel", "buffers"),
    ),
    Option("direct", "boolean", False, "Past the page cache (O_DIRECT); a file system without it is copied through the cache."),
    Option("fsync", "boolean", False, "Have the copy on stable storage before it gets its name (--sync)."),
    Option("verify", "boolean", False, "Read both ends again and compare them, inside the timing."),
)  # fmt: skip
_MOST = {"concurrency": 1024, "streams": 256, "pipelining": 4096}
_EXPECTED = 'events, the last with "event": "end"'
_COUNTS = ("files", "moved_bytes", "kept", "errors")


@dataclass(frozen=True, slots=True)
class Venturi:
    """``venturi-engine copy`` of a file, or of a list of files.

    The default of ``method`` is ``copy``, so that a copy is a copy on every file system; ``auto`` is what ``venturi copy`` does by
    itself. A file that is there is always replaced.
    """

    name: str = "venturi"
    summary: str = (
        "Our own mover (`venturi copy`), within a host and from and to servers of FTP: a file is whole or not there."
    )
    requires: tuple[str, ...] = ("venturi-engine",)
    reads: bool = True
    writes: bool = True
    null_destination: bool = False
    null_lists: bool = False
    speaks: tuple[str, ...] = ("ftp",)
    lists: bool = True
    options: tuple[Option, ...] = _OPTIONS

    def call(self, options: Mapping[str, OptionValue]) -> Call:
        """Return how the engine is called.

        Raises
        ------
        OptionError
            If more is asked for than it has.
        """
        for name, most in _MOST.items():
            asked = options[name]
            if isinstance(asked, int) and asked > most:
                raise OptionError(f"venturi: expected a {name} of {most} or less, found {asked}")
        flags = {"fixed": "--fixed", "direct": "--direct", "fsync": "--sync", "verify": "--verify"}
        tool: tuple[Argument, ...] = (
            *("venturi-engine", "copy", "--json", "--no-target-directory", "--existing", "replace"),
            *("--method", "{method}"),
            *(flag for name, flag in flags.items() if options[name]),
            ("--concurrency", "{concurrency}"),
            ("--streams", "{streams}"),
            ("--pipelining", "{pipelining}"),
            ("--window", "{window_bytes}"),
            ("--congestion", "{congestion}"),
            ("--block", "{block_bytes}"),
        )
        # A list excludes places.
        several = shell(f'exec {filled(tool, options)} --list "$1"', "{list}")
        argv: tuple[Argument, ...] = (several, *tool, *("--", "{source}", "{destination}"))
        return Call(self.name, dict(options), argv, ("sh", *self.requires), capture=True)

    def parse(self, record: Mapping[str, Any]) -> ToolReport:
        """Return what its last event says: sizes of what is there now, its own clock, what it decided."""
        text = output_text(record, "stdout")
        told = list(_events(text))
        try:
            end = told[-1]
            detail: dict[str, float | int | str] = {name: int(end[name]) for name in _COUNTS}
            detail |= {event["what"]: int(event["value"]) for event in told if event["event"] == "decision"}
            ways = [str(event["how"]) for event in told if event["event"] == "file" and "how" in event]
            detail |= {"how": ways[-1]} if ways else {}
            size, duration_s = int(end["bytes"]), float(end["duration_s"])
        except (ValueError, KeyError, TypeError, IndexError, OverflowError) as error:
            raise OutputError(_EXPECTED, text) from error
        if end["event"] != "end" or not math.isfinite(duration_s):
            raise OutputError(_EXPECTED, text)
        return ToolReport(size, size / duration_s if size and duration_s else None, duration_s, detail=detail)


def _events(text: str) -> Iterator[dict[str, Any]]:
    """Yield the events; the middle of a long output may have been left out, and with it parts of lines."""
    for line in text.splitlines():
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(event, dict) and "event" in event:
            yield event
