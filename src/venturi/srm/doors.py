"""Transfer URLs: choice of the protocol, and rotation of its doors."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence

from venturi.srm.errors import SrmError
from venturi.srm.protocol import SrmStatus

__all__ = ["DoorRotation"]


class DoorRotation:
    """Doors of the servers that transfer the files, used in turn for each protocol.

    Examples
    --------
    >>> doors = DoorRotation({"gsiftp": ("gsiftp://a:1{path}", "gsiftp://b:1{path}")})
    >>> [doors.turl(doors.protocol(["rfio", "gsiftp"]), "/data/x", "x") for _ in range(3)]
    ['gsiftp://a:1/data/x', 'gsiftp://b:1/data/x', 'gsiftp://a:1/data/x']
    """

    def __init__(self, templates: Mapping[str, Sequence[str]]) -> None:
        self.protocols = tuple(templates)
        self._turns = {protocol: itertools.cycle(listed) for protocol, listed in templates.items()}

    def protocol(self, requested: Iterable[str]) -> str:
        """Return the first protocol of a client's list that has a door. An empty list allows any protocol.

        Raises
        ------
        SrmError
            SRM_NOT_SUPPORTED, if no protocol has a door.
        """
        protocols = list(requested)
        for protocol in protocols or self.protocols:
            if protocol in self._turns:
                return protocol
        raise SrmError(
            SrmStatus.NOT_SUPPORTED,
            f"expected one of the protocols {', '.join(self.protocols)}, found {', '.join(protocols)[:200]}",
        )

    def turl(self, protocol: str, path: str, relative: str) -> str:
        """Return the URL of a file through the next door.

        Raises
        ------
        SrmError
            SRM_NOT_SUPPORTED, if the protocol has no door any more, because a server can restart with other doors.
        """
        if protocol not in self._turns:
            raise SrmError(SrmStatus.NOT_SUPPORTED, f"expected a door for {protocol}, found none")
        template = next(self._turns[protocol])
        return template.replace("{path}", path).replace("{relative}", relative)
