"""Who is at work on a queue: a file a worker, locked while it, or anything that it has started, lives.

The lock is `flock`, which the kernel gives up when the last process that holds the descriptor ends, however that comes
about: no clock decides, no PID that somebody else has got since, and it holds across PID namespaces. Agents inherit the
descriptor, so that a transfer is taken up only when nothing of the first try moves bytes any more.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

__all__ = ["Lease", "is_held"]


class Lease:
    """The lock of one worker, held from construction to :meth:`release`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self.descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def release(self) -> None:
        """Give it up and remove the file; safe to call twice."""
        if self.descriptor >= 0:
            self._path.unlink(missing_ok=True)
            os.close(self.descriptor)
            self.descriptor = -1


def is_held(path: Path) -> bool:
    """Return whether somebody holds the lock; one whose file is gone is held by nobody."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: who looks must not disturb who looks too
            return False
        return True
    finally:
        os.close(descriptor)
