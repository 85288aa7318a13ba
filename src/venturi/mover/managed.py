"""``managed``: a job of ``venturi transfer``, like the hosted service in experiment 002."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from venturi.cost import FILE, MeasuredCost, MoverCost
from venturi.mover.base import Mover, Option, OutputError, ToolReport, output_text, resolve_options
from venturi.mover.curl import Curl
from venturi.mover.davix import Davix
from venturi.mover.gfal_copy import GfalCopy
from venturi.mover.globus_url_copy import GlobusUrlCopy
from venturi.mover.scp import Scp
from venturi.mover.shell import format_shell_command, shell
from venturi.mover.xrdcp import Xrdcp
from venturi.plan import Call
from venturi.plan.header import Argument, OptionValue

__all__ = ["Managed"]

_TOOLS = ("globus-url-copy", "xrdcp", "curl", "gfal-copy", "davix", "scp")
_OPTIONS = (
    Option("tool", "choice", None, "Mover of the job. Default: selected by the protocols.", choices=_TOOLS),
    Option("concurrency", "integer", 4, "Concurrent calls of the tool."),
    Option(
        "bundle",
        "integer",
        1,
        "Maximum number of files in a call, for tools with lists of pairs (`globus-url-copy`).",
    ),
    Option("streams", "integer", None, "Option `streams` of the tool; requires `tool`."),
    Option("fast", "boolean", False, 'Option `fast` of the tool; requires `tool = "globus-url-copy"`.'),
    Option("retries", "integer", 5, "Maximum retries after a transient failure.", minimum=0),
    Option(
        "verify",
        "choice",
        "adler32",
        "Checksum to compare after the transfer.",
        choices=("none", "adler32", "md5", "sha256"),
    ),
)

_RUN = "the run of the study ani/managed in the lab, November 2026, from the reports of the jobs: "
_MOVERS: tuple[Mover, ...] = (GlobusUrlCopy(), Xrdcp(), Curl(), GfalCopy(), Davix(), Scp())
_PROTOCOLS = ("gsiftp", "ftp", "root", "roots", "davs", "https", "http")
_USUAL = {"globus-url-copy": ("gsiftp", "ftp"), "xrdcp": ("root", "roots"), "curl": ("http", "https")}
"""Default tools by the protocols of both endpoints."""
_CHECKSUM_PROTOCOLS = ("gsiftp", "ftp")
_CHECK = MoverCost(check_s=0.05, check_core_s=0.12, check_round_trips=13.0, check_byte_core_s=2e-9, checks=8)


def _costs() -> Iterator[MeasuredCost]:
    """Yield the costs of jobs: calls of the tool, the job itself, and checksums."""
    for mover in _MOVERS:
        defaults = resolve_options(mover, {})
        for entry in getattr(mover, "costs", ()):
            own = {key: value for key, value in entry.options.items() if key == "fast"}
            ends = {*entry.sources, *entry.destinations} - {FILE}
            if not ends <= {*_PROTOCOLS} or any(
                defaults[key] != value for key, value in entry.options.items() if key not in own
            ):
                continue
            cost = _cost_within_job(entry.cost)
            yield replace(entry, cost=cost, options={"tool": mover.name, **own})
            if ends <= {*_USUAL.get(mover.name, ())}:
                yield replace(entry, cost=cost, options={"tool": None, **own})
    for verify in ("adler32", "md5", "sha256"):
        origin = f"{_RUN}60 checksum requests, 8 at a time; round trips: gfal-sum at 0.1, 20 and 60 ms, means of 4"
        yield MeasuredCost(_CHECKSUM_PROTOCOLS, _CHECKSUM_PROTOCOLS, _CHECK, origin, {"verify": verify})


def _cost_within_job(cost: MoverCost) -> MoverCost:
    """Return the cost of a call of a tool within a job."""
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
"""Start of a job: Python and the queue (0.35 to 0.6 s CPU time), and the remaining time without calls."""
_CALL_S, _CALL_CORE_S = 0.016, 0.02
"""Additional time of each call: its agent and the queue; means of 30 calls."""


@dataclass(frozen=True, slots=True)
class Managed:
    """A submitted job: the duration includes queue, attempts, checksums and start.

    The queue is ``.venturi-transfers`` in the scratch directory; its database keeps every attempt.
    """

    name: str = "managed"
    summary: str = "A job of `venturi transfer` with another tool: with a queue, retries and checksums."
    requires: tuple[str, ...] = ("sh", "venturi")
    reads: bool = True
    writes: bool = True
    null_destination: bool = True
    protocols: tuple[str, ...] = _PROTOCOLS
    lists: bool = True
    null_lists: bool = False
    options: tuple[Option, ...] = _OPTIONS
    costs: tuple[MeasuredCost, ...] = tuple(_costs())

    def call(self, options: Mapping[str, OptionValue]) -> Call:
        """Return the call that submits the job and waits for it."""
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
            shell(f'exec {format_shell_command(tool, options)} "$1" "$2"', queue, "{list}"),
            *tool, queue, "{source}", "{destination}",
        )  # fmt: skip
        return Call(self.name, dict(options), argv, self.requires, capture=True)

    def parse(self, record: Mapping[str, Any]) -> ToolReport:
        """Return the report of the job: received bytes, and the times of its phases."""
        text = output_text(record, "stdout")
        try:
            output = json.loads(text)
            (job,) = output["jobs"]
            elapsed_s = float(job["elapsed_s"])
            detail = {name: float(job[name]) for name in ("wait_s", "move_s", "verify_s", "overhead_s")}
            counts = {
                name: int(job[name]) for name in ("calls", "attempts", "retries", "verified", "done_bytes", "unsized")
            }
            start_up_s = float(output["start_up_s"])
        except (ValueError, KeyError, TypeError) as error:
            raise OutputError("the job as JSON", text) from error
        # Unknown sizes are not 0.
        moved = None if counts.pop("unsized") else counts["done_bytes"]
        counts.pop("done_bytes")
        all_detail: dict[str, float | int | str] = {**detail, **counts, "start_up_s": start_up_s}
        return ToolReport(moved, moved / elapsed_s if moved and elapsed_s else None, elapsed_s, detail=all_detail)
