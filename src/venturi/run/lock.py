"""One controller at a time: the lock of a run directory.

The lock is `flock` on an open file, which all who inherit the descriptor share. A backend hands it to the agents
on its own machine, which kill their children before they end: the run stays taken until they have, even if the
controller was killed, and a resume does not meet the remains of the session before.
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

__all__ = ["RunLock", "quiet"]

REMAINS_WAIT_S = 10.0
"""How long to wait for the agents of a controller that is already dead: they end within milliseconds when its pipe
closes, but a mover that hangs in the kernel may take its time."""

_POLL_S = 0.01


class RunLock:
    """The lock of a run directory, held from construction to :meth:`release`.

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
            raise RunError(f"{path}: expected a directory that can be written to: {error.strerror}") from error
        try:
            self._take(path, time.monotonic() + wait_s)
            os.ftruncate(self.descriptor, 0)
            os.pwrite(self.descriptor, f"{os.getpid()} {socket.gethostname()}\n".encode(), 0)
        except BaseException:
            os.close(self.descriptor)
            raise

    def release(self) -> None:
        """Give the lock up; safe to call twice."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def _take(self, path: Path, deadline_s: float) -> None:
        while True:
            try:
                fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except OSError as error:
                if not isinstance(error, BlockingIOError):
                    raise RunError(f"{path}: the run cannot be locked: {error.strerror}") from error
            pid, host = self._holder()
            if _is_alive(pid, host) or time.monotonic() > deadline_s:
                rest = "" if _is_alive(pid, host) else " (it has ended, but processes that it started have not)"
                raise RunError(
                    f"{path}: the run is in use by PID {pid} on {host}{rest}; wait for it, or stop it with Ctrl-C there"
                )
            time.sleep(_POLL_S)

    def _holder(self) -> tuple[int, str]:
        words = os.pread(self.descriptor, 256, 0).decode(errors="replace").split()
        return (int(words[0]), words[1]) if len(words) == 2 and words[0].isdigit() else (0, "an unknown host")


@contextmanager
def quiet(path: Path) -> Iterator[bool]:
    """Yield whether nobody, this process included, writes the run; if so, nobody begins to before the block ends."""
    try:
        descriptor = os.open(path / LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        yield True  # archived without its lock file, or never begun
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
    """Return whether the holder may still be at work; on another machine that cannot be seen, so it counts as alive."""
    if host != socket.gethostname():
        return pid != 0
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return pid > 0
