"""Calls of short programs on a host: commands that must succeed, and clients that check a server."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from venturi.errors import BackendError
from venturi.testbed.host_shell import HostShell
from venturi.testbed.services.base import install_step

__all__ = ["client_limit_s", "client_timeout_s", "read_output", "run_checked", "run_error"]

_READY_S: ContextVar[float] = ContextVar("ready_s", default=2.0)
_NOT_FOUND = 127


@contextmanager
def client_timeout_s(waited_s: float) -> Iterator[None]:
    """Set the timeout of clients to half of the time waited so far, if that exceeds 2 s.

    A client that connects too early can hang, so the first timeouts are short. On a busy machine, a successful client can
    take seconds.
    """
    before = _READY_S.set(max(_READY_S.get(), waited_s / 2))
    try:
        yield
    finally:
        _READY_S.reset(before)


def client_limit_s() -> float:
    """Return the current timeout of clients, for clients with their own timeout options."""
    return _READY_S.get()


def run_checked(
    shell: HostShell,
    argv: Sequence[str],
    *,
    where: str,
    package: str,
    environment: Mapping[str, str] | None = None,
    timeout_s: float = 10.0,
) -> str:
    """Run a program to its end and return its standard output.

    Parameters
    ----------
    where
        Name of the service, for messages.
    package
        Debian package that contains the program.

    Raises
    ------
    BackendError
        If the program is missing, takes longer than ``timeout_s``, or returns a nonzero exit code.
    """
    try:
        result = shell.run(argv, timeout_s=timeout_s, environment=environment)
    except subprocess.TimeoutExpired as error:
        raise BackendError(
            f"{where}: expected {argv[0]} to end within {timeout_s:g} s, found it still running"
        ) from error
    except FileNotFoundError as error:
        raise BackendError(_missing(where, argv[0], package)) from error
    if result.returncode == _NOT_FOUND:
        raise BackendError(_missing(where, argv[0], package))
    if result.returncode:
        output = (result.stderr + result.stdout).strip() or "no output"
        raise BackendError(f"{where}: expected {argv[0]} to succeed, found exit code {result.returncode}: {output}")
    return result.stdout


def run_error(
    shell: HostShell,
    argv: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
) -> str | None:
    """Run a client of a server; return None after success, otherwise the reason in one line."""
    command = " ".join(argv)
    result = _run_client(shell, argv, environment)
    if isinstance(result, str):
        return f"{command}: {result}"
    if not result.returncode:
        return None
    lines = (result.stderr + result.stdout).strip().splitlines()
    return f"{command}: exit code {result.returncode}" + (f": {lines[-1].strip()}" if lines else "")


def read_output(
    shell: HostShell,
    argv: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
) -> str | None:
    """Run a client of a server; return its standard output after success, otherwise None."""
    result = _run_client(shell, argv, environment)
    return None if isinstance(result, str) or result.returncode else result.stdout


def _run_client(
    shell: HostShell, argv: Sequence[str], environment: Mapping[str, str] | None
) -> subprocess.CompletedProcess[str] | str:
    timeout_s = _READY_S.get()
    try:
        return shell.run(argv, timeout_s=timeout_s, environment=environment)
    except subprocess.TimeoutExpired:
        return f"no response within {timeout_s:g} s"
    except FileNotFoundError:
        return f"no program {argv[0]}"


def _missing(where: str, program: str, package: str) -> str:
    return f"{where}: expected the program {program}, found none; {install_step(package)}"
