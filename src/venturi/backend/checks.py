"""Checks before the first transfer: free space, tools, clocks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from venturi.backend.clock import ClockOffset
from venturi.errors import BackendError
from venturi.plan import Dataset, Header, check_fits, estimate, read_header
from venturi.run import Finding, RunWriter
from venturi.run.directory import PLAN
from venturi.testbed.tools import install_hint

__all__ = [
    "CLOCK_LIMIT_S",
    "check_free_space",
    "check_tools",
    "clock_findings",
    "clock_warning",
    "drift_finding",
    "missing_findings",
]

CLOCK_LIMIT_S = 1e-3
"""Offset of a clock, or its uncertainty, that causes a finding if exceeded: about a round trip within a site."""

CLOCK_WARNING_S = 1.0
"""A larger offset is reported immediately, because times in certificates and tokens are whole seconds."""


def check_free_space(
    run: RunWriter, ready: Mapping[str, Mapping[str, Any]], local_scratch: Mapping[str, str]
) -> None:
    """Reject a plan that would fill a disk.

    Parameters
    ----------
    run
        Run with the plan and the number of earlier sessions.
    ready
        Host → the agent's record `ready`.
    local_scratch
        Scratch directory of each host that is this machine. Existing datasets there are taken into account.

    Raises
    ------
    PlanError
        With every file system that is too small.
    """
    header = read_header(run.path / PLAN)
    free = {storage: size for record in ready.values() for storage, size in (record.get("free_bytes") or {}).items()}
    present: dict[str, int] = {}
    for dataset in header.datasets.values():
        size = _present_bytes(header, dataset, local_scratch, resumed=run.sessions_before > 0)
        present[dataset.storage] = present.get(dataset.storage, 0) + size
    check_fits(estimate(header), free, present_bytes=present, one_scratch=run.info.backend == "lab")


def _present_bytes(header: Header, dataset: Dataset, local_scratch: Mapping[str, str], *, resumed: bool) -> int:
    storage = header.storages[dataset.storage]
    if storage.host is None or storage.url is not None:
        return 0  # on servers
    scratch = local_scratch.get(storage.host)
    if scratch is None:
        # Another host is not searched. An earlier session has generated its datasets; a new run has generated none.
        return dataset.bytes if resumed else 0
    directory = Path(scratch, storage.path, dataset.path)
    try:
        sizes = [entry.stat().st_size for entry in directory.iterdir() if entry.name.isdigit()]
    except OSError:
        return 0
    return min(sum(sizes), dataset.bytes)


def check_tools(missing: Mapping[str, Mapping[str, list[str]]], used: Mapping[str, set[str]]) -> None:
    """Check that at least one call of the plan has its tools. A call without them fails alone, and the others run.

    Parameters
    ----------
    missing
        Host → call → its missing tools.
    used
        Host → calls of its actors.

    Raises
    ------
    BackendError
        If each call lacks a tool: with one line for each host and tool.
    """
    calls = [(host, missing.get(host, {}).get(call, [])) for host, names in used.items() for call in sorted(names)]
    if not calls or not all(tools for _, tools in calls):
        return
    lines = [
        f"{host}: {tool} was not found, and no trial can run without it; install {tool}{_in_brackets(install_hint(tool))},"
        f" or add its directory to PATH of {host}"
        for host, tool in dict.fromkeys((host, tool) for host, tools in calls for tool in tools)
    ]
    raise BackendError("\n".join(lines))


def _in_brackets(text: str) -> str:
    return f" ({text})" if text else ""


def missing_findings(host: str, missing: Mapping[str, list[str]], used: set[str]) -> Iterator[Finding]:
    """Yield a finding for each missing tool of the calls that actors on this host make."""
    calls_without: dict[str, list[str]] = {}
    for call, tools in missing.items():
        for tool in tools if call in used else ():
            calls_without.setdefault(tool, []).append(call)
    for tool, calls in calls_without.items():
        yield Finding(
            "missing-tool",
            tool,
            f"{tool} was not found on host {host}, and calls {', '.join(sorted(calls))} need it",
            f"install {tool} on {host}{_in_brackets(install_hint(tool))} or add it to PATH there. Its transfers are recorded as missing; the run continues with all others.",
            host=host,
        )


def drift_finding(host: str, first: ClockOffset, last: ClockOffset) -> Finding | None:
    """Return a finding if the offset of a clock certainly changed by more than the limit since the first reading."""
    drift_s = last.offset_s - first.offset_s
    if abs(drift_s) - first.uncertainty_s - last.uncertainty_s <= CLOCK_LIMIT_S:
        return None
    return Finding(
        "clock-drift",
        host,
        f"its clock was {first.offset_s * 1e3:+.3f} ms from the controller's at the start, and {last.offset_s * 1e3:+.3f} ms at the end",
        "Venturi corrected its times by the first offset. Synchronize its clock with NTP or PTP.",
        host=host,
    )


def clock_findings(host: str, clock: ClockOffset | None, *, single_host: bool) -> Iterator[Finding]:
    """Yield a finding if the clock of a host is off, or, for comparison with other hosts, too uncertain."""
    if clock is None:
        return
    found = f"{clock.offset_s * 1e3:+.3f} ms ± {clock.uncertainty_s * 1e3:.3f} ms from the controller's"
    if abs(clock.offset_s) > CLOCK_LIMIT_S:
        yield Finding(
            "clock-offset",
            host,
            f"its clock is {found}",
            "Venturi corrected its times by this offset. Synchronize its clock with NTP or PTP.",
            host=host,
        )
    if clock.uncertainty_s > CLOCK_LIMIT_S and not single_host:
        yield Finding(
            "clock-uncertain",
            host,
            f"its clock is {found}; the shortest round trip limits the accuracy",
            "Do not compare times of different hosts below this uncertainty. Durations on one host are exact.",
            host=host,
        )


def clock_warning(host: str, clock: ClockOffset | None) -> str | None:
    """Return a message about a clock whose offset can make hosts reject certificates and tokens, or None.

    Examples
    --------
    >>> clock_warning("dtn1", ClockOffset(-5.0, 0.001))
    "the clock of dtn1 is 5.0 s behind the controller's: its times are corrected, but certificates and tokens can fail; synchronize it with NTP or PTP"
    """
    if clock is None or abs(clock.offset_s) < CLOCK_WARNING_S:
        return None
    where = "ahead of" if clock.offset_s > 0 else "behind"
    return (
        f"the clock of {host} is {abs(clock.offset_s):.1f} s {where} the controller's: its times are corrected, but certificates"
        " and tokens can fail; synchronize it with NTP or PTP"
    )
