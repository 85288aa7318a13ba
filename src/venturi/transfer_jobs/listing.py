"""A list of transfers: a text file with a line ``SOURCE DESTINATION`` for each."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from venturi.errors import UnitError, VenturiError
from venturi.messages import quote_value
from venturi.transfer_jobs.address import Address, AddressError
from venturi.transfer_jobs.checksum import ALGORITHMS, Checksum, ChecksumError
from venturi.units import parse_bytes

__all__ = ["COMMAND_LINE", "ListError", "TransferRequest", "read_list", "read_pair"]

COMMAND_LINE = "the command line"
"""List name for a pair from the command line. Its messages have no line numbers."""

_SHOWN_PROBLEMS = 20
_SPECIAL = frozenset("'\"\\")


class ListError(VenturiError, ValueError):
    """A list with invalid lines. The message contains all of them, up to twenty.

    Parameters
    ----------
    source
        Name of the list.
    problems
        Number of the line (from 1; 0: the whole list), and the problem.
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
        next_step = "correct the command and run it again" if typed else "correct the list and submit it again"
        super().__init__("\n".join([*lines, f"nothing was submitted; {next_step}"]))


@dataclass(frozen=True, slots=True)
class TransferRequest:
    """One requested transfer.

    Attributes
    ----------
    line
        Line number in the list.
    source, destination
        The endpoints.
    size_bytes, checksum
        Expected size and checksum of the source. None if the list does not contain them.
    """

    line: int
    source: Address
    destination: Address
    size_bytes: int | None = None
    checksum: Checksum | None = None


def read_list(lines: Iterable[str], directory: str, source: str = "list") -> list[TransferRequest]:
    """Return the transfers of a list.

    A line is ``SOURCE DESTINATION``, then in any order a size (``10 MB`` in quotes or ``10MB``) and a checksum
    (``adler32:03da0195``). Words with spaces must be quoted. Empty lines are ignored, and so is the rest of a line from a
    word that starts with ``#``.

    Parameters
    ----------
    lines
        Lines of the list.
    directory
        Base directory of relative paths.
    source
        Name of the list, for messages.

    Raises
    ------
    ListError
        With all invalid lines.

    Examples
    --------
    >>> [wanted] = read_list(["data/x gsiftp://dtn.example.org/x 10MB  # the first"], "/home/me")
    >>> wanted.source.text, wanted.destination.text, wanted.size_bytes
    ('/home/me/data/x', 'gsiftp://dtn.example.org/x', 10000000)
    """
    found: list[TransferRequest] = []
    problems: list[tuple[int, str]] = []
    first_line: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        try:
            request = _line(number, line, directory)
        except (AddressError, ChecksumError, UnitError, ListLineError) as error:
            problems.append((number, str(error)))
            continue
        if request is None:
            continue
        destination = request.destination.text
        if first_line.setdefault(destination, number) != number:
            problems.append(
                (
                    number,
                    f"expected a different destination, found the one of line {first_line[destination]}, {destination}",
                )
            )
        found.append(request)
    if not found and not problems:
        problems.append((0, "expected lines with SOURCE DESTINATION, found none"))
    if problems:
        raise ListError(source, problems)
    return found


def read_pair(source: str, destination: str, directory: str) -> TransferRequest:
    """Return the transfer between two endpoints from the command line.

    Raises
    ------
    ListError
        If an endpoint is invalid, or both are the same.
    """
    try:
        return TransferRequest(1, *_ends(source, destination, directory))
    except (AddressError, ListLineError) as error:
        raise ListError(COMMAND_LINE, [(1, str(error))]) from error


class ListLineError(VenturiError, ValueError):
    """A line with a syntax error."""


def _ends(source: str, destination: str, directory: str) -> tuple[Address, Address]:
    ends = Address.parse(source, directory), Address.parse(destination, directory)
    if ends[0] == ends[1]:
        raise ListLineError(f"expected two different endpoints, found {quote_value(ends[0].text)} twice")
    return ends


def _line(number: int, line: str, directory: str) -> TransferRequest | None:
    words = list(_words(line))
    if not words:
        return None
    if len(words) < 2:
        raise ListLineError(f"expected SOURCE DESTINATION, found only {quote_value(words[0])}")
    source, destination = _ends(words[0], words[1], directory)
    size_bytes: int | None = None
    checksum: Checksum | None = None
    for word in words[2:]:
        if word.partition(":")[0].lower() in ALGORITHMS and checksum is None:
            checksum = Checksum.parse(word)
        elif size_bytes is None and word[:1].isdigit():
            size_bytes = parse_bytes(word)
        else:
            raise ListLineError(
                f"expected a size such as 10MB or a checksum such as adler32:03da0195, found {quote_value(word)}"
            )
    return TransferRequest(number, source, destination, size_bytes, checksum)


def _words(line: str) -> Iterator[str]:
    """Yield the words of a line up to a comment. The slow parser is used only for lines with quotes or backslashes."""
    try:
        words = shlex.split(line) if _SPECIAL & set(line) else line.split()
    except ValueError as error:
        raise ListLineError(
            f"expected a closing quote for each opening one, found {quote_value(line.strip())}"
        ) from error
    for word in words:
        if word.startswith("#"):
            return
        yield word
