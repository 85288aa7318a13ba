"""``davix-get``, ``davix-put`` and ``davix-cp``: CERN's HTTP and WebDAV client."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from venturi.cost import FILE, LAB, LAB_BYTES, MeasuredCost, MoverCost
from venturi.mover.base import Option, ToolReport
from venturi.mover.http import CERTIFICATE, THIRD_PARTY
from venturi.mover.shell import format_shell_command, shell
from venturi.plan import Call
from venturi.plan.header import Argument, OptionValue

__all__ = ["Davix"]

_OPTIONS = (
    CERTIFICATE,
    THIRD_PARTY,
    Option(
        "retries",
        "integer",
        0,
        "Retries of a failed request (--retry). The default of davix is 3.",
        minimum=0,
    ),
)
_CERTIFICATE = ' --capath "$X509_CERT_DIR" -E "$X509_USER_PROXY"'

_COSTS = (
    MeasuredCost(("http",), (FILE,), MoverCost.of((0.0, 0.0062, 2.1)), f"{LAB}; one file per call"),
    MeasuredCost((FILE,), ("http",), MoverCost.of((0.0, 0.0093, 3.0)), f"{LAB}; one file per call"),
    MeasuredCost(("http",), (FILE,), MoverCost(byte_core_s=0.5e-9), LAB_BYTES),
    MeasuredCost((FILE,), ("http",), MoverCost(byte_core_s=0.2e-9), LAB_BYTES),
)


@dataclass(frozen=True, slots=True)
class Davix:
    """davix, with a program for each direction; it prints nothing after a success."""

    name: str = "davix"
    summary: str = "HTTP client of CERN: download, upload, or copy between two servers."
    requires: tuple[str, ...] = ("davix-get", "davix-put", "davix-cp")
    reads: bool = True
    writes: bool = True
    null_destination: bool = True
    protocols: tuple[str, ...] = ("davs", "https", "http")
    needs_server: str = "either"
    lists: bool = False
    options: tuple[Option, ...] = _OPTIONS
    lacks_token: bool = True
    """It accepts a token only on its command line, which all users of the host can read."""
    costs: tuple[MeasuredCost, ...] = _COSTS

    def call(self, options: Mapping[str, OptionValue]) -> Call:
        """Return the call of davix: direct for a download, otherwise by ``sh``."""
        flags: tuple[Argument, ...] = ("--retry", "{retries}")
        shared = format_shell_command(flags, options) + (_CERTIFICATE if options["certificate"] else "")
        script = (
            f"case $1 in *://*) case $2 in *://*) exec davix-cp --copy-mode {options['third_party']} {shared} "
            "\"$1\" \"$2\";; esac;"
            f' exec davix-get {shared} "$1" "$2";; esac; exec davix-put {shared} "$1" "$2"'
        )  # fmt: skip
        if options["certificate"]:
            argv: tuple[Argument, ...] = shell(script, "{source}", "{destination}")
        else:
            argv = (shell(script, "{source}", "{destination}", "{destination_host}"),
                    "davix-get", *flags, "{source}", "{destination}")  # fmt: skip
        return Call(self.name, dict(options), argv, ("sh", *self.requires))

    def parse(self, record: Mapping[str, Any]) -> ToolReport | None:
        """Return ``None``: davix prints no report."""
        return None
