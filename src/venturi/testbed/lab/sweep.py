"""Removing what a lab has left, from what its entry in the registry says."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from venturi.testbed.lab.groups import remove_group
from venturi.testbed.lab.living import ProcessId, boot_id, wait_until_gone
from venturi.testbed.lab.memory import release_tcp_memory
from venturi.testbed.lab.registry import Entry, registered, registry_lock, remove_torn
from venturi.testbed.lab.storage import release_loop, unthrottle

__all__ = ["remove_remains", "sweep"]

GONE_TIMEOUT_S = 10.0


def sweep(parent: Path | None = None) -> list[str]:
    """Remove what dead labs of this user have left; return what could not be removed, in words.

    A lab is dead when the process that kept it is: same PID, same start, same boot.
    """
    remove_torn(parent)
    if all(entry.kept for entry in registered(parent)):
        return []
    with registry_lock(parent):
        return [problem for entry in registered(parent) if not entry.kept for problem in remove_remains(entry)]


def remove_remains(entry: Entry) -> list[str]:
    """Remove all that an entry lists, last made first, then the lab's folder and the entry; return what is left, in words."""
    problems = []
    # Its processes first: they use all the rest.
    ground = [made for made in entry.made if made["kind"] == "ground"]
    rest = [made for made in entry.made if made["kind"] != "ground"]
    for made in [*ground, *reversed(rest)]:
        # After a reboot only files can be left.
        if entry.boot != boot_id() and made["kind"] not in ("disk", "folder"):
            continue
        problem = _remove(entry, made)
        if problem:
            problems.append(f"lab {entry.id}: {problem}")
        else:
            entry.removed(made)
    problem = _remove_folder(entry.folder)
    if problem:
        problems.append(f"lab {entry.id}: {problem}")
    if not problems:
        entry.close()
    return problems


def _remove(entry: Entry, made: Mapping[str, Any]) -> str:
    match made["kind"]:
        case "ground":
            init = ProcessId.from_json(made)
            gone = wait_until_gone(init, GONE_TIMEOUT_S)
            return "" if gone else f"process {init.pid}, which holds its namespaces, has not ended"
        case "cgroup":
            return "" if remove_group(Path(made["path"])) else f"{made['path']}: processes in it do not end"
        case "disk":
            return "" if release_loop(Path(made["path"])) else f"{made['path']}: its loop device is still in use"
        case "throttle":
            unthrottle(made["device"], Path(made["group"]))
            return ""
        case "tcp_memory":
            release_tcp_memory(entry.id)
            return ""
        case "folder":
            return _remove_folder(Path(made["path"]))
        case kind:
            return f"{kind}: not known to this version of Venturi; use the one that made it"


def _remove_folder(folder: Path) -> str:
    """Remove a folder of the lab, unless something is mounted in it that is not the lab's to remove."""
    inside = f"{folder}/"
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        mounted = line.split()[4]
        if f"{mounted}/".startswith(inside):
            return f"{mounted} is mounted there: unmount it, then run: venturi lab down --all"
    shutil.rmtree(folder, ignore_errors=True)
    return f"{folder}: cannot be removed; remove it by hand" if folder.exists() else ""
