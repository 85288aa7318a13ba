"""Calls of ``venturi-engine`` on a host, through its shell."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from venturi.backend.remote_shell import RemoteHostShell, RemoteProcess
from venturi.errors import MeasureError

__all__ = ["call_engine", "call_engine_records", "start_server", "try_engine"]

READY_S = 20.0
"""Limit for a server to listen, in seconds."""

_POLL_S = 0.05
_ERROR_CHARACTERS = 400


def call_engine(
    shell: RemoteHostShell,
    arguments: Sequence[object],
    *,
    timeout_s: float,
    environment: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Run a sub-command of the engine and return the last JSON object of its output.

    Raises
    ------
    MeasureError
        If it fails, with its message, or takes longer than ``timeout_s``.
    """
    return call_engine_records(shell, arguments, timeout_s=timeout_s, environment=environment)[-1]


def call_engine_records(
    shell: RemoteHostShell,
    arguments: Sequence[object],
    *,
    timeout_s: float,
    environment: Mapping[str, str] | None = None,
) -> list[dict[str, Any]]:
    """Run a sub-command of the engine and return the JSON objects of its output, at least one.

    Raises
    ------
    MeasureError
        If it fails, with its message, or takes longer than ``timeout_s``.
    """
    argv = [shell.engine, *map(str, arguments)]
    try:
        done = shell.run(argv, timeout_s=timeout_s, environment=environment)
    except subprocess.TimeoutExpired as error:
        raise MeasureError(
            f"{shell.name}: expected `venturi-engine {argv[1]}` to end within {timeout_s:g} s. Check load and network of the host."
        ) from error
    if done.returncode != 0:
        # The first line has the cause: a copy adds a line with the number of failures.
        cause = next((line for line in done.stderr.splitlines() if line.strip()), "")
        raise MeasureError(f"{shell.name}: {_reason(cause, argv[1], done.returncode)}")
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        raise MeasureError(
            f"{shell.name}: expected a result of `venturi-engine {argv[1]}`, found none. Check the engine there."
        )
    return [_parse(line, shell.name, argv[1]) for line in lines]


def try_engine(
    shell: RemoteHostShell,
    arguments: Sequence[object],
    *,
    timeout_s: float,
    environment: Mapping[str, str] | None = None,
) -> dict[str, Any] | str:
    """Return the output as :func:`call_engine` does, or the message of the failure."""
    try:
        return call_engine(shell, arguments, timeout_s=timeout_s, environment=environment)
    except MeasureError as error:
        return str(error)


def start_server(
    shell: RemoteHostShell,
    arguments: Sequence[object],
    *,
    name: str,
    environment: Mapping[str, str] | None = None,
) -> tuple[RemoteProcess, dict[str, Any]]:
    """Start a sub-command that serves, and return it with the first JSON object of its output.

    Raises
    ------
    MeasureError
        If it ends, or prints nothing in time.
    """
    log = PurePosixPath(str(shell.session)) / f"{name}.log"
    process = shell.start([shell.engine, *map(str, arguments)], log=log, environment=environment)
    command = str(arguments[0])
    deadline_s = time.monotonic() + READY_S
    while True:
        text = _read_text(shell, log)
        first = next((line for line in text.splitlines() if line.startswith("{")), None)
        if first is not None and text.endswith("\n"):
            return process, _parse(first, shell.name, command)
        code = process.poll()
        if code is not None:
            process.stop()
            cause = (_read_text(shell, log).strip().splitlines() or [""])[-1]
            raise MeasureError(f"{shell.name}: {_reason(cause, command, code)}")
        if time.monotonic() >= deadline_s:
            process.stop()
            raise MeasureError(
                f"{shell.name}: expected `venturi-engine {command}` to listen within {READY_S:g} s. Check the load of the host."
            )
        time.sleep(_POLL_S)


def _read_text(shell: RemoteHostShell, path: PurePosixPath) -> str:
    try:
        return shell.get(path).decode(errors="replace")
    except FileNotFoundError:
        return ""


def _reason(line: str, command: str, code: int) -> str:
    """Return a line of an error without the name of the program."""
    text = line.strip() or f"`venturi-engine {command}` ended with exit code {code} and no message. Check the host."
    for prefix in (f"venturi-engine {command}: ", f"venturi {command}: ", "error: "):
        text = text.removeprefix(prefix)
    return text[:_ERROR_CHARACTERS]


def _parse(line: str, host: str, command: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError as error:
        raise MeasureError(
            f"{host}: expected JSON from `venturi-engine {command}`, found {line[:80]!r}. Use one version on all hosts."
        ) from error
    return dict(found)
