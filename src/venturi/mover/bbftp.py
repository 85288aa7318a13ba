"""``bbftp``: the tool of document 004; ``ssh`` starts its server for each call.

The programs are not in Debian. Required: client ``bbftp`` 3.2.1 or later, and ``bbftpd`` on the other host.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from venturi.mover.base import Option, OptionError, OutputError, ToolReport, output_text
from venturi.mover.shell import shell
from venturi.plan import Call
from venturi.plan.header import OptionValue

__all__ = ["Bbftp"]

_KIBIBYTE = 1 << 10
_PORTS = re.compile(r"([0-9]{4,5}):([0-9]{4,5})")
_REPORT = re.compile(
    r"^(?:get|put) ([0-9]+) ([0-9]+\.[0-9]+) ([0-9]+) ([0-9]+) ([0-9]+) ([0-9]+) (gzip|nogzip)$", re.MULTILINE
)
"""Output of ``-m``: direction, bytes, seconds, block, send and receive window in KiB, streams (``man bbftp``)."""

_DONE = re.compile(r"^(?:get|put) \S+ \S+ OK$", re.MULTILINE)
"""Output for an empty file, without a data connection."""

_OPTIONS = (
    Option("streams", "integer", None, "TCP connections of a file (setnbstream). Default: one."),
    Option(
        "window",
        "size",
        None,
        "Socket buffers of both hosts, in whole KiB, within kernel limits (setsendwinsize, setrecvwinsize). Default: 256 KiB.",
    ),
    Option("block", "size", None, "Size of a read or write of each stream, in whole KiB (setbuffersize). Default: 256 KiB."),
    Option("ports", "text", None, "Port range of data connections, such as `5030:5059` (-e of the server, -D of the client)."),
    Option(
        "active",
        "boolean",
        False,
        "The server opens the data connections to the client (-D, version 2 of the protocol).",
    ),
    Option("gzip", "boolean", False, "Compress the transfer (setoption gzip)."),
    Option("tries", "integer", 1, "Maximum number of attempts (-r)."),
    Option("server", "text", "bbftpd -s", "Server command that ssh runs on the other host."),
)  # fmt: skip

# A temporary file replaces the destination, which must not be a device. Blanks and semicolons separate commands.
_SCRIPT = """\
fail() { echo "bbftp: expected $1" >&2; exit 2; }
case "$1$2" in *[[:space:]\\;]*) fail "paths without blanks and semicolons, found $1 and $2";; esac
case $2 in */dev/null) fail "a file as destination, found /dev/null, which bbftp would replace";; esac
case $1,$2 in
ssh://*,ssh://*) fail "one local file, found two servers";;
ssh://*,*) word=get url=$1;;
*,ssh://*) word=put url=$2;;
*) fail "one server, found $1 and $2";;
esac
rest=${url#ssh://} path=/${rest#*/} account=${rest%%/*}
address=${account#*@} host=${address%%:*}
[ "$address" = "$host" ] || set -- "$1" "$2" -p "${address#*:}"
[ "$account" = "$address" ] || user="-u ${account%%@*}"
case $word in get) ends="$path $2";; put) ends="$1 $path";; esac
shift 2
exec bbftp -m TOOL ${user-} -L "ssh -q -o BatchMode=yes ${VENTURI_SSH_CONFIG:+-F $VENTURI_SSH_CONFIG} $*" -e "COMMANDS$word $ends" "$host"
"""


@dataclass(frozen=True, slots=True)
class Bbftp:
    """``bbftp -m``: it prints bytes, seconds, and the negotiated block, windows and streams, but not the granted windows.

    The control connection runs through ``ssh`` without a password, because the login of the protocol is RSA of 1024 bits.
    ``$VENTURI_SSH_CONFIG`` names an ssh configuration file. bbFTP has no checksum and no resume.
    """

    name: str = "bbftp"
    summary: str = "bbFTP with a server that ssh starts: download or upload. It is not in Debian."
    requires: tuple[str, ...] = ("sh", "ssh", "bbftp")
    reads: bool = True
    writes: bool = True
    null_destination: bool = False
    protocols: tuple[str, ...] = ("ssh",)
    needs_server: str = "either"
    lists: bool = False
    options: tuple[Option, ...] = _OPTIONS

    def call(self, options: Mapping[str, OptionValue]) -> Call:
        """Return the call of ``bbftp``; ``sh`` splits the URL."""
        server, ports = str(options["server"]), _ports(options["ports"])
        if '"' in server or ";" in server:
            raise OptionError(
                f"bbftp: expected a server command without quotes and semicolons, found {server}; change the option server"
            )
        tool = f"-r {options['tries']}"
        if options["active"]:
            tool += f" -D{ports}"
        elif ports:
            server += f" -e {ports}"
        # Without -E, the client starts the server path of its build.
        tool += f' -E "{server}"'
        commands = [
            f"{command} {value}"
            for command, value in (
                ("setnbstream", options["streams"]),
                ("setbuffersize", _kibibytes("block", options["block_bytes"])),
                ("setsendwinsize", _kibibytes("window", options["window_bytes"])),
                ("setrecvwinsize", _kibibytes("window", options["window_bytes"])),
                ("setoption", "gzip" if options["gzip"] else None),
            )
            if value is not None
        ]
        script = _SCRIPT.replace("TOOL", tool).replace("COMMANDS", "".join(f"{command};" for command in commands))
        return Call(self.name, dict(options), shell(script, "{source}", "{destination}"), self.requires, capture=True)

    def parse(self, record: Mapping[str, Any]) -> ToolReport:
        """Return the report of ``-m``; its duration starts after the negotiation and excludes the login."""
        text = output_text(record, "stdout")
        match = _REPORT.search(text)
        if match is None and _DONE.search(text):
            return ToolReport(0)
        if match is None:
            raise OutputError('a line such as "put 10000 10.000 256 256 256 2 nogzip"', text)
        size, duration_s = int(match[1]), float(match[2])
        return ToolReport(
            size,
            size / duration_s if size and duration_s > 0 else None,
            duration_s,
            detail={
                "block_bytes": int(match[3]) * _KIBIBYTE,
                "send_window_bytes": int(match[4]) * _KIBIBYTE,
                "receive_window_bytes": int(match[5]) * _KIBIBYTE,
                "streams": int(match[6]),
            },
        )


def _kibibytes(name: str, value: OptionValue) -> int | None:
    if not isinstance(value, int):
        return None
    if value % _KIBIBYTE or not value:
        raise OptionError(f"bbftp: expected a {name} of whole KiB, found {value} B; round the size")
    return value // _KIBIBYTE


def _ports(value: OptionValue) -> str:
    if value is None:
        return ""
    match = _PORTS.fullmatch(str(value))
    if match is None or not 1024 <= int(match[1]) <= int(match[2]) <= 65535:
        raise OptionError(
            f'bbftp: expected ports from 1024 to 65535 such as "5030:5059", found "{value}"; change the range'
        )
    return str(value)
