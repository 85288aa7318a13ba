"""``gfal-copy``: the copy tool of the grid's data management, on top of the libraries of each protocol."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from venturi.cost import FILE, LAB, Measured, MoverCost
from venturi.mover.base import Option, OutputError, ToolReport, output_text
from venturi.plan import Call
from venturi.plan.header import Argument, OptionValue

__all__ = ["GfalCopy"]

_COPYING = re.compile(r"^Copying ([0-9]+) bytes +\S+ +=> +\S+", re.MULTILINE)
_PATIENCE_S = 86400
"""gfal-copy ends a transfer after 1800 s by itself; here the timeout of the call is to rule."""

_OPTIONS = (
    Option("streams", "integer", None, "Parallel streams for one file, where the protocol has them (-n)."),
    Option("window", "size", None, "Socket buffers, where the protocol can (--tcp-buffersize)."),
    Option(
        "third_party",
        "choice",
        None,
        "Between two HTTP servers: the destination gets it (`pull`), the source sends it (`push`), or through "
        "this host "
        "(`streamed`); otherwise one after the other until one works.",
        choices=("pull", "push", "streamed"),
    ),
    Option(
        "checksum",
        "choice",
        None,
        "Compare checksums of source and destination, in the timing (-K).",
        choices=("ADLER32", "CRC32", "MD5"),
    ),
    Option(
        "token",
        "text",
        None,
        "Bearer token for HTTP ($BEARER_TOKEN). With any, even one that nobody looks at, a third-party copy "
        "asks the servers for "
        "no delegation, which XRootD needs.",
    ),
    Option(
        "exit",
        "choice",
        "orderly",
        "How it ends when all is done: as the tool does it, or `at once`, without taking its libraries down. Threads of theirs close "
        "GridFTP connections while OpenSSL is taken down: with those of Debian 12 one call in 25 was seen to crash so on a busy machine, after a whole copy.",
        choices=("orderly", "at once"),
    ),
)

_TOOL: tuple[Argument, ...] = ("gfal-copy",)
# What the tool's own script does, but for its end.
_AT_ONCE: tuple[Argument, ...] = (
    "/usr/bin/python3",
    "-uWignore",
    "-c",
    "import os, sys\n"
    "from gfal2_util.shell import Gfal2Shell\n"
    "os.environ['XrdSecGSIDELEGPROXY'] = '1'\n"
    "code = Gfal2Shell().main(sys.argv[1:])\n"
    "sys.stdout.flush()\n"
    "os._exit(code or 0)\n",
    *_TOOL,
)

_THIRD = (
    "measured in the lab, November 2026: one file of 1 kB from server to server, called from the host of the source and from a third one, at round trips of "
    "20 and 60 ms, without delay from the third one; start: what keys of the logins leave of the mean of"
)
_CLOSE = f"{LAB}; one file a call; round trips from the fastest of 9, which the fit meets to"
_COSTS = (
    Measured(("ftp",), (FILE,), MoverCost.of((0.029, 0.077, 23.0)), f"{LAB}; one file a call"),
    Measured((FILE,), ("ftp",), MoverCost.of((0.063, 0.071, 17.5)), f"{_CLOSE} 3 %"),
    Measured(("root",), (FILE,), MoverCost.of((0.038, 0.072, 9.3)), f"{_CLOSE} 7 %"),
    Measured((FILE,), ("root",), MoverCost.of((0.0, 0.068, 12.1)), f"{_CLOSE} 2 %"),
    Measured(("http",), (FILE,), MoverCost.of((0.004, 0.071, 4.9)), f"{_CLOSE} 4 % (0.1 to 100 ms)"),
    Measured((FILE,), ("http",), MoverCost.of((0.021, 0.072, 9.1)), f"{_CLOSE} 3 %"),
    # Several logins, of which auth_core_s of the server is one.
    Measured(
        ("gsiftp",),
        (FILE,),
        MoverCost.of((0.69, 0.093, 36.7)),
        f"{_CLOSE} 3 %; start from medians, as keys take chance",
    ),
    Measured(
        (FILE,),
        ("gsiftp",),
        MoverCost.of((0.58, 0.1, 25.5)),
        f"{_CLOSE} 2 %; start from medians, as keys take chance",
    ),
    # Logins counted in the servers' logs: 4 at the source and 6 at the destination, where there is no file of that name yet.
    Measured(
        ("gsiftp",),
        ("gsiftp",),
        MoverCost(
            start_s=0.7,
            start_core_s=0.2,
            session_round_trips=95.0,
            file_s=0.0,
            file_core_s=0.0,
            file_round_trips=0.0,
            logins=5.0,
        ),
        f"{_THIRD} 3 or 4",
    ),
    # By SRM the source is known already: 1 login there and 2 at the destination.
    Measured(
        ("srm",),
        ("gsiftp",),
        MoverCost(
            start_s=0.4,
            start_core_s=0.14,
            session_round_trips=38.0,
            file_s=0.0,
            file_core_s=0.0,
            file_round_trips=0.0,
            logins=1.5,
        ),
        f"{_THIRD} 6 to 8; SRM's own round trips are in it",
    ),
)


@dataclass(frozen=True, slots=True)
class GfalCopy:
    """``gfal-copy -f``: deletes a file that is in its way, even a device. It is a script of the system's Python."""

    name: str = "gfal-copy"
    summary: str = "gfal2's copy tool: GridFTP, XRootD, HTTP, SRM and SFTP, each way."
    requires: tuple[str, ...] = ("env", "gfal-copy")
    reads: bool = True
    writes: bool = True
    null_destination: bool = False
    speaks: tuple[str, ...] = ("gsiftp", "ftp", "root", "roots", "davs", "https", "http", "srm")
    lists: bool = False
    options: tuple[Option, ...] = _OPTIONS
    costs: tuple[Measured, ...] = _COSTS

    def call(self, options: Mapping[str, OptionValue]) -> Call:
        """Return how ``gfal-copy`` is called."""
        argv: tuple[Argument, ...] = (
            *("env", "GFAL_PYTHONBIN=/usr/bin/python3", ("BEARER_TOKEN={token}",)),
            *(_AT_ONCE if options["exit"] == "at once" else _TOOL),
            *("-f", "-t", str(_PATIENCE_S), "-T", str(_PATIENCE_S)),
            ("-n", "{streams}"),
            ("--tcp-buffersize", "{window_bytes}"),
            ("--copy-mode", "{third_party}"),
            ("-K", "{checksum}"),
            "{source}",
            "{destination}",
        )
        return Call(self.name, dict(options), argv, self.requires, capture=True, local="file://{path}")

    def parse(self, record: Mapping[str, Any]) -> ToolReport:
        """Return the size that ``gfal-copy`` says it will copy, before it does; it says nothing afterwards."""
        text = output_text(record, "stdout")
        sizes = _COPYING.findall(text)
        if not sizes:
            raise OutputError('a line such as "Copying 8 bytes URL => URL"', text)
        return ToolReport(sum(map(int, sizes)))
