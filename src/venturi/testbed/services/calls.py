"""Calls of short programs on a machine of the lab: those that must work, and those that ask whether a server answers."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from venturi.errors import BackendError
from venturi.testbed.services.base import Machine

__all__ = ["answer", "answer_s", "complaint", "must", "patient"]

_READY_S: ContextVar[float] = ContextVar("ready_s", default=2.0)
_NOT_FOUND = 127


@contextmanager
def patient(waited_s: float) -> Iterator[None]:
    """Let a client that asks a server take half of the time that was waited already, if that is more than 2 s.

    A client that came too early may hang, and is given up soon; on a busy machine one that gets its answer takes seconds.
    """
    before = _READY_S.set(max(_READY_S.get(), waited_s / 2))
    try:
        yield
    finally:
        _READY_S.reset(before)


def answer_s() -> float:
    """Return how long a client that asks a server may take now, for those that have limits of their own."""
    return _READY_S.get()


def must(
    machine: Machine,
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
        For messages: the name of the service.
    package
        The Debian package that brings the program.

    Raises
    ------
    BackendError
        If it is missing, takes longer than ``timeout_s``, or ends with another exit code than 0.
    """
    try:
        done = machine.run(argv, timeout_s=timeout_s, environment=environment)
    except subprocess.TimeoutExpired as error:
        raise BackendError(f"{where}: expected {argv[0]} to end within {timeout_s:g} s, found it running") from error
    except FileNotFoundError as error:
        raise BackendError(_missing(where, argv[0], package)) from error
    if done.returncode == _NOT_FOUND:
        raise BackendError(_missing(where, argv[0], package))
    if done.returncode:
        said = (done.stderr + done.stdout).strip() or "it said nothing"
        raise BackendError(f"{where}: expected {argv[0]} to succeed, found exit code {done.returncode}: {said}")
    return done.stdout


def complaint(
    machine: Machine,
    argv: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
) -> str | None:
    """Run a client of a server; return None if it succeeded, else one line that tells why not."""
    command = " ".join(argv)
    done = _answered(machine, argv, environment)
    if isinstance(done, str):
        return f"{command}: {done}"
    if not done.returncode:
        return None
    lines = (done.stderr + done.stdout).strip().splitlines()
    return f"{command}: exit code {done.returncode}" + (f": {lines[-1].strip()}" if lines else "")


def answer(
    machine: Machine,
    argv: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
) -> str | None:
    """Run a client of a server; return its standard output if it succeeded, else None."""
    done = _answered(machine, argv, environment)
    return None if isinstance(done, str) or done.returncode else done.stdout


def _answered(
    machine: Machine, argv: Sequence[str], environment: Mapping[str, str] | None
) -> subprocess.CompletedProcess[str] | str:
    timeout_s = _READY_S.get()
    try:
        return machine.run(argv, timeout_s=timeout_s, environment=environment)
    except subprocess.TimeoutExpired:
        return f"no answer within {timeout_s:g} s"
    except FileNotFoundError:
        return f"no program {argv[0]}"


def _missing(where: str, program: str, package: str) -> str:
    return f"{where}: expected the program {program}, found none; install the Debian package {package}"
