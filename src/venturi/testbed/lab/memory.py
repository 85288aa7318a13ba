"""Memory for TCP: one bound for the whole machine, raised while labs need more and put back by the last of them.

``net.ipv4.tcp_mem`` counts pages of all sockets of all network namespaces. Beyond its middle value the kernel prunes receive queues, and long fat
pipes collapse to a tenth of their rate.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from venturi.testbed.lab.living import ProcessId, boot_id

__all__ = ["claim_tcp_memory", "needed_pages", "release_tcp_memory"]

SETTING = Path("/proc/sys/net/ipv4/tcp_mem")
CLAIMS = Path("/run/venturi-tcp-mem.json")
"""Which labs have raised it, and what it was: one file a machine, for the setting is one a machine. Root alone writes there."""
_BESIDE = CLAIMS.with_suffix(".new")

_SAFETY = 3
"""The senders' copy, the receivers' queue, and overhead of small buffers."""


def needed_pages(in_flight_bytes: int) -> int:
    """Return how many pages sockets need that keep so many bytes in flight."""
    return _SAFETY * in_flight_bytes // os.sysconf("SC_PAGE_SIZE")


def claim_tcp_memory(lab: str, keeper: ProcessId, pages: int) -> bool:
    """Raise the bound, if need be, until the lab releases it; return whether there is enough now.

    Never beyond half of the machine's memory.
    """
    # What another lab has raised it to is that lab's: it will not be there when that one is down.
    if pages <= _middle(_current()) and not CLAIMS.exists():
        return True
    if not os.access(SETTING, os.W_OK):
        return False
    with _claims() as claims:
        claims["labs"][lab] = {"pages": pages, "keeper": keeper.as_json()}
        _apply(claims)
    return pages <= _middle(_current())


def release_tcp_memory(lab: str) -> None:
    """Give up the claim of a lab; the last one puts the bound back to what it was."""
    # A claim that was never made whole goes, too.
    if (CLAIMS.exists() or _BESIDE.exists()) and os.access(SETTING, os.W_OK):
        with _claims() as claims:
            claims["labs"].pop(lab, None)
            _apply(claims)


@contextmanager
def _claims() -> Iterator[dict[str, Any]]:
    """Hold the file of claims alone; claims of dead keepers are struck out, and a file without claims is removed."""
    descriptor = os.open(CLAIMS.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        claims: dict[str, Any] = {}
        if CLAIMS.exists():
            claims = json.loads(CLAIMS.read_text())
        if claims.get("boot") != boot_id():
            claims = {"boot": boot_id(), "original": _current(), "before": _current(), "set": _current(), "labs": {}}
        living = {lab: claim for lab, claim in claims["labs"].items() if ProcessId.from_json(claim["keeper"]).alive}
        claims["labs"] = living
        # Before anything changes: whoever finds the file knows what to put back.
        _write(claims)
        yield claims
        if claims["labs"]:
            _write(claims)
        else:
            CLAIMS.unlink()
    finally:
        os.close(descriptor)


def _apply(claims: dict[str, Any]) -> None:
    # Whoever changed it last may have been killed before, or after, it took effect; else it is somebody else's now.
    if _current() not in (claims["before"], claims["set"]):
        return
    pages = sum(claim["pages"] for claim in claims["labs"].values())
    most = os.sysconf("SC_PHYS_PAGES") // 2
    low, middle, high = map(int, claims["original"].split())
    wanted = min(pages, most)
    new = claims["original"]
    if claims["labs"] and wanted > middle:
        new = f"{max(low, wanted * 3 // 4)} {wanted} {max(high, wanted * 3 // 2)}"
    claims["before"], claims["set"] = _current(), new
    _write(claims)
    SETTING.write_text(new)
    claims["before"] = claims["set"] = _current()


def _write(claims: dict[str, Any]) -> None:
    """Write the claims, whole or not at all: without them nobody could put the bound back."""
    _BESIDE.write_text(json.dumps(claims))
    _BESIDE.replace(CLAIMS)


def _current() -> str:
    return " ".join(SETTING.read_text().split())


def _middle(setting: str) -> int:
    return int(setting.split()[1])
