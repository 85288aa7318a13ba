"""Search path for system programs. It includes the directories of administrators, which are often not in a user's path."""

from __future__ import annotations

import os
import sys
from pathlib import Path

__all__ = ["program_environment", "search_path"]

_FOR_ADMINISTRATORS = ("/usr/local/sbin", "/usr/sbin", "/sbin")


def search_path() -> str:
    """Return ``PATH`` followed by the directories of Venturi's scripts, ``nft``, ``mkfs.ext4`` and servers."""
    directories = [directory for directory in os.environ.get("PATH", os.defpath).split(os.pathsep) if directory]
    # The programs of a virtual environment must work without its activation.
    return os.pathsep.join(dict.fromkeys([*directories, str(Path(sys.executable).parent), *_FOR_ADMINISTRATORS]))


def program_environment() -> dict[str, str]:
    """Return the environment of this process with the path of :func:`search_path`."""
    return {**os.environ, "PATH": search_path()}
