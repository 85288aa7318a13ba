"""Active runs of a host: a file for each in one directory, so that runs of all users detect each other.

Two runs that measure on one host at the same time disturb each other (finding ``other-run``). Two runs that use the
same storage remove each other's files, so the second is rejected. A file counts while its shell process is alive.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import PurePosixPath
from typing import Any

from venturi.backend.remote_shell import RemoteHostShell
from venturi.errors import BackendError

__all__ = ["DIRECTORY_VARIABLE", "ActiveRun", "ActiveRuns", "overlap"]

DIRECTORY_VARIABLE = "VENTURI_ACTIVE_RUNS"
"""Environment variable with the directory of the files on every host. Empty: no files."""

_DIRECTORY = "/tmp/venturi-runs"
_OPEN_MODE = 0o1777
"""Every user can add files, and remove only their own."""
_START_FIELD = 21
"""Field of ``/proc/PID/stat`` with the start time, counted from 0 (proc(5)).

It identifies a process even if its PID is reused.
"""

_DEAD = ("Z", "X", "x")
"""States of a process that has ended."""

_MAX_BYTES = 2**20
"""Maximum size of a file, because any user can write one."""


@dataclass(frozen=True, slots=True)
class ActiveRun:
    """A run on a host.

    Attributes
    ----------
    run
        Name of its directory.
    user, controller
        User on the host, and node name of the controller.
    start_unix_s
        Start of its session on the host, in seconds since 1970.
    pid, pid_start
        Process of its shell on the host, and the start time of that process in clock ticks since boot.
    storages
        Absolute paths that it uses.
    session
        Name of the controller's session. Hosts of one run on the same machine share it.
    """

    run: str
    user: str
    controller: str
    start_unix_s: float
    pid: int
    pid_start: int
    storages: tuple[str, ...]
    session: str

    def describe(self) -> str:
        """Return run, owner and start as text.

        Examples
        --------
        >>> ActiveRun("a-1", "eve", "dtn9", 0.0, 7, 8, (), "s").describe()
        'run a-1 of eve (controller dtn9, active since 1970-01-01 00:00:00 UTC)'
        """
        since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(self.start_unix_s))
        return f"run {self.run} of {self.user} (controller {self.controller}, active since {since})"


class ActiveRuns:
    """The directory of active runs on one host, for one session."""

    def __init__(self, shell: RemoteHostShell) -> None:
        configured = os.environ.get(DIRECTORY_VARIABLE)
        self._directory = PurePosixPath(_DIRECTORY if configured is None else configured)
        self._enabled = configured != ""
        self._shell = shell
        self._file: PurePosixPath | None = None

    def enter(self, run: str, session: str, storages: Iterable[str]) -> list[ActiveRun]:
        """Add a file for this session and return the other active runs.

        Parameters
        ----------
        run
            Name of the run directory.
        session
            Name of the controller's session.
        storages
            Absolute paths that the run uses on this host.

        Raises
        ------
        BackendError
            If another run uses one of the storages.
        """
        if not self._enabled:
            return []
        used = tuple(sorted(set(storages)))
        try:
            # In flight together: over a long path, each wait takes a round trip.
            wait_for_directory = self._shell.submit_file("make_directory", self._directory, mode=_OPEN_MODE)
            pid_start = self._process_start("self") or 0
            wait_for_directory()
            own = ActiveRun(
                run,
                self._shell.user,
                os.uname().nodename,
                time.time(),
                int(self._shell.hello["pid"]),
                pid_start,
                used,
                session,
            )
            self._file = self._directory / f"{self._shell.session.name}.json"
            self._shell.put(self._file, json.dumps(asdict(own)), 0o644)
            others = [other for other in self._read()[0] if other.session != session]
        except OSError:
            return []  # a host without a directory for all users; agents still lock their scratch directories
        for other in others:
            for path in used:
                if taken := next((one for one in other.storages if overlap(path, one)), None):
                    self.leave()
                    raise BackendError(
                        f"{self._shell.name}: expected {path} to be free, found that {other.describe()} uses {taken}."
                        " Wait until that run has ended, or set another --scratch or path of the storage."
                    )
        return others

    def leave(self) -> None:
        """Remove the file of this session."""
        if self._file is not None:
            with suppress(OSError, BackendError):
                self._shell.remove(self._file)
            self._file = None

    def look(self) -> tuple[list[ActiveRun], list[PurePosixPath]]:
        """Return the active runs, and the files of ended runs that were removed."""
        if not self._enabled:
            return [], []
        try:
            return self._read()
        except OSError:
            return [], []  # no run was active on this host

    def _read(self) -> tuple[list[ActiveRun], list[PurePosixPath]]:
        """Return the runs whose process is alive. Remove the files of the others, and return these files."""
        found, removed = [], []
        for entry in self._shell.list_directory(self._directory):
            path = self._directory / str(entry["name"])
            if path == self._file or path.suffix != ".json":
                continue
            if entry["kind"] != "file" or int(entry["size_bytes"]) > _MAX_BYTES:
                continue
            with suppress(OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
                run = _active_run(json.loads(self._shell.get(path)))
                if self._process_start(str(run.pid)) == run.pid_start:
                    found.append(run)
                else:
                    self._shell.remove(path)
                    removed.append(path)
        return found, removed

    def _process_start(self, pid: str) -> int | None:
        with suppress(FileNotFoundError):
            text = self._shell.get(f"/proc/{pid}/stat").decode(errors="replace")
            fields = text.rpartition(")")[2].split()
            return None if fields[0] in _DEAD else int(fields[_START_FIELD - 2])
        return None


def _active_run(content: Mapping[str, Any]) -> ActiveRun:
    """Return the run of a file, which another user can have written.

    Raises
    ------
    KeyError, OverflowError, TypeError, ValueError
        If a value is missing or invalid.
    """
    texts = [content[key] for key in ("run", "user", "controller", "session")]
    if not all(isinstance(text, str) and text.isprintable() for text in (*texts, *content["storages"])):
        raise ValueError("expected printable texts")
    start_unix_s = float(content["start_unix_s"])
    time.gmtime(start_unix_s)
    run, user, controller, session = texts
    return ActiveRun(
        run,
        user,
        controller,
        start_unix_s,
        int(content["pid"]),
        int(content["pid_start"]),
        tuple(content["storages"]),
        session,
    )


def overlap(first: str, second: str) -> bool:
    """Return whether the paths are equal, or one is below the other.

    Examples
    --------
    >>> overlap("/data/a", "/data"), overlap("/data", "/data2")
    (True, False)
    """
    a, b = PurePosixPath(first), PurePosixPath(second)
    return a.is_relative_to(b) or b.is_relative_to(a)
