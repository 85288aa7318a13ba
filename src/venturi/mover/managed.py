"""``venturi transfer``: a managed job in place of a bare tool, as experiment 002 compared a hosted service with its tool."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from venturi.mover.base import Option, OutputError, ToolReport, output_text
from venturi.mover.shell import filled, shell
from venturi.plan import Call
from venturi.plan.header import Argument, OptionValue

__all__ = ["Managed"]

_TOOLS = ("globus-url-copy", "xrdcp", "curl", "gfal-copy", "davix", "scp")
_OPTIONS = (
    Option("tool", "choice", None, "The mover that moves; by default the one of the protocols.", choices=_TOOLS),
    Option("concurrency", "integer", 4, "Calls of the tool at a time."),
    Option(
        "bundle",
        "integer",
        1,
        "Files that one call of the tool moves at most, where it takes pairs: `globus-url-copy`.",
    ),
    Option("streams", "integer", None, "Option `streams` of the tool, which must then be given."),
    Option("fast", "boolean", False, "Option `fast` of the tool, which must then be `globus-url-copy`."),
    Option("retries", "integer", 5, "Further tries of a transfer that failed in passing.", minimum=0),
    Option(
        "verify", "choice", "adler32", "Compare both ends afterwards.", choices=("none", "adler32", "md5", "sha256")
    ),
)


@dataclass(frozen=True, slots=True)
class Managed:
    """A job handed over and waited for: queue, attempts, comparison and its own start are all in the timing.

    The queue is ``.venturi-transfers`` in the scratch directory, and stays: its database holds every attempt.
    """

    name: str = "managed"
    summary: str = "A job of `venturi transfer`, which moves by another tool: queued, retried, compared."
    requires: tuple[str, ...] = ("sh", "venturi")
    reads: bool = True
    writes: bool = True
    null_destination: bool = True
    speaks: tuple[str, ...] = ("gsiftp", "ftp", "root", "roots", "davs", "https", "http")
    lists: bool = True
    null_lists: bool = False
    options: tuple[Option, ...] = _OPTIONS

    def call(self, options: Mapping[str, OptionValue]) -> Call:
        """Return how the job is handed over and waited for."""
        tool: tuple[Argument, ...] = (
            *("venturi", "transfer", "submit", "--run", "--json"),
            ("--mover", "{tool}"),
            ("--option", "streams={streams}"),
            *(("--option", "fast=true") if options["fast"] else ()),
            *("--concurrency", "{concurrency}", "--files-per-call", "{bundle}"),
            *("--retries", "{retries}", "--verify", "{verify}", "--queue"),
        )
        queue = "{scratch}/.venturi-transfers"
        argv = (
            shell(f'exec {filled(tool, options)} "$1" "$2"', queue, "{list}"),
            *tool, queue, "{source}", "{destination}",
        )  # fmt: skip
        return Call(self.name, dict(options), argv, self.requires, capture=True)

    def parse(self, record: Mapping[str, Any]) -> ToolReport:
        """Return what the job says of itself: bytes that arrived, and where its time went."""
        text = output_text(record, "stdout")
        try:
            told = json.loads(text)
            (job,) = told["jobs"]
            elapsed_s = float(job["elapsed_s"])
            detail = {name: float(job[name]) for name in ("wait_s", "move_s", "verify_s", "overhead_s")}
            counts = {
                name: int(job[name]) for name in ("calls", "attempts", "retries", "verified", "done_bytes", "unsized")
            }
            start_up_s = float(told["start_up_s"])
        except (ValueError, KeyError, TypeError) as error:
            raise OutputError("the job as JSON", text) from error
        # A size that nobody has told is not one of 0.
        moved = None if counts.pop("unsized") else counts["done_bytes"]
        counts.pop("done_bytes")
        said: dict[str, float | int | str] = {**detail, **counts, "start_up_s": start_up_s}
        return ToolReport(moved, moved / elapsed_s if moved and elapsed_s else None, elapsed_s, detail=said)
