"""``venturi copy``: our own mover, called as the engine, measured like all others. So far between places of one host."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from venturi.mover.base import Option, OptionError, OutputError, ToolReport, output_text
from venturi.plan import Call
from venturi.plan.header import Argument, OptionValue

__all__ = ["Venturi"]

_OPTIONS = (
    Option("concurrency", "integer", None, "Chunks of a large file at the same time; by default as it decides itself."),
    Option("block", "size", None, "Bytes of one read and write; by default as it decides itself.", minimum=4096),
    Option("fixed", "boolean", False, "Decide nothing: one worker and 256 KiB where the two above are not given."),
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
_MOST_WORKERS = 1024
_EXPECTED = 'events, the last with "event": "end"'
_COUNTS = ("files", "moved_bytes", "kept", "errors")


@dataclass(frozen=True, slots=True)
class Venturi:
    """``venturi-engine copy`` of one file.

    The default of ``method`` is ``copy``, so that a copy is a copy on every file system; ``auto`` is what ``venturi copy`` does by
    itself. A file that is there is always replaced.
    """

    name: str = "venturi"
    summary: str = (
        "Our own mover (`venturi copy`) of one file within a host: parallel chunks, a temporary name, a rename."
    )
    requires: tuple[str, ...] = ("venturi-engine",)
    reads: bool = True
    writes: bool = True
    null_destination: bool = False
    speaks: tuple[str, ...] = ()
    lists: bool = False
    options: tuple[Option, ...] = _OPTIONS

    def call(self, options: Mapping[str, OptionValue]) -> Call:
        """Return how the engine is called.

        Raises
        ------
        OptionError
            If more workers are asked for than it has.
        """
        concurrency = options["concurrency"]
        if isinstance(concurrency, int) and concurrency > _MOST_WORKERS:
            raise OptionError(f"venturi: expected a concurrency of {_MOST_WORKERS} or less, found {concurrency}")
        flags = {"fixed": "--fixed", "direct": "--direct", "fsync": "--sync", "verify": "--verify"}
        argv: tuple[Argument, ...] = (
            *("venturi-engine", "copy", "--json", "--no-target-directory", "--existing", "replace"),
            *("--method", "{method}"),
            *(flag for name, flag in flags.items() if options[name]),
            ("--concurrency", "{concurrency}"),
            ("--block", "{block_bytes}"),
            *("--", "{source}", "{destination}"),
        )
        return Call(self.name, dict(options), argv, self.requires, capture=True)

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
