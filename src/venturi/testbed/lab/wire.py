"""The network of a lab as a process: ``venturi-engine wire``."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from venturi.errors import BackendError

__all__ = ["Wire"]

READY_TIMEOUT_S = 20.0
END_TIMEOUT_S = 10.0

Record = Mapping[str, Any]


class Wire:
    """The wire of a lab that is up.

    Attributes
    ----------
    sample
        Its last counters; empty before the first.
    ready
        Its record `ready`.
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
        self._reader = threading.Thread(target=self._read, name="lab wire", daemon=True)
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
    ) -> Wire:
        """Start it and return once its devices are in the namespaces.

        Parameters
        ----------
        engine
            The program.
        command
            Its command ``start``, without the key ``command``.
        enter
            What stands before the program.
        log
            Where it complains.
        on_record
            Called with each record but `ready`, from a thread of its own.
        on_end
            Called with its last words when it ends by itself after it was ready.

        Raises
        ------
        BackendError
            If it does not become ready.
        """
        with log.open("wb") as errors:
            process = subprocess.Popen(
                [*enter, engine, "wire"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        wire = cls(process, log, on_record, on_end)
        try:
            wire.send({"command": "start", **command})
            wire._is_ready.wait(READY_TIMEOUT_S)
            if not wire.ready:
                raise BackendError(f"expected the network within {READY_TIMEOUT_S:g} s: {wire._said()}")
        except BaseException:
            wire.close()
            raise
        return wire

    def send(self, command: Mapping[str, Any]) -> None:
        """Send it a command.

        Raises
        ------
        BackendError
            If it has ended.
        """
        assert self._process.stdin is not None
        try:
            with self._writing:
                self._process.stdin.write(json.dumps(command).encode() + b"\n")
                self._process.stdin.flush()
        except (OSError, ValueError) as error:
            raise BackendError(f"expected the network to take {command['command']!r}: {self._said()}") from error

    def poll(self) -> int | None:
        """Return its exit code, None while it runs."""
        return self._process.poll()

    def close(self) -> None:
        """End it in order, by force if need be, and take in its last records."""
        assert self._process.stdin is not None
        self._closing = True
        with suppress(BackendError):
            self.send({"command": "stop"})
        # It may have gone before it took what was left in the pipe.
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
                    self._take(record)
                except (ValueError, KeyError, TypeError):
                    self._fatal = self._fatal or f"found {line[:80]!r} instead of a record"
        self._is_ready.set()
        if self.ready and not self._closing:
            self._process.wait()
            self._on_end(self._said())

    def _take(self, record: Record) -> None:
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

    def _said(self) -> str:
        """Return why it failed, as far as it told."""
        if self._fatal:
            return self._fatal
        code = self._process.poll()
        lines = self._log.read_text(errors="replace").strip().splitlines()[-5:] if self._log.exists() else []
        return f"{'found silence' if code is None else f'it ended with exit code {code}'}: {' | '.join(lines)}"
