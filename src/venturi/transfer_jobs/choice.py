"""Choice of the mover of a transfer, and checks whether it supports the endpoints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from venturi.errors import VenturiError
from venturi.messages import quote_value, suggestion
from venturi.mover import Mover, movers
from venturi.transfer_jobs.address import FILE, Address
from venturi.transfer_jobs.listing import ListError, TransferRequest

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
"""The tool for each protocol on its own."""

_OF_MANY = "gfal-copy"
"""The tool between different protocols, and for protocols that are not in :data:`_BY_PROTOCOL`."""


_ITSELF = "managed"
"""The mover that submits jobs to this package. It transfers nothing itself."""


class ChoiceError(VenturiError, ValueError):
    """The requested mover does not exist, or does not support the endpoints."""


def choose(source: Address, destination: Address, requested_mover: str | None) -> str:
    """Return the name of the mover of a transfer.

    Parameters
    ----------
    source, destination
        The endpoints.
    requested_mover
        Name of the requested mover. None: the mover of the protocol.

    Raises
    ------
    ChoiceError
        If the mover does not exist, or does not support both endpoints.

    Examples
    --------
    >>> choose(Address("file", "", "/x"), Address("root", "a:1094", "//x"), None)
    'xrdcp'
    >>> choose(Address("gsiftp", "a", "/x"), Address("root", "b", "//x"), None)
    'gfal-copy'
    """
    known = {name: mover for name, mover in movers().items() if name != _ITSELF}
    if requested_mover is not None and requested_mover not in known:
        raise ChoiceError(
            f"expected one of the movers {', '.join(known)}, found {quote_value(requested_mover)}{suggestion(requested_mover, known)}"
        )
    name = requested_mover or _usual(source, destination)
    mover = known[name]
    if not (mover.reads and mover.writes):
        raise ChoiceError(f"expected a mover that reads and writes files, found {name}")
    remote = [end.scheme for end in (source, destination) if not end.is_file]
    for scheme in remote:
        if scheme not in mover.protocols:
            supported = f"one of {', '.join(mover.protocols)}" if mover.protocols else "local files"
            raise ChoiceError(f"expected {supported} for {name}, found {scheme}://; choose another mover")
    if not remote and mover.protocols:
        raise ChoiceError(
            f"expected a mover of local files, such as cp, because both files are on this host, found {name}"
        )
    return name


def choose_all(requests: Iterable[TransferRequest], requested_mover: str | None, source: str) -> list[str]:
    """Return the name of the mover of each transfer of a list; see :func:`choose`.

    Raises
    ------
    ListError
        With all lines whose endpoints the mover does not support.
    """
    chosen: list[str] = []
    problems: list[tuple[int, str]] = []
    for one in requests:
        try:
            chosen.append(choose(one.source, one.destination, requested_mover))
        except ChoiceError as error:
            problems.append((one.line, str(error)))
    if problems:
        raise ListError(source, problems)
    return chosen


def takes_pairs(mover: Mover) -> bool:
    """Whether one call accepts arbitrary pairs. ``xrdcp``, for example, accepts only files for one directory."""
    return mover.name == "globus-url-copy"


def _usual(source: Address, destination: Address) -> str:
    schemes = {end.scheme for end in (source, destination)}
    remote = schemes - {FILE} or {FILE}
    found = {_BY_PROTOCOL.get(scheme, _OF_MANY) for scheme in remote}
    return found.pop() if len(found) == 1 else _OF_MANY
