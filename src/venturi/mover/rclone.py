"""``rclone copyto``: one file, with the statistics that it logs as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from venturi.mover.base import Option, OutputError, ToolReport, output_text
from venturi.plan import Call
from venturi.plan.header import OptionValue

__all__ = ["Rclone"]


@dataclass(frozen=True, slots=True)
class Rclone:
    """``rclone`` between local paths; its configuration file is not read, so that nothing hidden takes part."""

    name: str = "rclone"
    summary: str = "rclone copyto of one file between local paths, without its configuration file."
    requires: tuple[str, ...] = ("rclone",)
    reads: bool = True
    writes: bool = True
    null_destination: bool = False
    speaks: tuple[str, ...] = ()
    lists: bool = False
    options: tuple[Option, ...] = (
        Option("checksum", "boolean", True, "Compare checksums after the copy, as rclone does by itself."),
        Option("transfers", "integer", None, "Files in flight (--transfers); counts for directories only."),
        Option("streams", "integer", None, "Parallel streams for one large file (--multi-thread-streams)."),
    )

    def call(self, options: Mapping[str, OptionValue]) -> Call:
        """Return how ``rclone`` is called."""
        argv = (
            "rclone", "copyto", "--config=", "--use-json-log", "--stats=1h", "--stats-log-level=NOTICE",
            "--ignore-times", *(() if options["checksum"] else ("--ignore-checksum",)), ("--transfers", "{transfers}"),
            ("--multi-thread-streams", "{streams}"), "{source}", "{destination}",
        )  # fmt: skip
        return Call(self.name, dict(options), argv, self.requires, capture=True)

    def parse(self, record: Mapping[str, Any]) -> ToolReport:
        """Return what the last ``stats`` entry of the log says; a rate of 0 is none (rclone had no time to form one)."""
        text = output_text(record, "stderr")
        for line in reversed(text.splitlines()):
            report = _statistics(line)
            if report is not None:
                return report
        raise OutputError('a line of JSON with "stats"', text)


def _statistics(line: str) -> ToolReport | None:
    try:
        stats = json.loads(line)["stats"]
        size, rate, duration_s = int(stats["bytes"]), float(stats["speed"]), float(stats["elapsedTime"])
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
    if not math.isfinite(rate) or not math.isfinite(duration_s):
        return None
    return ToolReport(size, rate or None, duration_s)
