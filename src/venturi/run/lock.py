"""Lock of a run directory for one controller at a time.

The lock is ``flock`` on an open file, so all processes that inherit the descriptor share it. Local agents inherit it and
kill their children before they exit. So the run stays locked until all of them have exited, even if the controller was
killed, and a resumed run does not collide with processes of the session before.
"""

from __future__ import annotations

import fcntl
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from venturi.errors import RunError
from venturi.run.directory import LOCK

__all__ = ["RunLock", "exclusive_if_free"]

REMAINS_WAIT_S = 10.0
"""Time to wait for the agents of a dead controller. They exit within milliseconds after its pipe closes, but a mover that
is blocked in the kernel can take longer."""

_POLL_S = 0.01


class RunLock:
    """Lock of a run directory, held from construction to :meth:`release`.

    Raises
    ------
    RunError
        If another process holds it; the message names its PID and host.
    """

    def __init__(self, path: Path, wait_s: float = REMAINS_WAIT_S) -> None:
        self._path = path / LOCK
        try:
            self.descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise RunError(f"{path}: expected a writable directory: {error.strerror}") from error
        try:
            self._acquire(path, time.monotonic() + wait_s)
            os.ftruncate(self.descriptor, 0)
            os.pwrite(self.descriptor, f"{os.getpid()} {socket.gethostname()}\n".encode(), 0)
        except BaseException:
            os.close(self.descriptor)
            raise

    def release(self) -> None:
        """Release the lock; safe to call twice."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def _acquire(self, path: Path, deadline_s: float) -> None:
        while True:
            try:
                fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except OSError as error:
                if not isinstance(error, BlockingIOError):
                    raise RunError(f"{path}: cannot lock the run: {error.strerror}") from error
            pid, host = self._holder()
            if _is_alive(pid, host) or time.monotonic() > deadline_s:
                rest = "" if _is_alive(pid, host) else " (it has exited, but processes that it started are running)"
                raise RunError(
                    f"{path}: PID {pid} on {host} uses the run{rest}. Wait for it, or stop it there with Ctrl-C."
                )
            time.sleep(_POLL_S)

    def _holder(self) -> tuple[int, str]:
        fields = os.pread(self.descriptor, 256, 0).decode(errors="replace").split()
        return (int(fields[0]), fields[1]) if len(fields) == 2 and fields[0].isdigit() else (0, "an unknown host")


@contextmanager
def exclusive_if_free(path: Path) -> Iterator[bool]:
    """Yield whether no process, including this one, writes the run; if so, no process can start to until the block ends."""
    try:
        descriptor = os.open(path / LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        yield True  # archived without its lock file, or never started
        return
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)


def _is_alive(pid: int, host: str) -> bool:
    """Return whether the holder may be alive; a process on another machine cannot be checked and counts as alive."""
    if host != socket.gethostname():
        return pid != 0
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return pid > 0
