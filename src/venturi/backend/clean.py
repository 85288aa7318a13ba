"""Removal of the remains of a run that ended abnormally.

These are its files on existing servers, and on its hosts unfinished destinations, session directories, and the files
that announce the run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from venturi.backend.active_runs import ActiveRuns, overlap
from venturi.backend.connection import SILENCE_S, Connection, open_shell
from venturi.backend.engine import find_engines
from venturi.backend.remote_shell import GRACE_S, RemoteHostShell
from venturi.backend.shell_client import COMMAND_TIMEOUT_S
from venturi.backend.targets import TARGETS, merged_hosts, read_targets
from venturi.backend.url_files import FileClient, remove_created
from venturi.errors import BackendError
from venturi.plan import Header, read_header
from venturi.plan.read import actor_lines
from venturi.plan.steps import Step, TransferStep, Trial, data_steps
from venturi.run.created import CreatedJournal, read_created
from venturi.run.directory import PLAN, read_first_hosts, read_info
from venturi.run.history import read_history
from venturi.run.lock import RunLock
from venturi.run.upgrade import upgrade_run

__all__ = ["clean_run"]

LOCK_WAIT_S = 10.0
"""Limit of the wait for the agents of a killed controller, in seconds."""
PAUSE_S = 0.5
"""Pause between two checks of a host, in seconds."""


def clean_run(path: Path, on_removed: Callable[[str], None]) -> list[str]:
    """Remove the remains of a run, and return the reason for each remaining file.

    Parameters
    ----------
    path
        Directory of the run.
    on_removed
        Called with the URL, or with host and path, of each removed file and directory.

    Raises
    ------
    RunError
        If the run is active, or its files cannot be read.
    """
    info = read_info(path)
    lock = RunLock(path, LOCK_WAIT_S)
    try:
        upgrade_run(path)
        header = read_header(path / PLAN)
        with ExitStack() as stack:
            shells = _Shells(path, header, stack)
            problems: list[str] = []
            if read_created(path):
                journal = CreatedJournal(path)
                stack.callback(journal.close)
                problems = remove_created(journal, lambda host: FileClient(shells.open(host)), on_removed=on_removed)
            if info.backend == "hosts":
                done = set(read_history(path, info.created_unix_ns).outcomes)
                problems += _remove_remains(path, header, shells, done, on_removed)
            return problems
    finally:
        lock.release()


class _Shells:
    """Shells of the hosts of a run, each opened at its first use."""

    def __init__(self, path: Path, header: Header, stack: ExitStack) -> None:
        targets = path / TARGETS
        self._hosts = merged_hosts(header.hosts, read_targets(targets) if targets.exists() else {})
        self._stack = stack
        self._found: dict[str, RemoteHostShell | BackendError] = {}

    @property
    def hosts(self) -> Iterable[str]:
        """Names of the hosts."""
        return self._hosts.keys()

    def open(self, name: str) -> RemoteHostShell:
        """Return the shell of a host.

        Raises
        ------
        BackendError
            If the host cannot be reached.
        """
        if name not in self._found:
            self._found[name] = self._open(name)
        found = self._found[name]
        if isinstance(found, BackendError):
            raise found
        return found

    def _open(self, name: str) -> RemoteHostShell | BackendError:
        host = self._hosts.get(name)
        if host is None:
            return BackendError(f"{name}: expected a host of the plan, found none; restore the plan of the run")
        try:
            shell = open_shell(
                Connection.to(name, ssh=host.ssh, connect=host.connect),
                find_engines(),
                cache=host.cache,
                environment=host.environment,
            )
        except BackendError as error:
            return error
        self._stack.callback(shell.close)
        return shell


def _remove_remains(
    path: Path, header: Header, shells: _Shells, done: set[str], on_removed: Callable[[str], None]
) -> list[str]:
    """Remove the remains of lost sessions on the hosts of a run, and return the reason for each remaining host or file.

    The new shell of a host ends the processes of lost sessions and removes their directories: servers, logs, keys.
    """
    started = read_first_hosts(path)
    problems: list[str] = []
    interrupted: dict[str, list[_Destination]] = {}
    for destination in _interrupted(path, header, done):
        interrupted.setdefault(destination.host, []).append(destination)
    for host in shells.hosts:
        try:
            shell = shells.open(host)
            scratch = PurePosixPath((started.get(host) or {}).get("scratch") or "/")
            # Without a scratch directory, no session has started there.
            destinations = interrupted.get(host, []) if scratch.name else []
            _wait_for_end(shell, path.name, [scratch / one.path for one in destinations], on_removed)
        except BackendError as error:
            problems.append(str(error))
            continue
        for destination in destinations:
            try:
                _remove(shell, scratch, destination, on_removed)
            except (BackendError, OSError) as error:
                reason = str(error)
                problems.append(reason if reason.startswith(f"{host}: ") else f"{host}: {reason}")
    return list(dict.fromkeys(problems))


def _wait_for_end(
    shell: RemoteHostShell, run: str, paths: Sequence[PurePosixPath], on_removed: Callable[[str], None]
) -> None:
    """Wait until no other shell of the run is alive on the host. A shell without a controller exits.

    Raises
    ------
    BackendError
        If one is still alive, or if another run uses one of the paths.
    """
    for directory in shell.hello.get("removed_sessions", ()):
        on_removed(f"{shell.name}:{directory}")
    active = ActiveRuns(shell)
    deadline_s = time.monotonic() + SILENCE_S + GRACE_S
    while True:
        alive, removed = active.look()
        for file in removed:
            on_removed(f"{shell.name}:{file}")
        for other in alive:
            if other.run != run and any(overlap(str(path), used) for path in paths for used in other.storages):
                raise BackendError(
                    f"{shell.name}: {other.describe()} uses the storages of this run. Wait until it has ended, then run"
                    " `venturi clean` again."
                )
        alive = [one for one in alive if one.run == run]
        if not alive:
            return
        if time.monotonic() >= deadline_s:
            raise BackendError(
                f"{shell.name}: expected no process of the run, found its shell with PID {alive[0].pid} (controller"
                f" {alive[0].controller}). Stop the run there, then run `venturi clean` again."
            )
        time.sleep(PAUSE_S)


@dataclass(frozen=True, slots=True)
class _Destination:
    """Destination of a transfer that can have been interrupted.

    Attributes
    ----------
    host
        Its host.
    path
        Path. It is relative to the scratch directory of the host unless it is absolute.
    first, files
        Number of its first file, and the number of files. Several files are in a directory.
    """

    host: str
    path: PurePosixPath
    first: int
    files: int


def _remove(
    shell: RemoteHostShell,
    scratch: PurePosixPath,
    destination: _Destination,
    on_removed: Callable[[str], None],
) -> None:
    """Remove a destination with its partial files.

    All files in the scratch directory belong to Venturi. In a directory of the user, only the files that the transfer
    creates are removed.

    Raises
    ------
    BackendError, OSError
        If part of it remains.
    """
    file = scratch / destination.path
    several = destination.files > 1 and destination.path.is_absolute()
    directory = file if several else file.parent
    before = _names(shell, directory)
    if not before:
        return
    if destination.path.is_absolute() and not several and before.get(file.name) == "directory":
        return  # the directory existed before the transfer
    numbers = {"first": destination.first, "files": destination.files, "sizes": None}
    operation = {
        "operation": "remove",
        "destinations": [
            {
                "path": str(file),
                "files": numbers if several else None,
                "removal": "files" if several else "remove",
                "failed": True,
            }
        ],
    }
    (error,) = shell.operate(operation)["errors"]
    after = _names(shell, directory)
    for name in sorted(before.keys() - after.keys()):
        on_removed(f"{shell.name}:{directory / name}")
    if error is not None:
        raise OSError(f"{file}: {error}")
    if (
        several
        and not after
        and shell.run(["rmdir", "--", str(directory)], timeout_s=COMMAND_TIMEOUT_S).returncode == 0
    ):
        on_removed(f"{shell.name}:{directory}")


def _names(shell: RemoteHostShell, directory: PurePosixPath) -> dict[str, str]:
    """Return name → kind of the entries of a directory. Empty if the directory does not exist."""
    try:
        return {str(entry["name"]): str(entry["kind"]) for entry in shell.list_directory(directory)}
    except (FileNotFoundError, NotADirectoryError):
        return {}


def _interrupted(path: Path, header: Header, done: set[str]) -> Iterator[_Destination]:
    """Yield each destination that an interrupted trial can have left behind.

    Each actor runs its trials in order. So only its first trial without a result can have left files.
    """
    seen: set[str] = set()
    for line in actor_lines(path / PLAN):
        for step in line.steps if line.actor not in seen else ():
            if isinstance(step, Trial) and step.id not in done:
                seen.add(line.actor)
                yield from _destinations(step.steps, header)
                break


def _destinations(steps: Iterable[Step], header: Header) -> Iterator[_Destination]:
    for step in data_steps(steps):
        if not isinstance(step, TransferStep) or step.keep or not isinstance(step.destination, str):
            continue
        name, _, relative = step.destination.partition(":")
        storage = header.storages.get(name)
        if storage is None or storage.host is None or storage.url is not None or not relative:
            continue
        number = PurePosixPath(step.source if isinstance(step.source, str) else "").name
        first = int(number) if number.isdecimal() else 0
        yield _Destination(storage.host, PurePosixPath(storage.path, relative), first, step.files)
