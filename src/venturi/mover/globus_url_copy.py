"""``globus-url-copy``: GridFTP between a server and a file, or between servers (000 scenarios 2 and 3, 001, 002)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from venturi.cost import FILE, LAB, LAB_BYTES, MeasuredCost, MoverCost
from venturi.mover.base import Option, OptionError, OutputError, ToolReport, output_text
from venturi.mover.shell import format_shell_command, shell
from venturi.plan import Call
from venturi.plan.header import Argument, OptionValue

__all__ = ["GlobusUrlCopy", "with_ipv6"]

_MEBIBYTE = 1 << 20
_PAIR = re.compile(r"Source: (\S+)\nDest:   (\S+)\n  \S")
_PIPELINED = re.compile(r"^  (\w+://\S+)\n  (\w+://\S+)$", re.MULTILINE)
_MARKER = re.compile(r" +([0-9]+) bytes +([0-9]+\.[0-9]+) MB/sec avg +[0-9]+\.[0-9]+ MB/sec inst")

_OPTIONS = (
    Option(
        "streams",
        "integer",
        None,
        "Parallel data connections of a file (-p). Every value selects extended mode (MODE E).",
    ),
    Option(
        "concurrency",
        "integer",
        None,
        "Concurrent files, each with its own control connections (-cc); for lists only.",
    ),
    Option(
        "pipelining",
        "boolean",
        False,
        "Send commands before earlier replies arrive (-pp), for directories between two servers. With a local file or a "
        "list, it only reuses data connections.",
    ),
    Option(
        "files_as",
        "choice",
        None,
        "Form of several files in one call: `list` (-f), or `directory`, a directory of links (-r). Default: `directory` with "
        "pipelining, otherwise `list`.",
        choices=("list", "directory"),
    ),
    Option("fast", "boolean", False, "Reuse data connections for the next file, in extended mode (-fast)."),
    Option(
        "data_channel",
        "choice",
        "dcau",
        "Security of gsiftp data connections: authenticated (`dcau`, default of the tool), none (-nodcau), integrity "
        "(-dcsafe), or encryption (-dcpriv).",
        choices=("dcau", "nodcau", "dcsafe", "dcpriv"),
    ),
    Option("window", "size", None, "Socket buffers of the data connections, within kernel limits (-tcp-bs)."),
    Option(
        "block",
        "size",
        None,
        "Size of a read or write of the client (-bs); between two servers, the servers decide.",
    ),
    Option(
        "stripe",
        "boolean",
        False,
        "Use all data nodes of a striped server (-stripe); other servers ignore it.",
    ),
    Option(
        "restarts",
        "integer",
        None,
        "Restarts of a broken transfer between two servers (-rst -rst-retries). With a local file, the transfer fails anyway.",
    ),
    Option(
        "restart_interval",
        "time",
        None,
        "Whole seconds before each restart (-rst-interval). Default: increasing.",
    ),
    Option(
        "checksum",
        "choice",
        None,
        "Compare checksums of both files after the transfer, part of the duration (-verify-checksum -checksum-alg). With a "
        "local file, the tool supports MD5 only.",
        choices=("MD5", "ADLER32", "SHA1", "SHA256", "SHA512"),
    ),
    Option(
        "length",
        "boolean",
        False,
        "Limit the transfer to its number of bytes (-len), for an endless source such as `zero`; not for lists.",
    ),
)

_SECURE = f"{LAB}, GSI also at 200 ms; round trips from the fastest of 9 calls, which vary less than key generation"
_FAR = "measured in the lab, November 2026: calls with 1 and 4 files of 1 kB at a round trip of 500 ms, the fastest of 2 to 4 calls, minus 0.17 s per login"
_MANY = "files: 100 of 8 KiB at a round trip of 53 ms, twice (study ani/gridftp-protocol in the lab)"
_SECOND = f"{LAB}, of the second server"
_LOGIN_S = 0.016
"""Waiting time of a GSI login without the CPU time of the client and the key generation of the server.

