"""``wget``: HTTP download, as experiment 002 fetched objects through a cache."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from venturi.cost import FILE, LAB, LAB_BYTES, Measured, MoverCost
from venturi.mover.base import Option, OutputError, ToolReport, output_text
from venturi.mover.http import CERTIFICATE, PROXY
from venturi.mover.shell import filled, shell
from venturi.plan import Call
from venturi.plan.header import Argument, OptionValue

__all__ = ["Wget"]

_SAVED = re.compile(r'^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d URL:\S+ \[([0-9]+)(?:/[0-9]+)?\] -> ".*" \[1\]$', re.MULTILINE)
_CERTIFICATE = ' --ca-directory="$X509_CERT_DIR" --certificate="$X509_USER_PROXY" --private-key="$X509_USER_PROXY"'

_COSTS = (
    Measured(("http",), (FILE,), MoverCost.of((0.0, 0.0023, 2.1)), f"{LAB}; one file a call"),
    Measured(("http",), (FILE,), MoverCost(byte_core_s=0.92e-9), LAB_BYTES),
)


@dataclass(frozen=True, slots=True)
class Wget:
    """GNU ``wget``: one try, no progress, without its configuration files; downloads only."""

    name: str = "wget"
    summary: str = "HTTP download only."
    requires: tuple[str, ...] = ("wget",)
    reads: bool = True
    writes: bool = True
    null_destination: bool = True
    speaks: tuple[str, ...] = ("http", "https")
    lists: bool = False
    options: tuple[Option, ...] = (
        PROXY,
        CERTIFICATE,
        Option("rate", "rate", None, "At most so fast (--limit-rate)."),
        Option(
            "bind", "text", None, "Of a host with several interfaces the one that is used: its address, or its name."
        ),
    )
    costs: tuple[Measured, ...] = _COSTS

    def call(self, options: Mapping[str, OptionValue]) -> Call:
        """Return how ``wget`` is called."""
        proxy: tuple[Argument, ...] = ("--no-proxy",)
        if options["proxy"] is not None:
            proxy = (("-e", "use_proxy=yes", "-e", "http_proxy={proxy}", "-e", "https_proxy={proxy}"),)
        tool: tuple[Argument, ...] = (
            *("wget", "--no-config", "--no-verbose", "--tries=1", *proxy),
            ("--limit-rate={rate_bytes_per_s}",),
            ("--bind-address={bind}",),
        )
        argv: tuple[Argument, ...] = (*tool, "-O", "{destination}", "{source}")
        if options["certificate"]:
            script = f'exec {filled(tool, options)}{_CERTIFICATE} -O "$2" "$1"'
            argv = shell(script, "{source}", "{destination}")
        requires = ("sh", *self.requires) if options["certificate"] else self.requires
        return Call(self.name, dict(options), argv, requires, capture=True)

    def parse(self, record: Mapping[str, Any]) -> ToolReport:
        """Return what ``wget --no-verbose`` says: a size; its times are those of the wall, in seconds."""
        text = output_text(record, "stderr")
        match = _SAVED.search(text)
        if match is None:
            raise OutputError('a line such as "2026-01-01 00:00:00 URL:http://… [8/8] -> "file" [1]"', text)
        return ToolReport(int(match[1]))
