"""``bonnie`` (``bonnie++``): disk benchmark of document 004 that writes and reads a file in one call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from venturi.mover.base import Option, OptionError, OutputError, ToolReport, output_text
from venturi.mover.shell import shell
from venturi.plan import Call
from venturi.plan.header import OptionValue

__all__ = ["Bonnie"]

_KIBIBYTE = 1 << 10
_MEBIBYTE = 1 << 20

_FIRST_RATE = 9
"""Index of the per-character write rate in format 1.98 (bonnie++ 2.00; ``man bon_csv2txt``)."""
_RATES = {"write": _FIRST_RATE + 2, "rewrite": _FIRST_RATE + 4, "read": _FIRST_RATE + 8}
_SEEKS = _FIRST_RATE + 10
_MIN_FIELDS = 30

# Root must pass a user. Sizes are whole MiB; bonnie++ reports other sizes too late.
_SCRIPT = """\
[ $(( $2 % MEBIBYTE )) = 0 ] || { echo "bonnie++: expected a size of whole MiB, found $2 B" >&2; exit 2; }
mkdir -- "$1" || exit
exec bonnie++ -q -f -n 0 -m venturi -u "$(id -un)" -d "$1" -s $(( $2 / MEBIBYTE )):BLOCK:SEEKS RAM
"""


@dataclass(frozen=True, slots=True)
class Bonnie:
    """``bonnie++`` without the tests by character (``-f``) and of small files (``-n 0``). "+" in a name joins movers.

    One call writes ``bytes`` to stable storage, reads and rewrites them, reads them and seeks. The duration of the call
    includes all phases. The report contains ``write_bytes_per_s``, ``rewrite_bytes_per_s`` and ``read_bytes_per_s``; phases
    below half a second have no rate.

    It rejects sizes below twice the memory. In a control group it detects the memory of the host; set ``memory`` there.
    """

    name: str = "bonnie"
    summary: str = "bonnie++: write, rewrite and read a file, to measure the rates of a storage."
    requires: tuple[str, ...] = ("sh", "id", "mkdir", "bonnie++")
    reads: bool = False
    writes: bool = True
    null_destination: bool = False
    protocols: tuple[str, ...] = ()
    lists: bool = False
    options: tuple[Option, ...] = (
        Option("block", "size", 1 << 20, "Size of a read or write, 256 B to 1 MiB, a power of 2."),
        Option(
            "memory",
            "size",
            None,
            "Memory in whole MiB (-r); the file size must be at least twice as large. Default: the memory of the host.",
        ),
        Option(
            "seeks", "integer", 64, "Random seeks, each with a read of one block. The default of bonnie++ is 8192."
        ),
    )

    def call(self, options: Mapping[str, OptionValue]) -> Call:
        """Return the call of ``bonnie++``; ``sh`` creates its working directory."""
        block, memory = options["block_bytes"], options["memory_bytes"]
        if isinstance(block, int) and (block & (block - 1) or not 256 <= block <= _MEBIBYTE):
            raise OptionError(
                f"bonnie++: expected a block of 256 B to 1 MiB, a power of 2, found {block} B; change block"
            )
        if isinstance(memory, int) and memory % _MEBIBYTE:
            raise OptionError(f"bonnie++: expected a memory of whole MiB, found {memory} B; round the size")
        ram = "" if memory is None else f"-r {int(memory) // _MEBIBYTE}"
        values = {"MEBIBYTE": _MEBIBYTE, "BLOCK": block, "SEEKS": options["seeks"], "RAM": ram}
        script = _SCRIPT
        for word, value in values.items():
            script = script.replace(word, str(value))
        argv = shell(script, "{destination}", "{bytes}")
        # bonnie++ removes its file, so there is no destination to check.
        return Call(self.name, dict(options), argv, self.requires, capture=True, expect="nothing")

    def parse(self, record: Mapping[str, Any]) -> ToolReport:
        """Return its rates, printed in KiB/s; "+++++" is an unknown rate."""
        text = output_text(record, "stdout")
        fields = text.strip().rsplit("\n", 1)[-1].split(",")
        try:
            if len(fields) < _MIN_FIELDS or not fields[1].startswith("2."):
                raise ValueError("another form")
            detail: dict[str, float | int | str] = {"version": fields[1]}
            for name, at in _RATES.items():
                if fields[at].strip("+"):
                    detail[f"{name}_bytes_per_s"] = _number(fields[at]) * _KIBIBYTE
            if fields[_SEEKS].strip("+"):
                detail["seeks_per_s"] = _number(fields[_SEEKS])
        except ValueError as error:
            raise OutputError(
                'a last line of comma-separated values of bonnie++ 2, such as "1.98,2.00a,…"', text
            ) from error
        return ToolReport(None, detail=detail)


def _number(text: str) -> float:
    if not text.replace(".", "", 1).isdecimal() or not text.isascii():
        raise ValueError(f"no number: {text}")
    return float(text)
