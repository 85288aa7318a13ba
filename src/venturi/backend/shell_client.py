"""Client of a host shell, ``venturi-engine shell``: commands and results over a connection (``docs/reference/shell.md``).

Commands have numbers and their results arrive in any order, so that threads can share one shell. One thread reads
records and sends heartbeats. Operations on a host are in :mod:`venturi.backend.remote_shell`. Read :class:`ShellClient`
first.
"""

from __future__ import annotations

import json
import os
import select
import signal as signals
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import IO, Any, Self

from venturi.errors import BackendError

__all__ = [
    "COMMAND_TIMEOUT_S",
    "HEARTBEAT_INTERVAL_S",
    "PROTOCOL",
    "SILENT",
    "LineReader",
    "ShellCallbacks",
    "ShellClient",
    "ShellError",
    "ShellLostError",
    "ShellResult",
    "exit_code",
    "output_tail",
]

PROTOCOL = 1
SILENT = "the connection is silent"
"""Part of the reason of a connection that was lost without being closed."""
HEARTBEAT_INTERVAL_S = 10.0
ALIVE_INTERVAL_S = 10.0
"""Maximum time between two records of a shell, in seconds."""
COMMAND_TIMEOUT_S = 60.0
"""Limit of a command that should take milliseconds, in seconds, because a file system of the host can be slow."""
END_TIMEOUT_S = 15.0
"""Limit of an orderly end, in seconds. Servers get some seconds to end."""
MAX_LINE_BYTES = 2**27
_READ_BYTES = 2**18
_STDERR_BYTES = 4000


class ShellError(BackendError):
    """Failed command of a host shell.

    Attributes
    ----------
    kind
        ``not_found``, ``permission``, ``exists``, ``no_space``, ``read_only``, ``timeout``, ``refused``,
        ``unreachable``, ``unresolved``, ``invalid`` or ``other``.
    reason
        The message of the host.
    """

    def __init__(self, host: str, kind: str, reason: str) -> None:
        self.kind = kind
        self.reason = reason
        super().__init__(f"{host}: {reason}")


class ShellLostError(BackendError):
    """Connection to a host shell that ended before the result. All servers on the host end with it."""


@dataclass(frozen=True, slots=True)
class ShellCallbacks:
    """Functions that the reading thread calls. They must return immediately and must not use the shell.

    Attributes
    ----------
    ended
        Called with name, exit code and signal of a server that ended unexpectedly.
    lost
        Called with the reason why the connection ended. Not called after :meth:`ShellClient.close`.
    """

    ended: Callable[[str, int | None, int | None], object] = lambda process, code, signal: None
    lost: Callable[[str], object] = lambda reason: None


class LineReader:
    """Lines from a descriptor, with a time limit for each."""

    def __init__(self, stream: IO[bytes] | None) -> None:
        assert stream is not None
        self._descriptor = stream.fileno()
        self._lines: deque[bytes] = deque()
        self._torn: list[bytes] = []
        self._torn_bytes = 0
        self.received_ns = 0

    def has_line(self, timeout_s: float) -> bool:
        """Return whether a line, or the end, can be read within ``timeout_s``."""
        if self._lines:
            return True
        return bool(select.select([self._descriptor], [], [], max(0.0, timeout_s))[0])

    def next_line(self, timeout_s: float) -> bytes | None:
        """Return the next line without its end, or None at the end of the stream.

        Raises
        ------
        TimeoutError
            If no line arrives in time.
        BackendError
            If the line is longer than any record.
        """
        deadline_s = time.monotonic() + timeout_s
        while not self._lines:
            remaining_s = deadline_s - time.monotonic()
            if remaining_s <= 0 or not self.has_line(remaining_s):
                raise TimeoutError
            chunk = os.read(self._descriptor, _READ_BYTES)
            self.received_ns = time.time_ns()
            if not chunk:
                return None
            *lines, rest = chunk.split(b"\n")
            for line in lines:
                self._lines.append(b"".join([*self._torn, line]))
                self._torn, self._torn_bytes = [], 0
            self._torn.append(rest)
            self._torn_bytes += len(rest)
            if self._torn_bytes > MAX_LINE_BYTES:
                raise BackendError(f"expected lines of at most {MAX_LINE_BYTES} bytes, found a longer one")
        return self._lines.popleft()

    @staticmethod
    def parse(line: bytes) -> dict[str, Any]:
        """Return a record. Empty if the line is not a record."""
        try:
            record = json.loads(line)
        except ValueError:
            return {}
        return record if isinstance(record, dict) and isinstance(record.get("record"), str) else {}


