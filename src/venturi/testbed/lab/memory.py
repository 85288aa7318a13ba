"""Memory limit for TCP, one per machine: raised while labs need more, and restored by the last lab.

``net.ipv4.tcp_mem`` counts the pages of all sockets of all network namespaces. Above its middle value, the kernel prunes
receive queues. Connections with a high bandwidth-delay product then collapse to a tenth of their rate.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from venturi.testbed.lab.process_id import ProcessId, boot_id

__all__ = ["claim_tcp_memory", "needed_pages", "release_tcp_memory"]

SETTING = Path("/proc/sys/net/ipv4/tcp_mem")
CLAIMS = Path("/run/venturi-tcp-mem.json")
"""Labs that raised the limit, and its original value. One file per machine, like the limit; only root can write it."""
_TEMPORARY = CLAIMS.with_suffix(".new")

_SAFETY = 3
"""Factor for the senders' copies, the receivers' queues, and the overhead of small buffers."""


def needed_pages(in_flight_bytes: int) -> int:
    """Return the pages that sockets need for these bytes in flight."""
    return _SAFETY * in_flight_bytes // os.sysconf("SC_PAGE_SIZE")


def claim_tcp_memory(lab: str, daemon: ProcessId, pages: int) -> bool:
    """Raise the limit if necessary, until the lab releases it; return whether the limit is now sufficient.

    The limit never exceeds half of the machine's memory.
    """
    # A limit raised by another lab does not count, because that lab restores it on shutdown.
    if pages <= _middle(_current()) and not CLAIMS.exists():
        return True
    if not os.access(SETTING, os.W_OK):
        return False
    with _claims() as claims:
        claims["labs"][lab] = {"pages": pages, "daemon": daemon.as_json()}
        _apply(claims)
    return pages <= _middle(_current())


def release_tcp_memory(lab: str) -> None:
    """Release the claim of a lab. The last release restores the original limit."""
    # This also removes an incomplete claims file.
    if (CLAIMS.exists() or _TEMPORARY.exists()) and os.access(SETTING, os.W_OK):
        with _claims() as claims:
            claims["labs"].pop(lab, None)
            _apply(claims)


@contextmanager
def _claims() -> Iterator[dict[str, Any]]:
    """Lock the claims file, without the claims of dead daemons. A file without claims is removed."""
    descriptor = os.open(CLAIMS.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        claims: dict[str, Any] = {}
        if CLAIMS.exists():
            claims = json.loads(CLAIMS.read_text())
        if claims.get("boot") != boot_id():
            claims = {"boot": boot_id(), "original": _current(), "before": _current(), "set": _current(), "labs": {}}
        living = {lab: claim for lab, claim in claims["labs"].items() if ProcessId.from_json(claim["daemon"]).alive}
        claims["labs"] = living
        # Write before any change, so that another process can restore the limit.
        _write(claims)
        yield claims
        if claims["labs"]:
            _write(claims)
        else:
            CLAIMS.unlink()
    finally:
        os.close(descriptor)


def _apply(claims: dict[str, Any]) -> None:
    # The last writer can have been killed before or after its change. Any other value was set outside of Venturi.
    if _current() not in (claims["before"], claims["set"]):
        return
    pages = sum(claim["pages"] for claim in claims["labs"].values())
    max_pages = os.sysconf("SC_PHYS_PAGES") // 2
    low, middle, high = map(int, claims["original"].split())
    target = min(pages, max_pages)
    new = claims["original"]
    if claims["labs"] and target > middle:
        new = f"{max(low, target * 3 // 4)} {target} {max(high, target * 3 // 2)}"
    claims["before"], claims["set"] = _current(), new
    _write(claims)
    SETTING.write_text(new)
    claims["before"] = claims["set"] = _current()


def _write(claims: dict[str, Any]) -> None:
    """Write the claims atomically, because they are needed to restore the limit."""
    _TEMPORARY.write_text(json.dumps(claims))
    _TEMPORARY.replace(CLAIMS)


def _current() -> str:
    return " ".join(SETTING.read_text().split())


def _middle(setting: str) -> int:
    return int(setting.split()[1])
