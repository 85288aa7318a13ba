"""``globus-url-copy``: GridFTP between a server and a file, or between servers (000 scenarios 2, 3, 001, 002)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from venturi.cost import FILE, LAB, LAB_BYTES, Measured, MoverCost
from venturi.mover.base import Option, OptionError, OutputError, ToolReport, output_text
from venturi.mover.shell import filled, shell
from venturi.plan import Call
from venturi.plan.header import Argument, OptionValue

__all__ = ["GlobusUrlCopy"]

_MEBIBYTE = 1 << 20
_PAIR = re.compile(r"Source: (\S+)\nDest:   (\S+)\n  \S")
_PIPELINED = re.compile(r"^  (\w+://\S+)\n  (\w+://\S+)$", re.MULTILINE)
_MARKER = re.compile(r" +([0-9]+) bytes +([0-9]+\.[0-9]+) MB/sec avg +[0-9]+\.[0-9]+ MB/sec inst")

_OPTIONS = (
    Option(
        "streams",
        "integer",
        None,
        "Parallel data connections for one file (-p). Any number makes the mode extended (MODE E).",
    ),
    Option(
        "concurrency",
        "integer",
        None,
        "Files in flight, each with control connections of its own (-cc); counts for lists.",
    ),
    Option(
        "pipelining",
        "boolean",
        False,
        "Send the next commands before the last is answered (-pp), which reuses data channels too. "
        "Between two servers only: with a local end it waits for each answer all the same, and so it does with a list of "
        "files, where only the data channels are kept; it pipelines whole folders.",
    ),
    Option(
        "files_as",
        "choice",
        None,
        "How it is told of several files in one call: by a list (-f), or by a folder of links to them (-r). By default a folder "
        "where pipelining is asked for, as lists are never pipelined, else a list.",
        choices=("list", "folder"),
    ),
    Option("fast", "boolean", False, "Keep data channels for the next file, in extended mode (-fast)."),
    Option(
        "data_channel",
        "choice",
        "dcau",
        "What gsiftp does on data channels: authenticate them (the tool's default), not even that (-nodcau), "
        "protect their integrity (-dcsafe), or encrypt them (-dcpriv).",
        choices=("dcau", "nodcau", "dcsafe", "dcpriv"),
    ),
    Option("window", "size", None, "Socket buffers of the data connections (-tcp-bs), within the kernel's limits."),
    Option(
        "block",
        "size",
        None,
        "Bytes a read or write of the client (-bs); between two servers their own setting counts.",
    ),
    Option(
        "stripe",
        "boolean",
        False,
        "Ask for all data nodes of a striped server (-stripe); one that is not striped takes no notice.",
    ),
    Option(
        "restarts",
        "integer",
        None,
        "Take up a transfer that broke, so many times (-rst -rst-retries). Between two servers; "
        "with a local end the tool gives up all the same.",
    ),
    Option(
        "restart_interval",
        "time",
        None,
        "Whole seconds before each restart (-rst-interval); otherwise growing from one to the next.",
    ),
    Option(
        "checksum",
        "choice",
        None,
        "Compare checksums of both files afterwards, in the timing (-verify-checksum -checksum-alg). With a "
        "local end the tool knows MD5 only.",
        choices=("MD5", "ADLER32", "SHA1", "SHA256", "SHA512"),
    ),
    Option(
        "length",
        "boolean",
        False,
        "Ask for as many bytes as the transfer has (-len), for a source without an end, such as `zero`; not in "
        "lists.",
    ),
)

_SECURE = f"{LAB}, GSI also at 200 ms; round trips from the fastest of 9, which differ less than keys do"
_FAR = "measured in the lab, November 2026: calls with 1 and 4 files of 1 kB at a round trip of 500 ms, the fastest of 2 to 4, less 0.17 s a login"
_MANY = "files: 100 of 8 KiB at a round trip of 53 ms, twice (study ani/gridftp-protocol in the lab)"
_SECOND = f"{LAB}, of the second server"
_LOGIN_S = 0.016
"""Of a login with GSI what neither the client's processor nor the server's key takes: of 0.199 s 0.153 were a key and 0.019 an anonymous call
(quiet machine, medians of 30), 0.016 the client's processor."""
_FTP, _GSIFTP, _FILE = ("ftp",), ("gsiftp",), (FILE,)
_NODCAU = {"data_channel": "nodcau"}
_KEPT = (
    Measured(_FTP, _FILE, MoverCost.of((0.0057, 0.0068, 12.5), (0.0, 0.0003, 1.0)), LAB),
    Measured(_FILE, _FTP, MoverCost.of((0.0077, 0.007, 11.3), (0.0, 0.0004, 3.1)), LAB),
    Measured(_FTP, _FTP, MoverCost.of((0.0129, 0.0078, 11.5), (0.0, 0.0004, 2.0)), _SECOND),
    Measured(_GSIFTP, _FILE, MoverCost.of((_LOGIN_S, 0.026, 19.7), (0.0, 0.0005, 1.1)), _SECURE),
    Measured(_GSIFTP, _FILE, MoverCost.of((_LOGIN_S, 0.022, 18.7), (0.0, 0.0005, 1.4)), _FAR, _NODCAU),
    Measured(_FILE, _GSIFTP, MoverCost.of((_LOGIN_S, 0.0285, 19.5), (0.0, 0.0005, 3.0)), _SECURE),
    Measured(_FILE, _GSIFTP, MoverCost.of((_LOGIN_S, 0.022, 17.7), (0.0, 0.0008, 3.3)), _FAR, _NODCAU),
    Measured(_GSIFTP, _GSIFTP, MoverCost.of((2 * _LOGIN_S, 0.032, 22.2), (0.0, 0.0005, 2.0)), f"{_FAR}; {_MANY}"),
    Measured(
        _GSIFTP, _GSIFTP, MoverCost.of((2 * _LOGIN_S, 0.032, 18.6), (0.0, 0.0005, 2.0)), f"{_FAR}; {_MANY}", _NODCAU
    ),
)
"""What calls cost that keep their data channels."""

