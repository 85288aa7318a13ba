"""How a command ends, and where it talks."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path

from rich.console import Console, RenderableType

from venturi.errors import RunError

__all__ = ["Exit", "check_output", "data", "data_json", "talk", "writing"]


class Exit(IntEnum):
    """Exit codes of every command."""

    OK = 0
    ERROR = 1
    """Something expected was not found; the message says what, where, and what to do next."""
    USAGE = 2
    """The command's words are off; see ``--help``."""
    FAILED_TRANSFERS = 3
    """Carried out to the end, but some transfers failed; the run and the report say which and why."""
    STOPPED = 130
    """Stopped by Ctrl-C or a signal; the last line says how to resume."""


_WIDE = 1000
"""Columns of a file or a pipe, which has no edge to cut a table at."""


def _width() -> int | None:
    return None if sys.stdout.isatty() or os.environ.get("COLUMNS") else _WIDE


# Without emoji: a file is told of as it is, also where it says "root:x:0".
_stdout = Console(file=sys.stdout, highlight=False, soft_wrap=True, emoji=False, width=_width())
_stderr = Console(stderr=True, highlight=False, soft_wrap=True, emoji=False)


def data(content: RenderableType) -> None:
    """Print a result (text or something rich can draw) to stdout."""
    _stdout.print(content, markup=False)


def data_json(content: object) -> None:
    """Print a result as one JSON document to stdout; NaN is refused, for it is not JSON."""
    sys.stdout.write(json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def talk(text: str = "") -> None:
    """Say something to the person at the terminal, on stderr."""
    _stderr.print(text, markup=False)


def check_output(output: Path, *, folder: bool = False) -> None:
    """Refuse a file or folder that could not be written, before what is to be in it is worked out for minutes.

    Raises
    ------
    RunError
        With the place, the reason, and what to do.
    """
    from venturi.testbed import obstacle  # a moment that other commands need not wait for

    where = output if folder else output.parent
    problem = obstacle(where) if folder or where.is_dir() else f"there is no directory {where}"
    if problem:
        raise RunError(f"{output}: expected a place that can be written to, found: {problem}; give another")


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn what keeps a file or folder from being written into a message.

    Raises
    ------
    RunError
        With the place, the reason, and what to do.
    """
    try:
        yield
    except RunError:
        raise
    except OSError as error:
        reason = error.strerror or str(error)
        raise RunError(f"{path}: expected a place that can be written to: {reason}; give another") from error
