"""Liveness of workers: one file per worker, which stays locked while the worker or any process that it started lives.

The lock is `flock`. The kernel releases it when the last process with the descriptor ends, for any reason. So it needs
no clock, is immune to reused PIDs, and works across PID namespaces. Agents inherit the descriptor, so that a transfer
is retried only when the first attempt has no process left.
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
        """Release the lock and remove the file. Safe to call twice."""
        if self.descriptor >= 0:
            self._path.unlink(missing_ok=True)
            os.close(self.descriptor)
            self.descriptor = -1


def is_held(path: Path) -> bool:
    """Return whether a process holds the lock. A lock without a file is free."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        with contextlib.suppress(BlockingIOError):
            # Shared, so that concurrent checks do not conflict.
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return False
        return True
    finally:
        os.close(descriptor)
