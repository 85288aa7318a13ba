"""Append-only files of JSON lines: group commit for the journal, plain appending for samples and events.

A trial can be as short as an fsync, a few milliseconds. So a thread writes the journal and makes all lines of
:data:`COMMIT_INTERVAL_S` durable with one fsync. The controller does not wait for it: if a power failure loses a line,
its trial counts as not executed and is executed again.
"""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

from venturi.errors import RunError

__all__ = ["AppendFile", "complete_bytes", "last_lines", "max_line_bytes", "remove_torn_lines"]

COMMIT_INTERVAL_S = 0.02
"""Minimum time between two fsyncs of the journal, and so about the largest loss in a power failure."""

MAX_PENDING_BYTES = 64 * 2**20
"""Size of pending lines above which :meth:`AppendFile.append` waits for the disk."""

_BLOCK_BYTES = 2**16


class AppendFile:
    """Append-only file of JSON lines, written by a separate thread.

    Opening truncates torn lines at the end, from an interrupted write or a power failure.

    Parameters
    ----------
    path
        The file; created if it does not exist.
    durable
        Whether each group of lines is fsynced, or the file only when it is closed.

    Raises
    ------
    RunError
        If the file cannot be opened or truncated.
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
            self._size = _truncate_torn_lines(self._descriptor)
        except OSError as error:
            raise RunError(f"{path}: cannot open the file for appending: {error.strerror}") from error
        self._thread = threading.Thread(target=self._write_on, name=f"append {path.name}", daemon=True)
        self._thread.start()

    def append(self, content: dict[str, Any]) -> None:
        """Add one line; wait for the disk only if many bytes are pending.

        Raises
        ------
        RunError
            If an earlier line could not be written. The file then ends with the last written line.
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
        """Wait until all added lines are written and, in a durable file, fsynced.

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
        """Raise the error of the writing thread, if one occurred."""
        with self._change:
            self._raise_failure()

    def close(self) -> None:
        """Write the pending lines, make them durable and close the file; safe to call twice.

        Raises
        ------
        RunError
            If a line could not be written.
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
            self._failure = self._failure or self._write_error(error)
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
                # Collect lines until the next commit is due; closing skips this wait.
                self._change.wait_for(lambda: self._closing, next_commit_s - time.monotonic())
                lines, self._pending = self._pending, []
                self._pending_bytes = 0
            if not lines:
                return
            try:
                self._write(b"".join(lines))
            except OSError as error:
                with self._change:
                    self._failure = self._write_error(error)
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

    def _write_error(self, error: OSError) -> RunError:
        return RunError(
            f"{self.path}: cannot write: {error.strerror}. All trials up to this line are safe."
            " Free disk space, then resume the run."
        )


def complete_bytes(path: Path) -> int:
    """Return the number of bytes in the complete lines of a file, or 0 if the file does not exist."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return 0
    try:
        return _last_newline(descriptor, os.fstat(descriptor).st_size) + 1
    finally:
        os.close(descriptor)


def last_lines(path: Path, max_bytes: int) -> list[bytes]:
    """Return the complete lines within the last ``max_bytes`` of a file, or an empty list if the file does not exist."""
    end = complete_bytes(path)
    if end == 0:
        return []
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        start = max(0, end - max_bytes)
        lines = _read(descriptor, start, end - start).splitlines()
    finally:
        os.close(descriptor)
    return lines[1:] if start else lines


def max_line_bytes(path: Path, usual_bytes: int) -> int:
    """Return an upper bound for the length of the lines in bytes, including newlines, but at least ``usual_bytes``.

    Only one block per ``usual_bytes`` is read, so a file of one gigabyte takes almost no time.
    """
    limit, start = usual_bytes, 0
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(descriptor).st_size
        while size - start > limit:
            end = _last_newline(descriptor, start + limit) + 1
            if end <= start:  # the line at start is longer than all lines before it
                end = min(_next_newline(descriptor, start + limit, size) + 1, size)
                limit = end - start
            start = end
    finally:
        os.close(descriptor)
    return limit


def remove_torn_lines(path: Path) -> None:
    """Truncate a file after its last readable line, as :class:`AppendFile` does.

    Raises
    ------
    OSError
        If the file cannot be opened or truncated.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        _truncate_torn_lines(descriptor)
    finally:
        os.close(descriptor)


def _truncate_torn_lines(descriptor: int) -> int:
    """Truncate a file after its last readable line, and return the remaining size in bytes."""
    size = end = os.fstat(descriptor).st_size
    end = _last_newline(descriptor, size) + 1
    # After a power failure, blocks that were not durable may contain zeros, with newlines between them.
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
