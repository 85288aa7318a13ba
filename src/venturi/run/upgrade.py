"""Upgrade of runs from format version 1 to version 2.

Version 2 renames columns, keys, finding codes and an event kind; values are the same. A reader makes its tables from
upgraded copies of the files and does not change the run. A resumed run is upgraded on the disk, because it gets new
lines.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from venturi.errors import RunError
from venturi.plan.upgrade import rename_keys, upgrade_header
from venturi.run import directory
from venturi.run.journal import remove_torn_lines

__all__ = [
    "CODES",
    "COLUMNS_BEFORE",
    "COUNTER_PREFIXES",
    "EVENT_KINDS",
    "LABELS",
    "PROPERTY_PREFIXES",
    "upgrade_line",
    "upgrade_lines",
    "upgrade_run",
]

_TRANSFER = {"asked_bytes": "requested_bytes", "bound": "bottleneck"}
_ROUTE = _TRANSFER | {
    "waited_s": "wait_s",
    "shortest_s": "min_duration_s",
    "longest_s": "max_duration_s",
    "alone_s": "unloaded_s",
}
_DIRECTIONS = {"there": "forward", "back": "reverse"}
_FACTORS = {"asked_bit_per_s": "requested_bit_per_s"}

COLUMNS_BEFORE = {new: old for old, new in _ROUTE.items()} | {
    f"factor_{new}": f"factor_{old}" for old, new in _FACTORS.items()
}
"""Column of a table → its name in version 1."""

CODES = {
    "limit-not-as-asked": "limit-mismatch",
    "wire-late": "emulator-late",
    "wire-memory": "emulator-memory",
    "wire-overrun": "emulator-overrun",
    "wire-interface-gone": "emulator-interface-gone",
    "children-left-behind": "orphan-processes",
    "sockets-not-seen": "sockets-unavailable",
    "cgroup-not-read": "cgroup-unreadable",
    "control-trace-cut": "control-trace-truncated",
    "receiver-holds-more": "receiver-has-more",
    "service-ended": "service-exited",
}
"""Finding code of version 1 → finding code now."""

EVENT_KINDS = {"service-ended": "service-exited"}
"""Event kind of version 1 → event kind now."""

COUNTER_PREFIXES = {"wire.": "emulator."}
"""Prefix of the counters of samples in version 1 → prefix now."""

LABELS = {'"way":"there"': '"direction":"forward"', '"way":"back"': '"direction":"reverse"'}
"""Part of the JSON text of labels in version 1 → the part now."""

PROPERTY_PREFIXES = {"places.": "storages."}
"""Prefix of the keys of the table `environment` in version 1 → prefix now."""

_HOST = {"places": "storages"}


def upgrade_line(line: Mapping[str, Any]) -> dict[str, Any]:
    """Return a line of a journal or of events with the names of version 2; a line of version 2 does not change.

    Examples
    --------
    >>> upgrade_line({"finding": {"code": "wire-late", "subject": "links"}})
    {'finding': {'code': 'emulator-late', 'subject': 'links'}}
    """
    found = dict(line)
    if isinstance(trial := found.get("trial"), Mapping):
        found["trial"] = _trial(trial)
    if isinstance(transfer := found.get("transfer"), Mapping):
        found["transfer"] = rename_keys(transfer, _TRANSFER)
    if isinstance(finding := found.get("finding"), Mapping):
        found["finding"] = _finding(finding)
    if isinstance(session := found.get("session"), Mapping):
        hosts = session.get("hosts") or {}
        found["session"] = {
            **session,
            "hosts": {name: rename_keys(properties, _HOST) for name, properties in hosts.items()},
        }
    if found.get("kind") in EVENT_KINDS:
        found["kind"] = EVENT_KINDS[found["kind"]]
    return found


def upgrade_lines(source: Path, target: Path) -> None:
    """Write the complete lines of a journal, or of events, to ``target`` with the names of version 2.

    Raises
    ------
    OSError
        If a file cannot be read or written.
    ValueError
        If a line is not a JSON object of a run; the message has its number.
    """
    with target.open("wb") as out:
        for number, line in enumerate(_complete_lines(source), 1):
            try:
                out.write(_upgraded(line))
            except (ValueError, TypeError, AttributeError) as error:
                raise ValueError(f"{source.name}, line {number}: expected a JSON object, found {error}") from error
        out.flush()
        os.fsync(out.fileno())


def upgrade_run(path: Path) -> None:
    """Upgrade a run of version 1 on the disk to version 2, so that it can be resumed. Requires the lock of the run.

    The steps are: journal and events, then ``run.json``, then the plan. Each step replaces a file atomically and can be
    repeated. If the process is killed between two steps, the next call completes the upgrade.

    Raises
    ------
    RunError
        If a line cannot be read or a file cannot be written. A plan with another hash is left to the writer, which rejects it.
    """
    info = directory.read_info(path)
    plan = path / directory.PLAN
    try:
        before = plan.read_bytes()
        after = _upgraded_plan(before)
        if info.version < directory.RUN_VERSION:
            if hashlib.sha256(before).hexdigest() != info.plan_sha256:
                return
            for name in (directory.JOURNAL, directory.EVENTS):
                _upgrade_file(path / name)
            # The new lines must be durable before run.json declares them.
            directory.sync_directory(path)
            info = replace(info, version=directory.RUN_VERSION, plan_sha256=hashlib.sha256(after).hexdigest())
            directory.write_info(path, info)
        if before != after and hashlib.sha256(after).hexdigest() == info.plan_sha256:
            directory.replace_text(plan, after.decode())
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise RunError(
            f"{path}: cannot upgrade the run to version {directory.RUN_VERSION}: {error}."
            " Make the directory writable and its files readable, or start a new run."
        ) from error


def _upgrade_file(path: Path) -> None:
    temporary = path.with_name(f".{path.name}.upgrade")
    if not path.exists():
        return
    try:
        # A power failure can leave unreadable lines at the end; AppendFile would remove them, too.
        remove_torn_lines(path)
        upgrade_lines(path, temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _trial(trial: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(trial)
    for key, names in (("transfers", _TRANSFER), ("routes", _ROUTE)):
        if isinstance(found.get(key), list):
            found[key] = [_labels(rename_keys(one, names)) for one in found[key]]
    if isinstance(found.get("findings"), list):
        found["findings"] = [_finding(one) for one in found["findings"]]
    if isinstance(found.get("factors"), Mapping):
        found["factors"] = rename_keys(found["factors"], _FACTORS)
    return found


def _labels(transfer: dict[str, Any]) -> dict[str, Any]:
    labels = transfer.get("labels")
    if not isinstance(labels, Mapping) or "way" not in labels:
        return transfer
    others = {key: value for key, value in labels.items() if key != "way"}
    return {**transfer, "labels": {**others, "direction": _DIRECTIONS.get(labels["way"], labels["way"])}}


def _finding(finding: Mapping[str, Any]) -> dict[str, Any]:
    code = finding.get("code")
    return {**finding, "code": CODES.get(str(code), code)}


def _complete_lines(source: Path) -> Iterator[bytes]:
    with source.open("rb") as lines:
        for line in lines:
            if line.endswith(b"\n"):
                yield line


def _upgraded(line: bytes) -> bytes:
    return json.dumps(upgrade_line(json.loads(line)), separators=(",", ":"), allow_nan=False).encode() + b"\n"


def _upgraded_plan(text: bytes) -> bytes:
    header, newline, actors = text.partition(b"\n")
    found = json.loads(header)
    if found.get("version") != 1:
        return text
    for old, new in _FACTORS.items():
        actors = actors.replace(f'"{old}":'.encode(), f'"{new}":'.encode())
    return json.dumps(upgrade_header(found), separators=(",", ":"), ensure_ascii=False).encode() + newline + actors
