"""``xrdcp``: copy tool of XRootD."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from venturi.cost import FILE, LAB, LAB_BYTES, MeasuredCost, MoverCost
from venturi.mover.base import Option, OptionError, ToolReport
from venturi.mover.shell import format_shell_command, shell
from venturi.plan import Call
from venturi.plan.header import Argument, OptionValue

__all__ = ["Xrdcp"]

_MAXIMA = {"streams": 15, "sources": 32, "parallel": 128}
"""Limits of ``xrdcp`` 5.5; above them it prints its usage and exits with code 22."""

_OPTIONS = (
    Option(
        "streams", "integer", None, "TCP data connections, in addition to the control connection (-S), 15 at most."
    ),
    Option(
        "sources",
        "integer",
        None,
        "Concurrent source servers of a file behind a redirector (-y), 32 at most. Not for local files.",
    ),
    Option("parallel", "integer", None, "Concurrent files of a list (--parallel), 128 at most."),
    Option(
        "third_party",
        "choice",
        "none",
        "Between two servers: through this host (`none`), or directly: always (`only`), if possible (`first`), or always with "
        "delegated credentials (`delegate`).",
        choices=("none", "only", "first", "delegate"),
    ),
    Option(
        "checksum",
        "choice",
        None,
        "Compare checksums of source and destination (-C, part of the duration).",
        choices=("adler32", "crc32", "crc32c", "md5", "zcrc32"),
    ),
    Option("rate", "rate", None, "Rate limit (-X)."),
    Option(
        "pgread",
        "boolean",
        True,
        "Check each page with CRC32C during the transfer, the default of xrdcp 5 (XRD_CPUSEPGWRTRD).",
    ),
)

_THIRD_PARTY = {"none": (), "only": ("only",), "first": ("first",), "delegate": ("delegate", "only")}

_AHEAD = 4 * (8 << 20)
"""Four chunks of 8 MiB in flight (XRD_CPPARALLELCHUNKS, XRD_CPCHUNKSIZE)."""

_COSTS = (
    # More connections (-S) do not change these costs: xrdcp opens them in parallel.
    MeasuredCost(
        ("root",),
        (FILE,),
        MoverCost.of((0.0027, 0.0078, 3.2), (0.0, 0.0008, 3.0), in_flight_bytes=_AHEAD, keeps_connection=True),
        LAB,
    ),
    MeasuredCost(
        (FILE,),
        ("root",),
        MoverCost.of((0.0, 0.0077, 4.1), (0.0005, 0.001, 3.0), in_flight_bytes=_AHEAD, keeps_connection=True),
        LAB,
    ),
    MeasuredCost(("root",), (FILE,), MoverCost(byte_core_s=1.28e-9), LAB_BYTES),
    MeasuredCost((FILE,), ("root",), MoverCost(byte_core_s=1.22e-9), LAB_BYTES),
)


@dataclass(frozen=True, slots=True)
class Xrdcp:
    """``xrdcp`` with overwrite (``-f``) and without a progress bar (``-N``); it prints nothing after a success.

    For a list, the destination is a directory, not ``/dev/null``. A download to a full disk leaves a partial file with exit
    code 0, also with ``checksum`` (5.5.3), so the agent always checks the destination.
    """

    name: str = "xrdcp"
    summary: str = "Copy tool of XRootD: download, upload, or copy between two servers."
    requires: tuple[str, ...] = ("xrdcp",)
    reads: bool = True
    writes: bool = True
    null_destination: bool = True
    protocols: tuple[str, ...] = ("root", "roots")
    lists: bool = True
    null_lists: bool = False
    options: tuple[Option, ...] = _OPTIONS
    costs: tuple[MeasuredCost, ...] = _COSTS

    def call(self, options: Mapping[str, OptionValue]) -> Call:
        """Return the call of ``xrdcp``."""
        _check(options)
        tool: tuple[Argument, ...] = (
            *(() if options["pgread"] else ("env", "XRD_CPUSEPGWRTRD=0")),
            *("xrdcp", "-f", "-N"),
            ("-S", "{streams}"),
            ("-y", "{sources}"),
            *((("--tpc", *_THIRD_PARTY[str(options["third_party"])]),) if options["third_party"] != "none" else ()),
            ("-C", "{checksum}"),
            ("-X", "{rate_bytes_per_s}"),
        )
        # The first words of the lines are the sources. URLs of Venturi contain no special characters of sh.
        script = f'set -f; exec {format_shell_command((*tool, ("--parallel", "{parallel}")), options)} $(cut -d" " -f1 -- "$1") "$2"'
        argv = (shell(script, "{list}", "{destination}"), *tool, "{source}", "{destination}")
        requires = ("sh", "cut", *(() if options["pgread"] else ("env",)), *self.requires)
        return Call(self.name, dict(options), argv, requires)

    def parse(self, record: Mapping[str, Any]) -> ToolReport | None:
        """Return ``None``: ``xrdcp`` prints no report."""
        return None


def _check(options: Mapping[str, OptionValue]) -> None:
    for name, maximum in _MAXIMA.items():
        value = options[name]
        if isinstance(value, int) and value > maximum:
            raise OptionError(f"xrdcp: expected {name} of {maximum} at most, found {value}; reduce {name}")
    if options["third_party"] != "none":
        unused = [name for name in ("sources", "rate_bytes_per_s") if options[name] is not None]
        if unused:
            raise OptionError(
                f"xrdcp: expected no {unused[0].removesuffix('_bytes_per_s')} with third_party, found both; remove "
                "one"
            )
