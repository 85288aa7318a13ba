"""Incremental reader of a growing file of JSON lines."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["Tail"]

BLOCK_BYTES = 4 * 2**20
"""Bytes of one read. A longer line is read to its end."""


class Tail:
    """Reader of the complete lines that a file has gained since the last read.

    It opens the file for each read, so it sees a file that appears later or is replaced.

    Attributes
    ----------
    has_more
        Whether the last read left complete or incomplete data in the file.
    restarted
        Whether the last read started again at the first line, because the file was replaced or truncated.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "journal.jsonl"
    >>> tail = Tail(path)
    >>> tail.read()
    []
    >>> _ = path.write_bytes(b'{"a": 1}' + b"\\n" + b'{"b"')
    >>> tail.read()
    [b'{"a": 1}']
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._inode = -1
        self.has_more = False
        self.restarted = False

    def read(self) -> list[bytes]:
        """Return the next complete lines without their newlines, at most about :data:`BLOCK_BYTES`.

        An unreadable file has no lines.
        """
        self.restarted = self.has_more = False
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return []
        try:
            status = os.fstat(descriptor)
            if status.st_ino != self._inode or status.st_size < self._offset:
                self.restarted = self._offset > 0
                self._inode, self._offset = status.st_ino, 0
            if status.st_size == self._offset:
                return []
            block = self._next_lines(descriptor)
        except OSError:
            return []
        finally:
            os.close(descriptor)
        self._offset += len(block)
        self.has_more = bool(block) and self._offset < status.st_size
        return block.splitlines()

    def _next_lines(self, descriptor: int) -> bytes:
        block = b""
        while part := os.pread(descriptor, BLOCK_BYTES, self._offset + len(block)):
            block += part
            if (end := block.rfind(b"\n")) >= 0:
                return block[: end + 1]
        return b""
