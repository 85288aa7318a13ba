"""``scp``: the copy tool of OpenSSH."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

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