_COSTS = (
    Measured(_FTP, _FILE, MoverCost.of((0.0054, 0.0063, 8.2), (0.0, 0.0005, 3.1)), LAB),
    Measured(_FILE, _FTP, MoverCost.of((0.0055, 0.0067, 8.1), (0.0001, 0.0006, 5.1)), LAB),
    Measured(_FTP, _FTP, MoverCost.of((0.014, 0.0075, 9.4), (0.0001, 0.0006, 4.1)), _SECOND),
    Measured(_GSIFTP, _FILE, MoverCost.of((_LOGIN_S, 0.026, 13.9), (0.0032, 0.0078, 5.2)), _SECURE),
    Measured(_GSIFTP, _FILE, MoverCost.of((_LOGIN_S, 0.02, 14.6), (0.0, 0.0004, 3.0)), _SECURE, _NODCAU),
    Measured(_FILE, _GSIFTP, MoverCost.of((_LOGIN_S, 0.028, 14.6), (0.012, 0.0078, 6.7)), _SECURE),
    Measured(_FILE, _GSIFTP, MoverCost.of((_LOGIN_S, 0.02, 14.3), (0.0, 0.0005, 5.2)), _FAR, _NODCAU),
    # 100 files took 1.20 s on a quiet machine without delay: 12 ms each.
    Measured(_GSIFTP, _GSIFTP, MoverCost.of((2 * _LOGIN_S, 0.032, 16.4), (0.011, 0.001, 6.5)), _FAR),
    Measured(_GSIFTP, _GSIFTP, MoverCost.of((2 * _LOGIN_S, 0.032, 17.1), (0.0, 0.0009, 3.9)), _FAR, _NODCAU),
    *(
        replace(entry, cost=replace(entry.cost, keeps_connection=True), options={**how, **entry.options})
        # Pipelining keeps data channels too, and where a file is written does nothing else.
        for how in ({"fast": True}, {"pipelining": True})
        for entry in _KEPT
    ),
    # In a list, too, one answer of those of a file is not waited for where a server is written to.
    *(
        Measured(source, destination, MoverCost(file_round_trips=trips), origin, {"pipelining": True})
        for source, destination, trips, origin in (
            (_FTP, _FTP, 1.0, _MANY),
            (_FILE, _FTP, 2.0, _MANY),
            (_GSIFTP, _GSIFTP, 1.0, _MANY),
            (_FILE, _GSIFTP, 2.0, "as measured without certificates"),
        )
    ),
    # Ten commands are under way in a folder; calls with 1, 11 and 101 files are met to 6 %.
    *(
        Measured(
            _FTP,
            _FTP,
            MoverCost.of((0.0177, 0.0094, 11.1), (0.0001, 0.0001, 1.0), pipelining=10, keeps_connection=True),
            _SECOND,
            {"pipelining": True, "files_as": files_as},
        )
        for files_as in (None, "folder")
    ),
    *(
        Measured(
            _GSIFTP,
            _GSIFTP,
            MoverCost(file_round_trips=1.0, file_core_s=0.0001, file_s=0.0001, pipelining=10),
            "files as measured without certificates, sessions as with -fast",
            {"pipelining": True, "files_as": files_as},
        )
        for files_as in (None, "folder")
    ),
    *(
        Measured(source, destination, MoverCost(byte_core_s=core_ns * 1e-9), LAB_BYTES, options)
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

    Two servers as ends make a third-party transfer. Its ``-vb`` names each pair, and counts bytes every few seconds only: of a
    transfer that is shorter it tells neither bytes nor rate, the last count of a download is not the whole, and after a restart
    the count stays behind. So it never says how much it moved; the log of the server does (:func:`venturi.testbed.trace.parse_transfers`).
    """

    name: str = "globus-url-copy"
    summary: str = "GridFTP: download, upload, or from server to server."
    requires: tuple[str, ...] = ("globus-url-copy",)
    reads: bool = True
    writes: bool = True
    null_destination: bool = True
    speaks: tuple[str, ...] = ("gsiftp", "ftp")
    lists: bool = True
    options: tuple[Option, ...] = _OPTIONS
    costs: tuple[Measured, ...] = _COSTS

    def call(self, options: Mapping[str, OptionValue]) -> Call:
        """Return how ``globus-url-copy`` is called. Options must stand before the URLs, and a list excludes them."""
        _check(options)
        tool: tuple[Argument, ...] = ("globus-url-copy", "-vb", *_flags(options))
        several = (
            shell(f'exec {filled(tool, options)} -r "$1" "$2"', "{folder}", "{destination}")
            if _takes_folder(options)
            else shell(f'exec {filled(tool, options)} -f "$1"', "{list}")
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
        """Return what ``-vb`` says. Its "MB" are MiB; it rewrites its line of progress with carriage returns."""
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


def _takes_folder(options: Mapping[str, OptionValue]) -> bool:
    return (options["files_as"] or ("folder" if options["pipelining"] else "list")) == "folder"


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
        raise OptionError(
            "globus-url-copy: expected restarts beside restart_interval, found none; say how many there may be"
        )
    if isinstance(interval, float) and (interval < 1 or not interval.is_integer()):
        raise OptionError(
            f"globus-url-copy: expected a restart_interval of whole seconds, 1 s or more, found {interval} s"
        )
    if options["length"] and options["checksum"]:
        raise OptionError(
            "globus-url-copy: expected length or checksum, found both; the tool compares checksums of whole files,"
            " and one of a part never agrees"
        )
