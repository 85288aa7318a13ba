"""The death of a client that counts for nothing: that of gfal-copy after a whole copy, and all that must be so for it."""

from __future__ import annotations

import hashlib
import signal
from collections.abc import Sequence
from pathlib import Path

AT_ITS_END = (signal.SIGABRT, signal.SIGSEGV)
"""Threads of its libraries still close connections of GridFTP while OpenSSL, which they do that with, is taken down."""

_CERTIFICATES = ("gsiftp://", "srm://")


def died_at_its_end(argv: Sequence[str], code: int, arrived: Path, digest: str) -> bool:
    """Return whether a call is gfal-copy's, with certificates, that died as it does at its end, and what arrived has that SHA-256."""
    known = Path(argv[0]).name == "gfal-copy" and any(word.startswith(_CERTIFICATES) for word in argv)
    return known and -code in AT_ITS_END and arrived.is_file() and sha256_of(arrived) == digest


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
