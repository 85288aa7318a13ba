"""Checks whether a directory, which need not exist, can be created and written to."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

__all__ = ["nearest_directory", "obstacle"]


def nearest_directory(path: Path) -> Path:
    """Return the directory itself, or its nearest existing and accessible parent.

    Examples
    --------
    >>> nearest_directory(Path("/dev/nothing/of/this/name")).as_posix()
    '/dev'
    """
    # For inaccessible paths, os.path.isdir returns False, whereas pathlib raises an error.
    return next(directory for directory in (path.absolute(), *path.absolute().parents) if os.path.isdir(directory))  # noqa: PTH112


def obstacle(path: Path) -> str | None:
    """Return why a directory cannot be created and written to, or None. The check writes a temporary file.

    Examples
    --------
    >>> obstacle(Path("/dev/null/below"))
    '/dev/null is not a directory'
    """
    directory = nearest_directory(path)
    missing = path.absolute().relative_to(directory).parts
    if missing and os.path.lexists(directory / missing[0]):
        return f"{directory / missing[0]} is not a directory"
    try:
        with tempfile.TemporaryFile(dir=directory):
            return None
    except OSError as error:
        return f"cannot write in {directory}: {error.strerror}"
