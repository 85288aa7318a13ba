"""Which programs a service needs, and who it is on its machine."""

from __future__ import annotations

import time
from collections.abc import Iterable

from venturi.errors import BackendError
from venturi.testbed.services.base import Package, Room

__all__ = ["account", "require"]

_TIMEOUT_S = 10.0
_POLL_S = 0.005
_FIND = 'for program; do command -v "$program" >/dev/null || echo "$program"; done'


def require(room: Room, packages: Iterable[Package]) -> None:
    """Look for all programs on the room's machine.

    Raises
    ------
    BackendError
        Naming those that are missing and the packages that bring them.
    """
    brings = {package.program: package.package for package in packages}
    done = room.machine.run(["sh", "-c", _FIND, "sh", *brings], timeout_s=_TIMEOUT_S)
    missing = done.stdout.split()
    if missing:
        packages_missing = " ".join(dict.fromkeys(brings[program] for program in missing))
        raise BackendError(
            f"{room.spec.name}: expected {_listed(missing)} on {room.machine.name}, found none; "
            f"install the Debian package {packages_missing}"
        )


def account(room: Room) -> str:
    """Return the name of the account under which servers start on the room's machine.

    It is asked for as a server is started: where there is no root, servers run under another account than commands.

    Raises
    ------
    BackendError
        If it has no name there.
    """
    log = room.folder / "account"
    log.unlink(missing_ok=True)
    process = room.machine.start(["id", "-un"], log=log)
    deadline_s = time.monotonic() + _TIMEOUT_S
    while process.poll() is None and time.monotonic() < deadline_s:
        time.sleep(_POLL_S)
    said = log.read_text(encoding="utf-8", errors="replace").strip()
    log.unlink()
    if process.poll() != 0 or not said:
        raise BackendError(
            f"{room.spec.name}: expected servers on {room.machine.name} to run under an account with a name, "
            f"found: {said or 'no answer of id -un'}"
        )
    return said


def _listed(programs: Iterable[str]) -> str:
    return "the programs " + ", ".join(programs)
