"""Manager of a testbed's server programs: starts them in the order of their dependencies, watches and stops them.

Their contexts determine the location: in a lab or on real hosts. Start with :class:`ServiceManager`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from venturi.errors import BackendError, VenturiError
from venturi.testbed.services.base import Process, ServiceContext, ServiceKind
from venturi.testbed.services.client_calls import client_timeout_s
from venturi.testbed.services.table import SERVICES

__all__ = [
    "LOG_LINES",
    "RunningService",
    "ServiceManager",
    "describe_service",
    "exit_description",
    "levels",
    "service_kind",
]

READY_TIMEOUT_S = 60.0
LOG_LINES = 10
"""Last lines of each log in an error, event or finding; the complete logs are with the logs of the lab."""

_POLL_S = 0.02
_WATCH_S = 0.2


@dataclass
class RunningService:
    """Service with its processes."""

    name: str
    service: ServiceKind
    context: ServiceContext
    processes: Sequence[Process] = ()
    ready_s: float | None = None
    ended: set[int] = field(default_factory=set)

    def log_tail(self) -> str:
        """Return the last lines of the logs."""
        return "\n".join(f"--- {path}\n{tail}" for path in self.logs() if (tail := _tail(self.context, path)))

    def logs(self) -> list[PurePath]:
        """Return the log files on the host, each once."""
        logs = [process.log for process in self.processes]
        with suppress(Exception):  # a service that failed early can lack its logs
            logs += self.service.logs(self.context)
        return list(dict.fromkeys(logs))


def exit_description(code: int) -> str:
    """Return a description of an exit code; negative codes are signals.

    Examples
    --------
    >>> exit_description(1), exit_description(-11)
    ('exit code 1', 'signal 11')
    """
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def service_kind(name: str, kind: str) -> ServiceKind:
    """Return the service of a kind.

    Raises
    ------
    BackendError
        If the kind is unknown.
    """
    if kind not in SERVICES:
        raise BackendError(f'testbed.service.{name}.kind: expected one of {", ".join(SERVICES)}, found "{kind}"')
    return SERVICES[kind]


def levels(after: Mapping[str, set[str]]) -> Iterator[list[str]]:
    """Yield groups of names, each after the groups with its dependencies.

    Raises
    ------
    BackendError
        If dependencies are cyclic, or a dependency is unknown.

    Examples
    --------
    >>> list(levels({"kdc": set(), "a": {"kdc"}, "b": {"kdc"}, "front": {"a", "b"}}))
    [['kdc'], ['a', 'b'], ['front']]
    """
    remaining = dict(after)
    for name, needs in after.items():
        for other in needs - set(after):
            raise BackendError(f'testbed.service.{name}: expected one of {", ".join(after)}, found "{other}"')
    while remaining:
        group = [name for name, needs in remaining.items() if not needs & set(remaining)]
        if not group:
            raise BackendError(
                f"testbed.service: expected services without cyclic dependencies, found a cycle of {', '.join(remaining)}"
            )
        yield group
        for name in group:
            del remaining[name]


class ServiceManager:
    """Services of a testbed.

    Parameters
    ----------
    contexts
        Service → its context.
    on_end
        Called in a thread when a process exits before :meth:`stop`. Arguments are the service, the exit code (negative: a
        signal) and the last lines of its logs.
    """

    def __init__(
        self, contexts: Mapping[str, ServiceContext], on_end: Callable[[RunningService, int, str], None]
    ) -> None:
        self.services: dict[str, RunningService] = {
            name: RunningService(name, service_kind(name, context.spec.kind), context)
            for name, context in contexts.items()
        }
        self._on_end = on_end
        self._started: list[RunningService] = []
        self._groups: list[list[str]] = []
        self._configured: set[str] = set()
        self._starting = threading.Lock()
        self._stopping = threading.Event()
        self._watcher: threading.Thread | None = None

    def configure(self) -> bool:
        """Configure the services without dependencies; return whether these are all. :meth:`start` configures the others.

        Raises
        ------
        BackendError
            If a service cannot be configured, or dependencies are cyclic.
        """
        self._groups = list(levels(self._needs()))
        for group in self._groups[:1]:
            self._on_all(group, self._configure)
        return len(self._groups) <= 1

    def start(self) -> None:
        """Start all services. Return when each has answered a request, or soon after :meth:`stop`.

        Raises
        ------
        BackendError
            If a service fails, with the last lines of its logs.
        """
        with self._starting:
            self._groups = self._groups or list(levels(self._needs()))
            for group in self._groups:
                self._on_all(group, self._start)
            if self.services:
                self._watcher = threading.Thread(target=self._watch, name="services", daemon=True)
                self._watcher.start()

    def _needs(self) -> dict[str, set[str]]:
        return {
            # `after` can also name an existing server, which has no context.
            name: {
                *(other for other in running_service.context.spec.after if other in self.services),
                *running_service.service.needs(running_service.context.spec),
            }
            for name, running_service in self.services.items()
        }

    def _on_all(self, names: Sequence[str], action: Callable[[RunningService], None]) -> None:
        with ThreadPoolExecutor(len(names), "service") as pool:
            futures = [pool.submit(action, self.services[name]) for name in names]
            try:
                for future in futures:
                    future.result()
            except BaseException:
                self._stopping.set()
                raise

    def stop(self) -> list[str]:
        """Stop all services, dependents first and independent ones together; return a message for each failure."""
        self._stopping.set()
        with self._starting:  # a start in progress ends soon
            return self._stop_all()

    def _stop_all(self) -> list[str]:
        if self._watcher is not None:
            self._watcher.join()
        problems: list[str] = []
        started = {running_service.name: running_service for running_service in self._started}
        for group in reversed(self._groups):
            running = [started[name] for name in reversed(group) if name in started]
            if running:
                with ThreadPoolExecutor(len(running), "service") as pool:
                    problems += [problem for problem in pool.map(_stop, running) if problem is not None]
        self._started.clear()
        return problems

    def _configure(self, running_service: RunningService) -> None:
        with _explained(running_service):
            # In a lab, servers run as other users and write their files there.
            running_service.context.make_directory(running_service.context.directory, 0o777)
            running_service.service.configure(running_service.context)
        self._configured.add(running_service.name)

    def _start(self, running_service: RunningService) -> None:
        started_s = time.monotonic()
        if running_service.name not in self._configured and not self._stopping.is_set():
            self._configure(running_service)
        if self._stopping.is_set():
            return
        with _explained(running_service):
            self._started.append(running_service)
            running_service.processes = running_service.service.start(running_service.context)
            self._await_ready(running_service, started_s)

    def _await_ready(self, running_service: RunningService, started_s: float) -> None:
        missing: str | None = "no request was sent yet"
        while not self._stopping.is_set():
            codes = [code for process in running_service.processes if (code := process.poll()) is not None]
            if codes:
                raise BackendError(
                    f"expected {running_service.context.spec.kind} to run, found that it exited with {exit_description(codes[0])}"
                )
            with client_timeout_s(time.monotonic() - started_s):
                missing = running_service.service.ready(running_service.context)
            if missing is None:
                running_service.ready_s = time.monotonic() - started_s
                return
            if time.monotonic() - started_s > READY_TIMEOUT_S:
                raise BackendError(
                    f"expected {running_service.context.spec.kind} to be ready within {READY_TIMEOUT_S:g} s: {missing}"
                )
            time.sleep(_POLL_S)

    def _watch(self) -> None:
        while not self._stopping.wait(_WATCH_S):
            for running_service in self.services.values():
                for number, process in enumerate(running_service.processes):
                    code = process.poll()
                    if code is not None and number not in running_service.ended:
                        running_service.ended.add(number)
                        self._on_end(running_service, code, running_service.log_tail())


@contextmanager
def _explained(running_service: RunningService) -> Iterator[None]:
    """Add the name of the service and the last lines of its logs to an error."""
    where = f"testbed.service.{running_service.name}"
    try:
        yield
    except VenturiError as error:
        log_tail = running_service.log_tail()
        message = str(error).removeprefix(f"{running_service.name}: ")
        raise BackendError(f"{where}: {message}{f'{chr(10)}{log_tail}' if log_tail else ''}") from error
    except OSError as error:
        raise BackendError(f"{where}: {error}") from error


def _stop(running_service: RunningService) -> str | None:
    try:
        running_service.service.stop(running_service.context, running_service.processes)
    except Exception as error:  # the other services must still be stopped
        return f"{running_service.name}: {error}"
    return None


def describe_service(running_service: RunningService) -> dict[str, Any]:
    """Return the properties of a running service, for users and for the table ``environment``."""
    return {
        "kind": running_service.context.spec.kind,
        "host": running_service.context.spec.host,
        "address": running_service.context.address,
        "host_name": running_service.context.host_name,
        "ports": list(running_service.context.spec.ports),
        "pids": [process.pid for process in running_service.processes],
        "running": bool(running_service.processes) and not running_service.ended,
        "ready_after_s": None if running_service.ready_s is None else round(running_service.ready_s, 3),
    }


def _tail(context: ServiceContext, path: PurePath) -> str:
    try:
        return "\n".join(context.read(path).strip().splitlines()[-LOG_LINES:])
    except (OSError, VenturiError):
        return ""
