"""``venturi transfer``: a managed job in place of a bare tool, as experiment 002 compared a hosted service with its tool."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from venturi.cost import FILE, Measured, MoverCost
from venturi.mover.base import Mover, Option, OutputError, ToolReport, output_text, resolve_options
from venturi.mover.curl import Curl
from venturi.mover.davix import Davix
from venturi.mover.gfal_copy import GfalCopy
from venturi.mover.globus_url_copy import GlobusUrlCopy
from venturi.mover.scp import Scp
from venturi.mover.shell import filled, shell
from venturi.mover.xrdcp import Xrdcp
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

_RUN = "the run of the study ani/managed in the lab, November 2026, by what the jobs say of themselves: "
_MOVERS: tuple[Mover, ...] = (GlobusUrlCopy(), Xrdcp(), Curl(), GfalCopy(), Davix(), Scp())
_SPEAKS = ("gsiftp", "ftp", "root", "roots", "davs", "https", "http")
_USUAL = {"globus-url-copy": ("gsiftp", "ftp"), "xrdcp": ("root", "roots"), "curl": ("http", "https")}
"""The tools that are taken where none is asked for, by what both ends speak."""
_ASKED = ("gsiftp", "ftp")
_CHECK = MoverCost(check_s=0.05, check_core_s=0.12, check_round_trips=13.0, check_byte_core_s=2e-9, checks=8)


def _costs() -> Iterator[Measured]:
    """Yield what jobs cost: each call what its tool does, the job itself, and its checksums."""
    for mover in _MOVERS:
        defaults = resolve_options(mover, {})
        for entry in getattr(mover, "costs", ()):
            own = {key: value for key, value in entry.options.items() if key == "fast"}
            ends = {*entry.sources, *entry.destinations} - {FILE}
            if not ends <= {*_SPEAKS} or any(
                defaults[key] != value for key, value in entry.options.items() if key not in own
            ):
                continue
            cost = _of_a_call(entry.cost)
            yield replace(entry, cost=cost, options={"tool": mover.name, **own})
            if ends <= {*_USUAL.get(mover.name, ())}:
                yield replace(entry, cost=cost, options={"tool": None, **own})
    for verify in ("adler32", "md5", "sha256"):
        origin = f"{_RUN}60 questions, 8 at a time; round trips: gfal-sum at 0.1, 20 and 60 ms, means of 4"
        yield Measured(_ASKED, _ASKED, _CHECK, origin, {"verify": verify})


def _of_a_call(cost: MoverCost) -> MoverCost:
    """Return what a call of a tool costs as part of a job, whose own start is known."""
    if cost.start_s is None or cost.start_core_s is None:
        return cost
    return replace(
        cost,
        start_s=_START_S,
        start_core_s=_START_CORE_S,
        session_s=cost.start_s + _CALL_S,
        session_core_s=cost.start_core_s + _CALL_CORE_S,
    )


_START_S, _START_CORE_S = 0.07, 0.5
"""Of a job: start of Python and the queue (0.35 to 0.6 s), and what is left of its time without calls."""
_CALL_S, _CALL_CORE_S = 0.016, 0.02
"""Of each call besides its tool: an agent of its own, and the queue; means of 30."""


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
    speaks: tuple[str, ...] = _SPEAKS
    lists: bool = True
    null_lists: bool = False
    options: tuple[Option, ...] = _OPTIONS
    costs: tuple[Measured, ...] = tuple(_costs())

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
