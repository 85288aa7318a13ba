"""``wget``: HTTP download, as in experiment 002 with a cache."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from venturi.cost import FILE, LAB, LAB_BYTES, MeasuredCost, MoverCost
from venturi.mover.base import Option, OutputError, ToolReport, output_text
from venturi.mover.http import BEARER, CERTIFICATE, PROXY, READ_TOKEN
from venturi.mover.shell import format_shell_command, shell
from venturi.plan import Call
from venturi.plan.header import Argument, OptionValue

__all__ = ["Wget"]

_SAVED = re.compile(r'^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d URL:\S+ \[([0-9]+)(?:/[0-9]+)?\] -> ".*" \[1\]$', re.MULTILINE)
_CERTIFICATE = ' --ca-directory="$X509_CERT_DIR" --certificate="$X509_USER_PROXY" --private-key="$X509_USER_PROXY"'
# A command line is visible to all users of a host. wget reads options only from a regular file, so this file has no name
# and disappears when wget exits. On a redirection, wget 1.21 would send the token to the other server.
_OPEN_TOKEN = (
    READ_TOKEN
    + """\
file=$(mktemp) && exec 3<>"$file" && rm "$file" && echo "header = Authorization: Bearer $token" >&3 || exit
"""
)
_TOKEN = " --config=/dev/fd/3 --max-redirect=0"

_COSTS = (
    MeasuredCost(("http",), (FILE,), MoverCost.of((0.0, 0.0023, 2.1)), f"{LAB}; one file per call"),
    MeasuredCost(("http",), (FILE,), MoverCost(byte_core_s=0.92e-9), LAB_BYTES),
)


@dataclass(frozen=True, slots=True)
class Wget:
    """GNU ``wget`` for downloads: one attempt, without progress and configuration files."""

    name: str = "wget"
    summary: str = "HTTP download only."
    requires: tuple[str, ...] = ("wget",)
    reads: bool = True
    writes: bool = True
    null_destination: bool = True
    protocols: tuple[str, ...] = ("http", "https")
    needs_server: str = "source"
    lists: bool = False
    options: tuple[Option, ...] = (
        PROXY,
        CERTIFICATE,
        BEARER,
        Option("rate", "rate", None, "Rate limit (--limit-rate)."),
        Option("bind", "text", None, "Local interface, by address or name."),
    )
    costs: tuple[MeasuredCost, ...] = _COSTS

    def call(self, options: Mapping[str, OptionValue]) -> Call:
        """Return the call of ``wget``."""
        proxy: tuple[Argument, ...] = ("--no-proxy",)
        if options["proxy"] is not None:
            proxy = (("-e", "use_proxy=yes", "-e", "http_proxy={proxy}", "-e", "https_proxy={proxy}"),)
        tool: tuple[Argument, ...] = (
            *("wget", *(() if options["bearer"] else ("--no-config",)), "--no-verbose", "--tries=1", *proxy),
            ("--limit-rate={rate_bytes_per_s}",),
            ("--bind-address={bind}",),
        )
        argv: tuple[Argument, ...] = (*tool, "-O", "{destination}", "{source}")
        if options["certificate"] or options["bearer"]:
            login = (_CERTIFICATE if options["certificate"] else "") + (_TOKEN if options["bearer"] else "")
            script = f'exec {format_shell_command(tool, options)}{login} -O "$2" "$1"'
            argv = shell((_OPEN_TOKEN if options["bearer"] else "") + script, "{source}", "{destination}")
        requires = ("sh", *self.requires) if argv[0] == "sh" else self.requires
        return Call(self.name, dict(options), argv, requires, capture=True)

    def parse(self, record: Mapping[str, Any]) -> ToolReport:
        """Return the size that ``wget --no-verbose`` prints; its times have a resolution of seconds."""
        text = output_text(record, "stderr")
        match = _SAVED.search(text)
        if match is None:
            raise OutputError('a line such as "2026-01-01 00:00:00 URL:http://… [8/8] -> "file" [1]"', text)
        return ToolReport(int(match[1]))
