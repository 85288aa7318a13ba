"""``gfal-copy``: grid copy tool, based on a library for each protocol."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from venturi.cost import FILE, LAB, MeasuredCost, MoverCost
from venturi.mover.base import Option, OptionError, OutputError, ToolReport, output_text
from venturi.mover.http import BEARER, READ_TOKEN
from venturi.mover.shell import shell
from venturi.plan import Call
from venturi.plan.header import Argument, OptionValue

__all__ = ["GfalCopy"]

_COPYING = re.compile(r"^Copying ([0-9]+) bytes +\S+ +=> +\S+", re.MULTILINE)
_TIMEOUT_S = 86400
"""Overrides the 1800 s timeout of gfal-copy; the timeout of the call applies."""

_OPTIONS = (
    Option("streams", "integer", None, "Parallel streams of a file, if the protocol supports them (-n)."),
    Option("window", "size", None, "Socket buffers, if the protocol supports them (--tcp-buffersize)."),
    Option(
        "third_party",
        "choice",
        None,
        "Between two HTTP servers: destination pulls, source pushes, or data pass this host (`streamed`). "
        "Default: the first that works, in this order.",
        choices=("pull", "push", "streamed"),
    ),
    Option(
        "checksum",
        "choice",
        None,
        "Compare checksums of source and destination (-K, part of the duration).",
        choices=("ADLER32", "CRC32", "MD5"),
    ),
    Option(
        "token",
        "text",
        None,
        "Bearer token for HTTP ($BEARER_TOKEN). With a token, valid or not, a third-party copy requests no delegation, "
        "as XRootD requires.",
    ),
    BEARER,
    Option(
        "exit",
        "choice",
        "orderly",
        "End of the tool: normal, or `at once` without unloading its libraries, where threads can crash in OpenSSL.",
        choices=("orderly", "at once"),
    ),
)

_TOOL: tuple[Argument, ...] = ("gfal-copy",)
# Like the script of the tool, except for its end. While OpenSSL is unloaded, threads can still close GridFTP connections:
# with Debian 12, one of 25 calls crashed on a busy host after a complete copy.
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
    "measured in the lab, November 2026: one file of 1 kB from server to server, called from the host of the source and from a third host, at round trips of "
    "20 and 60 ms, without delay from the third host; start: without the key generation of the logins, from the mean of"
)
_CLOSE = f"{LAB}; one file per call; round trips from the fastest of 9 calls; maximum error of the fit"
_COSTS = (
    MeasuredCost(("ftp",), (FILE,), MoverCost.of((0.029, 0.077, 23.0)), f"{LAB}; one file per call"),
    MeasuredCost((FILE,), ("ftp",), MoverCost.of((0.063, 0.071, 17.5)), f"{_CLOSE} 3 %"),
    MeasuredCost(("root",), (FILE,), MoverCost.of((0.038, 0.072, 9.3)), f"{_CLOSE} 7 %"),
    MeasuredCost((FILE,), ("root",), MoverCost.of((0.0, 0.068, 12.1)), f"{_CLOSE} 2 %"),
    MeasuredCost(("http",), (FILE,), MoverCost.of((0.004, 0.071, 4.9)), f"{_CLOSE} 4 % (0.1 to 100 ms)"),
    MeasuredCost((FILE,), ("http",), MoverCost.of((0.021, 0.072, 9.1)), f"{_CLOSE} 3 %"),
    # Several logins, each with auth_core_s of the server.
    MeasuredCost(
        ("gsiftp",),
        (FILE,),
        MoverCost.of((0.69, 0.093, 36.7)),
        f"{_CLOSE} 3 %; start from medians, because key generation takes a random time",
    ),
    MeasuredCost(
        (FILE,),
        ("gsiftp",),
        MoverCost.of((0.58, 0.1, 25.5)),
        f"{_CLOSE} 2 %; start from medians, because key generation takes a random time",
    ),
    # Logins from server logs: 4 at the source and 6 at the destination, without an existing file.
    MeasuredCost(
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
        f"{_THIRD} 3 or 4 calls",
    ),
    # SRM has resolved the source: 1 login there and 2 at the destination.
    MeasuredCost(
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
        f"{_THIRD} 6 to 8 calls; including the round trips of SRM",
    ),
)


@dataclass(frozen=True, slots=True)
class GfalCopy:
    """``gfal-copy -f``: it deletes an existing destination, even a device. It is a script of the system Python."""

    name: str = "gfal-copy"
    summary: str = "Copy tool of gfal2: GridFTP, XRootD, HTTP, SRM and SFTP, in both directions."
    requires: tuple[str, ...] = ("env", "gfal-copy")
    reads: bool = True
    writes: bool = True
    null_destination: bool = False
    protocols: tuple[str, ...] = ("gsiftp", "ftp", "root", "roots", "davs", "https", "http", "srm")
    lists: bool = False
    options: tuple[Option, ...] = _OPTIONS
    costs: tuple[MeasuredCost, ...] = _COSTS

    def call(self, options: Mapping[str, OptionValue]) -> Call:
        """Return the call of ``gfal-copy``."""
        if options["bearer"] and options["token"] is not None:
            raise OptionError("gfal-copy: expected bearer or token, found both; remove one")
        # gfal2 reads a token only from this variable.
        login = READ_TOKEN + 'BEARER_TOKEN=$token exec "$@"'
        argv: tuple[Argument, ...] = (
            *(shell(login) if options["bearer"] else ()),
            *("env", "GFAL_PYTHONBIN=/usr/bin/python3", ("BEARER_TOKEN={token}",)),
            *(_AT_ONCE if options["exit"] == "at once" else _TOOL),
            *("-f", "-t", str(_TIMEOUT_S), "-T", str(_TIMEOUT_S)),
            ("-n", "{streams}"),
            ("--tcp-buffersize", "{window_bytes}"),
            ("--copy-mode", "{third_party}"),
            ("-K", "{checksum}"),
            "{source}",
            "{destination}",
        )
        requires = ("sh", *self.requires) if options["bearer"] else self.requires
        return Call(self.name, dict(options), argv, requires, capture=True, local="file://{path}")

    def parse(self, record: Mapping[str, Any]) -> ToolReport:
        """Return the size that ``gfal-copy`` prints before the copy; it prints no report afterwards."""
        text = output_text(record, "stdout")
        sizes = _COPYING.findall(text)
        if not sizes:
            raise OutputError('a line such as "Copying 8 bytes URL => URL"', text)
        return ToolReport(sum(map(int, sizes)))
