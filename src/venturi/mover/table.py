"""Table of movers. A new tool needs one file, one line here and one test."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from importlib import metadata

from venturi.errors import VenturiError
from venturi.messages import quote_value
from venturi.mover.base import Mover
from venturi.mover.bbftp import Bbftp
from venturi.mover.bonnie import Bonnie
from venturi.mover.cp import Cp
from venturi.mover.curl import Curl
from venturi.mover.davix import Davix
from venturi.mover.dd import ReadMover, WriteMover
from venturi.mover.fio import FioRead, FioWrite
from venturi.mover.gfal_copy import GfalCopy
from venturi.mover.globus_url_copy import GlobusUrlCopy
from venturi.mover.http_load import HttpLoad
from venturi.mover.iperf3 import Iperf3Mover
from venturi.mover.managed import Managed
from venturi.mover.nuttcp import NuttcpMover
from venturi.mover.rclone import Rclone
from venturi.mover.root_read import RootRead
from venturi.mover.root_write import RootWrite
from venturi.mover.rsync import Rsync
from venturi.mover.scp import Scp
from venturi.mover.sftp import Sftp
from venturi.mover.venturi import Venturi
from venturi.mover.wget import Wget
from venturi.mover.xrdcp import Xrdcp

__all__ = ["BUILT_IN", "ENTRY_POINTS", "MoverError", "movers"]

_ALL: tuple[Mover, ...] = (
    *(Cp(), ReadMover(), WriteMover(), FioRead(), FioWrite(), Bonnie(), Rsync(), Rclone(), Venturi()),
    *(RootRead(), RootWrite()),
    *(
        GlobusUrlCopy(),
        Xrdcp(),
        Curl(),
        Wget(),
        Davix(),
        GfalCopy(),
        Scp(),
        Sftp(),
        Bbftp(),
        Iperf3Mover(),
        NuttcpMover(),
        HttpLoad(),
    ),
    Managed(),
)
BUILT_IN: Mapping[str, Mover] = {mover.name: mover for mover in _ALL}

ENTRY_POINTS = "venturi.movers"
"""Entry-point group: the value of an entry is a :class:`Mover`, or a callable that returns one."""


_MEMBERS = (
    *("summary", "requires", "options", "reads", "writes", "null_destination", "protocols", "lists"),
    *("call", "parse"),
)


class MoverError(VenturiError, ImportError):
    """Invalid mover of another package."""


@functools.cache
def movers() -> Mapping[str, Mover]:
    """Return all movers by name: built-in movers, and movers of packages with an entry point ``venturi.movers``.

    Raises
    ------
    MoverError
        If a mover of another package cannot be loaded, or if its name exists.
    """
    found = dict(BUILT_IN)
    for entry in sorted(metadata.entry_points(group=ENTRY_POINTS), key=lambda entry: entry.name):
        owner = f"the mover {entry.name} of {entry.dist.name if entry.dist else 'an unknown package'}"
        if entry.name in found:
            raise MoverError(f"{owner}: expected an unused name, found an existing one; uninstall one of the two")
        found[entry.name] = _load(entry, owner)
    return found


def _load(entry: metadata.EntryPoint, owner: str) -> Mover:
    try:
        mover = entry.load()
        mover = mover() if isinstance(mover, type) or not hasattr(mover, "call") else mover
    except Exception as error:  # modules of other packages can raise any exception
        raise MoverError(
            f"{owner}: expected {entry.value} to load, found {type(error).__name__}: {error}; update or uninstall the package"
        ) from error
    missing = [name for name in _MEMBERS if not hasattr(mover, name)]
    name = getattr(mover, "name", None)
    if missing or name != entry.name:
        what = f"no {', '.join(missing)}" if missing else f"the name {quote_value(name)}"
        raise MoverError(f"{owner}: expected a mover of this name, found {what}; update or uninstall the package")
    return mover  # type: ignore[no-any-return]
