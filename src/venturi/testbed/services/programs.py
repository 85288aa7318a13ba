"""Required programs of a service, and its account on its host."""

from __future__ import annotations

import time
from collections.abc import Iterable

from venturi.errors import BackendError
from venturi.testbed.services.base import Package, ServiceContext, install_step

__all__ = ["account", "require"]

_TIMEOUT_S = 10.0
_POLL_S = 0.005
_FIND = 'for program; do command -v "$program" >/dev/null || echo "$program"; done'


def require(context: ServiceContext, packages: Iterable[Package]) -> None:
    """Check that all programs exist on the host of a service.

    Raises
    ------
    BackendError
        If programs are missing; the message names them and their packages.
    """
    brings = {package.program: package.package for package in packages}
    done = context.shell.run(["sh", "-c", _FIND, "sh", *brings], timeout_s=_TIMEOUT_S)
    missing = done.stdout.split()
    if missing:
        packages_missing = dict.fromkeys(brings[program] for program in missing)
        raise BackendError(
            f"{context.spec.name}: expected {_listed(missing)} on {context.shell.name}, found none; "
            f"{install_step(*packages_missing)}"
        )


def account(context: ServiceContext) -> str:
    """Return the name of the account that runs servers on the host of a service.

    The query runs like a server, because without root, servers run under a different account from commands.

    Raises
    ------
    BackendError
        If the account has no name there.
    """
    log = context.directory / "account"
    context.remove(log)
    process = context.shell.start(["id", "-un"], log=log)
    deadline_s = time.monotonic() + _TIMEOUT_S
    while process.poll() is None and time.monotonic() < deadline_s:
        time.sleep(_POLL_S)
    account_name = context.read(log).strip()
    context.remove(log)
    if process.poll() != 0 or not account_name:
        raise BackendError(
            f"{context.spec.name}: expected servers on {context.shell.name} to run under an account with a name, "
            f"found: {account_name or 'no output of `id -un`'}"
        )
    return account_name


def _listed(programs: Iterable[str]) -> str:
    return "the programs " + ", ".join(programs)
