"""Installed versions of the servers, for the records."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from contextlib import suppress

__all__ = ["package_versions"]

_TIMEOUT_S = 10.0


def package_versions(packages: Iterable[str]) -> dict[str, str]:
    """Return package → version, as reported by the Debian package manager; empty on other systems."""
    requested = sorted(set(packages))
    if not requested:
        return {}
    fields = ["dpkg-query", "--show", "--showformat", "${Package} ${Version}\\n", *requested]
    with suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(fields, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
        lines = (line.split(" ", 1) for line in done.stdout.splitlines())
        return {fields[0]: fields[1] for fields in lines if len(fields) == 2 and fields[1]}
    return {}
