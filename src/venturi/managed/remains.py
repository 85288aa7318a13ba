"""What a transfer that came to nothing has left at a local destination, and what was there before it.

What lay there before the first attempt is written down as a *fingerprint*. A file that still has it was not touched, and
stays; any other is a part of something, and is removed. Behind a server nothing is removed: whether a file there was
touched, cannot be told from here.
"""

from __future__ import annotations

import stat
from contextlib import suppress
from pathlib import Path

from venturi.managed.address import Address

__all__ = ["clear", "fingerprint"]

_ABSENT = "absent"


def fingerprint(destination: Address) -> str | None:
    """Return what tells a file at a local destination from any other; None for one behind a server."""
    return _of(destination.path) if destination.is_file else None


def clear(destination: str, found: str | None) -> bool:
    """Remove what attempts have left at a destination, and return whether that was anything.

    Parameters
    ----------
    destination
        As the queue has it: a path, or a URL, where nothing is done.
    found
        Its fingerprint before the first attempt; None: there was no attempt.
    """
    if found is None or not destination.startswith("/") or _of(destination) in (found, _ABSENT):
        return False
    with suppress(OSError):
        if stat.S_ISREG(Path(destination).lstat().st_mode):  # never a device such as /dev/null, nor a folder
            Path(destination).unlink()
            return True
    return False


def _of(path: str) -> str:
    try:
        status = Path(path).stat()
    except OSError:
        return _ABSENT
    return f"{status.st_dev}:{status.st_ino}:{status.st_size}:{status.st_mtime_ns}"
