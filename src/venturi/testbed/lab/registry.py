"""What a lab makes on the machine, written down before it is made, so that it can be removed whatever happens.

One JSON file a lab, below ``venturi-labs-UID`` in the labs' parent folder. While the process that keeps the lab lives, nobody else touches what is
listed. When it is dead, proved by PID, start time and boot, the next lab command removes what the list proves to be
the lab's own; nothing is ever removed because its name looks like ours.
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
from venturi.testbed.lab.living import ProcessId, boot_id

__all__ = ["PARENT_VARIABLE", "Entry", "labs_parent", "new_entry", "registered", "registry_lock", "remove_torn"]

PARENT_VARIABLE = "VENTURI_LAB"


def labs_parent() -> Path:
    """Return the folder in which labs have theirs: ``$VENTURI_LAB``, else the system's folder for temporary files."""
    return Path(os.environ.get(PARENT_VARIABLE) or tempfile.gettempdir()).absolute()


@dataclass
class Entry:
    """One lab in the registry. Every change is on the disk when the method returns.

    Attributes
    ----------
    path
        The file.
    name, folder
        Of the plan that it is made for, and the lab's folder.
    keeper
        The process that keeps it.
    boot
        The boot of the machine that it lives in.
    made
        What was made beside its folder, in this order; each with a ``kind``.
    """

    path: Path
    name: str
    folder: Path
    keeper: ProcessId
    boot: str
    made: list[dict[str, Any]] = field(default_factory=list)

    @property
    def id(self) -> str:
        """What tells this lab from the others of this machine."""
        return self.path.stem

    @property
    def kept(self) -> bool:
        """Whether its keeper lives."""
        return self.boot == boot_id() and self.keeper.alive

    def will_make(self, kind: str, **what: str | int) -> None:
        """Write down that something is about to be made."""
        self.made.append({"kind": kind, **what})
        self.write()

    def removed(self, made: dict[str, Any]) -> None:
        """Strike out what is gone."""
        self.made.remove(made)
        self.write()

    def write(self) -> None:
        """Write the file, whole or not at all."""
        content = {
            "name": self.name,
            "folder": str(self.folder),
            "keeper": self.keeper.as_json(),
            "boot": self.boot,
            "made": self.made,
        }
        # Named after who writes it, who may be killed before it has its name.
        writer = _this_process()
        beside = self.path.with_name(f"{self.id}.{writer.pid}-{writer.start_ticks}.new")
        beside.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        beside.replace(self.path)

    def close(self) -> None:
        """Remove the file: nothing is left of the lab. An empty registry goes with it."""
        self.path.unlink(missing_ok=True)
        with suppress(OSError):  # others are in it
            self.path.parent.rmdir()

    @classmethod
    def read(cls, path: Path) -> Entry:
        """Read a file of the registry."""
        content = json.loads(path.read_text(encoding="utf-8"))
        keeper = ProcessId.from_json(content["keeper"])
        return cls(path, content["name"], Path(content["folder"]), keeper, content["boot"], list(content["made"]))


def new_entry(name: str, parent: Path | None = None) -> Entry:
    """Register a lab that this process keeps, under an id of its own.

    Raises
    ------
    BackendError
        If the parent folder cannot be used.
    """
    parent = parent or labs_parent()
    keeper = _this_process()
    while True:
        id_ = secrets.token_hex(3)
        folder, path = parent / f"venturi-{id_}", _registry(parent) / f"{id_}.json"
        if not folder.exists() and not path.exists():
            entry = Entry(path, name, folder, keeper, boot_id())
            with suppress(FileNotFoundError):  # another lab was the last one, and took the registry with it just now
                entry.write()
                return entry


def registered(parent: Path | None = None) -> list[Entry]:
    """Return the labs of this user, the oldest first."""
    found = []
    for path in _files(parent, "*.json"):
        with suppress(FileNotFoundError):  # removed a moment ago by its keeper
            found.append((path.stat().st_mtime, _readable(path)))
    found.sort(key=lambda pair: pair[0])
    return [entry for _, entry in found if entry is not None]


def remove_torn(parent: Path | None = None) -> None:
    """Remove what this user's processes have left that were killed while they wrote an entry."""
    torn = [path for path in _files(parent, "*.new") if _is_torn(path)]
    for path in torn:
        path.unlink(missing_ok=True)
    if torn:
        with suppress(OSError):  # others are in it
            _registry_path(parent or labs_parent()).rmdir()


@contextmanager
def registry_lock(parent: Path | None = None) -> Iterator[None]:
    """Let one process at a time make or remove what all labs of this user share."""
    descriptor = os.open(_registry(parent or labs_parent()), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _files(parent: Path | None, pattern: str) -> list[Path]:
    """Return files of this user's registry."""
    registry = _registry_path(parent or labs_parent())
    try:
        return list(registry.glob(pattern)) if registry.stat().st_uid == os.geteuid() else []
    except (FileNotFoundError, NotADirectoryError):  # or it went with its last entry just now
        return []


def _this_process() -> ProcessId:
    this = ProcessId.of(os.getpid())
    assert this is not None
    return this


def _is_torn(beside: Path) -> bool:
    """Whether who wrote such a file is gone."""
    writer = re.fullmatch(r"[0-9a-f]+\.(\d+)-(\d+)\.new", beside.name)
    return writer is not None and not ProcessId(int(writer[1]), int(writer[2])).alive


def _readable(path: Path) -> Entry | None:
    try:
        return Entry.read(path)
    except (ValueError, KeyError, TypeError):
        return None  # not one of ours


def _registry_path(parent: Path) -> Path:
    return parent / f"venturi-labs-{os.geteuid()}"


def _registry(parent: Path) -> Path:
    path = _registry_path(parent)
    try:
        path.mkdir(mode=0o700, exist_ok=True)
        owner = path.stat().st_uid
    except OSError as error:
        raise BackendError(
            f"{path}: expected a folder in which labs can be registered: {error.strerror}; set {PARENT_VARIABLE} to a folder"
            " of yours that others may enter"
        ) from error
    if owner != os.geteuid():
        raise BackendError(
            f"{path}: expected a folder of this user, found one of UID {owner}; set {PARENT_VARIABLE} to another folder"
        )
    return path
