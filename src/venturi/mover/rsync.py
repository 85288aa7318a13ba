"""``rsync``: copy of a complete file, without delta or compression, within a host or over ssh."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from venturi.cost import FILE, LAB, MeasuredCost, MoverCost
from venturi.mover.base import Option, OutputError, ToolReport, output_text
from venturi.mover.shell import shell
from venturi.mover.ssh_url import SSH_PROTOCOLS, SSH_URL, two_servers_conflict
from venturi.plan import Call
from venturi.plan.header import Argument, OptionValue

__all__ = ["Rsync"]

_SIZE = re.compile(r"^Total transferred file size: ([0-9]+) bytes$", re.MULTILINE)
_RATE = re.compile(r"^sent [0-9]+ bytes  received [0-9]+ bytes  ([0-9]+(?:[.][0-9]+)?) bytes/sec$", re.MULTILINE)

_COSTS = (
    MeasuredCost(
        (FILE,), (FILE,), MoverCost.of((0.0197, 0.0054, 0.0)), f"{LAB}; 15 calls within one host, one file per call"
    ),
)

# -s: no remote shell interprets the path. RSYNC_RSH or VENTURI_SSH_CONFIG have the configuration of the services.
_SCRIPT = (
    SSH_URL
    + """\
if split "$1"; then
  remote=source
elif split "$2"; then
  remote=destination
else
  exec TOOL -- "$1" "$2"
fi
ssh="ssh -o BatchMode=yes${VENTURI_SSH_CONFIG:+ -F '$VENTURI_SSH_CONFIG'}"
rsh="${RSYNC_RSH:-$ssh}${port:+ -p $port} -T"
case $host in *:*) host="[$host]";; esac
file="${user:+$user@}$host:$path"
if test $remote = source; then
  exec TOOL -s -e "$rsh" -- "$file" "$2"
fi
exec TOOL -s -e "$rsh" -- "$1" "$file"
"""
)


@dataclass(frozen=True, slots=True)
class Rsync:
    """``rsync`` of one file.

    Between two hosts it runs over ssh, on the host of the source or of the destination.

    ``-W`` (whole file) and ``--no-compress`` are explicit, because local and remote defaults differ. ``--ignore-times``
    copies even if size and time are equal. Numbers have no digit grouping, independent of the locale.
    """

    name: str = "rsync"
    summary: str = "Copy one complete file (rsync) without delta or compression, within a host or over ssh."
    requires: tuple[str, ...] = ("rsync",)
    reads: bool = True
    writes: bool = True
    null_destination: bool = False
    protocols: tuple[str, ...] = SSH_PROTOCOLS
    lists: bool = False
    options: tuple[Option, ...] = (
        Option("fsync", "boolean", False, "Flush each written file to stable storage (--fsync, rsync 3.2.4)."),
        Option("inplace", "boolean", False, "Write to the final name, without a temporary file and a rename."),
        Option("rate", "rate", None, "Rate limit, in whole KiB/s (--bwlimit).", minimum=1024),
    )
    costs: tuple[MeasuredCost, ...] = _COSTS

    def call(self, options: Mapping[str, OptionValue]) -> Call:
        """Return the call of ``rsync``."""
        flags = [f"--{name}" for name in ("fsync", "inplace") if options[name]]
        rate = options["rate_bytes_per_s"]
        flags += [f"--bwlimit={rate // 1024}"] if isinstance(rate, int) else []
        tool = ("rsync", "-W", "--ignore-times", "--no-compress", "--no-human-readable", "--stats", *flags)
        script = _SCRIPT.replace("TOOL", " ".join(tool))
        argv: tuple[Argument, ...] = (
            shell(script, "{source}", "{destination}", "{source_host}"),
            shell(script, "{source}", "{destination}", "{destination_host}"),
            *(*tool, "{source}", "{destination}"),
        )
        return Call(self.name, dict(options), argv, self.requires, capture=True)

    def option_conflict(
        self, options: Mapping[str, OptionValue], source: str | None, destination: str | None
    ) -> tuple[str, str] | None:
        """Return the conflict of two servers: ``rsync`` copies from or to one server."""
        return two_servers_conflict(self.name, options, source, destination)

    def parse(self, record: Mapping[str, Any]) -> ToolReport:
        """Return the report of ``rsync --stats``; its rate counts protocol bytes and rounds the time to half seconds."""
        text = output_text(record, "stdout")
        size, rate = _SIZE.search(text), _RATE.search(text)
        if size is None or rate is None:
            raise OutputError('"Total transferred file size: N bytes" and "sent N bytes … bytes/sec"', text)
        return ToolReport(int(size[1]), float(rate[1]))
