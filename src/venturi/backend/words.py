"""What an agent says, in the words of somebody who waits for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from venturi.units import format_bytes

__all__ = ["event_in_words", "failure_in_words"]

_LONGEST = 300
"""Characters of a reason: the report has all of it."""


def event_in_words(host: str, event: Mapping[str, Any]) -> str:
    """Return what an event of an agent means to a spectator; empty if it passes too quickly to be worth a word.

    Examples
    --------
    >>> event_in_words("node1", {"kind": "dataset", "detail": {"dataset": "gpfs-5MB", "made": 30, "reused": 0}})
    'made data set gpfs-5MB on node1: 30 files'
    >>> event_in_words("node1", {"kind": "drop_caches", "detail": {"dataset": "gpfs-5MB"}})
    ''
    """
    detail = event.get("detail") or {}
    name = f"data set {detail.get('dataset', '')} on {host}"
    match event.get("kind"):
        case "progress":
            made = f"{detail['files']:,} of {detail['of_files']:,} files" if "of_files" in detail else ""
            size = (
                f"{format_bytes(detail['bytes'])} of {format_bytes(detail['of_bytes'])}"
                if "of_bytes" in detail
                else ""
            )
            return f"making {name}: {', '.join(filter(None, (made, size)))}".removesuffix(": ")
        case "dataset":
            made_now = int(detail.get("made") or 0)
            return f"made {name}: {made_now:,} file{'' if made_now == 1 else 's'}" if made_now else ""
        case "drop_caches" | "probe" | "lab-up" | "server-transfer" | "control" | None:
            return ""
        case kind:
            return f"{str(kind).replace('_', ' ').replace('-', ' ')} on {host}"


def failure_in_words(trial: Mapping[str, Any]) -> str:
    """Return why a trial failed, from its record: the first transfer that did, or the first finding if none was begun.

    Examples
    --------
    >>> failure_in_words({"transfers": [{"outcome": "failed", "call": "cp", "error": "exit code 1", "stderr": "no space"}]})
    'cp failed: exit code 1: no space'
    >>> failure_in_words({"findings": [{"code": "prepare-failed", "evidence": "read-only file system"}]})
    'prepare-failed: read-only file system'
    """
    for transfer in trial.get("transfers") or ():
        if transfer.get("outcome") != "ok":
            said = " ".join(str(transfer.get("stderr") or "").split())
            error = str(transfer.get("error") or "")
            words = [f"{transfer.get('call', 'a transfer')} {transfer.get('outcome')}", error]
            words += [said] if said and not _has_its_end(error, said) else []
            return ": ".join(word for word in words if word)[:_LONGEST]
    for finding in trial.get("findings") or ():
        return f"{finding.get('code')}: {finding.get('evidence')}"[:_LONGEST]
    # The agent has nothing against it, so it is the mover that could not make sense of what its tool said.
    return "the output of the tool is not what its mover knows; the report has it"


def _has_its_end(error: str, said: str) -> bool:
    """Return whether an error, in which lines are joined by slashes, ends as what the tool said does."""
    told = " ".join(error.partition(": ")[2].replace(" / ", " ").split())
    return bool(told) and said.endswith(told)
