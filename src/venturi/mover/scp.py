"""``scp``: the copy tool of OpenSSH."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from venturi.cost import FILE, LAB, LAB_BYTES, Measured, MoverCost
from venturi.mover.base import Option, OptionError, ToolReport
from venturi.mover.shell import filled, shell
from venturi.plan import Call
from venturi.plan.header import Argument, OptionValue

__all__ = ["Scp"]

_OPTIONS = (
    Option("cipher", "text", None, "Such as `aes128-gcm@openssh.com` (-c); otherwise what both prefer."),
    Option("legacy", "boolean", False, "The old scp protocol (-O) and not SFTP, which OpenSSH 9 uses by itself."),
    Option(
        "requests",
        "integer",
        None,
        "SFTP requests in flight (-X nrequests); with `block` the window of SFTP: 64 by itself.",
    ),
    Option("block", "size", None, "Bytes an SFTP request (-X buffer): 32 KiB by itself."),
    Option("compression", "boolean", False, "Compress (-C)."),
)

# A URL of scp is relative to the home folder of the account unless its path begins with a slash of its own.
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
    Measured(("ssh",), (FILE,), MoverCost.of((0.134, 0.09, 22.6)), f"{LAB}; one file a call"),
    Measured((FILE,), ("ssh",), MoverCost.of((0.128, 0.092, 19.1)), f"{LAB}; one file a call"),
    *(
        Measured(
            source,
            destination,
            MoverCost(in_flight_bytes=_AHEAD),
            "scp(1), -X",
            {"legacy": False, "requests": None, "block_bytes": None},
        )
        for source, destination in ((("ssh",), (FILE,)), ((FILE,), ("ssh",)))
    ),
    Measured(("ssh",), (FILE,), MoverCost(byte_core_s=1.85e-9), LAB_BYTES),
    Measured((FILE,), ("ssh",), MoverCost(byte_core_s=2.0e-9), LAB_BYTES),
)


@dataclass(frozen=True, slots=True)
class Scp:
    """OpenSSH's ``scp``: asks no question (``-B``), shows no meter (``-q``), says nothing where all went well.

    ``$VENTURI_SSH_CONFIG`` names a configuration file to use in place of the user's: a lab has its own keys. Two remote ends go
    through this host, as ``scp`` does by itself.
    """

    name: str = "scp"
    summary: str = "OpenSSH's copy tool: download, upload, or between two servers through this host."
    requires: tuple[str, ...] = ("sh", "scp", "ssh")
    reads: bool = True
    writes: bool = True
    null_destination: bool = True
    speaks: tuple[str, ...] = ("ssh",)
    lists: bool = False
    options: tuple[Option, ...] = _OPTIONS
    costs: tuple[Measured, ...] = _COSTS

    def call(self, options: Mapping[str, OptionValue]) -> Call:
        """Return how ``scp`` is called: by ``sh``, which makes its form of URL and looks at the environment."""
        sftp_only = [
            name for name, key in (("requests", "requests"), ("block", "block_bytes")) if options[key] is not None
        ]
        if options["legacy"] and sftp_only:
            raise OptionError(f"scp: expected legacy or {sftp_only[0]}, found both; the old protocol has no requests")
        tool: tuple[Argument, ...] = (
            *("scp", "-q", "-B"),
            *(("-O",) if options["legacy"] else ()),
            *(("-C",) if options["compression"] else ()),
            ("-c", "{cipher}"),
            ("-X", "nrequests={requests}"),
            ("-X", "buffer={block_bytes}"),
        )
        script = _SCRIPT.replace("TOOL", filled(tool, options))
        return Call(self.name, dict(options), shell(script, "{source}", "{destination}"), self.requires)

    def parse(self, record: Mapping[str, Any]) -> ToolReport | None:
        """Return nothing: ``scp`` says nothing."""
        return None
