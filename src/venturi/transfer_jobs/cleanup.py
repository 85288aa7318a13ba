"""Removal of partial files that failed transfers left at local destinations.

A *fingerprint* of the destination is recorded before the first attempt. A file with the same fingerprint was not
changed and is kept. Any other file is partial and is removed. Files on servers are never removed, because changes
cannot be detected from here.
"""

from __future__ import annotations

import stat
from contextlib import suppress
from pathlib import Path

from venturi.transfer_jobs.address import Address

__all__ = ["fingerprint", "remove_partial_files"]

_ABSENT = "absent"


def fingerprint(destination: Address) -> str | None:
    """Return the identity of the file at a local destination, to detect changes. None for a destination on a server."""
    return _of(destination.path) if destination.is_file else None


def remove_partial_files(destination: str, found: str | None) -> bool:
    """Remove the partial file of failed attempts, and return whether a file was removed.

    Parameters
    ----------
    destination
        Destination in the queue. Nothing is done for a URL.
    found
        Fingerprint before the first attempt. None: there was no attempt.
    """
    if found is None or not destination.startswith("/") or _of(destination) in (found, _ABSENT):
        return False
    with suppress(OSError):
        if stat.S_ISREG(Path(destination).lstat().st_mode):  # never a directory or a device such as /dev/null
            Path(destination).unlink()
            return True
    return False


def _of(path: str) -> str:
    try:
        status = Path(path).stat()
    except OSError:
        return _ABSENT
    return f"{status.st_dev}:{status.st_ino}:{status.st_size}:{status.st_mtime_ns}"
