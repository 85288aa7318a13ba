"""Server programs of a lab: started in the order in which they need each other, watched, and stopped."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from venturi.errors import BackendError, VenturiError
from venturi.testbed.lab.room import Grounds, LabRoom
from venturi.testbed.services.base import Process, Service
from venturi.testbed.services.calls import patient
from venturi.testbed.services.table import SERVICES

__all__ = ["LOG_LINES", "Running", "RunningService", "how_ended", "levels", "service_kind"]

READY_TIMEOUT_S = 60.0
LOG_LINES = 10
"""Of each log in an error, an event or a finding; the whole is kept where the lab keeps logs."""

_POLL_S = 0.02
_WATCH_S = 0.2


@dataclass
class RunningService:
    """A service and its processes."""

    name: str
    service: Service
    room: LabRoom
    processes: Sequence[Process] = ()
    ready_s: float | None = None
    ended: set[int] = field(default_factory=set)

    def log_tail(self) -> str:
        """Return the last lines of its logs."""
        logs = [process.log for process in self.processes]
        with suppress(Exception):  # a service that has not come far may not know its logs
            logs += self.service.logs(self.room)
        return "\n".join(f"--- {path}\n{tail}" for path in dict.fromkeys(logs) if (tail := _tail(path)))


def how_ended(code: int) -> str:
    """Return what an exit code means; one below 0 is a signal.

    Examples
    --------
    >>> how_ended(1), how_ended(-11)
    ('exit code 1', 'signal 11')
    """
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def service_kind(name: str, kind: str) -> Service:
    """Return the service of a kind.

    Raises
    ------
    BackendError
        If there is none.
    """
    if kind not in SERVICES:
        raise BackendError(f'testbed.service.{name}.kind: expected one of {", ".join(SERVICES)}, found "{kind}"')
    return SERVICES[kind]


def levels(after: Mapping[str, set[str]]) -> Iterator[list[str]]:
    """Yield names in groups: each after all groups that hold what it needs.

    Raises
    ------
    BackendError
        If some need each other in a circle, or something that is not there.

    Examples
    --------
    >>> list(levels({"kdc": set(), "a": {"kdc"}, "b": {"kdc"}, "front": {"a", "b"}}))
    [['kdc'], ['a', 'b'], ['front']]
    """
    left = dict(after)
    for name, needs in after.items():
        for other in needs - set(after):
            raise BackendError(f'testbed.service.{name}: expected one of {", ".join(after)}, found "{other}"')
    while left:
        group = [name for name, needs in left.items() if not needs & set(left)]
        if not group:
            raise BackendError(
                f"testbed.service: expected an order to start in, found that {', '.join(left)} need each other"
            )
        yield group
        for name in group:
            del left[name]


class Running:
    """The services of a lab.

    Parameters
    ----------
    grounds
        What they stand on.
    on_end
        Called, from a thread, with a service, its exit code (negative: a signal) and its last words when a process of it has ended although nobody
        stopped it.
    """

    def __init__(self, grounds: Grounds, on_end: Callable[[RunningService, int, str], None]) -> None:
        self.services: dict[str, RunningService] = {}
        for name, asked in grounds.asked.services.items():
            room = LabRoom(name, grounds)
            self.services[name] = RunningService(name, service_kind(name, asked.kind), room)
        self._on_end = on_end
        self._started: list[RunningService] = []
        self._groups: list[list[str]] = []
        self._stopping = threading.Event()
        self._watcher: threading.Thread | None = None

    def start(self) -> None:
        """Start all; return when each has answered a request.

        Raises
        ------
        BackendError
            With the last lines of its logs, if one does not.
        """
        needs = {
            name: {*one.room.spec.after, *one.service.needs(one.room.spec)} for name, one in self.services.items()
        }
        self._groups = list(levels(needs))
        for group in self._groups:
            with ThreadPoolExecutor(len(group), "lab service") as pool:
                futures = [pool.submit(self._start, self.services[name]) for name in group]
                try:
                    for future in futures:
                        future.result()
                except BaseException:
                    self._stopping.set()
                    raise
        if self.services:
            self._watcher = threading.Thread(target=self._watch, name="lab services", daemon=True)
            self._watcher.start()

    def stop(self) -> list[str]:
        """Stop all, those first that need others, those that need nothing of each other together; return what went wrong with that."""
        self._stopping.set()
        if self._watcher is not None:
            self._watcher.join()
        problems: list[str] = []
        started = {one.name: one for one in self._started}
        for group in reversed(self._groups):
            there = [started[name] for name in reversed(group) if name in started]
            if there:
                with ThreadPoolExecutor(len(there), "lab service") as pool:
                    problems += [problem for problem in pool.map(_stop, there) if problem is not None]
        self._started.clear()
        return problems

    def _start(self, one: RunningService) -> None:
        where = f"testbed.service.{one.name}"
        began_s = time.monotonic()
        try:
            one.room.folder.mkdir()
            # Servers run as users of their own, and write where they were told to.
            one.room.folder.chmod(0o777)
            one.service.configure(one.room)
            if self._stopping.is_set():
                return
            self._started.append(one)
            one.processes = one.service.start(one.room)
            self._await_ready(one, began_s)
        except VenturiError as error:
            said = one.log_tail()
            raise BackendError(f"{where}: {error}{f'{chr(10)}{said}' if said else ''}") from error
        except OSError as error:
            raise BackendError(f"{where}: {error}") from error

    def _await_ready(self, one: RunningService, began_s: float) -> None:
        missing: str | None = "it was not asked yet"
        while not self._stopping.is_set():
            codes = [code for process in one.processes if (code := process.poll()) is not None]
            if codes:
                raise BackendError(
                    f"expected {one.room.spec.kind} to run, found that it ended with {how_ended(codes[0])}"
                )
            with patient(time.monotonic() - began_s):
                missing = one.service.ready(one.room)
            if missing is None:
                one.ready_s = time.monotonic() - began_s
                return
            if time.monotonic() - began_s > READY_TIMEOUT_S:
                raise BackendError(
                    f"expected {one.room.spec.kind} to be ready within {READY_TIMEOUT_S:g} s: {missing}"
                )
            time.sleep(_POLL_S)

    def _watch(self) -> None:
        while not self._stopping.wait(_WATCH_S):
            for one in self.services.values():
                for number, process in enumerate(one.processes):
                    code = process.poll()
                    if code is not None and number not in one.ended:
                        one.ended.add(number)
                        self._on_end(one, code, one.log_tail())


def _stop(one: RunningService) -> str | None:
    try:
        one.service.stop(one.room, one.processes)
    except Exception as error:  # the lab goes down whatever a service thinks of it
        return f"{one.name}: {error}"
    return None


def describe(one: RunningService) -> dict[str, Any]:
    """Return what is known of a running service, for people and for the table `environment`."""
    return {
        "kind": one.room.spec.kind,
        "host": one.room.spec.host,
        "address": one.room.address,
        "host_name": one.room.host_name,
        "ports": list(one.room.spec.ports),
        "pids": [process.pid for process in one.processes],
        "running": bool(one.processes) and not one.ended,
        "ready_after_s": None if one.ready_s is None else round(one.ready_s, 3),
    }


def _tail(path: Path) -> str:
    try:
        return "\n".join(path.read_text(errors="replace").strip().splitlines()[-LOG_LINES:])
    except OSError:
        return ""
