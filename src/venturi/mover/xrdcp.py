"""``xrdcp``: the copy tool of XRootD."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from venturi.cost import FILE, LAB, LAB_BYTES, Measured, MoverCost
from venturi.mover.base import Option, OptionError, ToolReport
from venturi.mover.shell import filled, shell
from venturi.plan import Call
from venturi.plan.header import Argument, OptionValue

__all__ = ["Xrdcp"]

_MAXIMA = {"streams": 15, "sources": 32, "parallel": 128}
"""What ``xrdcp`` 5.5 admits: with more it prints its usage and ends with code 22."""

_OPTIONS = (
    Option("streams", "integer", None, "TCP connections for data beside the one for control (-S), 15 at most."),
    Option(
        "sources",
        "integer",
        None,
        "Servers that one file is read from at the same time (-y), where a redirector knows so many; 32 at "
        "most. Not from a local file.",
    ),
    Option(
        "parallel", "integer", None, "Files of a list that are copied at the same time (--parallel), 128 at most."
    ),
    Option(
        "third_party",
        "choice",
        "none",
        "Between two servers: through this host (`none`), or from one to the other directly: nothing else "
        "(`only`), where it can (`first`), with delegated credentials (`delegate`, and nothing else).",
        choices=("none", "only", "first", "delegate"),
    ),
    Option(
        "checksum",
        "choice",
        None,
        "Compare checksums of source and destination, in the timing (-C).",
        choices=("adler32", "crc32", "crc32c", "md5", "zcrc32"),
    ),
    Option("rate", "rate", None, "At most so fast (-X)."),
    Option(
        "pgread",
        "boolean",
        True,
        "Have each page checked with CRC32C on its way, as xrdcp 5 does by itself (XRD_CPUSEPGWRTRD).",
    ),
)

_THIRD_PARTY = {"none": (), "only": ("only",), "first": ("first",), "delegate": ("delegate", "only")}

_AHEAD = 4 * (8 << 20)
"""Four chunks of 8 MiB are asked for ahead (XRD_CPPARALLELCHUNKS, XRD_CPCHUNKSIZE)."""

_COSTS = (
    # More connections (-S) make no difference to these: they are opened beside the first.
    Measured(
        ("root",),
        (FILE,),
        MoverCost.of((0.0027, 0.0078, 3.2), (0.0, 0.0008, 3.0), in_flight_bytes=_AHEAD, keeps_connection=True),
        LAB,
    ),
    Measured(
        (FILE,),
        ("root",),
        MoverCost.of((0.0, 0.0077, 4.1), (0.0005, 0.001, 3.0), in_flight_bytes=_AHEAD, keeps_connection=True),
        LAB,
    ),
    Measured(("root",), (FILE,), MoverCost(byte_core_s=1.28e-9), LAB_BYTES),
    Measured((FILE,), ("root",), MoverCost(byte_core_s=1.22e-9), LAB_BYTES),
)


@dataclass(frozen=True, slots=True)
class Xrdcp:
    """``xrdcp``, which overwrites (``-f``), draws no bar (``-N``) and says nothing else where all went well.

    A list is its sources into one directory; it cannot end in ``/dev/null``. A download onto a full disk ends with code 0 and half
    a file, with ``checksum`` too (5.5.3): what the receiver holds is looked at in any case.
    """

    name: str = "xrdcp"
    summary: str = "XRootD's copy tool: download, upload, or from server to server."
    requires: tuple[str, ...] = ("xrdcp",)
    reads: bool = True
    writes: bool = True
    null_destination: bool = True
    speaks: tuple[str, ...] = ("root", "roots")
    lists: bool = True
    null_lists: bool = False
    options: tuple[Option, ...] = _OPTIONS
    costs: tuple[Measured, ...] = _COSTS

    def call(self, options: Mapping[str, OptionValue]) -> Call:
        """Return how ``xrdcp`` is called."""
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
        # The first words of the lines are the sources; nothing in a URL of ours is special to sh.
        script = (
            f'set -f; exec {filled((*tool, ("--parallel", "{parallel}")), options)} $(cut -d" " -f1 -- "$1") "$2"'
        )
        argv = (shell(script, "{list}", "{destination}"), *tool, "{source}", "{destination}")
        requires = ("sh", "cut", *(() if options["pgread"] else ("env",)), *self.requires)
        return Call(self.name, dict(options), argv, requires)

    def parse(self, record: Mapping[str, Any]) -> ToolReport | None:
        """Return nothing: ``xrdcp`` says nothing of a transfer that went well."""
        return None


def _check(options: Mapping[str, OptionValue]) -> None:
    for name, maximum in _MAXIMA.items():
        value = options[name]
        if isinstance(value, int) and value > maximum:
            raise OptionError(f"xrdcp: expected {name} of {maximum} at most, found {value}")
    if options["third_party"] != "none":
        moot = [name for name in ("sources", "rate_bytes_per_s") if options[name] is not None]
        if moot:
            raise OptionError(
                f"xrdcp: expected no {moot[0].removesuffix('_bytes_per_s')} beside third_party, found both; the "
                "bytes then pass between"
                " the servers, and the client has no hand in how"
            )
