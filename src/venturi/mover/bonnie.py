"""``bonnie`` (the program ``bonnie++``): the other disk benchmark of document 004, which writes a file and reads it again in one call."""

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
"""Field of the rate of writing by character, in a line of format 1.98 (bonnie++ 2.00; ``man bon_csv2txt``)."""
_RATES = {"write": _FIRST_RATE + 2, "rewrite": _FIRST_RATE + 4, "read": _FIRST_RATE + 8}
_SEEKS = _FIRST_RATE + 10
_FEWEST_FIELDS = 30

# As root it wants to be told who to be; it takes whole MiB and says so in its own way only when it is too late.
_SCRIPT = """\
[ $(( $2 % MEBIBYTE )) = 0 ] || { echo "bonnie++: expected a size of whole MiB, found $2 B" >&2; exit 2; }
mkdir -- "$1" || exit
exec bonnie++ -q -f -n 0 -m venturi -u "$(id -un)" -d "$1" -s $(( $2 / MEBIBYTE )):BLOCK:SEEKS RAM
"""


@dataclass(frozen=True, slots=True)
class Bonnie:
    """``bonnie++``, under a name without "+", which joins movers, and without its tests by character (``-f``) and of many small files (``-n 0``).

    One call writes ``bytes`` and waits until they are on stable storage, reads and writes all of it again (``rewrite``), reads it,
    and seeks in it. The time of the call is that of all this; what it says of each part stands in the report:
    ``write_bytes_per_s``, ``rewrite_bytes_per_s``, ``read_bytes_per_s``. The part that took less than half a second has no rate.

    It refuses a size of less than twice the memory. Within a control group that is not the memory that it finds: ``memory`` tells it.
    """

    name: str = "bonnie"
    summary: str = "Write a file, write it again and read it (bonnie++), for the rates of a storage."
    requires: tuple[str, ...] = ("sh", "id", "mkdir", "bonnie++")
    reads: bool = False
    writes: bool = True
    null_destination: bool = False
    speaks: tuple[str, ...] = ()
    lists: bool = False
    options: tuple[Option, ...] = (
        Option("block", "size", 1 << 20, "Bytes a read or write, 256 B to 1 MiB, a power of 2."),
        Option(
            "memory",
            "size",
            None,
            "Memory that the test may use, whole MiB (-r): the size must be twice that or more. Otherwise that of the machine.",
        ),
        Option(
            "seeks", "integer", 64, "Seeks to random places, each with a block read there; by itself it makes 8192."
        ),
    )

    def call(self, options: Mapping[str, OptionValue]) -> Call:
        """Return how ``bonnie++`` is called: by ``sh``, which makes the folder that it works in."""
        block, memory = options["block_bytes"], options["memory_bytes"]
        if isinstance(block, int) and (block & (block - 1) or not 256 <= block <= _MEBIBYTE):
            raise OptionError(f"bonnie++: expected a block of 256 B to 1 MiB, a power of 2, found {block} B")
        if isinstance(memory, int) and memory % _MEBIBYTE:
            raise OptionError(f"bonnie++: expected a memory of whole MiB, found {memory} B")
        ram = "" if memory is None else f"-r {int(memory) // _MEBIBYTE}"
        words = {"MEBIBYTE": _MEBIBYTE, "BLOCK": block, "SEEKS": options["seeks"], "RAM": ram}
        script = _SCRIPT
        for word, value in words.items():
            script = script.replace(word, str(value))
        argv = shell(script, "{destination}", "{bytes}")
        # What it has written it removes, so that nothing is left to be looked at.
        return Call(self.name, dict(options), argv, self.requires, capture=True, expect="nothing")

    def parse(self, record: Mapping[str, Any]) -> ToolReport:
        """Return its rates, which it tells in KiB/s; "+++++" stands for one that it could not tell."""
        text = output_text(record, "stdout")
        fields = text.strip().rsplit("\n", 1)[-1].split(",")
        try:
            if len(fields) < _FEWEST_FIELDS or not fields[1].startswith("2."):
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
