"""Registry of the objects that a lab creates on the machine.

Each object is registered before it is created, so that it can always be removed. Each lab has a JSON file below
``venturi-labs-UID`` in the parent directory of the labs. While the lab daemon lives, no other process touches the
listed objects. If PID, start time and boot prove the daemon dead, the next lab command removes the objects that the
registry identifies as the lab's own. No object is removed because of its name alone.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from venturi.errors import BackendError
from venturi.testbed.lab.process_id import ProcessId, boot_id

__all__ = ["PARENT_VARIABLE", "LabEntry", "labs_parent", "new_entry", "registered", "registry_lock", "remove_torn"]

PARENT_VARIABLE = "VENTURI_LAB"


def labs_parent() -> Path:
    """Return the parent directory of the labs: ``$VENTURI_LAB``, or the system's directory for temporary files."""
    return Path(os.environ.get(PARENT_VARIABLE) or tempfile.gettempdir()).absolute()


@dataclass
class LabEntry:
    """Registry entry of a lab. Every change is on disk when the method returns.

    Attributes
    ----------
    path
        File of the entry.
    name
        Name of the plan.
    directory
        Directory of the lab.
    daemon
        Process that owns the lab.
    boot
        Boot identifier of the machine at the creation of the lab.
    made
        Objects created in addition to the directory, in this order; each has a ``kind``.
    """

    path: Path
    name: str
    directory: Path
    daemon: ProcessId
    boot: str
    made: list[dict[str, Any]] = field(default_factory=list)

    @property
    def id(self) -> str:
        """Identifier, unique among the labs of this machine."""
        return self.path.stem

    @property
    def active(self) -> bool:
        """Whether the daemon of the lab is alive."""
        return self.boot == boot_id() and self.daemon.alive

    def register(self, kind: str, **values: str | int) -> None:
        """Register an object before its creation."""
        self.made.append({"kind": kind, **values})
        self.write()

    def removed(self, made: dict[str, Any]) -> None:
        """Remove an object from the entry."""
        self.made.remove(made)
        self.write()

    def write(self) -> None:
        """Write the file atomically."""
        content = {
            "name": self.name,
            "directory": str(self.directory),
            "daemon": self.daemon.as_json(),
            "boot": self.boot,
            "made": self.made,
        }
        # The name identifies the writer, so that the file of a killed writer can be removed.
        writer = _this_process()
        temporary = self.path.with_name(f"{self.id}.{writer.pid}-{writer.start_ticks}.new")
        temporary.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        temporary.replace(self.path)

    def close(self) -> None:
        """Remove the file of a removed lab, and the registry if it is then empty."""
        self.path.unlink(missing_ok=True)
        with suppress(OSError):  # not empty
            self.path.parent.rmdir()

    @classmethod
    def read(cls, path: Path) -> LabEntry:
        """Return the entry stored in a registry file."""
        content = json.loads(path.read_text(encoding="utf-8"))
        daemon = ProcessId.from_json(content["daemon"])
        return cls(path, content["name"], Path(content["directory"]), daemon, content["boot"], list(content["made"]))


def new_entry(name: str, parent: Path | None = None) -> LabEntry:
    """Register a lab owned by this process, with a new identifier.

    Raises
    ------
    BackendError
        If the parent directory cannot be used.
    """
    parent = parent or labs_parent()
    daemon = _this_process()
    while True:
        id_ = secrets.token_hex(3)
        directory, path = parent / f"venturi-{id_}", _registry(parent) / f"{id_}.json"
        if not directory.exists() and not path.exists():
            entry = LabEntry(path, name, directory, daemon, boot_id())
            with suppress(FileNotFoundError):  # the last other lab has just removed the registry directory
                entry.write()
                return entry


def registered(parent: Path | None = None) -> list[LabEntry]:
    """Return the labs of this user, oldest first."""
    found = []
    for path in _files(parent, "*.json"):
        with suppress(FileNotFoundError):  # just removed by its daemon
            found.append((path.stat().st_mtime, _readable(path)))
    found.sort(key=lambda pair: pair[0])
    return [entry for _, entry in found if entry is not None]


def remove_torn(parent: Path | None = None) -> None:
    """Remove the temporary files of this user's processes that were killed while writing an entry."""
    torn = [path for path in _files(parent, "*.new") if _is_torn(path)]
    for path in torn:
        path.unlink(missing_ok=True)
    if torn:
        with suppress(OSError):  # not empty
            _registry_path(parent or labs_parent()).rmdir()


@contextmanager
def registry_lock(parent: Path | None = None) -> Iterator[None]:
    """Hold an exclusive lock for the creation and removal of objects shared by all labs of this user."""
    descriptor = os.open(_registry(parent or labs_parent()), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _files(parent: Path | None, pattern: str) -> list[Path]:
    """Return the files of this user's registry that match a pattern."""
    registry = _registry_path(parent or labs_parent())
    try:
        return list(registry.glob(pattern)) if registry.stat().st_uid == os.geteuid() else []
    except (FileNotFoundError, NotADirectoryError):  # no registry, or just removed with its last entry
        return []


def _this_process() -> ProcessId:
    this = ProcessId.of(os.getpid())
    assert this is not None
    return this


def _is_torn(temporary: Path) -> bool:
    """Return whether the writer of a temporary file is dead."""
    writer = re.fullmatch(r"[0-9a-f]+\.(\d+)-(\d+)\.new", temporary.name)
    return writer is not None and not ProcessId(int(writer[1]), int(writer[2])).alive


def _readable(path: Path) -> LabEntry | None:
    try:
        return LabEntry.read(path)
    except (ValueError, KeyError, TypeError):
        return None  # not a registry file


def _registry_path(parent: Path) -> Path:
    return parent / f"venturi-labs-{os.geteuid()}"


def _registry(parent: Path) -> Path:
    path = _registry_path(parent)
    try:
        path.mkdir(mode=0o700, exist_ok=True)
        owner = path.stat().st_uid
    except OSError as error:
        raise BackendError(
            f"{path}: cannot register labs in this directory: {error.strerror}. Set {PARENT_VARIABLE} to a directory"
            " of this user that other users can enter."
        ) from error
    if owner != os.geteuid():
        raise BackendError(
            f"{path}: expected a directory of this user, found a directory of UID {owner}; set {PARENT_VARIABLE} to another directory"
        )
    return path
