"""Crashes of gfal-copy after a complete copy, which the suite ignores, and the conditions for that."""

from __future__ import annotations

import hashlib
import signal
from collections.abc import Sequence
from pathlib import Path

EXIT_FAULT = (signal.SIGABRT, signal.SIGSEGV)
"""Signals of crashes on exit: threads of libraries still close GridFTP connections while OpenSSL is unloaded."""

_CERTIFICATES = ("gsiftp://", "srm://")


def crashed_on_exit(argv: Sequence[str], code: int, arrived: Path, digest: str) -> bool:
    """Return whether gfal-copy used certificates and crashed on exit, and the file that arrived has that SHA-256."""
    known = Path(argv[0]).name == "gfal-copy" and any(word.startswith(_CERTIFICATES) for word in argv)
    return known and -code in EXIT_FAULT and arrived.is_file() and sha256_of(arrived) == digest


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
