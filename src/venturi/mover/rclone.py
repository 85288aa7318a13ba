"""``rclone copyto``: copy of one file within a host, over SFTP, or from and to S3, with JSON statistics."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from venturi.cost import FILE, LAB_BYTES, MeasuredCost, MoverCost
from venturi.mover.base import Option, OutputError, ToolReport, output_text
from venturi.mover.shell import format_shell_command, shell
from venturi.mover.ssh_url import SSH_CONFIGURATION, SSH_PROTOCOLS, SSH_URL
from venturi.plan import Call
from venturi.plan.header import Argument, OptionValue

__all__ = ["Rclone"]

# rclone has its own ssh client. The script gives it the account, key and host keys that ssh would use.
_SCRIPT = (
    SSH_URL
    + """\
home() {
  case $1 in "~/"*) file=$HOME/${1#??};; *) file=$1;; esac
}
object() {
  rest=${1#*://} scheme=http
  case $1 in s3s://*) scheme=https;; esac
  printf %s ":s3,provider=Other,env_auth=true,force_path_style=true,no_check_bucket=true"
  printf %s ",endpoint=\\"$scheme://${rest%%/*}\\":${rest#*/}"
}
remote() {
  case $1 in s3://*|s3s://*) object "$1"; return;; esac
  split "$1" || { printf %s "$1"; return; }
  settings=$(ssh CONFIGURATION ${user:+-l "$user"} ${port:+-p "$port"} -G -- "$host") || exit
  key= known= only= strict= user_files= global_files=
  while read -r setting value; do
    case $setting in
    hostname) host=$value;;
    port) port=$value;;
    user) user=$value;;
    identitiesonly) only=$value;;
    stricthostkeychecking) strict=$value;;
    userknownhostsfile) user_files=$value;;
    globalknownhostsfile) global_files=$value;;
    identityfile)
      home "$value"
      if test -z "$key" && test -r "$file"; then key=$file; fi;;
    esac
  done <<END
$settings
END
  if test -n "$SSH_AUTH_SOCK" && test "$only" != yes; then key=; fi
  name=$host
  test "$port" = 22 || name="[$host]:$port"
  for file in $user_files $global_files; do
    home "$file"
    if ssh-keygen -F "$name" -f "$file" >/dev/null 2>&1; then known=$file; break; fi
  done
  case $known,$strict in
  ,no|,off|,false) ;;
  ,*) echo "rclone: expected the host key of $name in a known_hosts file, found none; connect once with ssh" >&2; exit 1;;
  esac
  printf %s ":sftp,host=\\"$host\\",user=\\"$user\\",port=$port,shell_type=unix,disable_hashcheck=HASHCHECK"
  printf %s "${key:+,key_file=\\"$key\\"}${known:+,known_hosts_file=\\"$known\\"}:$path"
}
source=$(remote "$1") || exit
destination=$(remote "$2") || exit
# rclone rejects this variable, and has an option.
bundle=$AWS_CA_BUNDLE
unset AWS_CA_BUNDLE
exec TOOL ${bundle:+--ca-cert "$bundle"} "$source" "$destination"
"""
)

_COSTS = (
    MeasuredCost(("ssh",), (FILE,), MoverCost(byte_core_s=6.3e-9), f"{LAB_BYTES}; with the MD5 sum of rclone"),
    MeasuredCost((FILE,), ("ssh",), MoverCost(byte_core_s=3.4e-9), f"{LAB_BYTES}; with the MD5 sum of rclone"),
)


@dataclass(frozen=True, slots=True)
class Rclone:
    """``rclone`` without its configuration file.

    Between two hosts it uses SFTP, with the ssh configuration of the services or of the user. For S3 it uses the
    credentials of ``AWS_ACCESS_KEY_ID`` and ``AWS_SECRET_ACCESS_KEY``, or of ``~/.aws``. Copies between two servers
    pass this host. Each call over SFTP first runs ``ssh -G`` and ``ssh-keygen -F``, within its time: 10 ms of about 0.5 s for
    a file of 1 MB (OpenSSH 9.2, rclone 1.60, one machine).
    """

    name: str = "rclone"
    summary: str = (
        "Copy one file (rclone copyto) without a configuration file, within a host, over SFTP, or from and to S3."
    )
    requires: tuple[str, ...] = ("rclone",)
    reads: bool = True
    writes: bool = True
    null_destination: bool = False
    protocols: tuple[str, ...] = (*SSH_PROTOCOLS, "s3", "s3s")
    lists: bool = False
    options: tuple[Option, ...] = (
        Option("checksum", "boolean", True, "Compare checksums after the copy (default of rclone)."),
        Option("transfers", "integer", None, "Concurrent files (--transfers); for directories only."),
        Option("rate", "rate", None, "Rate limit (--bwlimit)."),
        Option("streams", "integer", None, "Parallel streams of a large file (--multi-thread-streams)."),
    )
    costs: tuple[MeasuredCost, ...] = _COSTS

    def call(self, options: Mapping[str, OptionValue]) -> Call:
        """Return the call of ``rclone``."""
        tool: tuple[Argument, ...] = (
            "rclone", "copyto", "--config=", "--use-json-log", "--stats=1h", "--stats-log-level=NOTICE",
            "--ignore-times", *(() if options["checksum"] else ("--ignore-checksum",)), ("--transfers", "{transfers}"),
            ("--multi-thread-streams", "{streams}"), ("--bwlimit", "{rate_bytes_per_s}B"),
        )  # fmt: skip
        script = (
            _SCRIPT.replace("TOOL", format_shell_command(tool, options))
            .replace("CONFIGURATION", SSH_CONFIGURATION)
            .replace("HASHCHECK", "false" if options["checksum"] else "true")
        )
        argv: tuple[Argument, ...] = (
            shell(script, "{source}", "{destination}", "{source_host}"),
            shell(script, "{source}", "{destination}", "{destination_host}"),
            *(*tool, "{source}", "{destination}"),
        )
        return Call(self.name, dict(options), argv, self.requires, capture=True)

    def parse(self, record: Mapping[str, Any]) -> ToolReport:
        """Return the last ``stats`` entry of the log; a rate of 0 is a missing rate."""
        text = output_text(record, "stderr")
        for line in reversed(text.splitlines()):
            report = _statistics(line)
            if report is not None:
                return report
        raise OutputError('a line of JSON with "stats"', text)


def _statistics(line: str) -> ToolReport | None:
    try:
        stats = json.loads(line)["stats"]
        size, rate, duration_s = int(stats["bytes"]), float(stats["speed"]), float(stats["elapsedTime"])
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
    if not math.isfinite(rate) or not math.isfinite(duration_s):
        return None
    return ToolReport(size, rate or None, duration_s)
