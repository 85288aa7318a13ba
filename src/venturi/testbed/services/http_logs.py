"""Access logs of HTTP servers: nginx (a custom format) and Squid (its native format)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

from venturi.mover.base import OutputError
from venturi.testbed.services.log_source import ServerTransfer

__all__ = ["origin_transfers", "proxy_transfers"]

_ORIGIN = re.compile(
    r"time_s=(?P<end>[\d.]+) duration_s=(?P<duration>[\d.]+) client=(?P<client>\S+) status=(?P<code>\d+) "
    r"sent_bytes=(?P<sent>\d+) received_bytes=(?P<received>\d+) body_bytes=(?P<body>\d+) content_bytes=(?P<content>\d+|-) "
    r"method=(?P<method>\S+) path=(?P<path>.*) range=\".*"
)
# https://wiki.squid-cache.org/Features/LogFormat: time, milliseconds, client, class/code, bytes to the client, method, URL, user, …
_PROXY = re.compile(
    r"(?P<end>\d+\.\d+) +(?P<duration>\d+) (?P<client>\S+) (?P<status>\w+)/(?P<code>\d+) (?P<sent>\d+) (?P<method>\S+) (?P<url>\S+) .*"
)
_OWN_REQUESTS = "/squid-internal-mgr/"


def origin_transfers(log: Path) -> Iterator[ServerTransfer]:
    """Yield the requests of nginx's access log.

    Raises
    ------
    OutputError
        If a line does not have the format that the service configures.
    """
    for line in _lines(log):
        found = _ORIGIN.fullmatch(line)
        if found is None:
            raise OutputError('"time_s=… duration_s=… client=…"', line)
        upload = found["method"] in ("PUT", "POST")
        content = None if found["content"] == "-" else int(found["content"])
        yield ServerTransfer(
            end_unix_s=float(found["end"]),
            start_unix_s=float(found["end"]) - float(found["duration"]),
            path=found["path"],
            command=found["method"],
            code=found["code"],
            sent_bytes=int(found["sent"]),
            received_bytes=int(found["received"]),
            file_bytes=content if upload else int(found["body"]),
            peer=found["client"],
        )


def proxy_transfers(logs: Iterable[Path]) -> Iterator[ServerTransfer]:
    """Yield the requests of Squid's access logs, except those for its own counters.

    Raises
    ------
    OutputError
        If a line does not have Squid's native format.
    """
    for line in (line for log in logs for line in _lines(log)):
        found = _PROXY.fullmatch(line)
        if found is None:
            raise OutputError('"TIME MILLISECONDS CLIENT CLASS/CODE BYTES METHOD URL …"', line)
        if _OWN_REQUESTS in found["url"]:
            continue
        yield ServerTransfer(
            end_unix_s=float(found["end"]),
            start_unix_s=float(found["end"]) - int(found["duration"]) / 1000,
            path=found["url"],
            command=found["method"],
            code=found["code"],
            sent_bytes=int(found["sent"]),
            peer=found["client"],
            cache=_cache(found["status"]),
            status=found["status"],
        )


def _cache(status: str) -> Literal["hit", "miss"] | None:
    if "HIT" in status or "UNMODIFIED" in status:
        return "hit"
    return "miss" if "MISS" in status or "MODIFIED" in status else None


def _lines(log: Path) -> Iterator[str]:
    """Yield the lines of a log; an incomplete last line is still being written and is ignored."""
    if log.exists():
        with log.open(encoding="utf-8", errors="replace") as lines:
            yield from (line.removesuffix("\n") for line in lines if line.endswith("\n") and line.strip())
