"""``venturi``: the mover of ``venturi copy``, for local copies and for FTP, GridFTP and HTTP servers.

The call starts ``venturi-engine``. Venturi measures it like every other mover.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from venturi.cost import FILE, LAB_BYTES, MeasuredCost, MoverCost, merge_cost
from venturi.mover.base import Option, OutputError, ToolReport, output_text
from venturi.mover.http import PROXY
from venturi.mover.shell import format_shell_command, shell
from venturi.plan import Call
from venturi.plan.header import Argument, OptionValue

__all__ = ["Venturi"]

_OPTIONS = (
    Option("concurrency", "integer", None, "Concurrent chunks of a large local file, or sessions with a server. Default: automatic.", maximum=1024),
    Option("streams", "integer", None, "Data connections of each session with a server. Default: automatic.", maximum=256),
    Option("pipelining", "integer", None, "Files in flight of each session with a server. Default: automatic.", maximum=4096),
    Option("window", "size", None, "Socket buffers of data connections, on both hosts. Default: automatic (kernel).", minimum=4096, maximum=1 << 30),
    Option("congestion", "text", None, "Congestion control of the local data connections, such as `bbr`. Default: the system default."),
    Option("stripe", "boolean", False, "Use all data nodes of a striped server for each file; other servers ignore it."),
    Option("pacing", "rate", None, "Rate limit of each data connection of an upload. For downloads, set it in the service.", minimum=8000, maximum=125_000_000_000),
    Option("rate", "rate", None, "Rate limit of the whole call (--max-rate); not directly between two servers.", minimum=1_000_000, maximum=125_000_000_000),
    Option(
        "data_channel",
        "choice",
        None,
        "Security of gsiftp data connections: `open`, `authenticated`, `safe` (integrity) or `private` (encryption). Default: authenticated.",
        choices=("authenticated", "open", "safe", "private"),
    ),
    PROXY,
    Option("block", "size", None, "Size of a read and write, or of a block for a server. Default: automatic.", minimum=4096, maximum=1 << 30),
    Option("fixed", "boolean", False, "Disable automatic tuning: one worker, session, connection and file at a time, and blocks of 256 KiB, unless other options set them."),
    Option(
        "method",
        "choice",
        "copy",
        "Method of a local copy: `auto` can clone extents, `copy` selects the fastest copy, `kernel` copies in the kernel, `buffers` reads and writes.",
        choices=("auto", "copy", "kernel", "buffers"),
    ),
    Option("direct", "boolean", False, "Bypass the page cache (O_DIRECT), if the file system supports it."),
    Option("fsync", "boolean", False, "Write the copy to stable storage before the rename (--sync)."),
    Option("verify", "boolean", False, "Compare source and destination after the copy (part of the duration)."),
)  # fmt: skip
_FTP_PROTOCOLS = frozenset({"ftp", "gsiftp"})
_HTTP_PROTOCOLS = frozenset({"http", "https", "davs"})
_EXPECTED = 'events, the last with "event": "end"'
_MEASURED = (
    "estimated by `venturi calibrate` from calls in the lab, November 2026: 1, 11, 101 and 1001 files of 1 kB over 1 Gb/s at round trips of 0.1, 20 and 50 ms, tuned and fixed, "
    "three times each, with globus-gridftp-server and venturi serve; CPU times from the fastest calls; Intel Xeon with other load, Linux 6.18, Debian 12"
)
_HTTP_MEASURED = "measured in the lab, November 2026: 1, 11 and 101 files of 1 kB at round trips of 0.1, 20 and 50 ms, twice each, with nginx and XRootD"
_HTTPS_MEASURED = (
    "measured in the lab, November 2026: 1, 11 and 101 files of 1 kB at round trips of 0.1, 20 and 50 ms, medians of 4 calls, minimum CPU times, with XRootD, which needs a listing "
    "for the time of each file; AMD EPYC, Linux 6.18, Debian 12"
)
_HTTPS_BYTES = (
    "measured in the lab, November 2026: one file of 256 MB in memory over 10 Gb/s at a round trip of 0.1 ms, CPU time of the client, minimum of 4 calls, minus that of a file of "
    "1 kB; AMD EPYC, Linux 6.18"
)
_FTP, _GSIFTP, _HTTP, _HTTPS, _FILE = ("ftp",), ("gsiftp",), ("http",), ("https", "davs"), (FILE,)
_TUNED = MoverCost(
    pipelining=1024,
    sessions=8,
    session_files=50,
    session_bytes=12.5e6,
    large_bytes=128 << 20,
    chunk_bytes=32 << 20,
    keeps_connection=True,
)
"""Automatic tuning for FTP: constants of ``crates/transfer/src/ftp``; sessions at a round-trip time of 50 ms."""
_TUNED_HTTP = MoverCost(sessions=64, session_files=6, min_sessions=8, keeps_connection=True)
"""Automatic tuning for HTTP, from ``crates/transfer/src/http``: 16 sessions for a hundred files."""

_FIXED = MoverCost(pipelining=1, sessions=1)
_SERVED = (
    (_FTP, _FILE, merge_cost(_TUNED, MoverCost.of((0.011, 0.0036, 7.3), (0.0006, 0.0001, 1.0))), _MEASURED),
    (_FILE, _FTP, merge_cost(_TUNED, MoverCost.of((0.011, 0.0036, 7.4), (0.0008, 0.0001, 1.0))), _MEASURED),
    (_GSIFTP, _FILE, merge_cost(_TUNED, MoverCost.of((0.016, 0.012, 11.5), (0.0006, 0.0001, 1.1))), _MEASURED),
    (_FILE, _GSIFTP, merge_cost(_TUNED, MoverCost.of((0.016, 0.012, 13.6), (0.0008, 0.0001, 1.2))), _MEASURED),
    (_HTTP, _FILE, merge_cost(_TUNED_HTTP, MoverCost.of((0.001, 0.0028, 1.45), (0.0, 0.0002, 1.0))), _HTTP_MEASURED),
    (_FILE, _HTTP, merge_cost(_TUNED_HTTP, MoverCost.of((0.003, 0.0024, 1.3), (0.0, 0.0002, 1.05))), _HTTP_MEASURED),
    (
        _HTTPS,
        _FILE,
        merge_cost(_TUNED_HTTP, MoverCost.of((0.004, 0.0103, 1.95), (0.0, 0.00046, 2.0))),
        _HTTPS_MEASURED,
    ),
    (
        _FILE,
        _HTTPS,
        merge_cost(_TUNED_HTTP, MoverCost.of((0.002, 0.0098, 1.95), (0.0, 0.0003, 1.0))),
        _HTTPS_MEASURED,
    ),
)
_BETWEEN = (
    (_FTP, _FTP, MoverCost.of((0.012, 0.006, 12.7), (0.0, 0.0003, 1.1), keeps_connection=True)),
    # Each server generates two keys: for the login, and for authenticated data connections.
    (
        _GSIFTP,
        _GSIFTP,
        replace(MoverCost.of((0.05, 0.02, 25.7), (0.0, 0.0005, 1.0), keeps_connection=True), logins=2.0),
    ),
)
_BETWEEN_MEASURED = "measured in the lab, November 2026: 1, 11 and 101 files of 1 kB between two globus-gridftp-servers, one at a round trip of 20 or 50 ms, twice each"
_COSTS = (
    MeasuredCost(
        _FILE,
        _FILE,
        MoverCost.of((0.0, 0.0012, 0.0), (0.0, 0.00006, 0.0)),
        "CPU time of calls with 1, 11 and 1001 files of 1 kB within one host, minimum of 15, November 2026; Intel Xeon, Linux 6.18, Debian 12",
    ),
    *(MeasuredCost(source, destination, cost, origin) for source, destination, cost, origin in _SERVED),
    *(
        MeasuredCost(source, destination, _FIXED, origin, {"fixed": True})
        for source, destination, _, origin in _SERVED
    ),
    *(MeasuredCost(source, destination, cost, _BETWEEN_MEASURED) for source, destination, cost in _BETWEEN),
    *(
        MeasuredCost(source, destination, MoverCost(file_round_trips=2.0), _BETWEEN_MEASURED, {"fixed": True})
        for source, destination, _ in _BETWEEN
    ),
    *(
        MeasuredCost(source, destination, MoverCost(byte_core_s=core_ns * 1e-9), LAB_BYTES)
        for source, destination, core_ns in ((_FTP, _FILE, 0.68), (_FILE, _FTP, 0.06))
    ),
    *(
        MeasuredCost(source, destination, MoverCost(byte_core_s=core_ns * 1e-9), _HTTPS_BYTES)
        for source, destination, core_ns in ((_HTTPS, _FILE, 1.7), (_FILE, _HTTPS, 1.65))
    ),
)
_COUNTS = ("files", "moved_bytes", "kept", "errors")


@dataclass(frozen=True, slots=True)
class Venturi:
    """``venturi-engine copy`` of a file, or of a list of files.

    The default of ``method`` is ``copy``, to move bytes on every file system; the default of ``venturi copy`` is ``auto``. The
    call always replaces existing files.
    """

    name: str = "venturi"
    summary: str = "Mover of Venturi (`venturi copy`): copies within a host, and from, to and between GridFTP, FTP and HTTP servers."
    requires: tuple[str, ...] = ("venturi-engine",)
    reads: bool = True
    writes: bool = True
    null_destination: bool = False
    null_lists: bool = False
    protocols: tuple[str, ...] = ("gsiftp", "ftp", "davs", "https", "http")
    lists: bool = True
    options: tuple[Option, ...] = _OPTIONS
    costs: tuple[MeasuredCost, ...] = _COSTS

    def call(self, options: Mapping[str, OptionValue]) -> Call:
        """Return the call of the engine."""
        flags = {
            "stripe": "--stripe",
            "fixed": "--fixed",
            "direct": "--direct",
            "fsync": "--sync",
            "verify": "--verify",
        }
        proxy: tuple[Argument, ...] = ("--proxy", "none") if options["proxy"] is None else (("--proxy", "{proxy}"),)
        tool: tuple[Argument, ...] = (
            *("venturi-engine", "copy", "--json", "--no-target-directory", "--existing", "replace"),
            *("--method", "{method}"),
            *(flag for name, flag in flags.items() if options[name]),
            ("--concurrency", "{concurrency}"),
            ("--streams", "{streams}"),
            ("--pipelining", "{pipelining}"),
            ("--window", "{window_bytes}"),
            ("--congestion", "{congestion}"),
            ("--pacing", "{pacing_bytes_per_s}B/s"),
            ("--max-rate", "{rate_bytes_per_s}B/s"),
            ("--data-channel", "{data_channel}"),
            *proxy,
            ("--block", "{block_bytes}"),
        )
        # A list excludes source and destination arguments.
        several = shell(f'exec {format_shell_command(tool, options)} --list "$1"', "{list}")
        argv: tuple[Argument, ...] = (several, *tool, *("--", "{source}", "{destination}"))
        return Call(self.name, dict(options), argv, ("sh", *self.requires), capture=True)

    def option_conflict(
        self, options: Mapping[str, OptionValue], source: str | None, destination: str | None
    ) -> tuple[str, str] | None:
        """Return the option without effect for these endpoints, with a message; the engine rejects it."""
        served = {end for end in (source, destination) if end is not None}
        found = f"{source or 'a file'} to {destination or 'a file'}"
        if served & _FTP_PROTOCOLS and served - _FTP_PROTOCOLS:
            return (
                "destination_service",
                f"expected two FTP servers or two HTTP servers, found {found}; use services of one protocol",
            )
        local, remote = "a copy within one host", "a copy from or to a server"
        upload = "an upload, because the sender limits the rate (for downloads: option pacing of venturi-serve)"
        requirements = {
            **dict.fromkeys(("direct", "method"), (not served, local)),
            **dict.fromkeys(("streams", "window", "congestion"), (bool(served), remote)),
            **dict.fromkeys(
                ("stripe", "pipelining"),
                (bool(served & _FTP_PROTOCOLS), "a copy from or to an FTP or GridFTP server"),
            ),
            "proxy": (bool(served & _HTTP_PROTOCOLS), "a copy from or to an HTTP server"),
            "pacing": (source is None and destination is not None, upload),
            "rate": (source is None or destination is None, "a copy from or to a file of the host"),
            "data_channel": (
                served == {"gsiftp"} or (options.get("data_channel") == "open" and "gsiftp" in served),
                "gsiftp on every server",
            ),
        }
        for name, (met, expected) in requirements.items():
            if options.get(name) not in (None, False, "auto", "copy") and not met:
                return name, f"expected {expected}, found {found}; remove the option"
        return None

    def parse(self, record: Mapping[str, Any]) -> ToolReport:
        """Return the report of the last event: bytes, duration and decisions."""
        text = output_text(record, "stdout")
        events = list(_events(text))
        try:
            end = events[-1]
            detail: dict[str, float | int | str] = {name: int(end[name]) for name in _COUNTS}
            detail |= {event["setting"]: int(event["value"]) for event in events if event["event"] == "decision"}
            methods = [str(event["method"]) for event in events if event["event"] == "file" and "method" in event]
            detail |= {"method": methods[-1]} if methods else {}
            size, duration_s = int(end["bytes"]), float(end["duration_s"])
        except (ValueError, KeyError, TypeError, IndexError, OverflowError) as error:
            raise OutputError(_EXPECTED, text) from error
        if end["event"] != "end" or not math.isfinite(duration_s):
            raise OutputError(_EXPECTED, text)
        return ToolReport(size, size / duration_s if size and duration_s else None, duration_s, detail=detail)


def _events(text: str) -> Iterator[dict[str, Any]]:
    """Yield the events; the middle of a long output can be truncated, with partial lines."""
    for line in text.splitlines():
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(event, dict) and "event" in event:
            yield event
