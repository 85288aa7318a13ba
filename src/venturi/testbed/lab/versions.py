"""Which versions of the servers are installed, for the record."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from contextlib import suppress

__all__ = ["package_versions"]

_TIMEOUT_S = 10.0


def package_versions(packages: Iterable[str]) -> dict[str, str]:
    """Return package → installed version, as the Debian package manager knows it; empty on other systems."""
    wanted = sorted(set(packages))
    if not wanted:
        return {}
    words = ["dpkg-query", "--show", "--showformat", "${Package} ${Version}\\n", *wanted]
    with suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(words, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
        lines = (line.split(" ", 1) for line in done.stdout.splitlines())
        return {words[0]: words[1] for words in lines if len(words) == 2 and words[1]}
    return {}
