"""Where programs of the system are looked for: users' search paths leave out what is for administrators."""

from __future__ import annotations

import os
import sys
from pathlib import Path

__all__ = ["search_path", "surroundings"]

_FOR_ADMINISTRATORS = ("/usr/local/sbin", "/usr/sbin", "/sbin")


def search_path() -> str:
    """Return ``PATH`` with the folders of ``nft``, ``mkfs.ext4`` and servers at its end, and before them that of our own scripts."""
    folders = [folder for folder in os.environ.get("PATH", os.defpath).split(os.pathsep) if folder]
    # A virtual environment need not be activated for its programs to be used.
    return os.pathsep.join(dict.fromkeys([*folders, str(Path(sys.executable).parent), *_FOR_ADMINISTRATORS]))


def surroundings() -> dict[str, str]:
    """Return the environment of this process with that search path."""
    return {**os.environ, "PATH": search_path()}
