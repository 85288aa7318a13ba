"""The table of movers. A new tool is one new file, one line here and one test."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from importlib import metadata

from venturi.errors import VenturiError
from venturi.mover.base import Mover
from venturi.mover.bbftp import Bbftp
from venturi.mover.bonnie import Bonnie
from venturi.mover.cp import Cp
from venturi.mover.curl import Curl
from venturi.mover.davix import Davix
from venturi.mover.dd import Read, Write
from venturi.mover.fio import FioRead, FioWrite
from venturi.mover.gfal_copy import GfalCopy
from venturi.mover.globus_url_copy import GlobusUrlCopy
from venturi.mover.http_load import HttpLoad
from venturi.mover.iperf3 import Iperf3
from venturi.mover.managed import Managed
from venturi.mover.nuttcp import Nuttcp
from venturi.mover.rclone import Rclone
from venturi.mover.root_read import RootRead
from venturi.mover.root_write import RootWrite
from venturi.mover.rsync import Rsync
from venturi.mover.scp import Scp
from venturi.mover.venturi import Venturi
from venturi.mover.wget import Wget
from venturi.mover.xrdcp import Xrdcp
from venturi.plan.words import shown

__all__ = ["BUILT_IN", "ENTRY_POINTS", "MoverError", "movers"]

_ALL: tuple[Mover, ...] = (
    *(Cp(), Read(), Write(), FioRead(), FioWrite(), Bonnie(), Rsync(), Rclone(), Venturi()),
    *(RootRead(), RootWrite()),
    *(GlobusUrlCopy(), Xrdcp(), Curl(), Wget(), Davix(), GfalCopy(), Scp(), Bbftp(), Iperf3(), Nuttcp(), HttpLoad()),
    Managed(),
)
BUILT_IN: Mapping[str, Mover] = {mover.name: mover for mover in _ALL}

ENTRY_POINTS = "venturi.movers"
"""Entry-point group: the value of an entry is a :class:`Mover`, or something that returns one when called."""


_MEMBERS = (
    *("summary", "requires", "options", "reads", "writes", "null_destination", "speaks", "lists"),
    *("call", "parse"),
)


class MoverError(VenturiError, ImportError):
    """A mover of another package that cannot be used."""


@functools.cache
def movers() -> Mapping[str, Mover]:
    """Return all movers by name: the built-in ones, and those of packages with an entry point ``venturi.movers``.

    Raises
    ------
    MoverError
        If another package's mover cannot be loaded, or takes a name that is taken.
    """
    found = dict(BUILT_IN)
    for entry in sorted(metadata.entry_points(group=ENTRY_POINTS), key=lambda entry: entry.name):
        owner = f"the mover {entry.name} of {entry.dist.name if entry.dist else 'an unknown package'}"
        if entry.name in found:
            raise MoverError(
                f"{owner}: expected a name that is free, found one that is taken; uninstall one of the two"
            )
        found[entry.name] = _load(entry, owner)
    return found


def _load(entry: metadata.EntryPoint, owner: str) -> Mover:
    try:
        mover = entry.load()
        mover = mover() if isinstance(mover, type) or not hasattr(mover, "call") else mover
    except Exception as error:  # whatever a stranger's module does when it is loaded
        raise MoverError(f"{owner}: expected {entry.value} to load, found {type(error).__name__}: {error}") from error
    lacking = [name for name in _MEMBERS if not hasattr(mover, name)]
    name = getattr(mover, "name", None)
    if lacking or name != entry.name:
        what = f"no {', '.join(lacking)}" if lacking else f"the name {shown(name)}"
        raise MoverError(f"{owner}: expected a mover of that name, found {what}")
    return mover  # type: ignore[no-any-return]