class ShellResult(Future[dict[str, Any]]):
    """Future of the result of a command.

    It cannot be cancelled, because the shell executes the command in any case. A task that stops waiting for the result
    must not end the thread that receives it.

    Attributes
    ----------
    received_ns
        Time of reception, in nanoseconds since 1970.
    """

    def __init__(self) -> None:
        super().__init__()
        self.received_ns = 0
        self.set_running_or_notify_cancel()


class ShellClient:
    """Connection to a shell that has sent its first record. As a context manager it ends the shell.

    Parameters
    ----------
    name
        Host of the plan, for messages.
    process
        Process on this machine whose input and output are the connection.
    reader
        Reader of its output.
    silence_s
        The connection is lost after this time without a record, in seconds.
    errors
        File with the standard error of the process.
    explain
        Function from an exit code and the standard error to the reason why the connection ended.
    callbacks
        Called when a server or the connection has ended.
    """

    def __init__(
        self,
        name: str,
        process: subprocess.Popen[bytes],
        reader: LineReader,
        *,
        silence_s: float,
        errors: IO[bytes],
        explain: Callable[[int | None, str], str],
        callbacks: ShellCallbacks | None = None,
    ) -> None:
        self.name = name
        self._process = process
        self._reader = reader
        self._silence_s = max(silence_s, 3 * ALIVE_INTERVAL_S)
        self._errors = errors
        self._explain = explain
        self._callbacks = callbacks or ShellCallbacks()
        self._lock = threading.Lock()
        self._write_lock = threading.Lock()
        self._number = 0
        self._pending: dict[int, ShellResult] = {}
        self._codes: dict[str, int] = {}
        self._lost: str | None = None
        self._closing = self._cut = False
        self._input_open = True
        assert process.stdin is not None
        self._input = process.stdin.fileno()
        self._thread = threading.Thread(target=self._read, name=f"shell of {name}", daemon=True)
        self._thread.start()

    @property
    def is_lost(self) -> bool:
        """Whether the connection has ended."""
        return self._lost is not None

    @property
    def lost_reason(self) -> str | None:
        """Reason why the connection ended. None while it is open."""
        return self._lost

    @property
    def pid(self) -> int:
        """PID of the process on this machine: the shell itself, or the connection prefix."""
        return self._process.pid

    def submit(self, command: str, **fields: object) -> ShellResult:
        """Send a command and return the future of its result.

        The result fails with :class:`ShellError` or :class:`ShellLostError`.

        Raises
        ------
        ShellLostError
            If the connection has ended.
        """
        result = ShellResult()
        with self._lock:
            if self._lost is not None:
                raise ShellLostError(self._lost)
            self._number += 1
            number = self._number
            self._pending[number] = result
        line = json.dumps({"command": command, "number": number, **fields}).encode() + b"\n"
        try:
            with self._write_lock:
                if self._input_open:
                    _write_all(self._input, line)
        except OSError:
            pass  # the reading thread finds the reason, and the result fails with it
        return result

    def wait(self, result: ShellResult, command: str, limit_s: float = COMMAND_TIMEOUT_S) -> dict[str, Any]:
        """Wait for a result of :meth:`submit`, and return it.

        Parameters
        ----------
        result
            Result of :meth:`submit`.
        command
            Name of the command, for messages.
        limit_s
            Limit of the wait, in seconds.

        Raises
        ------
        ShellError
            If the command fails.
        ShellLostError
            If the connection ends.
        BackendError
            If there is no result in time.
        """
        limit_s = max(0.0, limit_s)
        try:
            return result.result(limit_s)
        except TimeoutError as error:
            raise BackendError(
                f"{self.name}: expected a result of `{command}` within {limit_s:.3g} s, found none. Check load and file systems of the host."
            ) from error

    def call(self, command: str, *, limit_s: float = COMMAND_TIMEOUT_S, **fields: object) -> dict[str, Any]:
        """Send a command and return its result.

        Parameters
        ----------
        command
            Name of the command.
        limit_s
            Limit of the wait, in seconds.
        **fields
            Fields of the command.

        Raises
        ------
        ShellError
            If it fails.
        ShellLostError
            If the connection ends.
        BackendError
            If there is no result in time.
        """
        return self.wait(self.submit(command, **fields), command, limit_s)

    def exit_code(self, process: str) -> int | None:
        """Return the exit code of a server (negative: a signal), or None while it runs."""
        with self._lock:
            code = self._codes.get(process)
        return -signals.SIGKILL if code is None and self._lost is not None else code

    def close(self) -> None:
        """End the shell with all its servers, and remove its session directory. Safe to call twice."""
        self._closing = True
        if self._lost is None:
            with suppress(BackendError):  # the end of its input has the same effect
                self.call("end", limit_s=END_TIMEOUT_S)
        self._close_input()
        try:
            self._process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._cut = True
        self._thread.join()

    def kill(self) -> None:
        """Cut the connection. The shell ends when it detects the end of its input, at the latest after its silence limit."""
        self._closing = self._cut = True
        self._process.kill()
        # A prefix that forks leaves both pipes to the shell, which then ends with its input.
        self._close_input()
        self._thread.join()
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _read(self) -> None:
        """Process records until the end, and send heartbeats."""
        reason = ""
        last_record_s = beat_s = time.monotonic()
        try:
            while True:
                now_s = time.monotonic()
                if now_s >= beat_s:
                    self._send_heartbeat()
                    beat_s = now_s + HEARTBEAT_INTERVAL_S
                if self._cut:
                    reason = f"{self.name}: the connection was cut"
                    break
                if now_s - last_record_s > self._silence_s:
                    reason = f"{self.name}: {SILENT} for {self._silence_s:g} s. Check the network."
                    break
                try:
                    line = self._reader.next_line(min(beat_s - now_s, 1.0) if beat_s > now_s else 0.01)
                except TimeoutError:
                    continue
                if line is None:
                    break
                last_record_s = time.monotonic()
                self._take(self._reader.parse(line))
        except Exception as error:  # without this thread, every command would wait up to its limit
            reason = f"{self.name}: cannot read from the host shell: {error}"
        self._end(reason)

    def _send_heartbeat(self) -> None:
        # A blocked connection must not block the thread that detects it.
        if not self._write_lock.acquire(blocking=False):
            return
        try:
            if self._input_open and select.select([], [self._input], [], 0)[1]:
                os.write(self._input, b'{"command":"heartbeat"}\n')
        except (OSError, ValueError):
            return
        finally:
            self._write_lock.release()

    def _take(self, record: Mapping[str, Any]) -> None:
        match record.get("record"):
            case "result":
                with self._lock:
                    result = self._pending.pop(int(record.get("number") or 0), None)
                if result is None:
                    return
                result.received_ns = self._reader.received_ns
                error = record.get("error")
                if error is not None:
                    kind, message = str(error.get("kind", "other")), str(error.get("message", error))
                    result.set_exception(ShellError(self.name, kind, message))
                else:
                    result.set_result(dict(record.get("result") or {}))
            case "ended":
                name = str(record.get("process"))
                with self._lock:
                    self._codes[name] = exit_code(record.get("exit_code"), record.get("signal"))
                self._callbacks.ended(name, record.get("exit_code"), record.get("signal"))
            case _:
                pass  # `alive`, and records of a newer shell of the same protocol

    def _end(self, reason: str) -> None:
        if reason:
            self._process.kill()
        try:
            code: int | None = self._process.wait(1.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        output = output_tail(self._errors)
        self._errors.close()
        with self._lock:
            self._lost = reason or self._explain(code, output)
            pending, self._pending = list(self._pending.values()), {}
        for one in pending:
            one.set_exception(ShellLostError(self._lost))
        self._close_input()
        if self._process.stdout is not None:
            self._process.stdout.close()
        if not self._closing:
            self._callbacks.lost(self._lost)

    def _close_input(self) -> None:
        # A blocked writer holds the lock. It fails when the process has ended, and then releases the lock.
        if self._write_lock.acquire(timeout=1.0):
            try:
                if self._process.stdin is not None and self._input_open:
                    self._input_open = False
                    self._process.stdin.close()
            finally:
                self._write_lock.release()


def exit_code(code: int | None, signal: int | None) -> int:
    """Return the exit code of a process as in :mod:`subprocess`, negative for a signal.

    Without both, the process was killed.
    """
    if code is not None:
        return code
    return -signal if signal is not None else -signals.SIGKILL


def output_tail(output: IO[bytes]) -> str:
    """Return the last part of a file with the output of a process."""
    try:
        size = os.fstat(output.fileno()).st_size
        return os.pread(output.fileno(), _STDERR_BYTES, max(0, size - _STDERR_BYTES)).decode(errors="replace")
    except (OSError, ValueError):
        return ""


def _write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
