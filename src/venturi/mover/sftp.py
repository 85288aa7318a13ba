"""``sftp``: file transfer client of OpenSSH."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from venturi.mover.base import Option, ToolReport
from venturi.mover.shell import format_shell_command, shell
from venturi.mover.ssh_url import SSH_CONFIGURATION, SSH_PROTOCOLS, SSH_URL, rate_in_kbit, two_servers_conflict
from venturi.plan import Call
from venturi.plan.header import Argument, OptionValue

__all__ = ["Sftp"]

_OPTIONS = (
    Option("cipher", "text", None, "Cipher, such as `aes128-gcm@openssh.com` (-c). Default: negotiated."),
    Option(
        "requests",
        "integer",
        None,
        "Requests in flight (-R); `requests` × `block` is the window. Default of sftp: 64.",
    ),
    Option("block", "size", None, "Size of a request (-B). Default of sftp: 32 KiB.", maximum=256 << 10),
    Option("rate", "rate", None, "Rate limit, in whole kb/s (-l)."),
    Option("compression", "boolean", False, "Compress the transfer (-C)."),
    Option("fsync", "boolean", False, "Flush the file to stable storage after the transfer (-f)."),
)

# In quotes of sftp, a backslash precedes quotes and backslashes.
_SCRIPT = (
    SSH_URL
    + """\
quote() {
  printf '"%s"' "$(printf %s "$1" | sed 's/["\\\\]/\\\\&/g')"
}
if split "$1"; then
  command="get $(quote "$path") $(quote "$2")"
else
  split "$2"
  command="put $(quote "$1") $(quote "$path")"
fi
printf '%s\\n' "$command" | TOOL CONFIGURATION ${port:+-P "$port"} -- "${user:+$user@}$host"
"""
)


@dataclass(frozen=True, slots=True)
class Sftp:
    """``sftp`` of OpenSSH in batch mode (``-b``), without prompts; it prints no report.

    ``$VENTURI_SSH_CONFIG`` names an ssh configuration file, because services have their own keys.
    """

    name: str = "sftp"
    summary: str = "File transfer client of OpenSSH: download or upload."
    requires: tuple[str, ...] = ("sh", "sftp", "ssh")
    reads: bool = True
    writes: bool = True
    null_destination: bool = False
    protocols: tuple[str, ...] = SSH_PROTOCOLS
    needs_server: str = "either"
    lists: bool = False
    options: tuple[Option, ...] = _OPTIONS

    def call(self, options: Mapping[str, OptionValue]) -> Call:
        """Return the call of ``sftp``; ``sh`` converts the URLs to a command."""
        tool: tuple[Argument, ...] = (
            *("sftp", "-q", "-b", "-"),
            *(("-C",) if options["compression"] else ()),
            *(("-f",) if options["fsync"] else ()),
            ("-c", "{cipher}"),
            ("-R", "{requests}"),
            ("-B", "{block_bytes}"),
            *rate_in_kbit(options),
        )
        script = _SCRIPT.replace("TOOL", format_shell_command(tool, options)).replace(
            "CONFIGURATION", SSH_CONFIGURATION
        )
        return Call(self.name, dict(options), shell(script, "{source}", "{destination}"), self.requires)

    def option_conflict(
        self, options: Mapping[str, OptionValue], source: str | None, destination: str | None
    ) -> tuple[str, str] | None:
        """Return the conflict of two servers: ``sftp`` copies from or to one server."""
        return two_servers_conflict(self.name, options, source, destination)

    def parse(self, record: Mapping[str, Any]) -> ToolReport | None:
        """Return ``None``: ``sftp`` prints no report."""
        return None
