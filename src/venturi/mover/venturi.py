"""``venturi copy``: our own mover, called as the engine, measured like all others. Between places of one host, and from and to servers of FTP, GridFTP and HTTP."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from venturi.cost import FILE, LAB_BYTES, Measured, MoverCost, over
from venturi.mover.base import Option, OutputError, ToolReport, output_text
from venturi.mover.http import PROXY
from venturi.mover.shell import filled, shell
from venturi.plan import Call
from venturi.plan.header import Argument, OptionValue

__all__ = ["Venturi"]

_OPTIONS = (
    Option("concurrency", "integer", None, "Chunks of a large file at the same time, or sessions with a server; by default as it decides itself.", maximum=1024),
    Option("streams", "integer", None, "Data connections of each session with a server; by default as it decides itself.", maximum=256),
    Option("pipelining", "integer", None, "Files that each session asks a server for ahead of their end; by default as it decides itself.", maximum=4096),
    Option("window", "size", None, "Socket buffers of data connections, at both ends; by default the kernels find them.", minimum=4096, maximum=1 << 30),
    Option("congestion", "text", None, "Congestion control of our end of data connections, such as bbr; by default that of the system."),
    Option("stripe", "boolean", False, "Have all data nodes of a striped server move each file; one that is not striped takes no notice."),
    Option("pacing", "rate", None, "What each data connection of an upload sends at most; of downloads it is an option of the service.", minimum=8000, maximum=125_000_000_000),
    Option(
        "data_channel",
        "choice",
        None,
        "What gsiftp does on data channels: `open`, `authenticated`, `safe` (integrity) or `private` (encryption); by default authenticated.",
        choices=("authenticated", "open", "safe", "private"),
    ),
    PROXY,
    Option("block", "size", None, "Bytes of one read and write, or of a block sent to a server; by default as it decides itself.", minimum=4096, maximum=1 << 30),
    Option("fixed", "boolean", False, "Decide nothing: one worker, session, connection and file at a time, and 256 KiB, where the others do not say."),
    Option(
        "method",
        "choice",
        "copy",
        "`auto` may clone extents, so that no byte moves; `copy` moves them as fast as it can; `kernel` has the kernel copy; `buffers` reads and writes.",
        choices=("auto", "copy", "kernel", "buffers"),
    ),
    Option("direct", "boolean", False, "Past the page cache (O_DIRECT); a file system without it is copied through the cache."),
    Option("fsync", "boolean", False, "Have the copy on stable storage before it gets its name (--sync)."),
    Option("verify", "boolean", False, "Read both ends again and compare them, inside the timing."),
)  # fmt: skip
_OF_FTP = frozenset({"ftp", "gsiftp"})
_OF_HTTP = frozenset({"http", "https", "davs"})
_EXPECTED = 'events, the last with "event": "end"'
_MEASURED = (
    "estimated by `venturi calibrate` from calls in the lab, November 2026: 1, 11, 101 and 1001 files of 1 kB over 1 Gb/s at round trips of 0.1, 20 and 50 ms, tuned and fixed, "
    "three times each, with globus-gridftp-server and with our own; processor times from the fastest; Intel Xeon at work with other things, Linux 6.18, Debian 12"
)
_HTTP_MEASURED = "measured in the lab, November 2026: 1, 11 and 101 files of 1 kB at round trips of 0.1, 20 and 50 ms, twice each, with nginx and XRootD"
_HTTPS_MEASURED = (
    "measured in the lab, November 2026: 1, 11 and 101 files of 1 kB at round trips of 0.1, 20 and 50 ms, medians of 4, processor times the least, with XRootD, which is asked for each file's "
    "time by a listing; AMD EPYC, Linux 6.18, Debian 12"
)
_HTTPS_BYTES = (
    "measured in the lab, November 2026: one file of 256 MB in memory over 10 Gb/s at a round trip of 0.1 ms, processor time of the client, least of 4 calls, less that of a file of "
    "1 kB; AMD EPYC, Linux 6.18"
)
_FTP, _GSIFTP, _HTTP, _HTTPS, _FILE = ("ftp",), ("gsiftp",), ("http",), ("https", "davs"), (FILE,)
_TUNED = MoverCost(
    pipelining=1024,
    sessions=8,
    session_files=50,
    session_bytes=12.5e6,
    large_bytes=128 << 20,
    piece_bytes=32 << 20,
    keeps_connection=True,
)
"""What it decides by itself: constants of ``crates/mover/src/ftp/forecast.rs`` and ``chunks.rs``, sessions as at a round trip of 50 ms."""
_TUNED_HTTP = MoverCost(sessions=64, session_files=6, sessions_least=8, keeps_connection=True)
"""Of ``crates/mover/src/http/work.rs``: one for 8 files, of 8 threads as many each: 16 for a hundred."""

_FIXED = MoverCost(pipelining=1, sessions=1)
_SERVED = (
    (_FTP, _FILE, over(_TUNED, MoverCost.of((0.011, 0.0036, 7.3), (0.0006, 0.0001, 1.0))), _MEASURED),
    (_FILE, _FTP, over(_TUNED, MoverCost.of((0.011, 0.0036, 7.4), (0.0008, 0.0001, 1.0))), _MEASURED),
    (_GSIFTP, _FILE, over(_TUNED, MoverCost.of((0.016, 0.012, 11.5), (0.0006, 0.0001, 1.1))), _MEASURED),
    (_FILE, _GSIFTP, over(_TUNED, MoverCost.of((0.016, 0.012, 13.6), (0.0008, 0.0001, 1.2))), _MEASURED),
    (_HTTP, _FILE, over(_TUNED_HTTP, MoverCost.of((0.001, 0.0028, 1.45), (0.0, 0.0002, 1.0))), _HTTP_MEASURED),
    (_FILE, _HTTP, over(_TUNED_HTTP, MoverCost.of((0.003, 0.0024, 1.3), (0.0, 0.0002, 1.05))), _HTTP_MEASURED),
    (_HTTPS, _FILE, over(_TUNED_HTTP, MoverCost.of((0.004, 0.0103, 1.95), (0.0, 0.00046, 2.0))), _HTTPS_MEASURED),
    (_FILE, _HTTPS, over(_TUNED_HTTP, MoverCost.of((0.002, 0.0098, 1.95), (0.0, 0.0003, 1.0))), _HTTPS_MEASURED),
)
_BETWEEN = (
    (_FTP, _FTP, MoverCost.of((0.012, 0.006, 12.7), (0.0, 0.0003, 1.1), keeps_connection=True)),
    # Each server makes two keys: for the login, and for the data connections that have it authenticated.
    (
        _GSIFTP,
        _GSIFTP,
        replace(MoverCost.of((0.05, 0.02, 25.7), (0.0, 0.0005, 1.0), keeps_connection=True), logins=2.0),
    ),
)
_BETWEEN_MEASURED = "measured in the lab, November 2026: 1, 11 and 101 files of 1 kB between two globus-gridftp-servers, one of them 20 or 50 ms away, twice each"
_COSTS = (
    Measured(
        _FILE,
        _FILE,
        MoverCost.of((0.0, 0.0012, 0.0), (0.0, 0.00006, 0.0)),
        "processor time of calls with 1, 11 and 1001 files of 1 kB within one host, the least of 15, November 2026; Intel Xeon, Linux 6.18, Debian 12",
    ),
    *(Measured(source, destination, cost, origin) for source, destination, cost, origin in _SERVED),
    *(Measured(source, destination, _FIXED, origin, {"fixed": True}) for source, destination, _, origin in _SERVED),
    *(Measured(source, destination, cost, _BETWEEN_MEASURED) for source, destination, cost in _BETWEEN),
    *(
        Measured(source, destination, MoverCost(file_round_trips=2.0), _BETWEEN_MEASURED, {"fixed": True})
        for source, destination, _ in _BETWEEN
    ),
    *(
        Measured(source, destination, MoverCost(byte_core_s=core_ns * 1e-9), LAB_BYTES)
        for source, destination, core_ns in ((_FTP, _FILE, 0.68), (_FILE, _FTP, 0.06))
    ),
    *(
        Measured(source, destination, MoverCost(byte_core_s=core_ns * 1e-9), _HTTPS_BYTES)
        for source, destination, core_ns in ((_HTTPS, _FILE, 1.7), (_FILE, _HTTPS, 1.65))
    ),
)
_COUNTS = ("files", "moved_bytes", "kept", "errors")


@dataclass(frozen=True, slots=True)
class Venturi:
    """``venturi-engine copy`` of a file, or of a list of files.

    The default of ``method`` is ``copy``, so that a copy is a copy on every file system; ``auto`` is what ``venturi copy`` does by
    itself. A file that is there is always replaced.
    """

    name: str = "venturi"
    summary: str = "Our own mover (`venturi copy`), within a host and from and to servers of GridFTP, FTP and HTTP: a file is whole or not there."
    requires: tuple[str, ...] = ("venturi-engine",)
    reads: bool = True
    writes: bool = True
    null_destination: bool = False
    null_lists: bool = False
    speaks: tuple[str, ...] = ("gsiftp", "ftp", "davs", "https", "http")
    lists: bool = True
    options: tuple[Option, ...] = _OPTIONS
    costs: tuple[Measured, ...] = _COSTS

    def call(self, options: Mapping[str, OptionValue]) -> Call:
        """Return how the engine is called."""
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
            ("--data-channel", "{data_channel}"),
            *proxy,
            ("--block", "{block_bytes}"),
        )
        # A list excludes places.
        several = shell(f'exec {filled(tool, options)} --list "$1"', "{list}")
        argv: tuple[Argument, ...] = (several, *tool, *("--", "{source}", "{destination}"))
        return Call(self.name, dict(options), argv, ("sh", *self.requires), capture=True)

    def refusal(
        self, given: Mapping[str, OptionValue], source: str | None, destination: str | None
    ) -> tuple[str, str] | None:
        """Return the option that the engine would refuse between these ends, and why: it would do nothing."""
        served = {end for end in (source, destination) if end is not None}
        found = f"{source or 'a file'} to {destination or 'a file'}"
        if served & _OF_FTP and served - _OF_FTP:
            return (
                "destination_service",
                f"expected both ends at servers of FTP or both at servers of HTTP, found {found}",
            )
        here, there = "both ends on the host that it runs on", "an end at a server"
        upload = "a file of the host that it runs on, and a server to bring it to, since it is the sender who paces (the option pacing of venturi-serve)"
        needs = {
            **dict.fromkeys(("direct", "method"), (not served, here)),
            **dict.fromkeys(("streams", "window", "congestion"), (bool(served), there)),
            **dict.fromkeys(
                ("stripe", "pipelining"), (bool(served & _OF_FTP), "an end at a server of FTP or GridFTP")
            ),
            "proxy": (bool(served & _OF_HTTP), "an end at a server of HTTP"),
            "pacing": (source is None and destination is not None, upload),
            "data_channel": (
                served == {"gsiftp"} or (given.get("data_channel") == "open" and "gsiftp" in served),
                "gsiftp at every server, where data connections are secured",
            ),
        }
        for name, (met, expected) in needs.items():
            if given.get(name) not in (None, False, "auto", "copy") and not met:
                return name, f"expected {expected}, found {found}"
        return None

    def parse(self, record: Mapping[str, Any]) -> ToolReport:
        """Return what its last event says: sizes of what is there now, its own clock, what it decided."""
        text = output_text(record, "stdout")
        told = list(_events(text))
        try:
            end = told[-1]
            detail: dict[str, float | int | str] = {name: int(end[name]) for name in _COUNTS}
            detail |= {event["what"]: int(event["value"]) for event in told if event["event"] == "decision"}
            ways = [str(event["how"]) for event in told if event["event"] == "file" and "how" in event]
            detail |= {"how": ways[-1]} if ways else {}
            size, duration_s = int(end["bytes"]), float(end["duration_s"])
        except (ValueError, KeyError, TypeError, IndexError, OverflowError) as error:
            raise OutputError(_EXPECTED, text) from error
        if end["event"] != "end" or not math.isfinite(duration_s):
            raise OutputError(_EXPECTED, text)
        return ToolReport(size, size / duration_s if size and duration_s else None, duration_s, detail=detail)


def _events(text: str) -> Iterator[dict[str, Any]]:
    """Yield the events; the middle of a long output may have been left out, and with it parts of lines."""
    for line in text.splitlines():
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(event, dict) and "event" in event:
            yield event
