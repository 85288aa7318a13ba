"""Which mover carries out a transfer, and whether it can."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from venturi.errors import VenturiError
from venturi.managed.address import FILE, Address
from venturi.managed.listing import ListError, Wanted
from venturi.mover import Mover, movers
from venturi.plan.words import shown, suggestion

__all__ = ["ChoiceError", "choose", "choose_all", "takes_pairs"]

_BY_PROTOCOL: Mapping[str, str] = {
    FILE: "cp",
    "gsiftp": "globus-url-copy",
    "ftp": "globus-url-copy",
    "root": "xrdcp",
    "roots": "xrdcp",
    "http": "curl",
    "https": "curl",
}
"""The tool of each protocol alone."""

_OF_MANY = "gfal-copy"
"""The tool between different protocols, and of those that have none of their own."""


_ITSELF = "managed"
"""The mover that hands a job over to this package; it moves nothing itself."""


class ChoiceError(VenturiError, ValueError):
    """No mover can move this."""


def choose(source: Address, destination: Address, asked: str | None) -> str:
    """Return the name of the mover of a transfer.

    Parameters
    ----------
    source, destination
        Its ends.
    asked
        The mover that is asked for; None: the one of the protocol.

    Raises
    ------
    ChoiceError
        If there is no such mover, or it cannot reach both ends.

    Examples
    --------
    >>> choose(Address("file", "", "/x"), Address("root", "a:1094", "//x"), None)
    'xrdcp'
    >>> choose(Address("gsiftp", "a", "/x"), Address("root", "b", "//x"), None)
    'gfal-copy'
    """
    known = {name: mover for name, mover in movers().items() if name != _ITSELF}
    if asked is not None and asked not in known:
        raise ChoiceError(
            f"expected one of the movers {', '.join(known)}, found {shown(asked)}{suggestion(asked, known)}"
        )
    name = asked or _usual(source, destination)
    mover = known[name]
    if not (mover.reads and mover.writes):
        raise ChoiceError(f"expected a mover that reads and writes files, found {name}")
    remote = [end.scheme for end in (source, destination) if not end.is_file]
    for scheme in remote:
        if scheme not in mover.speaks:
            speaks = f"speaks {', '.join(mover.speaks)}" if mover.speaks else "moves files of this host only"
            raise ChoiceError(f"expected ends that {name} reaches, which {speaks}, found {scheme}://")
    if not remote and mover.speaks:
        raise ChoiceError(f"expected a mover of local files such as cp between two files of this host, found {name}")
    return name


def choose_all(wanted: Iterable[Wanted], asked: str | None, source: str) -> list[str]:
    """Return the name of the mover of each transfer of a list; see :func:`choose`.

    Raises
    ------
    ListError
        Naming all lines whose ends no mover reaches.
    """
    chosen: list[str] = []
    problems: list[tuple[int, str]] = []
    for one in wanted:
        try:
            chosen.append(choose(one.source, one.destination, asked))
        except ChoiceError as error:
            problems.append((one.line, str(error)))
    if problems:
        raise ListError(source, problems)
    return chosen


def takes_pairs(mover: Mover) -> bool:
    """Whether one call takes a list of any pairs: not only, as ``xrdcp``, of files into one folder."""
    return mover.name == "globus-url-copy"


def _usual(source: Address, destination: Address) -> str:
    schemes = {end.scheme for end in (source, destination)}
    remote = schemes - {FILE} or {FILE}
    found = {_BY_PROTOCOL.get(scheme, _OF_MANY) for scheme in remote}
    return found.pop() if len(found) == 1 else _OF_MANY
