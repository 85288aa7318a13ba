"""Whether a folder that need not exist yet can be made and written to."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

__all__ = ["nearest_folder", "obstacle"]


def nearest_folder(path: Path) -> Path:
    """Return the folder itself, or the nearest one above it that exists and can be seen.

    Examples
    --------
    >>> nearest_folder(Path("/dev/nothing/of/this/name")).as_posix()
    '/dev'
    """
    # os.path tells "not there" of what may not be looked at, where pathlib raises.
    return next(folder for folder in (path.absolute(), *path.absolute().parents) if os.path.isdir(folder))  # noqa: PTH112


def obstacle(path: Path) -> str | None:
    """Return what keeps a folder from being made and written to, or None; tried for real, and nothing is left behind.

    Examples
    --------
    >>> obstacle(Path("/dev/null/below"))
    '/dev/null is not a directory'
    """
    folder = nearest_folder(path)
    missing = path.absolute().relative_to(folder).parts
    if missing and os.path.lexists(folder / missing[0]):
        return f"{folder / missing[0]} is not a directory"
    try:
        with tempfile.TemporaryFile(dir=folder):
            return None
    except OSError as error:
        return f"cannot write in {folder}: {error.strerror}"
