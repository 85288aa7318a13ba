"""What is checked before the first byte moves: free space, tools, clocks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from venturi.backend.clock import ClockOffset
from venturi.plan import Dataset, Header, check_fits, estimate, read_header
from venturi.run import Finding, RunWriter
from venturi.run.directory import PLAN
from venturi.testbed.tools import how_to_get

__all__ = ["CLOCK_LIMIT_S", "check_free_space", "clock_findings", "missing_findings"]

CLOCK_LIMIT_S = 1e-3
"""Offset, or uncertainty of it, from which on a clock is worth a finding: about a round trip within a site."""


def check_free_space(
    run: RunWriter, ready: Mapping[str, Mapping[str, Any]], local_scratch: Mapping[str, str]
) -> None:
    """Refuse a plan that would fill a disk.

    Parameters
    ----------
    run
        Its plan, and whether there were sessions before.
    ready
        Host → the agent's record `ready`.
    local_scratch
        Scratch directory of each host that is this machine: there, data sets that exist already are counted.

    Raises
    ------
    PlanError
        Naming every file system that is too small.
    """
    header = read_header(run.path / PLAN)
    free = {place: size for record in ready.values() for place, size in (record.get("free_bytes") or {}).items()}
    present: dict[str, int] = {}
    for dataset in header.datasets.values():
        size = _present_bytes(header, dataset, local_scratch, resumed=run.sessions_before > 0)
        present[dataset.place] = present.get(dataset.place, 0) + size
    check_fits(estimate(header), free, present_bytes=present)


def _present_bytes(header: Header, dataset: Dataset, local_scratch: Mapping[str, str], *, resumed: bool) -> int:
    place = header.places[dataset.place]
    scratch = local_scratch.get(place.host)
    if scratch is None:
        # Another host is not searched: a session before has made what it needs, a new run has made nothing.
        return dataset.bytes if resumed else 0
    folder = Path(scratch, place.path, dataset.path)
    try:
        sizes = [entry.stat().st_size for entry in folder.iterdir() if entry.name.isdigit()]
    except OSError:
        return 0
    return min(sum(sizes), dataset.bytes)


def missing_findings(host: str, missing: Mapping[str, list[str]], used: set[str]) -> Iterator[Finding]:
    """Yield a finding for every tool that is not there, of the calls that actors on this host make."""
    calls_without: dict[str, list[str]] = {}
    for call, tools in missing.items():
        for tool in tools if call in used else ():
            calls_without.setdefault(tool, []).append(call)
    for tool, calls in calls_without.items():
        how = f" ({known})" if (known := how_to_get(tool)) else ""
        yield Finding(
            "missing-tool",
            tool,
            f"{tool} was not found on host {host}, and {', '.join(sorted(calls))} cannot be called without it",
            f"install {tool} on {host}{how} or put it on PATH there; its transfers are recorded as missing, the rest goes on",
            host=host,
        )


def clock_findings(host: str, clock: ClockOffset | None, *, alone: bool) -> Iterator[Finding]:
    """Yield a finding if the clock of a host is off, or, with other hosts to compare with, cannot be told well."""
    if clock is None:
        return
    found = f"{clock.offset_s * 1e3:+.3f} ms ± {clock.uncertainty_s * 1e3:.3f} ms from the controller's"
    if abs(clock.offset_s) > CLOCK_LIMIT_S:
        yield Finding(
            "clock-offset",
            host,
            f"its clock is {found}",
            "its times were corrected by this offset; let NTP or PTP hold its clock",
            host=host,
        )
    if clock.uncertainty_s > CLOCK_LIMIT_S and not alone:
        yield Finding(
            "clock-uncertain",
            host,
            f"its clock is {found}: no round trip was shorter",
            "do not compare times between hosts more finely than this; durations on one host are not touched",
            host=host,
        )
