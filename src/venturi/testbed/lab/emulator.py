"""Network emulator of a lab, as a process: ``venturi-engine emulator``."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from venturi.errors import BackendError

__all__ = ["NetworkEmulator"]

READY_TIMEOUT_S = 20.0
END_TIMEOUT_S = 10.0

Record = Mapping[str, Any]


class NetworkEmulator:
    """Running network emulator.

    Attributes
    ----------
    sample
        Last record with counters; empty before the first.
    ready
        Record ``ready`` of the process.
    """

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        log: Path,
        on_record: Callable[[Record], None],
        on_end: Callable[[str], None],
    ) -> None:
        self.sample: Record = {}
        self.ready: Record = {}
        self._process = process
        self._log = log
        self._on_record = on_record
        self._on_end = on_end
        self._closing = False
        self._writing = threading.Lock()
        self._is_ready = threading.Event()
        self._fatal = ""
        self._reader = threading.Thread(target=self._read, name="lab emulator", daemon=True)
        self._reader.start()

    @classmethod
    def start(
        cls,
        engine: Path,
        command: Mapping[str, Any],
        *,
        enter: Sequence[str] = (),
        log: Path,
        on_record: Callable[[Record], None],
        on_end: Callable[[str], None],
    ) -> NetworkEmulator:
        """Start the emulator, and return when its devices are in the namespaces.

        Parameters
        ----------
        engine
            Path of the ``venturi-engine`` program.
        command
            Command ``start``, without the key ``command``.
        enter
            Command prefix.
        log
            File for error output.
        on_record
            Called with each record except ``ready`` and ``fatal``, in a separate thread.
        on_end
            Called with the reason if the process exits unexpectedly after it was ready.

        Raises
        ------
        BackendError
            If the emulator does not become ready.
        """
        with log.open("wb") as errors:
            process = subprocess.Popen(
                [*enter, engine, "emulator"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        emulator = cls(process, log, on_record, on_end)
        try:
            emulator.send({"command": "start", **command})
            emulator._is_ready.wait(READY_TIMEOUT_S)
            if not emulator.ready:
                raise BackendError(
                    f"expected the network emulator to be ready within {READY_TIMEOUT_S:g} s: {emulator._failure_reason()}"
                )
        except BaseException:
            emulator.close()
            raise
        return emulator

    def send(self, command: Mapping[str, Any]) -> None:
        """Send a command to the emulator.

        Raises
        ------
        BackendError
            If the emulator has exited.
        """
        assert self._process.stdin is not None
        try:
            with self._writing:
                self._process.stdin.write(json.dumps(command).encode() + b"\n")
                self._process.stdin.flush()
        except (OSError, ValueError) as error:
            raise BackendError(
                f"cannot send {command['command']!r} to the network emulator: {self._failure_reason()}"
            ) from error

    def poll(self) -> int | None:
        """Return the exit code; ``None`` while the emulator runs."""
        return self._process.poll()

    def close(self) -> None:
        """Stop the emulator, by force if necessary, after reading its last records."""
        assert self._process.stdin is not None
        self._closing = True
        with suppress(BackendError):
            self.send({"command": "stop"})
        # The process can exit before it reads the rest of the pipe.
        with self._writing, suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(END_TIMEOUT_S)

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as stream:
            for line in stream:
                try:
                    record = json.loads(line)
                    self._handle(record)
                except (ValueError, KeyError, TypeError):
                    self._fatal = self._fatal or f"expected a record, found {line[:80]!r}"
        self._is_ready.set()
        if self.ready and not self._closing:
            self._process.wait()
            self._on_end(self._failure_reason())

    def _handle(self, record: Record) -> None:
        match record["record"]:
            case "ready":
                self.ready = record
                self._is_ready.set()
            case "fatal":
                self._fatal = str(record["message"])
            case "sample":
                self.sample = record
                self._on_record(record)
            case _:
                self._on_record(record)

    def _failure_reason(self) -> str:
        """Return the reason of a failure, from the last record or the log."""
        if self._fatal:
            return self._fatal
        code = self._process.poll()
        lines = self._log.read_text(errors="replace").strip().splitlines()[-5:] if self._log.exists() else []
        return f"{'no output' if code is None else f'it exited with code {code}'}: {' | '.join(lines)}"
