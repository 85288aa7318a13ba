"""Logs of XRootD servers: files that clients had open, from the log and the monitoring of the option ``monitor``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from venturi.testbed.services.log_source import ServerTransfer
from venturi.testbed.xrootd_trace import trace

__all__ = ["accessed_files"]


def accessed_files(log: Path, monitoring: Path) -> Iterator[ServerTransfer]:
    """Yield the files that were opened and closed. A file that is still open at the end of the log is left out.

    The server sends no final reply, so ``code`` is ``"closed"``. Written bytes can include checksums, so they are not the
    bytes of the file.

    Raises
    ------
    RunError
        If the monitoring has an unknown form.
    """
    if not log.exists():
        return
    counts = monitoring.read_bytes() if monitoring.exists() else b""
    for one in trace(log.read_text(encoding="utf-8", errors="replace"), counts):
        if one.closed_s is None:
            continue
        reads = one.mode == "r"
        yield ServerTransfer(
            end_unix_s=one.closed_s,
            start_unix_s=one.opened_s,
            path=one.path,
            command="read" if reads else "write",
            code="closed",
            sent_bytes=one.read_bytes,
            received_bytes=one.written_bytes,
            file_bytes=one.read_bytes if reads else None,
            peer=one.host,
            streams=one.streams,
        )
