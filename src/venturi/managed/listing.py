"""A list of transfers: a text file with a line ``SOURCE DESTINATION`` for each."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from venturi.errors import UnitError, VenturiError
from venturi.managed.address import Address, AddressError
from venturi.managed.checksum import ALGORITHMS, Checksum, ChecksumError
from venturi.plan.words import shown
from venturi.units import parse_bytes

__all__ = ["COMMAND_LINE", "ListError", "Wanted", "read_list", "read_pair"]

COMMAND_LINE = "the command line"
"""Name of the list of what stood on it: two ends, and no lines."""

_SHOWN_PROBLEMS = 20
_SPECIAL = frozenset("'\"\\")


class ListError(VenturiError, ValueError):
    """A list with lines that cannot be used; the message tells all of them, up to twenty.

    Parameters
    ----------
    source
        Name of the list.
    problems
        Number of the line (from 1; 0: the list as a whole), and what is wrong with it.
    """

    def __init__(self, source: str, problems: list[tuple[int, str]]) -> None:
        self.problems = problems
        typed = source == COMMAND_LINE
        lines = [
            f"{source}, line {line}: {what}" if line and not typed else f"{source}: {what}" for line, what in problems
        ]
        more = len(lines) - _SHOWN_PROBLEMS
        if more > 0:
            lines[_SHOWN_PROBLEMS:] = [f"and {more} more {'lines' if more > 1 else 'line'}"]
        mend = "mend it and try again" if typed else "mend the list and submit it again"
        super().__init__("\n".join([*lines, f"nothing was submitted; {mend}"]))


@dataclass(frozen=True, slots=True)
class Wanted:
    """One transfer that is asked for.

    Attributes
    ----------
    line
        Its line of the list.
    source, destination
        Its ends.
    size_bytes, checksum
        What the source should hold; None: not said.
    """

    line: int
    source: Address
    destination: Address
    size_bytes: int | None = None
    checksum: Checksum | None = None


def read_list(lines: Iterable[str], folder: str, source: str = "list") -> list[Wanted]:
    """Return the transfers of a list.

    A line is ``SOURCE DESTINATION``, then in any order a size (``10 MB`` in quotes or ``10MB``) and a checksum
    (``adler32:03da0195``). Words with blanks stand in quotes. Empty lines are passed over, and what follows a word that
    begins with ``#``.

    Parameters
    ----------
    lines
        Of the list.
    folder
        Where relative paths begin.
    source
        Name of the list, for messages.

    Raises
    ------
    ListError
        Naming all lines that cannot be used.

    Examples
    --------
    >>> [wanted] = read_list(["data/x gsiftp://dtn.example.org/x 10MB  # the first"], "/home/me")
    >>> wanted.source.text, wanted.destination.text, wanted.size_bytes
    ('/home/me/data/x', 'gsiftp://dtn.example.org/x', 10000000)
    """
    found: list[Wanted] = []
    problems: list[tuple[int, str]] = []
    first_line: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        try:
            wanted = _line(number, line, folder)
        except (AddressError, ChecksumError, UnitError, ListLineError) as error:
            problems.append((number, str(error)))
            continue
        if wanted is None:
            continue
        destination = wanted.destination.text
        if first_line.setdefault(destination, number) != number:
            problems.append(
                (
                    number,
                    f"expected a destination of its own, found that of line {first_line[destination]}, {destination}",
                )
            )
        found.append(wanted)
    if not found and not problems:
        problems.append((0, "expected lines SOURCE DESTINATION, found none"))
    if problems:
        raise ListError(source, problems)
    return found


def read_pair(source: str, destination: str, folder: str) -> Wanted:
    """Return the one transfer whose ends stand on the command line.

    Raises
    ------
    ListError
        If an end is none.
    """
    try:
        return Wanted(1, *_ends(source, destination, folder))
    except (AddressError, ListLineError) as error:
        raise ListError(COMMAND_LINE, [(1, str(error))]) from error


class ListLineError(VenturiError, ValueError):
    """A line that is not of the form."""


def _ends(source: str, destination: str, folder: str) -> tuple[Address, Address]:
    ends = Address.parse(source, folder), Address.parse(destination, folder)
    if ends[0] == ends[1]:
        raise ListLineError(f"expected two different ends, found {shown(ends[0].text)} twice")
    return ends


def _line(number: int, line: str, folder: str) -> Wanted | None:
    words = list(_words(line))
    if not words:
        return None
    if len(words) < 2:
        raise ListLineError(f"expected SOURCE DESTINATION, found {shown(words[0])} alone")
    source, destination = _ends(words[0], words[1], folder)
    size_bytes: int | None = None
    checksum: Checksum | None = None
    for word in words[2:]:
        if word.partition(":")[0].lower() in ALGORITHMS and checksum is None:
            checksum = Checksum.parse(word)
        elif size_bytes is None and word[:1].isdigit():
            size_bytes = parse_bytes(word)
        else:
            raise ListLineError(
                f"expected a size such as 10MB or a checksum such as adler32:03da0195, found {shown(word)}"
            )
    return Wanted(number, source, destination, size_bytes, checksum)


def _words(line: str) -> Iterator[str]:
    """Yield the words of a line up to a comment; only quotes need the slow way."""
    try:
        words = shlex.split(line) if _SPECIAL & set(line) else line.split()
    except ValueError as error:
        raise ListLineError(f"expected quotes in pairs, found {shown(line.strip())}") from error
    for word in words:
        if word.startswith("#"):
            return
        yield word
