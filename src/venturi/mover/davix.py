"""``davix-get``, ``davix-put`` and ``davix-cp``: CERN's HTTP and WebDAV client."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from venturi.cost import FILE, LAB, LAB_BYTES, Measured, MoverCost
from venturi.mover.base import Option, ToolReport
from venturi.mover.http import CERTIFICATE, THIRD_PARTY
from venturi.mover.shell import filled, shell
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
        "How often a request that failed is tried again (--retry); davix by itself does 3 times.",
        minimum=0,
    ),
)
_CERTIFICATE = ' --capath "$X509_CERT_DIR" -E "$X509_USER_PROXY"'

_COSTS = (
    Measured(("http",), (FILE,), MoverCost.of((0.0, 0.0062, 2.1)), f"{LAB}; one file a call"),
    Measured((FILE,), ("http",), MoverCost.of((0.0, 0.0093, 3.0)), f"{LAB}; one file a call"),
    Measured(("http",), (FILE,), MoverCost(byte_core_s=0.5e-9), LAB_BYTES),
    Measured((FILE,), ("http",), MoverCost(byte_core_s=0.2e-9), LAB_BYTES),
)


@dataclass(frozen=True, slots=True)
class Davix:
    """davix, whose program depends on the ends; it says nothing where all went well."""

    name: str = "davix"
    summary: str = "CERN's HTTP client: download, upload, or from server to server."
    requires: tuple[str, ...] = ("davix-get", "davix-put", "davix-cp")
    reads: bool = True
    writes: bool = True
    null_destination: bool = True
    speaks: tuple[str, ...] = ("davs", "https", "http")
    lists: bool = False
    options: tuple[Option, ...] = _OPTIONS
    costs: tuple[Measured, ...] = _COSTS

    def call(self, options: Mapping[str, OptionValue]) -> Call:
        """Return how davix is called: a download as it is, the others by ``sh``."""
        flags: tuple[Argument, ...] = ("--retry", "{retries}")
        shared = filled(flags, options) + (_CERTIFICATE if options["certificate"] else "")
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
        """Return nothing: davix says nothing."""
        return None
