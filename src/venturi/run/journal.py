"""Appending JSON lines that survive: group commit for the journal, plain appending for samples and events.

A trial may last a few milliseconds and an fsync as long, so the journal is written by a thread that makes all lines
of :data:`COMMIT_INTERVAL_S` durable with one fsync. Nobody waits for it: a line that was not durable when the power
failed is a trial that was not done, and is carried out again.
"""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

from venturi.errors import RunError

__all__ = ["AppendFile", "complete_bytes", "last_lines", "longest_line"]

COMMIT_INTERVAL_S = 0.02
"""Least time between two fsyncs of the journal, and so about the most that a power failure can cost."""

MAX_PENDING_BYTES = 64 * 2**20
"""Lines not yet written beyond which :meth:`AppendFile.append` waits for the disk."""

_BLOCK_BYTES = 2**16


class AppendFile:
    """A file of JSON lines that only grows, written by a thread of its own.

    Opening cuts off a torn last line: what an interrupted write left behind, and what a power failure left unreadable.

    Parameters
    ----------
    path
        The file; made if it is not there.
    durable
        Whether lines are fsynced as they come, or only when the file is closed.

    Raises
    ------
    RunError
        If the file cannot be opened or cut.
    """

    def __init__(self, path: Path, *, durable: bool) -> None:
        self.path = path
        self._durable = durable
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._accepted = 0
        self._written = 0
        self._failure: RunError | None = None
        self._closing = False
        self._change = threading.Condition()
        try:
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            self._size = _cut_torn_line(path, self._descriptor)
        except OSError as error:
            raise RunError(f"{path}: cannot be opened for appending: {error.strerror}") from error
        self._thread = threading.Thread(target=self._write_on, name=f"append {path.name}", daemon=True)
        self._thread.start()

    def append(self, content: dict[str, Any]) -> None:
        """Take one line; return at once, unless the disk is far behind.

        Raises
        ------
        RunError
            If this or an earlier line could not be written. The file then ends with the last line that could.
        """
        line = json.dumps(content, separators=(",", ":"), allow_nan=False).encode() + b"\n"
        with self._change:
            self._change.wait_for(lambda: self._pending_bytes < MAX_PENDING_BYTES or self._failure)
            self._raise_failure()
            self._pending.append(line)
            self._pending_bytes += len(line)
            self._accepted += 1
            self._change.notify_all()

    def flush(self) -> None:
        """Return when every line taken so far is written, and durable if the file is.

        Raises
        ------
        RunError
            If a line could not be written.
        """
        with self._change:
            target = self._accepted
            self._change.wait_for(lambda: self._written >= target or self._failure)
            self._raise_failure()

    def check(self) -> None:
        """Raise what went wrong in the writing thread, if anything did."""
        with self._change:
            self._raise_failure()

    def close(self) -> None:
        """Write what is left, make it durable and close the file; safe to call twice.

        Raises
        ------
        RunError
            If something could not be written.
        """
        with self._change:
            if self._closing:
                return
            self._closing = True
            self._change.notify_all()
        self._thread.join()
        try:
            os.fsync(self._descriptor)
        except OSError as error:
            self._failure = self._failure or self._say(error)
        finally:
            os.close(self._descriptor)
        self._raise_failure()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _write_on(self) -> None:
        next_commit_s = 0.0
        while True:
            with self._change:
                self._change.wait_for(lambda: self._pending or self._closing)
                # Between two commits lines gather; closing does not wait for the interval to pass.
                self._change.wait_for(lambda: self._closing, next_commit_s - time.monotonic())
                lines, self._pending = self._pending, []
                self._pending_bytes = 0
            if not lines:
                return
            try:
                self._write(b"".join(lines))
            except OSError as error:
                with self._change:
                    self._failure = self._say(error)
                    self._change.notify_all()
                return
            next_commit_s = time.monotonic() + COMMIT_INTERVAL_S
            with self._change:
                self._written += len(lines)
                self._change.notify_all()

    def _write(self, content: bytes) -> None:
        rest = memoryview(content)
        try:
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
            if self._durable:
                os.fsync(self._descriptor)
        except OSError:
            os.ftruncate(self._descriptor, self._size)
            raise
        self._size += len(content)

    def _say(self, error: OSError) -> RunError:
        return RunError(
            f"{self.path}: cannot be written: {error.strerror}; all trials up to this line are safe:"
            " make room, then resume the run"
        )


def complete_bytes(path: Path) -> int:
    """Return how many bytes of a file belong to complete lines; 0 if there is no such file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return 0
    try:
        return _last_newline(descriptor, os.fstat(descriptor).st_size) + 1
    finally:
        os.close(descriptor)


def last_lines(path: Path, most_bytes: int) -> list[bytes]:
    """Return the whole lines among the last bytes of a file, up to its last newline; none if there is no such file."""
    end = complete_bytes(path)
    if end == 0:
        return []
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        start = max(0, end - most_bytes)
        lines = _read(descriptor, start, end - start).splitlines()
    finally:
        os.close(descriptor)
    return lines[1:] if start else lines


def longest_line(path: Path, usual_bytes: int) -> int:
    """Return a length in bytes that no line of a file exceeds, its newline included: ``usual_bytes``, if that will do.

    Only one place in each ``usual_bytes`` is read, so a gigabyte costs next to nothing.
    """
    longest, start = usual_bytes, 0
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(descriptor).st_size
        while size - start > longest:
            end = _last_newline(descriptor, start + longest) + 1
            if end <= start:  # what begins here is longer than any line before it
                end = min(_next_newline(descriptor, start + longest, size) + 1, size)
                longest = end - start
            start = end
    finally:
        os.close(descriptor)
    return longest


def _cut_torn_line(path: Path, descriptor: int) -> int:
    """Cut off what follows the last readable line, and return the size that is left."""
    size = end = os.fstat(descriptor).st_size
    end = _last_newline(descriptor, size) + 1
    # Blocks that were not durable may come back as zeros after a power failure, newlines among them.
    while end and not _is_json(_read(descriptor, start := _last_newline(descriptor, end - 1) + 1, end - start)):
        end = start
    if end < size:
        os.ftruncate(descriptor, end)
        os.fsync(descriptor)
    return end


def _last_newline(descriptor: int, end: int) -> int:
    """Return the position of the last newline before ``end``, or -1."""
    while end > 0:
        start = max(0, end - _BLOCK_BYTES)
        found = _read(descriptor, start, end - start).rfind(b"\n")
        if found >= 0:
            return start + found
        end = start
    return -1


def _next_newline(descriptor: int, start: int, end: int) -> int:
    """Return the position of the first newline from ``start`` on, or ``end``."""
    while start < end and (block := _read(descriptor, start, min(_BLOCK_BYTES, end - start))):
        found = block.find(b"\n")
        if found >= 0:
            return start + found
        start += len(block)
    return end


def _read(descriptor: int, start: int, size: int) -> bytes:
    parts = []
    while size and (part := os.pread(descriptor, size, start)):
        parts.append(part)
        start += len(part)
        size -= len(part)
    return b"".join(parts)


def _is_json(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False
