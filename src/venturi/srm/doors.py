"""Transfer URLs: which protocol, and which door of it, in turn."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence

from venturi.srm.errors import SrmError
from venturi.srm.words import Status

__all__ = ["Doors"]


class Doors:
    """Doors of the servers that move the files, given out in turn for each protocol.

    Examples
    --------
    >>> doors = Doors({"gsiftp": ("gsiftp://a:1{path}", "gsiftp://b:1{path}")})
    >>> [doors.turl(doors.protocol(["rfio", "gsiftp"]), "/data/x", "x") for _ in range(3)]
    ['gsiftp://a:1/data/x', 'gsiftp://b:1/data/x', 'gsiftp://a:1/data/x']
    """

    def __init__(self, templates: Mapping[str, Sequence[str]]) -> None:
        self.protocols = tuple(templates)
        self._turns = {protocol: itertools.cycle(listed) for protocol, listed in templates.items()}

    def protocol(self, wanted: Iterable[str]) -> str:
        """Return the first protocol of a client's list that there is a door for; who has no list takes any.

        Raises
        ------
        SrmError
            SRM_NOT_SUPPORTED, if there is none.
        """
        asked = list(wanted)
        for protocol in asked or self.protocols:
            if protocol in self._turns:
                return protocol
        raise SrmError(
            Status.NOT_SUPPORTED,
            f"expected one of the protocols {', '.join(self.protocols)}, found {', '.join(asked)[:200]}",
        )

    def turl(self, protocol: str, path: str, relative: str) -> str:
        """Return the URL of a file through the door whose turn it is.

        Raises
        ------
        SrmError
            SRM_NOT_SUPPORTED, if there is no door for it any more: a server may start again with others.
        """
        if protocol not in self._turns:
            raise SrmError(Status.NOT_SUPPORTED, f"expected a door for {protocol}, found none any more")
        template = next(self._turns[protocol])
        return template.replace("{path}", path).replace("{relative}", relative)
