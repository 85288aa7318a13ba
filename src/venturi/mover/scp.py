"""``scp``: copy tool of OpenSSH."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from venturi.cost import FILE, LAB, LAB_BYTES, MeasuredCost, MoverCost
from venturi.mover.base import Option, OptionError, ToolReport
from venturi.mover.shell import format_shell_command, shell
from venturi.mover.ssh_url import rate_in_kbit
from venturi.plan import Call
from venturi.plan.header import Argument, OptionValue

__all__ = ["Scp"]

_OPTIONS = (
    Option("cipher", "text", None, "Cipher, such as `aes128-gcm@openssh.com` (-c). Default: negotiated."),
    Option("legacy", "boolean", False, "Use the old scp protocol (-O) instead of SFTP, the default of OpenSSH 9."),
    Option(
        "requests",
        "integer",
        None,
        "SFTP requests in flight (-X nrequests); `requests` × `block` is the SFTP window. Default of scp: 64.",
    ),
    Option("block", "size", None, "Size of an SFTP request (-X buffer). Default of scp: 32 KiB."),
    Option("rate", "rate", None, "Rate limit, in whole kb/s (-l)."),
    Option("compression", "boolean", False, "Compress the transfer (-C)."),
)

# A path in a URL of scp is relative to the home directory, unless it starts with a second slash.
_SCRIPT = """\
url() {
  case $1 in
  scp://*|ssh://*|sftp://*) ;;
  *) printf %s "$1"; return;;
  esac
  rest=${1#*://} host=${rest%%/*} path=/${rest#*/}
  printf 'scp://%s//%s' "$host" "${path#"${path%%[!/]*}"}"
}
exec TOOL ${VENTURI_SSH_CONFIG:+-F "$VENTURI_SSH_CONFIG"} -- "$(url "$1")" "$(url "$2")"
"""

_AHEAD = 64 * (32 << 10)
"""64 requests of 32 KiB: scp(1), -X."""

_COSTS = (
    MeasuredCost(("ssh",), (FILE,), MoverCost.of((0.134, 0.09, 22.6)), f"{LAB}; one file per call"),
    MeasuredCost((FILE,), ("ssh",), MoverCost.of((0.128, 0.092, 19.1)), f"{LAB}; one file per call"),
    *(
        MeasuredCost(
            source,
            destination,
            MoverCost(in_flight_bytes=_AHEAD),
            "scp(1), -X",
            {"legacy": False, "requests": None, "block_bytes": None},
        )
        for source, destination in ((("ssh",), (FILE,)), ((FILE,), ("ssh",)))
    ),
    MeasuredCost(("ssh",), (FILE,), MoverCost(byte_core_s=1.85e-9), LAB_BYTES),
    MeasuredCost((FILE,), ("ssh",), MoverCost(byte_core_s=2.0e-9), LAB_BYTES),
)


@dataclass(frozen=True, slots=True)
class Scp:
    """``scp`` of OpenSSH without prompts (``-B``) and progress (``-q``); it prints nothing after a success.

    ``$VENTURI_SSH_CONFIG`` names an ssh configuration file, because a lab has its own keys. Copies between two servers pass
    this host, the default of ``scp``.
    """

    name: str = "scp"
    summary: str = "Copy tool of OpenSSH: download, upload, or copy between two servers through this host."
    requires: tuple[str, ...] = ("sh", "scp", "ssh")
    reads: bool = True
    writes: bool = True
    null_destination: bool = True
    protocols: tuple[str, ...] = ("ssh",)
    lists: bool = False
    options: tuple[Option, ...] = _OPTIONS
    costs: tuple[MeasuredCost, ...] = _COSTS

    def call(self, options: Mapping[str, OptionValue]) -> Call:
        """Return the call of ``scp``; ``sh`` converts the URLs and reads the environment."""
        sftp_only = [
            name for name, key in (("requests", "requests"), ("block", "block_bytes")) if options[key] is not None
        ]
        if options["legacy"] and sftp_only:
            raise OptionError(f"scp: expected legacy or {sftp_only[0]}, found both; remove one")
        tool: tuple[Argument, ...] = (
            *("scp", "-q", "-B"),
            *(("-O",) if options["legacy"] else ()),
            *(("-C",) if options["compression"] else ()),
            ("-c", "{cipher}"),
            ("-X", "nrequests={requests}"),
            ("-X", "buffer={block_bytes}"),
            *rate_in_kbit(options),
        )
        script = _SCRIPT.replace("TOOL", format_shell_command(tool, options))
        return Call(self.name, dict(options), shell(script, "{source}", "{destination}"), self.requires)

    def parse(self, record: Mapping[str, Any]) -> ToolReport | None:
        """Return ``None``: ``scp`` prints no report."""
        return None
