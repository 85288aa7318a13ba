"""Removal of the remains of a lab, as listed in its registry entry."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from venturi.testbed.lab.groups import disable_controllers, remove_group
from venturi.testbed.lab.memory import release_tcp_memory
from venturi.testbed.lab.process_id import ProcessId, boot_id, wait_for_exit
from venturi.testbed.lab.registry import LabEntry, registered, registry_lock, remove_torn
from venturi.testbed.lab.storage import release_loop, unthrottle

__all__ = ["remove_remains", "sweep"]

EXIT_TIMEOUT_S = 10.0


def sweep(parent: Path | None = None) -> list[str]:
    """Remove the remains of this user's dead labs; return a message for each object that could not be removed.

    A lab is dead if the process with the PID, start time and boot of its daemon no longer exists.
    """
    remove_torn(parent)
    if all(entry.active for entry in registered(parent)):
        return []
    with registry_lock(parent):
        return [problem for entry in registered(parent) if not entry.active for problem in remove_remains(entry)]


def remove_remains(entry: LabEntry) -> list[str]:
    """Remove the listed objects, newest first, then directory and entry; return a message for each object that remains."""
    problems = []
    # Processes first, because they use the other objects.
    namespaces = [made for made in entry.made if made["kind"] == "namespaces"]
    rest = [made for made in entry.made if made["kind"] != "namespaces"]
    for made in [*namespaces, *reversed(rest)]:
        # After a reboot, only files can remain.
        if entry.boot != boot_id() and made["kind"] not in ("disk", "directory"):
            continue
        problem = _remove(entry, made)
        if problem:
            problems.append(f"lab {entry.id}: {problem}")
        else:
            entry.removed(made)
    problem = _remove_directory(entry.directory)
    if problem:
        problems.append(f"lab {entry.id}: {problem}")
    if not problems:
        entry.close()
    return problems


def _remove(entry: LabEntry, made: Mapping[str, Any]) -> str:
    match made["kind"]:
        case "namespaces":
            init = ProcessId.from_json(made)
            gone = wait_for_exit(init, EXIT_TIMEOUT_S)
            return "" if gone else f"process {init.pid}, which owns its namespaces, is still running"
        case "cgroup":
            return (
                "" if remove_group(Path(made["path"])) else f"{made['path']}: cannot end the processes in this group"
            )
        case "controllers":
            disable_controllers(Path(made["path"]), made["controllers"].split())
            return ""
        case "disk":
            return "" if release_loop(Path(made["path"])) else f"{made['path']}: its loop device is still in use"
        case "throttle":
            unthrottle(made["device"], Path(made["group"]))
            return ""
        case "tcp_memory":
            release_tcp_memory(entry.id)
            return ""
        case "directory":
            return _remove_directory(Path(made["path"]))
        case kind:
            return f"{kind}: unknown to this version of Venturi; use the version that created it"


def _remove_directory(directory: Path) -> str:
    """Remove a directory of the lab, unless it contains a mount point."""
    inside = f"{directory}/"
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        mounted = line.split()[4]
        if f"{mounted}/".startswith(inside):
            return f"{mounted} is a mount point in it: unmount it, then run: venturi lab down --all"
    shutil.rmtree(directory, ignore_errors=True)
    return f"{directory}: cannot remove the directory; remove it by hand" if directory.exists() else ""