Of 0.199 s, 0.153 s were a key, 0.019 s an anonymous call and 0.016 s CPU time of the client (idle host, medians of 30)."""
_FTP, _GSIFTP, _FILE = ("ftp",), ("gsiftp",), (FILE,)
_NODCAU = {"data_channel": "nodcau"}
_KEPT = (
    MeasuredCost(_FTP, _FILE, MoverCost.of((0.0057, 0.0068, 12.5), (0.0, 0.0003, 1.0)), LAB),
    MeasuredCost(_FILE, _FTP, MoverCost.of((0.0077, 0.007, 11.3), (0.0, 0.0004, 3.1)), LAB),
    MeasuredCost(_FTP, _FTP, MoverCost.of((0.0129, 0.0078, 11.5), (0.0, 0.0004, 2.0)), _SECOND),
    MeasuredCost(_GSIFTP, _FILE, MoverCost.of((_LOGIN_S, 0.026, 19.7), (0.0, 0.0005, 1.1)), _SECURE),
    MeasuredCost(_GSIFTP, _FILE, MoverCost.of((_LOGIN_S, 0.022, 18.7), (0.0, 0.0005, 1.4)), _FAR, _NODCAU),
    MeasuredCost(_FILE, _GSIFTP, MoverCost.of((_LOGIN_S, 0.0285, 19.5), (0.0, 0.0005, 3.0)), _SECURE),
    MeasuredCost(_FILE, _GSIFTP, MoverCost.of((_LOGIN_S, 0.022, 17.7), (0.0, 0.0008, 3.3)), _FAR, _NODCAU),
    MeasuredCost(_GSIFTP, _GSIFTP, MoverCost.of((2 * _LOGIN_S, 0.032, 22.2), (0.0, 0.0005, 2.0)), f"{_FAR}; {_MANY}"),
    MeasuredCost(
        _GSIFTP, _GSIFTP, MoverCost.of((2 * _LOGIN_S, 0.032, 18.6), (0.0, 0.0005, 2.0)), f"{_FAR}; {_MANY}", _NODCAU
    ),
)
"""Costs of calls with reused data connections."""

_COSTS = (
    MeasuredCost(_FTP, _FILE, MoverCost.of((0.0054, 0.0063, 8.2), (0.0, 0.0005, 3.1)), LAB),
    MeasuredCost(_FILE, _FTP, MoverCost.of((0.0055, 0.0067, 8.1), (0.0001, 0.0006, 5.1)), LAB),
    MeasuredCost(_FTP, _FTP, MoverCost.of((0.014, 0.0075, 9.4), (0.0001, 0.0006, 4.1)), _SECOND),
    MeasuredCost(_GSIFTP, _FILE, MoverCost.of((_LOGIN_S, 0.026, 13.9), (0.0032, 0.0078, 5.2)), _SECURE),
    MeasuredCost(_GSIFTP, _FILE, MoverCost.of((_LOGIN_S, 0.02, 14.6), (0.0, 0.0004, 3.0)), _SECURE, _NODCAU),
    MeasuredCost(_FILE, _GSIFTP, MoverCost.of((_LOGIN_S, 0.028, 14.6), (0.012, 0.0078, 6.7)), _SECURE),
    MeasuredCost(_FILE, _GSIFTP, MoverCost.of((_LOGIN_S, 0.02, 14.3), (0.0, 0.0005, 5.2)), _FAR, _NODCAU),
    # 100 files took 1.20 s on an idle host without delay: 12 ms each.
    MeasuredCost(_GSIFTP, _GSIFTP, MoverCost.of((2 * _LOGIN_S, 0.032, 16.4), (0.011, 0.001, 6.5)), _FAR),
    MeasuredCost(_GSIFTP, _GSIFTP, MoverCost.of((2 * _LOGIN_S, 0.032, 17.1), (0.0, 0.0009, 3.9)), _FAR, _NODCAU),
    *(
        replace(entry, cost=replace(entry.cost, keeps_connection=True), options={**how, **entry.options})
        # Pipelining also reuses data connections; for a local destination this is its only effect.
        for how in ({"fast": True}, {"pipelining": True})
        for entry in _KEPT
    ),
    # For uploads to a server, one reply per file is not awaited, also in a list.
    *(
        MeasuredCost(source, destination, MoverCost(file_round_trips=trips), origin, {"pipelining": True})
        for source, destination, trips, origin in (
            (_FTP, _FTP, 1.0, _MANY),
            (_FILE, _FTP, 2.0, _MANY),
            (_GSIFTP, _GSIFTP, 1.0, _MANY),
            (_FILE, _GSIFTP, 2.0, "as measured without certificates"),
        )
    ),
    # Ten commands are in flight for a directory; calls with 1, 11 and 101 files fit within 6 %.
    *(
        MeasuredCost(
            _FTP,
            _FTP,
            MoverCost.of((0.0177, 0.0094, 11.1), (0.0001, 0.0001, 1.0), pipelining=10, keeps_connection=True),
            _SECOND,
            {"pipelining": True, "files_as": files_as},
        )
        for files_as in (None, "directory")
    ),
    *(
        MeasuredCost(
            _GSIFTP,
            _GSIFTP,
            MoverCost(file_round_trips=1.0, file_core_s=0.0001, file_s=0.0001, pipelining=10),
            "files as measured without certificates, sessions as with -fast",
            {"pipelining": True, "files_as": files_as},
        )
        for files_as in (None, "directory")
    ),
    *(
        MeasuredCost(source, destination, MoverCost(byte_core_s=core_ns * 1e-9), LAB_BYTES, options)
        for source, destination, core_ns, options in (
            (_FTP, _FILE, 0.46, {}),
            (_FILE, _FTP, 0.27, {}),
            (_GSIFTP, _FILE, 0.55, {"data_channel": "dcau"}),
            (_FILE, _GSIFTP, 0.26, {"data_channel": "dcau"}),
            (_GSIFTP, _FILE, 0.95, {"data_channel": "dcsafe"}),
            (_FILE, _GSIFTP, 0.78, {"data_channel": "dcsafe"}),
            (_GSIFTP, _FILE, 1.09, {"data_channel": "dcpriv"}),
            (_FILE, _GSIFTP, 0.77, {"data_channel": "dcpriv"}),
        )
    ),
)


@dataclass(frozen=True, slots=True)
class GlobusUrlCopy:
    """``globus-url-copy`` of the Grid Community Toolkit.

    Two servers as endpoints are a third-party transfer. ``-vb`` prints each pair, and bytes every few seconds only. So short
    transfers have no bytes and no rate, the last count of a download is incomplete, and the count is wrong after a restart.
    The report contains no bytes; the log of the server does (:func:`venturi.testbed.gridftp_log.read_transfers`).
    """

    name: str = "globus-url-copy"
    summary: str = "GridFTP download, upload, or transfer between two servers."
    requires: tuple[str, ...] = ("globus-url-copy",)
    reads: bool = True
    writes: bool = True
    null_destination: bool = True
    protocols: tuple[str, ...] = ("gsiftp", "ftp")
    lists: bool = True
    options: tuple[Option, ...] = _OPTIONS
    costs: tuple[MeasuredCost, ...] = _COSTS

    def call(self, options: Mapping[str, OptionValue]) -> Call:
        """Return the call of ``globus-url-copy``. Options must precede the URLs; a list excludes URLs."""
        _check(options)
        tool: tuple[Argument, ...] = ("globus-url-copy", "-vb", *_flags(options))
        several = (
            shell(f'exec {format_shell_command(tool, options)} -r "$1" "$2"', "{directory}", "{destination}")
            if _takes_directory(options)
            else shell(f'exec {format_shell_command(tool, options)} -f "$1"', "{list}")
        )
        argv = (
            several,
            *tool,
            *(("-len", "{bytes}") if options["length"] else ()),
            ("-off", "{offset_bytes}", "-len", "{bytes}"),
            "{source}",
            "{destination}",
        )
        return Call(self.name, dict(options), argv, ("sh", *self.requires), capture=True, local="file://{path}")

    def parse(self, record: Mapping[str, Any]) -> ToolReport:
        """Return the report of ``-vb``. Its "MB" are MiB; it overwrites its progress line with carriage returns."""
        text = output_text(record, "stdout")
        pairs = _PAIR.findall(text)
        files = len(pairs) + len(_PIPELINED.findall(text))
        if not files:
            raise OutputError('"Source: URL", "Dest: URL" and the name of a file', text)
        markers = _MARKER.findall(text)
        detail: dict[str, float | int | str] = {"files_named": files}
        if files > 1 or not markers:
            return ToolReport(None, detail=detail)
        detail["marker_bytes"] = int(markers[-1][0])
        return ToolReport(None, float(markers[-1][1]) * _MEBIBYTE or None, detail=detail)


def with_ipv6(argv: Sequence[str | Sequence[str]]) -> list[str | Sequence[str]]:
    """Return the command line of a call for servers with IPv6 addresses: without ``-ipv6``, the tool uses only IPv4.

    Examples
    --------
    >>> with_ipv6([["sh", "-c", 'exec globus-url-copy -f "$1"'], "globus-url-copy", "{source}"])
    [['sh', '-c', 'exec globus-url-copy -ipv6 -f "$1"'], 'globus-url-copy', '-ipv6', '{source}']
    """
    found: list[str | Sequence[str]] = []
    for argument in argv:
        if not isinstance(argument, str):
            found.append([text.replace("exec globus-url-copy ", "exec globus-url-copy -ipv6 ") for text in argument])
        else:
            found += [argument, "-ipv6"] if argument == "globus-url-copy" else [argument]
    return found


def _takes_directory(options: Mapping[str, OptionValue]) -> bool:
    return (options["files_as"] or ("directory" if options["pipelining"] else "list")) == "directory"


def _flags(options: Mapping[str, OptionValue]) -> tuple[Argument, ...]:
    return (
        *(("-fast",) if options["fast"] else ()),
        *(("-pp",) if options["pipelining"] else ()),
        *(() if options["data_channel"] == "dcau" else (f"-{options['data_channel']}",)),
        *(("-stripe",) if options["stripe"] else ()),
        ("-cc", "{concurrency}"),
        ("-p", "{streams}"),
        ("-tcp-bs", "{window_bytes}"),
        ("-bs", "{block_bytes}"),
        ("-rst", "-rst-retries", "{restarts}"),
        *(
            ()
            if options["restart_interval_s"] is None
            else (("-rst-interval", f"{options['restart_interval_s']:.0f}"),)
        ),
        ("-verify-checksum", "-checksum-alg", "{checksum}"),
    )


def _check(options: Mapping[str, OptionValue]) -> None:
    interval = options["restart_interval_s"]
    if interval is not None and options["restarts"] is None:
        raise OptionError("globus-url-copy: expected restarts with restart_interval, found none; set restarts")
    if isinstance(interval, float) and (interval < 1 or not interval.is_integer()):
        raise OptionError(
            f"globus-url-copy: expected a restart_interval of whole seconds, 1 s or more, found {interval} s; round it"
        )
    if options["length"] and options["checksum"]:
        raise OptionError("globus-url-copy: expected length or checksum, found both; remove one")
