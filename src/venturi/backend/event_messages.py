"""Messages about events and failures of agents, for users."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from venturi.units import format_bytes

__all__ = ["format_event", "format_failure"]

MAX_REASON_CHARS = 300
"""Limit of a reason in characters. The report contains the full reason."""


def format_event(host: str, event: Mapping[str, Any]) -> str:
    """Return a message about an event of an agent. Empty for an event that is too short to show.

    Examples
    --------
    >>> format_event("node1", {"kind": "dataset", "detail": {"dataset": "gpfs-5MB", "made": 30, "reused": 0}})
    'generated dataset gpfs-5MB on node1: 30 files'
    >>> format_event("node1", {"kind": "drop_caches", "detail": {"dataset": "gpfs-5MB"}})
    ''
    """
    detail = event.get("detail") or {}
    name = f"dataset {detail.get('dataset', '')} on {host}"
    match event.get("kind"):
        case "progress":
            made = f"{detail['files']:,} of {detail['of_files']:,} files" if "of_files" in detail else ""
            size = (
                f"{format_bytes(detail['bytes'])} of {format_bytes(detail['of_bytes'])}"
                if "of_bytes" in detail
                else ""
            )
            return f"generating {name}: {', '.join(filter(None, (made, size)))}".removesuffix(": ")
        case "dataset":
            generated = int(detail.get("made") or 0)
            return f"generated {name}: {generated:,} file{'' if generated == 1 else 's'}" if generated else ""
        case "drop_caches" | "probe" | "lab-up" | "server-transfer" | "control" | "clock" | None:
            return ""
        case "counters-missing":
            return f"not measured on {host}: {', '.join(detail)}"
        case kind:
            return f"{str(kind).replace('_', ' ').replace('-', ' ')} on {host}"


def format_failure(trial: Mapping[str, Any]) -> str:
    """Return the reason of a failed trial from its record.

    It is the first failed transfer, or the first finding if no transfer failed.

    Examples
    --------
    >>> format_failure({"transfers": [{"outcome": "failed", "call": "cp", "error": "exit code 1", "stderr": "no space"}]})
    'cp failed: exit code 1: no space'
    >>> format_failure({"findings": [{"code": "prepare-failed", "evidence": "read-only file system"}]})
    'prepare-failed: read-only file system'
    """
    for transfer in trial.get("transfers") or ():
        if transfer.get("outcome") != "ok":
            stderr = " ".join(str(transfer.get("stderr") or "").split())
            error = str(transfer.get("error") or "")
            parts = [f"{transfer.get('call', 'a transfer')} {transfer.get('outcome')}", error]
            parts += [stderr] if stderr and not _ends_with_output(error, stderr) else []
            return ": ".join(word for word in parts if word)[:MAX_REASON_CHARS]
    for finding in trial.get("findings") or ():
        return f"{finding.get('code')}: {finding.get('evidence')}"[:MAX_REASON_CHARS]
    # The agent reports no failure, so the mover could not parse the output of its tool.
    return "cannot parse the output of the tool; the report shows it"


def _ends_with_output(error: str, stderr: str) -> bool:
    """Return whether an error, whose lines are joined by slashes, ends with the end of the tool's output."""
    tool_output = " ".join(error.partition(": ")[2].replace(" / ", " ").split())
    return bool(tool_output) and stderr.endswith(tool_output)
